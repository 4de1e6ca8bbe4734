package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/lab"
)

// TestNoARP: that no ARP requests can be sent is a warning, once, where machines are served, and none of a daemon that balances alone.
func TestNoARP(t *testing.T) {
	t.Parallel()
	balances := &lab.Lab{Balancers: []*lab.Balancer{{}}, Networks: []*lab.Network{{DHCP: lab.DHCPOff}}, Hosts: []*lab.Host{{}}}
	leases := &lab.Lab{Networks: []*lab.Network{{DHCP: lab.DHCPServer}}}
	boots := &lab.Lab{Networks: []*lab.Network{{DHCP: lab.DHCPOff}}, Hosts: []*lab.Host{{Profile: &lab.Profile{}}}}
	for _, tt := range []struct {
		name string
		err  error
		labs []*lab.Lab
		want int
	}{
		{"balances", unix.EPERM, []*lab.Lab{balances}, 0},
		{"leases", unix.EPERM, []*lab.Lab{leases}, 1},
		{"boots", unix.EPERM, []*lab.Lab{boots, boots}, 1},
		{"after a reload", unix.EPERM, []*lab.Lab{balances, leases, boots}, 1},
		{"with ARP", nil, []*lab.Lab{leases}, 0},
	} {
		var out bytes.Buffer
		n := &noARP{err: tt.err}
		for _, l := range tt.labs {
			n.log(l, slog.New(slog.NewTextHandler(&out, nil)))
		}
		if got := strings.Count(out.String(), "no ARP requests"); got != tt.want {
			t.Errorf("%s: %d warnings, want %d:\n%s", tt.name, got, tt.want, &out)
		}
	}
}
