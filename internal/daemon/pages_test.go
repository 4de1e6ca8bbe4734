package daemon

import (
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/boot/discovered"
	"github.com/bootlab/bootlab/internal/daemon/adoption"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/internal/observe/timeline"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// backendOf returns the backend of a daemon with n leases of machines that are not in its lab, on 10.0.0.1 and so on.
func backendOf(t *testing.T, n int) *adminBackend {
	t.Helper()
	l, err := load.Parse("lab.yaml", []byte("version: 1\ndomain: d.example\nnetworks: {n: {subnet: 10.0.0.0/8, address: 10.255.0.1, interface: eth9, pools: {p: {range: 10.0.0.1-10.1.255.250}}}}\n"), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := storetest.Memory()
	clock, err := leases.OpenClock(t.Context(), s, leases.SystemHost())
	if err != nil {
		t.Fatal(err)
	}
	book, err := leases.Open(t.Context(), s, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	now, addr := time.Now(), netip.MustParseAddr("10.0.0.1")
	for i := range n {
		c := &leases.Change{Subnet: netip.MustParsePrefix("10.0.0.0/8"), Lease: leases.Lease{
			Addr: addr, MAC: lab.MAC{2, 1, 0, byte(i >> 16), byte(i >> 8), byte(i)}, State: leases.Active, Hostname: fmt.Sprintf("machine-%d", i),
			Start: now.Add(time.Duration(i) * time.Second), Expiry: now.Add(48 * time.Hour), ClientID: []byte{1, 2, 3},
		}}
		if book.Commit(t.Context(), []*leases.Change{c}); c.Err != nil {
			t.Fatal(c.Err)
		}
		addr = addr.Next()
	}
	times, err := timeline.Open(t.Context(), timeline.Config{}, timeline.Deps{Store: s, Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	found, err := discovered.Open(t.Context(), discovered.Config{}, discovered.Deps{Store: s, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{persistentState: &persistentState{clock: clock, book: book, discovered: found}, timeline: times}
	d.current.Store(&snapshot.Snapshot{Lab: l})
	return &adminBackend{d}
}

// TestPageMemory: a page of leases and the list of unknown machines cost the same memory however many leases there are.
func TestPageMemory(t *testing.T) {
	const few, many = 5_000, 100_000
	small, large := backendOf(t, few), backendOf(t, many)
	for name, ask := range map[string]func(*adminBackend){
		"leases": func(b *adminBackend) {
			b.Leases(t.Context(), api.LeaseQuery{Limit: 200, Keep: func(l *api.Lease) bool { return l.Holds() }})
		},
		"filtered": func(b *adminBackend) {
			b.Leases(t.Context(), api.LeaseQuery{Limit: 200, Keep: func(l *api.Lease) bool { return strings.HasSuffix(l.Name, "7") }})
		},
		"unknown":       func(b *adminBackend) { b.Unknown(t.Context()) },
		"adopt address": func(b *adminBackend) { l := b.current.Load().Lab; b.unknown().NextFree(l, l.Networks[0]) },
	} {
		was, is := allocated(func() { ask(small) }), allocated(func() { ask(large) })
		if is > was+was/5+4096 {
			t.Errorf("%s: %d bytes with %d leases, %d with %d", name, is, many, was, few)
		}
	}
}

// allocated returns how many bytes f allocates, the least of some calls.
func allocated(f func()) uint64 {
	least := ^uint64(0)
	for range 4 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

// TestLeasePages: pages of any length together are the whole book in order, each lease once.
func TestLeasePages(t *testing.T) {
	t.Parallel()
	b := backendOf(t, 1000)
	whole := b.Leases(t.Context(), api.LeaseQuery{Limit: 5000})
	if len(whole.Leases) != 1000 || whole.Next.IsValid() || whole.Holding != 1000 || whole.Matching != 1000 {
		t.Fatalf("%d leases, %d holding, %d matching, next %s", len(whole.Leases), whole.Holding, whole.Matching, whole.Next)
	}
	if !slices.IsSortedFunc(whole.Leases, func(x, y api.Lease) int { return x.IP.Compare(y.IP) }) {
		t.Error("not in the order of addresses")
	}
	for _, limit := range []int{1, 7, 333, 999, 1000} {
		var got []api.Lease
		for q := (api.LeaseQuery{Limit: limit}); ; {
			p := b.Leases(t.Context(), q)
			got = append(got, p.Leases...)
			if q.After = p.Next; !q.After.IsValid() || len(got) > 1000 {
				break
			}
		}
		if !slices.Equal(got, whole.Leases) {
			t.Errorf("pages of %d leases: %d leases, or another order", limit, len(got))
		}
	}
	if u := b.Unknown(t.Context()); len(u) != adoption.MaxUnknown || u[0].Name != "machine-999" || u[adoption.MaxUnknown-1].Name != "machine-500" {
		t.Errorf("%d unknown machines, from %s to %s", len(u), u[0].Name, u[len(u)-1].Name)
	}
}

// TestPageOfOneAddress: a lease, a conflict and an offer of one address are on one page.
func TestPageOfOneAddress(t *testing.T) {
	t.Parallel()
	b := backendOf(t, 3)
	addr := netip.MustParseAddr("10.0.0.2")
	b.book.Conflict(addr, lab.MAC{2, 9, 9, 9, 9, 9}, time.Now().Add(time.Hour))
	p := b.Leases(t.Context(), api.LeaseQuery{Limit: 2})
	if len(p.Leases) != 3 || p.Leases[1].State != api.LeaseActive || p.Leases[2].State != api.LeaseConflict || p.Next != addr || p.Holding != 4 {
		t.Errorf("%+v", p)
	}
	if p := b.Leases(t.Context(), api.LeaseQuery{Limit: 2, After: p.Next}); len(p.Leases) != 1 || p.Next.IsValid() {
		t.Errorf("%+v", p)
	}
}
