package daemon_test

import (
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/internal/daemon/doctor"
	"github.com/bootlab/bootlab/test/support/netns"
)

// examined returns what doctor finds of the rig's lab while no daemon runs.
func (r *rig) examined() []doctor.Finding {
	r.t.Helper()
	l, found, err := daemon.Check(r.lab, daemon.Lenient)
	if err != nil {
		r.t.Fatal(err)
	}
	return doctor.Run(r.t.Context(), daemon.Examined(l, r.lab, found.Warnings))
}

// TestDoctorTriesBalancers: a program that has a port of a derived balancer, whose address the daemon would add, is found by doctor and by a
// start alike, and both say what can be changed.
func TestDoctorTriesBalancers(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.57.0.1")
	base := r.read()
	r.write(strings.Replace(base+"clusters: {prod: {kind: kubernetes, address: 10.57.0.10}}\n", "ip: 10.57.0.11}", "ip: 10.57.0.11, cluster: prod, role: control-plane}", 1))
	about := func(subject string) (found doctor.Finding) {
		t.Helper()
		all := r.examined()
		i := slices.IndexFunc(all, func(f doctor.Finding) bool { return f.Check == "ports" && f.Subject == subject })
		if i < 0 {
			t.Fatalf("nothing of %s in %+v", subject, all)
		}
		return all[i]
	}
	if f := about("tcp 10.57.0.10:6443"); f.Level != doctor.OK || f.Text != "free (clusters.prod.address)" {
		t.Errorf("%+v", f)
	}
	other, err := net.Listen("tcp4", "0.0.0.0:6443")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	const remedy = "stop that program, or change clusters.prod.address"
	if f := about("tcp 10.57.0.10:6443"); f.Level != doctor.Fail || !strings.HasPrefix(f.Text, "in use by ") || f.Fix != remedy {
		t.Errorf("%+v", f)
	}
	if err := daemon.Run(t.Context(), daemon.Config{Lab: r.lab, Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "10.57.0.10:6443") || !strings.HasSuffix(err.Error(), remedy) {
		t.Errorf("the start: %v", err)
	}
	r.write(base + "balancers: {web: {listen: \"10.57.0.10:6440-6450\", backends: [a:80]}}\n")
	if f := about("tcp 10.57.0.10:6443"); f.Level != doctor.Fail || !strings.HasSuffix(f.Fix, "or change balancers.web.listen") {
		t.Errorf("%+v", f)
	}
}
