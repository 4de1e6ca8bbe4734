package daemon

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/dhcpd"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/internal/observe/timeline"
	"github.com/bootlab/bootlab/lbproxy"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// newJudge returns clusters with empty install states and timelines.
func newJudge(t *testing.T) *clusters {
	t.Helper()
	c, mem := newClusters(t), storetest.Memory()
	var err error
	if c.installs, err = install.Open(t.Context(), install.Config{}, install.Deps{Store: mem, Events: event.NewBus(event.BusConfig{Now: time.Now}), Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	if c.timeline, err = timeline.Open(t.Context(), timeline.Config{}, timeline.Deps{Store: mem, Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWhichChecksCount: the state of a machine and the diagnosis of its boot count the same checks, those of drained backends among them.
func TestWhichChecksCount(t *testing.T) {
	t.Parallel()
	c := newJudge(t)
	prod := &lab.Cluster{Name: "prod", Kind: lab.Kubernetes}
	for _, tt := range []struct {
		name     string
		cluster  *lab.Cluster
		balancer string
		drained  bool
		want     bool
		role     string
		silent   bool // the machine does not answer at all
	}{
		{name: "of no cluster", balancer: "web", want: true},
		{name: "of no cluster, drained", balancer: "web", drained: true},
		{name: "the API of a cluster", cluster: prod, balancer: prod.BalancerOf(lab.ServiceAPI), want: true, role: lab.RoleControlPlane},
		{name: "the API of a cluster, drained", cluster: prod, balancer: prod.BalancerOf(lab.ServiceAPI), drained: true, want: true, role: lab.RoleControlPlane},
		{name: "the ingress of a cluster", cluster: prod, balancer: prod.BalancerOf(lab.ServiceIngress), role: lab.RoleControlPlane, silent: true},
		{name: "the ingress, of a worker without a router", cluster: prod, balancer: prod.BalancerOf(lab.ServiceIngress), role: lab.RoleWorker},
		{name: "the ingress, of a worker that is silent", cluster: prod, balancer: prod.BalancerOf(lab.ServiceIngress), role: lab.RoleWorker, silent: true, want: true},
	} {
		h := &lab.Host{Name: "a", Role: tt.role, Cluster: tt.cluster}
		prod.Hosts = []*lab.Host{h}
		check := backendCheck{machine.Check{Health: machine.CheckFailing, Reason: "refused", Balancer: tt.balancer, Unreachable: tt.silent}, tt.drained}
		now := observed{checks: map[string][]backendCheck{"a": {check}}}
		s, _ := c.machineState(h, now)
		state := s.Check.Health == machine.CheckFailing
		diagnosis := len(c.machine(h, s, now).Checks) == 1
		if state != tt.want || diagnosis != tt.want {
			t.Errorf("%s: counts for the state: %v, for the diagnosis: %v; want %v", tt.name, state, diagnosis, tt.want)
		}
	}
}

// TestSeveralBackendsOfAHost: the worst of its backends that are not drained decides, in whatever order the lab file has them.
func TestSeveralBackendsOfAHost(t *testing.T) {
	t.Parallel()
	c := newJudge(t)
	up := lbproxy.BackendStatus{Host: "a", Health: lbproxy.Up, Check: lab.CheckTCP}
	down := lbproxy.BackendStatus{Host: "a", Health: lbproxy.Down, Check: lab.CheckTCP, Reason: "refused"}
	drained, unchecked := down, lbproxy.BackendStatus{Host: "a", Health: lbproxy.Unchecked, Check: lab.CheckNone}
	drained.Drained = true
	for _, tt := range []struct {
		name     string
		backends []lbproxy.BackendStatus
		want     machine.Health
	}{
		{"up, down", []lbproxy.BackendStatus{up, down}, machine.CheckFailing},
		{"up, drained", []lbproxy.BackendStatus{up, drained}, machine.CheckPassing},
		{"down, drained", []lbproxy.BackendStatus{down, drained}, machine.CheckFailing},
		{"up, unchecked", []lbproxy.BackendStatus{up, unchecked}, machine.CheckPassing},
		{"drained", []lbproxy.BackendStatus{drained}, machine.NotChecked},
	} {
		for range 2 {
			h := &lab.Host{Name: "a"}
			now := observed{checks: checksOf([]lbproxy.BalancerStatus{{Name: "web", Backends: tt.backends}})}
			s, _ := c.machineState(h, now)
			if s.Check.Health != tt.want {
				t.Errorf("%s: %+v: health %d, want %d", tt.name, tt.backends, s.Check.Health, tt.want)
			}
			if failing := len(c.machine(h, s, now).Checks) > 0; failing != (tt.want == machine.CheckFailing) {
				t.Errorf("%s: %+v: a failing check is %t", tt.name, tt.backends, failing)
			}
			slices.Reverse(tt.backends)
		}
	}
}

// TestConflictOfAPoolMachine: that another machine uses its leased address is in the state and in the diagnosis of a machine without a name, as in
// those of a host, by whichever of its NICs.
func TestConflictOfAPoolMachine(t *testing.T) {
	t.Parallel()
	c := newJudge(t)
	owner, further, other, addr := lab.MAC{2, 0, 0, 0, 0, 1}, lab.MAC{2, 0, 0, 0, 0, 2}, lab.MAC{2, 0, 0, 0, 0, 9}, netip.MustParseAddr("10.0.0.150")
	for _, tt := range []struct {
		name string
		host *lab.Host // nil: unknown
		of   dhcpd.Owner
	}{
		{"unknown", nil, dhcpd.Owner{MAC: owner}},
		{"of a pool", &lab.Host{Name: owner.String(), MACs: []lab.MAC{owner}}, dhcpd.Owner{MAC: owner}},
		{"a host", &lab.Host{Name: "a", MACs: []lab.MAC{owner}}, dhcpd.Owner{Host: "a", MAC: owner, Reserved: true}},
		{"a host, by a further NIC", &lab.Host{Name: "a", MACs: []lab.MAC{owner}, NICs: []lab.NIC{{MAC: further}}}, dhcpd.Owner{Host: "a", MAC: further, Reserved: true}},
	} {
		now := observed{conflicts: conflictsOf([]dhcpd.AddressConflict{{Addr: addr, Owner: tt.of, MAC: other}})}
		m := c.unknown(owner.String(), owner, now)
		if tt.host != nil {
			s, _ := c.machineState(tt.host, now)
			m = c.machine(tt.host, s, now)
		}
		if m.Conflict != other.String() || m.ConflictText != other.String()+" uses 10.0.0.150" {
			t.Errorf("%s: its state knows of %q, its diagnosis of %q", tt.name, m.Conflict, m.ConflictText)
		}
	}
}

// TestOwnNetwork: why names what is wrong with the network of the host, and not with another one on the same interface.
func TestOwnNetwork(t *testing.T) {
	t.Parallel()
	network := func(name, address, subnet string) *lab.Network {
		return &lab.Network{Name: name, Interface: "lo", DHCP: lab.DHCPServer, Address: netip.MustParseAddr(address), Subnet: netip.MustParsePrefix(subnet)}
	}
	good, lacking := network("a", "127.0.0.1", "127.0.0.0/8"), network("b", "198.51.100.1", "198.51.100.0/24")
	l := &lab.Lab{Networks: []*lab.Network{good, lacking}}
	if c := interfaceCondition(l, good); !c.OK {
		t.Errorf("network a: %+v", c)
	}
	if c := interfaceCondition(l, lacking); c.OK || !strings.Contains(c.Problem, "198.51.100") {
		t.Errorf("network b: %+v", c)
	}
}

// TestOutcomeOfASilentMachine: a boot without an end has the word that hosts and why have for its machine, once it is not under way any more.
func TestOutcomeOfASilentMachine(t *testing.T) {
	t.Parallel()
	for stage, want := range map[machine.Stage]string{
		machine.Booting: "booting", machine.Installing: "booting", machine.Starting: "booting", machine.Serving: "booting",
		machine.Stopped: "stopped", machine.Off: "off", machine.Unknown: "unknown",
	} {
		if got := outcomeNow(machine.State{Stage: stage}); got != want {
			t.Errorf("%s: outcome %s, want %s", stage, got, want)
		}
	}
}
