package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
)

// memoryRuntime keeps entries as a store does.
type memoryRuntime struct {
	mu  sync.Mutex
	all map[backendKey]RuntimeBackend
	err error // of every call; nil: none
}

func (s *memoryRuntime) Load(context.Context) ([]RuntimeBackend, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.all)), s.err
}

func (s *memoryRuntime) Put(_ context.Context, m RuntimeBackend) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.all[backendKey{m.Balancer, m.Addr}] = m
	}
	return s.err
}

func (s *memoryRuntime) Delete(_ context.Context, balancer string, addr netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		delete(s.all, backendKey{balancer, addr})
	}
	return s.err
}

func (s *memoryRuntime) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// names counts which backends answer connections.
func names(t *testing.T, at netip.AddrPort, n int) map[string]int {
	t.Helper()
	got := map[string]int{}
	for range n {
		got[readLine(t, dial(t, at))]++
	}
	return got
}

// TestRuntimeBackends adds, weights and removes backends of a running balancer, over a restart and reloads.
func TestRuntimeBackends(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a, b, c := serveTCP(t, nameServer("a")), serveTCP(t, nameServer("b")), serveTCP(t, nameServer("c"))
	listen := addr(t)
	stored := &memoryRuntime{all: map[backendKey]RuntimeBackend{}}
	inLab := func(backends ...netip.AddrPort) *lab.Balancer {
		return with(balancer("web", listen, backends...), func(b *lab.Balancer) { b.Check.Kind = lab.CheckTCP })
	}
	through := addr(t)
	r := newTestServerWith(t, Config{}, Deps{RuntimeBackends: stored}, inLab(a), balancer("x", through, listen))
	for _, m := range []struct {
		name string
		m    RuntimeBackend
		want error
	}{
		{"no such balancer", RuntimeBackend{Balancer: "none", Addr: b}, ErrUnknown},
		{"in the lab file", RuntimeBackend{Balancer: "web", Addr: a}, ErrInLab},
		{"the balancer itself", RuntimeBackend{Balancer: "web", Addr: listen}, ErrBackend},
		{"a balancer that leads back", RuntimeBackend{Balancer: "web", Addr: through}, ErrBackend},
		{"no machine", RuntimeBackend{Balancer: "web", Addr: netip.MustParseAddrPort("0.0.0.0:80")}, ErrBackend},
		{"everybody", RuntimeBackend{Balancer: "web", Addr: netip.MustParseAddrPort("255.255.255.255:80")}, ErrBackend},
		{"a group", RuntimeBackend{Balancer: "web", Addr: netip.MustParseAddrPort("224.0.0.1:80")}, ErrBackend},
		{"a group of IPv6", RuntimeBackend{Balancer: "web", Addr: netip.MustParseAddrPort("[ff02::1]:80")}, ErrBackend},
		{"no machine, mapped", RuntimeBackend{Balancer: "web", Addr: netip.MustParseAddrPort("[::ffff:0.0.0.0]:80")}, ErrBackend},
		{"too heavy", RuntimeBackend{Balancer: "web", Addr: b, Weight: 257}, ErrWeight},
	} {
		if _, err := r.AddBackend(ctx, m.m); !errors.Is(err, m.want) {
			t.Errorf("%s: %v, want %v", m.name, err, m.want)
		}
	}
	if _, err := r.RemoveBackend(ctx, "web", a.String()); !errors.Is(err, ErrInLab) {
		t.Errorf("remove a backend of the lab file: %v", err)
	}
	if _, err := r.AddBackend(ctx, RuntimeBackend{Balancer: "web", Addr: b, Name: "b", Weight: 3}); err != nil {
		t.Fatal(err)
	}
	r.waitHealth(t, b, Up) // it is checked
	if got := names(t, listen, 40); got["b"] < 25 || got["a"] < 5 {
		t.Errorf("weights 1 and 3: %v", got)
	}
	if err := errors.Join(errOf(r.SetWeight(ctx, "web", "b", 1)), errOf(r.SetWeight(ctx, "web", a.String(), 3)), errOf(r.Drain(ctx, "web", "b"))); err != nil {
		t.Fatal(err)
	}
	if got := names(t, listen, 8); got["a"] != 8 {
		t.Errorf("b is drained: %v", got)
	}
	if state := r.Status()[0].Backends; !state[1].Added || !state[1].Drained || state[0].Added || state[0].Weight != 3 || state[0].LabWeight != 1 {
		t.Errorf("states %+v", state)
	}
	if _, err := r.Ready(ctx, "web", "b"); err != nil {
		t.Fatal(err)
	}

	// A restart and a reload keep all of it.
	r.stop()
	r = newTestServerWith(t, Config{}, Deps{RuntimeBackends: stored}, inLab(a))
	r.waitHealth(t, b, Up)
	r.apply(t, inLab(a, c))
	if got := names(t, listen, 50); got["a"] < 25 || got["b"] < 5 || got["c"] < 5 {
		t.Errorf("weights 3, 1 and 1: %v", got)
	}

	// The lab file names b, and then does not: the one that was added does not return.
	r.apply(t, inLab(a, b))
	netns.WaitFor(t, "only the weight of a is stored", func() bool { return stored.len() == 1 })
	if state := r.Status()[0].Backends; len(state) != 2 || state[1].Added {
		t.Errorf("states %+v, want b from the lab file", state)
	}
	r.apply(t, inLab(a))
	if got := names(t, listen, 8); got["a"] != 8 {
		t.Errorf("b left the lab file: %v", got)
	}

	// An added backend is removed; its connections go on. The weight returns to the lab file's.
	if _, err := r.AddBackend(ctx, RuntimeBackend{Balancer: "web", Addr: c, Name: "c", Weight: 256}); err != nil {
		t.Fatal(err)
	}
	open := dial(t, listen)
	for readLine(t, open) != "c" {
		open = dial(t, listen)
	}
	if err := errors.Join(errOf(r.RemoveBackend(ctx, "web", "c")), errOf(r.SetWeight(ctx, "web", a.String(), 0))); err != nil {
		t.Fatal(err)
	}
	_, _ = open.Write([]byte("still\n"))
	if got := readLine(t, open); got != "still" {
		t.Errorf("a connection of the removed backend: %q", got)
	}
	if got := names(t, listen, 8); got["a"] != 8 || stored.len() != 0 {
		t.Errorf("c is removed: %v, %d stored", got, stored.len())
	}
	if added, removed := len(r.recorder.of(event.BackendAdded)), len(r.recorder.of(event.BackendRemoved)); added != 1 || removed != 1 {
		t.Errorf("%d and %d events, want one of each", added, removed)
	}

	// What is not stored is not in force.
	stored.err = errors.New("the disk is full")
	if _, err := r.AddBackend(ctx, RuntimeBackend{Balancer: "web", Addr: b}); !errors.Is(err, stored.err) || len(r.Status()[0].Backends) != 1 {
		t.Errorf("a store that fails: %v, %+v", err, r.Status()[0].Backends)
	}
	stored.err = nil
}

// TestWeightEvent: the event of a weight has the one that is in force, also where it is that of the lab file again.
func TestWeightEvent(t *testing.T) {
	t.Parallel()
	a, b := serveTCP(t, nameServer("a")), serveTCP(t, nameServer("b"))
	r := newTestServer(t, Config{}, with(balancer("web", addr(t), a), func(b *lab.Balancer) { b.Backends[0].Weight = 5 }))
	if _, err := r.AddBackend(t.Context(), RuntimeBackend{Balancer: "web", Addr: b, Weight: 3}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		backend  netip.AddrPort
		set, now int
	}{{a, 7, 7}, {a, 0, 5}, {b, 4, 4}, {b, 0, 1}} {
		if _, err := r.SetWeight(t.Context(), "web", step.backend.String(), step.set); err != nil {
			t.Fatal(err)
		}
		events := r.recorder.of(event.BackendWeight)
		if got, want := events[len(events)-1].Text(), fmt.Sprintf("web %s weight %d", step.backend, step.now); got != want {
			t.Errorf("weight %d: event %q, want %q", step.set, got, want)
		}
	}
}

// TestBackendNameOfEvents: events name a backend as the request log and metrics do, also where a host has two.
func TestBackendNameOfEvents(t *testing.T) {
	t.Parallel()
	a, c := serveTCP(t, nameServer("a")), serveTCP(t, nameServer("c"))
	r := newTestServer(t, Config{}, with(balancer("web", addr(t), a, netip.AddrPortFrom(a.Addr(), a.Port()+1)), func(b *lab.Balancer) {
		b.Check = lab.Check{Kind: lab.CheckTCP, Interval: 50 * time.Millisecond, Timeout: time.Second, Rise: 1, Fall: 1}
		b.Backends[0].Name, b.Backends[1].Name = "nas", "nas"
	}))
	netns.WaitFor(t, "checks", func() bool { return len(r.recorder.of(event.BackendUp)) == 1 })
	ctx := t.Context()
	first := fmt.Sprintf("nas:%d", a.Port())
	if err := errors.Join(
		errOf(r.Drain(ctx, "web", first)), errOf(r.Ready(ctx, "web", first)), errOf(r.SetWeight(ctx, "web", first, 3)),
		errOf(r.AddBackend(ctx, RuntimeBackend{Balancer: "web", Addr: c, Name: "w0"})), errOf(r.RemoveBackend(ctx, "web", "w0")),
	); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[event.Kind]string{
		event.BackendUp: first, event.BackendDrained: first, event.BackendReady: first, event.BackendWeight: first, event.BackendAdded: "w0", event.BackendRemoved: "w0",
	} {
		if !slices.ContainsFunc(r.recorder.of(kind), func(e event.Event) bool { return e.Backend == want && e.Balancer == "web" }) {
			t.Errorf("%s: %+v, want one of backend %s", kind, r.recorder.of(kind), want)
		}
	}
}

// TestRuntimeBackup adds a backup, which serves when the only backend is drained.
func TestRuntimeBackup(t *testing.T) {
	t.Parallel()
	a, b := serveTCP(t, nameServer("a")), serveTCP(t, nameServer("b"))
	web := balancer("web", addr(t), a)
	r := newTestServer(t, Config{}, web)
	if _, err := r.AddBackend(t.Context(), RuntimeBackend{Balancer: "web", Addr: b, Backup: true}); err != nil {
		t.Fatal(err)
	}
	if got := names(t, listenOf(web), 5); got["a"] != 5 {
		t.Errorf("with a: %v", got)
	}
	if _, err := r.Drain(t.Context(), "web", a.String()); err != nil {
		t.Fatal(err)
	}
	if got := names(t, listenOf(web), 5); got["b"] != 5 {
		t.Errorf("without a: %v", got)
	}
}

// TestAddedAgain keeps the weight of a backend that is added again without one, and errors say what does not exist.
func TestAddedAgain(t *testing.T) {
	t.Parallel()
	a, b := serveTCP(t, nameServer("a")), serveTCP(t, nameServer("b"))
	r := newTestServer(t, Config{}, balancer("web", addr(t), a))
	weight := func(want int) {
		t.Helper()
		for _, m := range r.Status()[0].Backends {
			if m.Addr == b && m.Weight != want {
				t.Errorf("weight %d, want %d", m.Weight, want)
			}
		}
	}
	for _, step := range []struct{ add, want int }{{0, 1}, {7, 7}, {0, 7}, {2, 2}} {
		if _, err := r.AddBackend(t.Context(), RuntimeBackend{Balancer: "web", Addr: b, Weight: step.add}); err != nil {
			t.Fatal(err)
		}
		weight(step.want)
	}
	if n := len(r.recorder.of(event.BackendAdded)); n != 3 {
		t.Errorf("%d events, want 3: the third call changes nothing", n)
	}
	for _, tt := range []struct{ balancer, backend, want string }{
		{"web", "nobody", "balancer web has no backend nobody"}, {"nothing", "nobody", "there is no balancer nothing"},
	} {
		for _, err := range []error{
			errOf(r.Drain(t.Context(), tt.balancer, tt.backend)), errOf(r.RemoveBackend(t.Context(), tt.balancer, tt.backend)), errOf(r.SetWeight(t.Context(), tt.balancer, tt.backend, 3)),
		} {
			if err == nil || err.Error() != tt.want || !errors.Is(err, ErrUnknown) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		}
	}
	if _, err := r.AddBackend(t.Context(), RuntimeBackend{Balancer: "nothing", Addr: b}); err == nil || err.Error() != "there is no balancer nothing" {
		t.Errorf("added to no balancer: %v", err)
	}
}

// TestAddBackendOfThisMachine: a balancer that listens on every address of this machine gets none of them as a backend.
func TestAddBackendOfThisMachine(t *testing.T) {
	t.Parallel()
	free := addr(t)
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	port := addrPort(l.Addr()).Port()
	_ = l.Close()
	b := balancer("web", netip.AddrPortFrom(netip.IPv4Unspecified(), port), free)
	r := newTestServer(t, Config{}, b)
	own := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.3.2.1")}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		own = append(own, netip.MustParsePrefix(a.String()).Addr())
	}
	for _, a := range own {
		if !a.Is4() {
			continue
		}
		_, err := r.AddBackend(t.Context(), RuntimeBackend{Balancer: "web", Addr: netip.AddrPortFrom(a, port)})
		if !errors.Is(err, ErrBackend) || !strings.Contains(err.Error(), "itself listens there") {
			t.Errorf("add %s: %v, want a refusal with the reason", a, err)
		}
	}
}
