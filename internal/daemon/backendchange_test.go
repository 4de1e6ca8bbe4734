package daemon

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/diskhealth"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/panics"
	"github.com/bootlab/bootlab/internal/store/logfile"
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
	c := &adminBackend{Daemon: withStore(t, &Daemon{healthyOnce: &healthyOnce{}, servers: &servers{lb: lb}})}
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
			bs, err := c.Backend(t.Context(), "web", name, step.change)
			if err != nil || len(bs) != 1 || bs[0].Name != "w0" || bs[0].Addr != "10.0.0.7:80" || bs[0].State != step.state || bs[0].Weight != step.weight {
				t.Errorf("%s %s: %+v, %v", step.change.Action, name, bs, err)
			}
		}
	}
	bs, err := c.Backend(t.Context(), "web", "10.0.0.8:81", api.BackendChange{Action: api.BackendAdd, Weight: 2})
	if err != nil || len(bs) != 1 || bs[0].Addr != "10.0.0.8:81" || bs[0].Weight != 2 || !bs[0].Added {
		t.Errorf("added: %+v, %v", bs, err)
	}
}

// TestChangedBackendsOfHost: a host with several backends in a balancer has them all changed, and the answer lists each.
func TestChangedBackendsOfHost(t *testing.T) {
	t.Parallel()
	nas := &lab.Host{Name: "nas", IP: netip.MustParseAddr("10.0.0.9")}
	l := &lab.Lab{Hosts: []*lab.Host{nas}, Balancers: []*lab.Balancer{{
		Name: "web", Mode: lab.ModeTCP, Balance: lab.RoundRobin, Check: lab.Check{Kind: lab.CheckNone},
		Backends: []lab.Backend{
			{Name: "nas", Host: nas, Addr: netip.MustParseAddrPort("10.0.0.9:8001")}, {Name: "nas", Host: nas, Addr: netip.MustParseAddrPort("10.0.0.9:8002")},
		},
	}}}
	c := &adminBackend{Daemon: withStore(t, &Daemon{healthyOnce: &healthyOnce{}, servers: &servers{lb: newBalancers(t, l)}})}
	c.current.Store(&snapshot.Snapshot{Lab: l})
	check := func(change api.BackendChange, want ...string) {
		t.Helper()
		bs, err := c.Backend(t.Context(), "web", "nas", change)
		got := []string{}
		for _, b := range bs {
			got = append(got, b.Addr)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", change.Action, got, err, want)
		}
	}
	check(api.BackendChange{Action: api.BackendDrain}, "10.0.0.9:8001", "10.0.0.9:8002")
	check(api.BackendChange{Action: api.BackendReady}, "10.0.0.9:8001", "10.0.0.9:8002")
	check(api.BackendChange{Action: api.BackendWeight, Weight: 3}, "10.0.0.9:8001", "10.0.0.9:8002")

	l.Balancers[0].Backends = nil
	c.servers.lb = newBalancers(t, l)
	for _, addr := range []string{"10.0.0.9:8001", "10.0.0.9:8002"} {
		if _, err := c.Backend(t.Context(), "web", addr, api.BackendChange{Action: api.BackendAdd}); err != nil {
			t.Fatal(err)
		}
	}
	name := "10.0.0.9"
	bs, err := c.Backend(t.Context(), "web", name, api.BackendChange{Action: api.BackendRemove})
	if err != nil || len(bs) != 2 || bs[1].Addr != "10.0.0.9:8002" {
		t.Errorf("removed: %+v, %v", bs, err)
	}
}

// withStore gives a daemon a state store.
func withStore(t *testing.T, d *Daemon) *Daemon {
	t.Helper()
	dir, log, registry := t.TempDir(), slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	var err error
	if d.file, _, err = logfile.Open(filepath.Join(dir, logfile.Name)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.file.Close() })
	if d.storeWatch, err = diskhealth.New(d.file, dir, log, registry); err != nil {
		t.Fatal(err)
	}
	if d.panics, err = panics.New(registry, log); err != nil {
		t.Fatal(err)
	}
	return d
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
		if got := backendStateOf(lbproxy.BackendStatus{Drained: true, Health: lbproxy.Up, Connections: connections}, true); got != want {
			t.Errorf("%d connections: %q, want %q", connections, got, want)
		}
	}
}
