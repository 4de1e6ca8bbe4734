package daemon_test

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/internal/daemon/doctor"
	"github.com/bootlab/bootlab/internal/store/identity"
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

// TestDoctorExpectsLoss: before a start, doctor says that the state folder was emptied, and so it does of a lab that cannot be marked.
func TestDoctorExpectsLoss(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.55.0.1")
	state := r.withState()
	about := func(subject string) (found []doctor.Finding) {
		t.Helper()
		return slices.DeleteFunc(r.examined(), func(f doctor.Finding) bool { return f.Check != "start" || f.Subject != subject || f.Level == doctor.OK })
	}
	if fs := about(state); len(fs) > 0 {
		t.Errorf("before the first start: %+v", fs)
	}
	r.start()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if fs := about(state); len(fs) > 0 {
		t.Errorf("after a stop: %+v", fs)
	}
	if err := errors.Join(os.RemoveAll(state), os.Mkdir(state, 0o750)); err != nil {
		t.Fatal(err)
	}
	if fs := about(state); len(fs) != 1 || fs[0].Level != doctor.Fail || !strings.Contains(fs[0].Text, "install states are lost: the state folder has no state, but ") || !strings.Contains(fs[0].Fix, "bootlab restore FILE") {
		t.Errorf("an emptied folder: %+v", fs)
	}
	dir := filepath.Dir(r.lab)
	if err := errors.Join(os.RemoveAll(identity.BesideLab(r.lab)), unix.Mount(dir, dir, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	remount(t, dir, unix.MS_BIND|unix.MS_RDONLY)
	if fs := about(identity.BesideLab(r.lab)); len(fs) != 1 || fs[0].Level != doctor.Warn {
		t.Errorf("a lab that is read-only: %+v", fs)
	}
}

// TestDoctorLooksAtTheState: what a start refuses or loses of the files in the state folder, doctor says before, in the same words.
func TestDoctorLooksAtTheState(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.54.0.1")
	dir := r.withState()
	r.start()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	token, db := filepath.Join(dir, "token"), filepath.Join(dir, "state.db")
	for _, tt := range []struct {
		name, subject string
		spoil         func() error
		text, fix     string
		starts        bool
	}{
		{"token is empty", token, func() error { return os.Truncate(token, 0) }, "0 characters are too few, want 16", "delete the file", false},
		{"token is open", token, func() error { return os.Chmod(token, 0o644) }, "anybody may read or change it (mode 0644)", "chmod 600", false},
		{"token is a folder", token, func() error { return errors.Join(os.Remove(token), os.Mkdir(token, 0o755)) }, "it is no regular file", "remove it", false},
		{"state.db is a folder", db, func() error { return errors.Join(os.Remove(db), os.Mkdir(db, 0o700)) }, "is a directory", "", false},
		{"state.db is garbage", db, func() error { return os.WriteFile(db, []byte(strings.Repeat("garbage ", 4096)), 0o600) }, "everything is lost", "bootlab restore FILE", true},
		{"state.db is cut", db, func() error { return os.Truncate(db, 8192+16) }, "changes are lost", "bootlab restore FILE", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kept := t.TempDir()
			netns.Run(t, "cp", "-a", dir+"/.", kept)
			t.Cleanup(func() {
				netns.Run(t, "rm", "-rf", dir)
				netns.Run(t, "cp", "-a", kept, dir)
			})
			about := func() []doctor.Finding {
				l, found, err := daemon.Check(r.lab, daemon.Lenient)
				if err != nil {
					t.Fatal(err)
				}
				m := daemon.Examined(l, r.lab, found.Warnings)
				m.OffersWithin = time.Millisecond // other DHCP servers are not looked for
				return slices.DeleteFunc(doctor.Run(t.Context(), m), func(f doctor.Finding) bool { return f.Subject != tt.subject || f.Level == doctor.OK })
			}
			if fs := about(); len(fs) > 0 {
				t.Errorf("before: %+v", fs)
			}
			if err := tt.spoil(); err != nil {
				t.Fatal(err)
			}
			fs := about()
			if len(fs) != 1 || fs[0].Check != "start" || fs[0].Level != doctor.Fail || !strings.Contains(fs[0].Text, tt.text) || !strings.Contains(fs[0].Fix, tt.fix) {
				t.Fatalf("%+v, want %q and %q", fs, tt.text, tt.fix)
			}
			if tt.starts {
				return
			}
			err := daemon.Run(t.Context(), daemon.Config{Lab: r.lab, Log: slog.New(slog.DiscardHandler)})
			if err == nil || !strings.Contains(err.Error(), tt.subject) || !strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), tt.fix) {
				t.Errorf("the start: %v", err)
			}
		})
	}
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

// TestDoctorAsksForAddresses: before the start, another machine that uses the address of a balancer is found; nothing is added.
func TestDoctorAsksForAddresses(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.56.0.1")
	spy := r.seg.NewClient(t, "52:54:00:00:00:02") // host b of the lab
	netns.Run(t, "ip", "-n", spy.Name, "addr", "add", "10.56.0.10/24", "dev", "eth0")
	base := r.read() + "balancers: {web: {listen: [\"10.56.0.10:80\", \"10.56.0.20:80\"], backends: [a:80]}}\n"
	about := func() (found []string) {
		for _, f := range r.examined() {
			if f.Check == "addresses" {
				found = append(found, string(f.Level)+" "+f.Subject+" "+f.Text+": "+f.Fix)
			}
		}
		return found
	}
	r.write(base)
	want := []string{
		"fail 10.56.0.10 the machine with MAC 52:54:00:00:00:02 (b) uses it, so it is not added for balancer web: remove it there, or change balancers.web.listen; bootlab adds it once it is free",
		"ok 10.56.0.20 no other machine uses it (balancer web): ",
	}
	if got := about(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if r.on(r.seg.Bridge, "10.56.0.20") {
		t.Error("it was added")
	}
	r.write(strings.Replace(base, "appliance: {", "appliance: {addresses: off, ", 1))
	want = []string{
		"warn 10.56.0.10 the machine with MAC 52:54:00:00:00:02 (b) has it (appliance.addresses is off): ",
		"warn 10.56.0.20 is on no interface, and appliance.addresses is off: run ip addr add 10.56.0.20/32 dev " + r.seg.Bridge,
	}
	if got := about(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
