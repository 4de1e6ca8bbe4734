package dhcpd

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/clock"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/storetest"

	"github.com/prometheus/client_golang/prometheus"
)

func TestMain(m *testing.M) { netns.Main(m) }

// A memStore is a store in memory that counts its commits.
type memStore struct {
	*storetest.Mem
	commits atomic.Int64
}

func newMemStore() *memStore { return &memStore{Mem: storetest.Memory()} }

func (s *memStore) CommitAll(ctx context.Context, txns []store.Txn) []error {
	s.commits.Add(1)
	return s.Mem.CommitAll(ctx, txns)
}

func (s *memStore) Commit(ctx context.Context, t store.Txn) error {
	s.commits.Add(1)
	return s.Mem.Commit(ctx, t)
}

func (s *memStore) count() int { return int(s.commits.Load()) }

// leases counts what is stored.
func (s *memStore) leases(t *testing.T) (n int) {
	t.Helper()
	if err := s.Scan(t.Context(), "lease/", func(string, []byte) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

// events collects what was recorded.
type events struct {
	mu  sync.Mutex
	all []event.Event
}

func (e *events) Record(ev event.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

// take returns what was recorded since the last call, without durations.
func (e *events) take() []event.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.all
	e.all = nil
	for i := range out {
		out[i].Dur = 0
	}
	return out
}

func mac(t testing.TB, s string) lab.MAC {
	t.Helper()
	m, err := lab.ParseMAC(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

// testLab is a lab with a served, a relayed, a proxied and a silent network, in this order: beside, far, main, silent.
// It has one thing that lab files may not: the cluster's address lies in the range of a pool, to see that the pool keeps
// off it.
func testLab(t testing.TB) *lab.Lab {
	t.Helper()
	l := labWith(t, "")
	l.Clusters[0].Address = ip("10.77.0.200")
	return l
}

// labWith is the lab file of testLab with more hosts, as it stands there.
func labWith(t testing.TB, hosts string) *lab.Lab {
	t.Helper()
	b, err := os.ReadFile("testdata/lab.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l, err := load.Parse("testdata/lab.yaml", append(b, hosts...), load.Options{FileExists: func(string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A bench is a server without sockets.
type bench struct {
	*Server
	table  *Table
	lab    *lab.Lab
	store  *memStore
	clock  *clock.Clock
	events *events
	wire   *capture

	registry *prometheus.Registry
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{
		lab: testLab(t), store: newMemStore(), clock: clock.New(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)), events: &events{}, wire: &capture{},
	}
	b.table = Compile(b.lab).WithNames(inLabTest)
	b.reopen(t)
	return b
}

// reopen starts over with what is in the store, as after kill -9.
func (b *bench) reopen(t testing.TB) {
	t.Helper()
	book, err := leases.Open(t.Context(), b.store, b.clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	b.registry = prometheus.NewRegistry()
	b.Server, err = New(Deps{
		Table: func() *Table { return b.table }, Book: book, Events: b.events,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Registerer: b.registry, Now: b.clock.Now, Loops: bootloop.New(b.clock.Now),
		Listen: func(string) (*segment.Socket, error) { panic("no sockets here") },
		Report: func(string, error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A capture keeps what was sent.
type capture struct {
	sent []packetOut
}

type packetOut struct {
	to   segment.Dest
	data []byte
}

func (w *capture) Frame() []byte {
	return make([]byte, segment.FrameHeadroom, segment.FrameHeadroom+maxDatagram)
}

func (w *capture) Queue(_ *segment.Socket, d segment.Dest, frame []byte) {
	w.sent = append(w.sent, packetOut{d, slices.Clone(frame[segment.FrameHeadroom:])})
}

// exchange gives a packet to the server, commits what it wants committed, and returns the replies.
func (b *bench) exchange(iface string, port uint16, from string, data []byte) []packetOut {
	to := ""
	if iface == "" {
		to = "192.0.2.77"
	}
	return b.exchangeAt(iface, to, port, from, data)
}

// exchangeAt is exchange for a packet that was sent to an address of the server's machine; "": to none.
func (b *bench) exchangeAt(iface, to string, port uint16, from string, data []byte) []packetOut {
	b.wire.sent = nil
	local, _ := netip.ParseAddr(to)
	b.handle(&exchange{iface: iface, port: port, from: netip.MustParseAddrPort(from), local: local, out: b.wire}, data)
	b.commitQueued()
	return b.wire.sent
}

func (b *bench) commitQueued() {
	for {
		batch := b.drain(nil)
		if len(batch) == 0 {
			return
		}
		b.commitAll(context.Background(), batch, b.wire)
	}
}
