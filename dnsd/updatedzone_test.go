package dnsd

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// TestUpdateOfOneZone: an update makes a new zone, and leaves all others as they are. What comes of many updates, one after the other, is
// what compiling the lab with their sum makes.
func TestUpdateOfOneZone(t *testing.T) {
	t.Parallel()
	l := updateLab()
	open := zoneOfLines("open.test.", "www A 192.0.2.1")
	open.Update = []lab.Access{{Key: testKey}}
	l.Zones = append(l.Zones, open)
	table, err := Compile(l, keyFiles)
	if err != nil {
		t.Fatal(err)
	}
	sets := map[string]RRSet{}
	changes := 0
	for i := range 400 {
		m := randomUpdate(t, rand.New(rand.NewPCG(11, uint64(i))))
		if m.Ns[0].Header().Class == dns.ClassCHAOS {
			continue
		}
		r := &request{t: table, sig: &signature{key: table.keyNamed(testKey)}}
		r.q.name = nameOf(t, "z.test.")
		changed, err := table.planUpdate(asReceived(t, m), r, time.Unix(1, 0))
		if err != nil || len(changed) == 0 {
			continue
		}
		changes++
		for _, s := range changed {
			if sets[s.Name+s.Type] = s; len(s.Data) == 0 {
				delete(sets, s.Name+s.Type)
			}
		}
		var all []RRSet
		for _, s := range sets {
			all = append(all, s)
		}
		next := table.WithUpdates("z.test.", all, Learned{})
		for i, z := range next.zones {
			if z.text != "z.test." && z != table.zones[i] {
				t.Fatalf("update of z.test. made a new %s", z.text)
			}
		}
		whole, err := Compile(l, keyFiles, all...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(whole.ZoneFiles(), next.ZoneFiles()); diff != "" {
			t.Fatalf("update %d (-compiled +incremental):\n%s\n%s", i, diff, m)
		}
		if got, want := next.zoneNamed("z.test.").hash(), whole.zoneNamed("z.test.").hash(); got != want {
			t.Fatalf("update %d: content %x, want %x", i, got, want)
		}
		table = next
	}
	if changes < 50 {
		t.Errorf("only %d updates changed something", changes)
	}
}

// TestUpdateKeepsWhatWasLearned: an update of a zone whose names follow backends, and whose transfers have leases, keeps both.
func TestUpdateKeepsWhatWasLearned(t *testing.T) {
	t.Parallel()
	z := derived("z.test.", "api.z.test. A 192.0.2.1", "api.z.test. A 192.0.2.2")
	z.Update, z.Leases = []lab.Access{{Key: testKey}}, true
	b := &lab.Balancer{Name: "api"}
	for i := range z.Records {
		z.Records[i].Follows = b
	}
	l := &lab.Lab{Domain: "z.test", Zones: []*lab.Zone{z}, Networks: []*lab.Network{{Subnet: netip.MustParsePrefix("192.0.2.0/24")}}}
	down := func(_ string, a netip.Addr) bool { return a != netip.MustParseAddr("192.0.2.1") }
	table := compile(t, l).WithLearned(Learned{Usable: down})
	table.zones[0].leases = []string{"x"}
	set := RRSet{Zone: "z.test.", Name: "n.z.test.", Type: "A", TTL: 60, Data: [][]byte{{192, 0, 2, 7}}}
	next := table.WithUpdates("z.test.", []RRSet{set}, Learned{Usable: down})
	var got []string
	for _, line := range strings.Split(next.ZoneFiles()[0].Text, "\n") {
		if strings.HasPrefix(line, "api.") || strings.HasPrefix(line, "n.") {
			got = append(got, strings.Fields(line)[4])
		}
	}
	if want := []string{"192.0.2.2", "192.0.2.7"}; cmp.Diff(want, got) != "" || len(next.zones[0].leases) != 1 {
		t.Errorf("after the update %v and %d leases, want %v and 1", got, len(next.zones[0].leases), want)
	}
	if again := next.WithLearned(Learned{Usable: down}); again.zones[0] != next.zones[0] {
		t.Error("learning the same again made a new zone")
	}
}

// TestUpdatesOfAllZonesAreBounded: what updates may make has a limit over all zones, and losing some is always possible.
func TestUpdatesOfAllZonesAreBounded(t *testing.T) {
	t.Parallel()
	l := &lab.Lab{}
	l.DNS.Keys = []lab.TSIGKey{{Name: testKey, Algorithm: "hmac-sha256", SecretFile: "/plain"}}
	var all []RRSet
	zones := maxUpdateOctets/maxZoneOctets + 1
	for i := range zones {
		origin := fmt.Sprintf("z%d.test.", i)
		l.Zones = append(l.Zones, &lab.Zone{Origin: origin, Update: []lab.Access{{Key: testKey}}})
		for n := range maxZoneOctets / maxSetOctets {
			set := RRSet{Zone: origin, Name: fmt.Sprintf("n%d.%s", n, origin), Type: "TXT", TTL: 60}
			for range maxSetOctets / 256 {
				set.Data = append(set.Data, append([]byte{255}, strings.Repeat("x", 255)...))
			}
			all = append(all, set)
		}
	}
	quota := NewUpdateQuota()
	var kept []RRSet
	for _, s := range all {
		if quota.Take(&s) {
			kept = append(kept, s)
		}
	}
	if size := sizeOf(kept); size.octets != maxUpdateOctets {
		t.Fatalf("there is room for %d octets, want %d", size.octets, maxUpdateOctets)
	}
	table, err := Compile(l, keyFiles, kept...)
	if err != nil {
		t.Fatal(err)
	}
	update := func(text string, change func(*dns.Msg, []dns.RR)) error {
		m := new(dns.Msg).SetUpdate(fmt.Sprintf("z%d.test.", zones-1))
		change(m, []dns.RR{rr(t, text)})
		r := &request{t: table, sig: &signature{key: table.keyNamed(testKey)}}
		r.q.name = nameOf(t, m.Question[0].Name)
		_, err := table.planUpdate(asReceived(t, m), r, time.Now())
		return err
	}
	if err := update(fmt.Sprintf("new.z%d.test. 60 A 192.0.2.1", zones-1), (*dns.Msg).Insert); err == nil || !strings.Contains(err.Error(), "the updates of all zones may have") {
		t.Errorf("one more: %v", err)
	}
	table = table.WithUpdates("z0.test.", nil, Learned{})
	if err := update(fmt.Sprintf("new.z%d.test. 60 A 192.0.2.1", zones-1), (*dns.Msg).Insert); err != nil {
		t.Errorf("after another zone lost its updates: %v", err)
	}
}

// asReceived returns a message as it comes from the wire.
func asReceived(t testing.TB, m *dns.Msg) *dns.Msg {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	var got dns.Msg
	if err := got.Unpack(b); err != nil {
		t.Fatal(err)
	}
	return &got
}

func nameOf(t testing.TB, text string) (n name) {
	t.Helper()
	wire, err := appendName(nil, text)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = n.parse(wire)
	return n
}

// TestMalformedStoredUpdates: what no update makes is refused when it is read from a store, and what gets past that never fails a lab.
func TestMalformedStoredUpdates(t *testing.T) {
	t.Parallel()
	good := RRSet{Zone: "z.test.", Name: "n.z.test.", Type: "A", TTL: 60, Data: [][]byte{{192, 0, 2, 7}}}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*RRSet){
		func(s *RRSet) { s.Name = "a..b." },
		func(s *RRSet) { s.Type = "NOPE" },
		func(s *RRSet) { s.Type = "SOA" },
		func(s *RRSet) { s.Type = "AXFR" },
		func(s *RRSet) { s.Data = nil },
		func(s *RRSet) { s.Data = [][]byte{{1, 2, 3}} },
		func(s *RRSet) { s.TTL = 1 << 31 },
	} {
		bad := good
		change(&bad)
		if bad.Check() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	var many []RRSet
	for i := range 400 {
		many = append(many, RRSet{Zone: "z.test.", Name: "n.z.test.", Type: fmt.Sprintf("TYPE%d", 65000+i), TTL: 60, Data: [][]byte{{1}}})
	}
	cname := RRSet{Zone: "z.test.", Name: "n.z.test.", Type: "CNAME", TTL: 60, Data: [][]byte{[]byte("\x01a\x00")}}
	table, err := Compile(updateLab(), keyFiles, append(many, good, cname)...)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(table.Warnings()); !strings.Contains(got, "RRsets of dynamic updates are kept, but not served") {
		t.Errorf("warnings: %s", got)
	}
}

// BenchmarkUpdate is one update of a small zone, beside others that hold what all updates may.
func BenchmarkUpdate(b *testing.B) {
	for _, others := range []int{0, 10_000, 40_000} {
		l := &lab.Lab{}
		var all []RRSet
		for i := range 100 {
			origin := fmt.Sprintf("z%d.test.", i)
			l.Zones = append(l.Zones, &lab.Zone{Origin: origin, Update: []lab.Access{{Key: testKey}}})
			for n := range others / 100 {
				all = append(all, RRSet{Zone: origin, Name: fmt.Sprintf("n%d.%s", n, origin), Type: "TXT", TTL: 60, Data: [][]byte{append([]byte{200}, strings.Repeat("x", 200)...)}})
			}
		}
		l.Zones = append(l.Zones, &lab.Zone{Origin: "small.test.", Update: []lab.Access{{Key: testKey}}})
		table, err := Compile(l, keyFiles, all...)
		if err != nil {
			b.Fatal(err)
		}
		set := []RRSet{{Zone: "small.test.", Name: "n.small.test.", Type: "A", TTL: 60, Data: [][]byte{{192, 0, 2, 7}}}}
		b.Run(fmt.Sprint(others), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				table.WithUpdates("small.test.", set, Learned{}).Contents()
			}
		})
	}
}
