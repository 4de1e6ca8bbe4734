package dhcpd

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"bootlab/internal/event"
	"bootlab/internal/lab"
	"bootlab/internal/netlab"
	"bootlab/internal/store"

	"github.com/prometheus/client_golang/prometheus"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// A memStore is a store in memory that can be told to fail.
type memStore struct {
	mu      sync.Mutex
	data    map[string][]byte
	err     error // what Commit returns
	commits int
}

func newMemStore() *memStore { return &memStore{data: map[string][]byte{}} }

func (s *memStore) Get(_ context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.data[key]
	if !ok {
		return nil, store.ErrNotFound
	}
	return slices.Clone(v), nil
}

func (s *memStore) Scan(_ context.Context, prefix string, fn func(string, []byte) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for k := range s.data {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for _, k := range keys {
		if err := fn(k, s.data[k]); err != nil {
			return err
		}
	}
	return nil
}

func (s *memStore) Commit(_ context.Context, t store.Txn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits++
	if s.err != nil {
		return s.err
	}
	for _, c := range t.If {
		v, ok := s.data[c.Key]
		if c.Absent == ok || (!c.Absent && string(v) != string(c.Value)) {
			return store.ErrConflict
		}
	}
	for _, op := range t.Then {
		if op.Delete {
			delete(s.data, op.Key)
		} else {
			s.data[op.Key] = slices.Clone(op.Value)
		}
	}
	return nil
}

func (s *memStore) Close() error { return nil }

func (s *memStore) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *memStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commits
}

// A clock is set by hand.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
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

type localBoots map[string]bool

func (l localBoots) LocalBoot(h *lab.Host) bool { return l[h.Name] }

func mac(t testing.TB, s string) lab.MAC {
	t.Helper()
	m, err := lab.ParseMAC(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func pattern(t testing.TB, s string) lab.MACPattern {
	t.Helper()
	p, err := lab.ParseMACPattern(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// testLab is a lab with a served, a relayed and a proxied network.
func testLab(t testing.TB) *lab.Lab {
	profile := &lab.Profile{Name: "rhcos", Kernel: "images/kernel"}
	route := lab.Route{To: netip.MustParsePrefix("10.0.0.0/19"), Via: ip("10.77.0.101")}
	main := &lab.Network{
		Name: "main", Subnet: netip.MustParsePrefix("10.77.0.0/24"), Interface: "lab0", Address: ip("10.77.0.1"),
		Router: ip("10.77.0.254"), DNS: []netip.Addr{ip("10.77.0.1")}, Search: []string{"c1.lab.test", "lab.test"},
		NTP: []netip.Addr{ip("10.77.0.1")}, MTU: 1500, Lease: 12 * time.Hour, DHCP: lab.DHCPServer,
		BaseURL: "http://10.77.0.1:8080",
	}
	main.Pools = []*lab.Pool{
		{
			Name: "bootstrap", Network: main, Range: lab.Range{First: ip("10.77.0.130"), Last: ip("10.77.0.135")},
			MACs: []lab.MACPattern{pattern(t, "52:54:00:*:*:*")}, Routes: []lab.Route{route}, Lease: time.Hour, Profile: profile,
		},
		{Name: "guests", Network: main, Range: lab.Range{First: ip("10.77.0.200"), Last: ip("10.77.0.203")}},
	}
	far := &lab.Network{
		Name: "far", Subnet: netip.MustParsePrefix("10.78.0.0/16"), Address: ip("10.77.0.1"), Router: ip("10.78.0.254"),
		DNS: []netip.Addr{ip("10.77.0.1")}, Lease: time.Hour, DHCP: lab.DHCPServer, BaseURL: "http://10.77.0.1:8080",
	}
	far.Pools = []*lab.Pool{{Name: "all", Network: far, Range: lab.Range{First: ip("10.78.0.1"), Last: ip("10.78.255.254")}}}
	beside := &lab.Network{
		Name: "beside", Subnet: netip.MustParsePrefix("10.79.0.0/24"), Interface: "lab1", Address: ip("10.79.0.1"),
		DHCP: lab.DHCPProxy, BaseURL: "http://10.79.0.1:8080",
	}
	silent := &lab.Network{Name: "silent", Subnet: netip.MustParsePrefix("10.80.0.0/24"), DHCP: lab.DHCPOff}
	return &lab.Lab{
		Name: "test", Domain: "lab.test",
		Networks: []*lab.Network{beside, far, main, silent},
		Hosts: []*lab.Host{
			{
				Name: "bare", Domain: "lab.test", MACs: []lab.MAC{mac(t, "52:54:00:00:00:09")}, IP: ip("10.77.0.29"), Network: main,
			},
			{
				Name: "beside-0", Domain: "lab.test", MACs: []lab.MAC{mac(t, "52:54:00:00:09:01")}, IP: ip("10.79.0.21"),
				Network: beside, Profile: profile,
			},
			{
				Name: "master-0", Domain: "c1.lab.test", IP: ip("10.77.0.21"), Network: main, Profile: profile,
				MACs: []lab.MAC{mac(t, "52:54:00:00:02:01"), mac(t, "52:54:00:00:02:02")},
			},
			{
				Name: "master-1", Domain: "c1.lab.test", MACs: []lab.MAC{mac(t, "52:54:00:00:02:03")}, IP: ip("10.77.0.131"),
				Network: main, Profile: profile, Routes: []lab.Route{route},
				Options: []lab.Option{{Code: 150, Data: []byte{10, 77, 0, 1}}},
			},
		},
		Clusters: []*lab.Cluster{{Name: "c1", Address: ip("10.77.0.200")}},
	}
}

// A bench is a server without sockets.
type bench struct {
	*Server
	table  *Table
	lab    *lab.Lab
	store  *memStore
	clock  *clock
	events *events
	local  localBoots
	wire   *wire
}

func compile(t testing.TB, l *lab.Lab) *Table {
	t.Helper()
	table, err := Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{
		lab: testLab(t), store: newMemStore(), clock: newClock(), events: &events{}, local: localBoots{}, wire: &wire{},
	}
	b.table = compile(t, b.lab)
	b.reopen(t)
	return b
}

// reopen starts over with what is in the store, as after kill -9.
func (b *bench) reopen(t testing.TB) {
	t.Helper()
	book, err := OpenBook(t.Context(), b.store, b.clock.now)
	if err != nil {
		t.Fatal(err)
	}
	b.Server = New(Config{}, Deps{
		Table: func() *Table { return b.table }, Book: book, Boots: b.local, Events: b.events,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Registerer: prometheus.NewRegistry(), Now: b.clock.now,
		Listen: func(string) (*Socket, error) { panic("no sockets here") },
	})
}

// A wire keeps what was sent.
type wire struct {
	sent []packetOut
}

type packetOut struct {
	to   destination
	data []byte
}

func (w *wire) send(d destination, frame []byte) error {
	w.sent = append(w.sent, packetOut{d, slices.Clone(frame[frameHeadroom:])})
	return nil
}

// exchange gives a packet to the server, commits what it wants committed, and returns the replies.
func (b *bench) exchange(iface string, port uint16, from string, data []byte) []packetOut {
	b.wire.sent = nil
	b.handle(&inbound{
		iface: iface, port: port, from: netip.MustParseAddrPort(from), data: data, link: b.wire,
		out: make([]byte, 0, frameHeadroom+maxDatagram),
	})
	b.commitQueued()
	return b.wire.sent
}

func (b *bench) commitQueued() {
	for {
		jobs := b.drain(nil)
		if len(jobs) == 0 {
			return
		}
		var changes []*change
		for _, j := range jobs {
			changes = append(changes, j.change)
		}
		b.commitBatch(context.Background(), changes)
		for _, j := range jobs {
			b.finish(j, make([]byte, 0, frameHeadroom+maxDatagram))
		}
	}
}
