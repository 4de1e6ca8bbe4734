package dnsd

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// secondaryLab is a lab with a zone of n hosts whose last one has an address of its own, and a Knot that holds a copy.
func secondaryLab(n, last int, serial uint32, knot netip.AddrPort) *Table {
	z := &lab.Zone{Origin: "z.test.", Derived: true}
	for i := range n {
		a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		if i == n-1 {
			a = netip.AddrFrom4([4]byte{10, 1, 0, byte(last)})
		}
		z.Records = append(z.Records, lab.Record{Name: fmt.Sprintf("h%d.z.test.", i), Type: "A", Addr: a})
	}
	l := &lab.Lab{Zones: []*lab.Zone{z}}
	l.DNS.Transfer, l.DNS.Notify = []lab.Access{{From: netip.MustParsePrefix("127.0.0.1/32")}}, []lab.Secondary{{Addr: knot}}
	t, err := Compile(l, nil)
	if err != nil {
		panic(err)
	}
	return t.WithSerials(map[string]uint32{"z.test.": serial})
}

// TestKnotIsSecondary: Knot learns of a change by NOTIFY and takes it as an IXFR.
func TestKnotIsSecondary(t *testing.T) {
	netns.Need(t, "root", "knotd")
	dir, port := t.TempDir(), netns.FreePort(t)
	knot := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))
	var table atomic.Pointer[Table]
	const hosts = 500
	table.Store(secondaryLab(hosts, 1, 100, knot))
	s := newServer(t, table.Load(), nil)
	s.deps.Table = table.Load
	ours := serve(t, s, "127.0.0.1")
	conf := fmt.Sprintf("server:\n    listen: 127.0.0.1@%[2]d\n    udp-workers: 1\n    tcp-workers: 1\n    background-workers: 1\n    rundir: %[1]s\n"+
		"database:\n    storage: %[1]s\nlog:\n  - target: stderr\n    any: error\nremote:\n  - id: us\n    address: 127.0.0.1@%[3]d\n"+
		"acl:\n  - id: us\n    address: 127.0.0.1\n    action: notify\nzone:\n  - domain: z.test.\n    storage: %[1]s\n    master: us\n    acl: us\n",
		dir, port, ours.Port())
	if err := os.WriteFile(filepath.Join(dir, "knot.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	startKnot(t, dir, port)
	holds := func(serial uint32, last int) func() bool {
		return func() bool {
			c := &dns.Client{Timeout: time.Second}
			soa, _, err := c.Exchange(new(dns.Msg).SetQuestion("z.test.", dns.TypeSOA), knot.String())
			if err != nil || len(soa.Answer) != 1 || soa.Answer[0].(*dns.SOA).Serial != serial {
				return false
			}
			a, _, err := c.Exchange(new(dns.Msg).SetQuestion(fmt.Sprintf("h%d.z.test.", hosts-1), dns.TypeA), knot.String())
			return err == nil && len(a.Answer) == 1 && a.Answer[0].(*dns.A).A.String() == fmt.Sprintf("10.1.0.%d", last)
		}
	}
	netns.WaitFor(t, "Knot's first copy", holds(100, 1))
	for i := range 3 {
		table.Store(secondaryLab(hosts, 2+i, uint32(101+i), knot))
		netns.WaitFor(t, "the change at the secondary", holds(uint32(101+i), 2+i))
	}
	if got := testutil.ToFloat64(s.metrics.incremental); got < 3 {
		t.Errorf("%v incremental transfers, want one for each of three changes", got)
	}
	if got := testutil.ToFloat64(s.metrics.sent); got != 1 {
		t.Errorf("%v whole transfers, want the first alone", got)
	}
}

// TestIXFR: a client gets what changed since its serial, nothing if it has it all, and the whole zone if that is not known.
func TestIXFR(t *testing.T) {
	t.Parallel()
	nobody := netip.MustParseAddrPort("127.0.0.1:1")
	var table atomic.Pointer[Table]
	table.Store(secondaryLab(50, 1, 7, nobody))
	s := newServer(t, table.Load(), nil)
	s.deps.Table = table.Load
	ap := serve(t, s, "127.0.0.1")
	seen := func() bool { return s.changes.sees(table.Load()) }
	first := table.Load()
	for i := range 2 {
		netns.WaitFor(t, "the table to be noticed", seen)
		table.Store(secondaryLab(50, 2+i, uint32(8+i), nobody))
	}
	netns.WaitFor(t, "the table to be noticed", seen)
	for serial, want := range map[uint32]int{
		9:  1,          // the SOA alone
		8:  1 + 4 + 1,  // SOA, SOA 8, one removed, SOA 9, one added, SOA
		7:  1 + 8 + 1,  // both changes
		6:  50 + 1 + 2, // unknown: hosts, NS, SOA twice
		10: 1,          // ahead of us
	} {
		m := new(dns.Msg)
		m.SetIxfr("z.test.", serial, "ns.test.", "h.test.")
		ch, err := (&dns.Transfer{ReadTimeout: time.Minute}).In(m, ap.String())
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for e := range ch {
			if e.Error != nil {
				t.Fatalf("from %d: %v", serial, e.Error)
			}
			got += len(e.RR)
		}
		if got != want {
			t.Errorf("from %d: %d records, want %d", serial, got, want)
		}
	}
	if _, known := s.changes.since(first, first.zoneNamed("z.test."), 7); known {
		t.Error("a transfer of one table is given what has changed in a later one")
	}
}

// sees reports whether a table was noticed.
func (c *changes) sees(t *Table) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table == t
}

// TestChangesAreBounded: what is kept of a zone's changes does not grow without end.
func TestChangesAreBounded(t *testing.T) {
	t.Parallel()
	nobody := netip.MustParseAddrPort("127.0.0.1:1")
	var c changes
	for i := range uint32(40) {
		z := secondaryLab(2000, int(i), i+1, nobody)
		if i%2 == 0 {
			z = secondaryLab(1, int(i), i+1, nobody)
		}
		c.see(func() *Table { return z })
	}
	size := 0
	for _, d := range c.zones["z.test."] {
		size += d.size
	}
	if n := len(c.zones["z.test."]); n == 0 || n > 39 || size > maxChanges {
		t.Errorf("%d changes of %d octets are kept, want at most %d", n, size, maxChanges)
	}
}
