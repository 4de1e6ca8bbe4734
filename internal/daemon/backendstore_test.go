package daemon

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/internal/store/records"
	"github.com/bootlab/bootlab/lbproxy"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// TestBackendState: the API, the numbers of a balancer and the state of its machine say the same of a backend, which keeps that it was healthy
// once while its address changes, or goes.
func TestBackendState(t *testing.T) {
	t.Parallel()
	l := &lab.Lab{Balancers: []*lab.Balancer{{Name: "web", Mode: lab.ModeTCP, Balance: lab.RoundRobin, Check: lab.Check{Kind: lab.CheckTCP}, Backends: []lab.Backend{{Name: "a", Addr: netip.MustParseAddrPort("10.0.0.5:80")}}}}}
	if fresh := newBalancers(t, l).Status()[0].Backends[0]; fresh.Health != lbproxy.Unchecked || !fresh.TakesConnections {
		t.Errorf("lbproxy says of a backend that was not checked yet: %+v", fresh)
	}
	now := lbproxy.BackendStatus{Key: "a:80", Name: "a", Host: "a", Check: lab.CheckTCP}
	mem := storetest.Memory()
	s := &healthyOnce{saver: records.NewSaver(mem), ever: map[string]bool{}, states: func() []lbproxy.BalancerStatus {
		return []lbproxy.BalancerStatus{{Name: "web", Backends: []lbproxy.BackendStatus{now}}}
	}}
	for _, tt := range []struct {
		name, addr string
		health     lbproxy.Health
		api        api.BackendState
		machine    machine.Health
		want       api.BalancerHealth
	}{
		{"without an address", "", lbproxy.Down, api.BackendNew, machine.CheckFailing, api.BalancerHealth{New: 1}},
		{"not checked yet", "10.0.0.5:80", lbproxy.Unchecked, api.BackendUnknown, machine.CheckPending, api.BalancerHealth{Up: 1, Unknown: 1}},
		{"healthy", "10.0.0.5:80", lbproxy.Up, api.BackendUp, machine.CheckPassing, api.BalancerHealth{Up: 1}},
		{"not checked since a restart", "10.0.0.5:80", lbproxy.Unchecked, api.BackendUnknown, machine.CheckPending, api.BalancerHealth{Up: 1, Unknown: 1}},
		{"at another address", "10.0.0.6:80", lbproxy.Down, api.BackendDown, machine.CheckFailing, api.BalancerHealth{Down: 1}},
		{"without an address again", "", lbproxy.Down, api.BackendDown, machine.CheckFailing, api.BalancerHealth{Down: 1}},
	} {
		now.Health, now.Addr, now.TakesConnections = tt.health, netip.AddrPort{}, tt.health != lbproxy.Down
		if tt.addr != "" {
			now.Addr = netip.MustParseAddrPort(tt.addr)
		}
		s.update(slog.New(slog.DiscardHandler))
		tt.want.Name = "web"
		if diff := cmp.Diff([]api.BalancerHealth{tt.want}, s.balancers()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if got := s.backend("web", now).State; got != tt.api {
			t.Errorf("%s: the API says %s, want %s", tt.name, got, tt.api)
		}
		b := api.Balancer{Backends: []api.Backend{s.backend("web", now)}}
		if got := b.Healthy(); got != tt.want.Up-tt.want.Unknown {
			t.Errorf("%s: the dashboard counts %d healthy, want %d", tt.name, got, tt.want.Up-tt.want.Unknown)
		}
		if addr := now.Addr.Addr(); addr.IsValid() && usableBackends(s.states())("web", addr) != now.TakesConnections {
			t.Errorf("%s: DNS has its address: %v", tt.name, !now.TakesConnections)
		}
		if got := healthOf(now); got != tt.machine {
			t.Errorf("%s: the check of its machine is %d, want %d", tt.name, got, tt.machine)
		}
	}
}
