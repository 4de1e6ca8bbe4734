package lbproxy

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
)

// memoryMembers keeps members as a store does.
type memoryMembers struct {
	mu  sync.Mutex
	all map[endpointKey]Member
	err error // of every call; nil: none
}

func (s *memoryMembers) Load(context.Context) ([]Member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.all)), s.err
}

func (s *memoryMembers) Put(_ context.Context, m Member) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.all[endpointKey{m.Balancer, m.Addr}] = m
	}
	return s.err
}

func (s *memoryMembers) Delete(_ context.Context, balancer string, addr netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		delete(s.all, endpointKey{balancer, addr})
	}
	return s.err
}

func (s *memoryMembers) len() int {
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

// TestMembers adds, weights and removes backends of a running balancer, over a restart and reloads.
func TestMembers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a, b, c := serveTCP(t, nameServer("a")), serveTCP(t, nameServer("b")), serveTCP(t, nameServer("c"))
	listen := addr(t)
	stored := &memoryMembers{all: map[endpointKey]Member{}}
	inLab := func(backends ...netip.AddrPort) *lab.Balancer {
		return with(balancer("web", listen, backends...), func(b *lab.Balancer) { b.Check.Kind = lab.CheckTCP })
	}
	through := addr(t)
	r := newTestServerWith(t, Config{}, Deps{Members: stored}, inLab(a), balancer("x", through, listen))
	for _, m := range []struct {
		name string
		m    Member
		want error
	}{
		{"no such balancer", Member{Balancer: "none", Addr: b}, ErrUnknown},
		{"in the lab file", Member{Balancer: "web", Addr: a}, ErrInLab},
		{"the balancer itself", Member{Balancer: "web", Addr: listen}, ErrMember},
		{"a balancer that leads back", Member{Balancer: "web", Addr: through}, ErrMember},
		{"no machine", Member{Balancer: "web", Addr: netip.MustParseAddrPort("0.0.0.0:80")}, ErrMember},
		{"everybody", Member{Balancer: "web", Addr: netip.MustParseAddrPort("255.255.255.255:80")}, ErrMember},
		{"a group", Member{Balancer: "web", Addr: netip.MustParseAddrPort("224.0.0.1:80")}, ErrMember},
		{"a group of IPv6", Member{Balancer: "web", Addr: netip.MustParseAddrPort("[ff02::1]:80")}, ErrMember},
		{"no machine, mapped", Member{Balancer: "web", Addr: netip.MustParseAddrPort("[::ffff:0.0.0.0]:80")}, ErrMember},
		{"too heavy", Member{Balancer: "web", Addr: b, Weight: 257}, ErrWeight},
	} {
		if err := r.AddMember(ctx, m.m); !errors.Is(err, m.want) {
			t.Errorf("%s: %v, want %v", m.name, err, m.want)
		}
	}
	if err := r.RemoveMember(ctx, "web", a.String()); !errors.Is(err, ErrInLab) {
		t.Errorf("remove a backend of the lab file: %v", err)
	}
	if err := r.AddMember(ctx, Member{Balancer: "web", Addr: b, Name: "b", Weight: 3}); err != nil {
		t.Fatal(err)
	}
	r.waitCondition(t, b, Up) // it is checked
	if got := names(t, listen, 40); got["b"] < 25 || got["a"] < 5 {
		t.Errorf("weights 1 and 3: %v", got)
	}
	if err := errors.Join(r.SetWeight(ctx, "web", "b", 1), r.SetWeight(ctx, "web", a.String(), 3), r.Drain(ctx, "web", "b")); err != nil {
		t.Fatal(err)
	}
	if got := names(t, listen, 8); got["a"] != 8 {
		t.Errorf("b is drained: %v", got)
	}
	if state := r.States()[0].Backends; !state[1].Added || !state[1].Drained || state[0].Added || state[0].Weight != 3 || state[0].LabWeight != 1 {
		t.Errorf("states %+v", state)
	}
	if err := r.Ready(ctx, "web", "b"); err != nil {
		t.Fatal(err)
	}

	// A restart and a reload keep all of it.
	r.stop()
	r = newTestServerWith(t, Config{}, Deps{Members: stored}, inLab(a))
	r.waitCondition(t, b, Up)
	r.apply(t, inLab(a, c))
	if got := names(t, listen, 50); got["a"] < 25 || got["b"] < 5 || got["c"] < 5 {
		t.Errorf("weights 3, 1 and 1: %v", got)
	}

	// The lab file names b, and then does not: the one that was added does not return.
	r.apply(t, inLab(a, b))
	netns.WaitFor(t, "only the weight of a is stored", func() bool { return stored.len() == 1 })
	if state := r.States()[0].Backends; len(state) != 2 || state[1].Added {
		t.Errorf("states %+v, want b from the lab file", state)
	}
	r.apply(t, inLab(a))
	if got := names(t, listen, 8); got["a"] != 8 {
		t.Errorf("b left the lab file: %v", got)
	}

	// An added backend is removed; its connections go on. The weight returns to the lab file's.
	if err := r.AddMember(ctx, Member{Balancer: "web", Addr: c, Name: "c", Weight: 256}); err != nil {
		t.Fatal(err)
	}
	open := dial(t, listen)
	for readLine(t, open) != "c" {
		open = dial(t, listen)
	}
	if err := errors.Join(r.RemoveMember(ctx, "web", "c"), r.SetWeight(ctx, "web", a.String(), 0)); err != nil {
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
	if err := r.AddMember(ctx, Member{Balancer: "web", Addr: b}); !errors.Is(err, stored.err) || len(r.States()[0].Backends) != 1 {
		t.Errorf("a store that fails: %v, %+v", err, r.States()[0].Backends)
	}
	stored.err = nil
}

// TestMemberIsBackup adds a backup, which serves when the only backend is drained.
func TestMemberIsBackup(t *testing.T) {
	t.Parallel()
	a, b := serveTCP(t, nameServer("a")), serveTCP(t, nameServer("b"))
	web := balancer("web", addr(t), a)
	r := newTestServer(t, Config{}, web)
	if err := r.AddMember(t.Context(), Member{Balancer: "web", Addr: b, Backup: true}); err != nil {
		t.Fatal(err)
	}
	if got := names(t, listenOf(web), 5); got["a"] != 5 {
		t.Errorf("with a: %v", got)
	}
	if err := r.Drain(t.Context(), "web", a.String()); err != nil {
		t.Fatal(err)
	}
	if got := names(t, listenOf(web), 5); got["b"] != 5 {
		t.Errorf("without a: %v", got)
	}
}
