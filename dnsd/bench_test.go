package dnsd

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/miekg/dns"
)

// labOf returns a lab of n hosts with A and PTR records.
func labOf(n int) *lab.Lab {
	forward, reverse := &lab.Zone{Origin: "c.example.com.", Derived: true}, &lab.Zone{Origin: "10.in-addr.arpa.", Derived: true}
	for i := range n {
		name := fmt.Sprintf("node-%05d.c.example.com.", i)
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		forward.Records = append(forward.Records, lab.Record{Name: name, Type: "A", Addr: a})
		reverse.Records = append(reverse.Records, lab.Record{Type: "PTR", Target: name,
			Name: fmt.Sprintf("%d.%d.%d.10.in-addr.arpa.", byte(i), byte(i>>8), byte(i>>16))})
	}
	forward.Records = append(forward.Records, lab.Record{Name: "*.apps.c.example.com.", Type: "A", Addr: netip.MustParseAddr("10.0.0.1")})
	static := zoneOfLines("z.test.", "www A 192.0.2.1")
	return &lab.Lab{Domain: "example.com", Zones: []*lab.Zone{reverse, forward, static},
		Networks: []*lab.Network{{Subnet: netip.MustParsePrefix("10.0.0.0/8"), Address: netip.MustParseAddr("10.0.0.1")}}}
}

func BenchmarkAnswer(b *testing.B) {
	s := newServer(b, compile(b, labOf(10_000)), nil)
	for _, q := range []struct {
		name, owner string
		qtype       uint16
	}{
		{"A", "node-00042.c.example.com.", dns.TypeA},
		{"PTR", "42.0.0.10.in-addr.arpa.", dns.TypePTR},
		{"wildcard", "console.apps.c.example.com.", dns.TypeA},
		{"nodata", "console.apps.c.example.com.", dns.TypeAAAA},
		{"nxdomain", "missing.z.test.", dns.TypeA},
		{"refused", "www.example.org.", dns.TypeA},
	} {
		b.Run(q.name, func(b *testing.B) {
			m := new(dns.Msg).SetQuestion(q.owner, q.qtype)
			m.SetEdns0(1232, false)
			packed, _ := m.Pack()
			r := &request{from: netip.MustParseAddr("10.0.0.9")}
			buf := make([]byte, 0, udpBuffer)
			b.ReportAllocs()
			for b.Loop() {
				r.w.b = append(buf, packed...)
				if s.handle(r) != ready {
					b.Fatal("no reply")
				}
			}
		})
	}
}

// TestAnswerDoesNotAllocate keeps what BenchmarkAnswer shows.
func TestAnswerDoesNotAllocate(t *testing.T) {
	s := newServer(t, compile(t, labOf(10)), nil)
	for _, owner := range []string{"node-00004.c.example.com.", "x.apps.c.example.com.", "missing.z.test.", "www.example.org."} {
		packed, _ := new(dns.Msg).SetQuestion(owner, dns.TypeA).Pack()
		r := &request{from: netip.MustParseAddr("10.0.0.9")}
		buf := make([]byte, 0, udpBuffer)
		if n := testing.AllocsPerRun(100, func() { r.w.b = append(buf, packed...); s.handle(r) }); n != 0 {
			t.Errorf("%s: %v allocations", owner, n)
		}
	}
}

// BenchmarkReload is what a reload of 100,000 names in 1,000 zones costs beside compiling: contents, serials, and what has changed.
func BenchmarkReload(b *testing.B) {
	l := &lab.Lab{}
	for z := range 1000 {
		zone := &lab.Zone{Origin: fmt.Sprintf("z%d.test.", z), Derived: true}
		for i := range 100 {
			zone.Records = append(zone.Records, lab.Record{Name: fmt.Sprintf("h%d.z%d.test.", i, z), Type: "A", Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})})
		}
		l.Zones = append(l.Zones, zone)
	}
	before, now := compile(b, l), compile(b, l)
	for b.Loop() {
		var c changes
		for _, z := range now.zones {
			z.content = &contentHash{}
		}
		now.Contents()
		c.see(func() *Table { return before })
		c.see(func() *Table { return now })
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, hosts := range []int{1000, 10_000} {
		l := labOf(hosts)
		b.Run(fmt.Sprint(hosts), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				compile(b, l)
			}
		})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		table := compile(b, l)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.Logf("%d hosts: %d KiB", hosts, (int(after.HeapAlloc)-int(before.HeapAlloc))>>10)
		runtime.KeepAlive(table)
	}
}

// BenchmarkZoneFile is what a change of a zone file of 100,000 names costs: reading it, its serial, and what has changed.
func BenchmarkZoneFile(b *testing.B) {
	const names = 100_000
	var text strings.Builder
	text.WriteString("$TTL 300\n@ SOA ns hostmaster 1 3600 900 604800 300\n@ NS ns\nns A 10.0.0.1\n")
	for i := range names {
		fmt.Fprintf(&text, "n%d A 10.0.%d.%d\n", i, i/250%250, i%250)
	}
	l := &lab.Lab{Zones: []*lab.Zone{{Origin: "big.test.", File: "/big.zone"}}}
	read := func(string, string) ([]byte, error) { return []byte(text.String()), nil }
	before, err := Compile(l, read)
	if err != nil {
		b.Fatal(err)
	}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"compile", func() { _, err = Compile(l, read) }},
		{"contents", func() { before.zones[0].content = &contentHash{}; before.Contents() }},
		{"changes", func() {
			var c changes
			now := *before
			c.see(func() *Table { return before })
			now = *now.WithSerials(map[string]uint32{"big.test.": 2})
			c.see(func() *Table { return &now })
		}},
	} {
		b.Run(step.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				step.do()
			}
		})
	}
	if err != nil {
		b.Fatal(err)
	}
}
