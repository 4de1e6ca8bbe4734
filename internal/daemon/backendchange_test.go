package daemon

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/lbproxy"
)

// TestChangedBackend: whatever name a backend is changed by, the answer is that backend as it is then.
func TestChangedBackend(t *testing.T) {
	t.Parallel()
	w0 := &lab.Host{Name: "w0", IP: netip.MustParseAddr("10.0.0.9")} // and its backend has another address of it
	l := &lab.Lab{Hosts: []*lab.Host{w0}, Balancers: []*lab.Balancer{{
		Name: "web", Mode: lab.ModeTCP, Balance: lab.RoundRobin, Check: lab.Check{Kind: lab.CheckNone},
		Backends: []lab.Backend{{Name: "w0", Host: w0, Addr: netip.MustParseAddrPort("10.0.0.7:80"), Weight: 5}},
	}}}
	lb := newBalancers(t, l)
	c := &adminBackend{Daemon: &Daemon{served: &served{}}, servers: &servers{lb: lb}}
	c.current.Store(&snapshot.Snapshot{Lab: l})
	for _, name := range []string{"w0", "10.0.0.7", "10.0.0.7:80", "w0:80"} {
		for _, step := range []struct {
			change api.BackendChange
			state  api.BackendState
			weight int
		}{
			{api.BackendChange{Action: api.BackendDrain}, api.BackendDrained, 5},
			{api.BackendChange{Action: api.BackendReady}, api.BackendUnchecked, 5},
			{api.BackendChange{Action: api.BackendWeight, Weight: 3}, api.BackendUnchecked, 3},
			{api.BackendChange{Action: api.BackendWeight}, api.BackendUnchecked, 5},
		} {
			b, err := c.Backend(t.Context(), "web", name, step.change)
			if err != nil || b.Name != "w0" || b.Addr != "10.0.0.7:80" || b.State != step.state || b.Weight != step.weight {
				t.Errorf("%s %s: %+v, %v", step.change.Action, name, b, err)
			}
		}
	}
	b, err := c.Backend(t.Context(), "web", "10.0.0.8:81", api.BackendChange{Action: api.BackendAdd, Weight: 2})
	if err != nil || b.Addr != "10.0.0.8:81" || b.Weight != 2 || !b.Added {
		t.Errorf("added: %+v, %v", b, err)
	}
}

// newBalancers returns the balancers of a lab. They do not serve.
func newBalancers(t *testing.T, l *lab.Lab) *lbproxy.Server {
	t.Helper()
	lb, err := lbproxy.New(lbproxy.Config{}, lbproxy.Deps{
		Events: event.NewBus(event.BusConfig{Now: time.Now}), Log: slog.New(slog.DiscardHandler), AccessLog: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	staged, err := lb.Stage(lbproxy.Compile(l))
	if err != nil {
		t.Fatal(err)
	}
	staged.Commit()
	return lb
}

// TestDrained: a backend that was drained is draining while it has connections, and drained after that.
func TestDrained(t *testing.T) {
	t.Parallel()
	for connections, want := range map[int64]api.BackendState{3: api.BackendDraining, 0: api.BackendDrained} {
		if got := stateOf(lbproxy.BackendStatus{Drained: true, Health: lbproxy.Up, Connections: connections}, true); got != want {
			t.Errorf("%d connections: %q, want %q", connections, got, want)
		}
	}
}
