package dnsd

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// followingLab is a lab whose names web (two backends and a backup, one of them by IPv6 too) follow a balancer.
func followingLab(t *testing.T) *Table {
	t.Helper()
	b := &lab.Balancer{Name: "web", Backends: []lab.Backend{
		{Name: "w0", Addr: netip.MustParseAddrPort("10.0.0.10:80")}, {Name: "w1", Addr: netip.MustParseAddrPort("10.0.0.11:80")},
		{Name: "w1", Addr: netip.MustParseAddrPort("[fd00::11]:80")}, {Name: "spare", Addr: netip.MustParseAddrPort("10.0.0.19:80"), Backup: true},
	}}
	z := derived("z.test.", "host.z.test. A 10.0.0.1")
	for _, m := range b.Backends {
		r := lab.Record{Name: "web.z.test.", Type: "A", Addr: m.Addr.Addr(), Source: "balancer web", Follows: b}
		if r.Addr.Is6() {
			r.Type = "AAAA"
		}
		z.Records = append(z.Records, r)
	}
	slices.SortStableFunc(z.Records, func(a, b lab.Record) int { return strings.Compare(a.Name+a.Type, b.Name+b.Type) })
	return compile(t, &lab.Lab{Zones: []*lab.Zone{z}})
}

// TestNamesFollowBackends: the healthy backends are answered, then healthy backups, then all; nothing else of the zone changes, and the
// serial moves with the answer alone.
func TestNamesFollowBackends(t *testing.T) {
	t.Parallel()
	base := followingLab(t).WithSerials(map[string]uint32{"z.test.": 5})
	table := base
	var answered []string // before
	for _, tt := range []struct {
		name, down string
		want       []string
	}{
		{"all", "", []string{"10.0.0.10", "10.0.0.11", "fd00::11"}},
		{"one", "10.0.0.10", []string{"10.0.0.11", "fd00::11"}},
		{"the backup", "10.0.0.19", []string{"10.0.0.10", "10.0.0.11", "fd00::11"}},
		{"two", "10.0.0.10 10.0.0.11", []string{"10.0.0.19", "fd00::11"}},
		{"every", "10.0.0.10 10.0.0.11 10.0.0.19 fd00::11", []string{"10.0.0.10", "10.0.0.11", "10.0.0.19", "fd00::11"}},
		{"none any more", "", []string{"10.0.0.10", "10.0.0.11", "fd00::11"}},
	} {
		usable := func(balancer string, backend netip.Addr) bool {
			return balancer == "web" && !slices.Contains(strings.Fields(tt.down), backend.String())
		}
		before := table.Contents()[0].Hash
		table = table.WithLearned(Learned{Usable: usable}).WithSerials(map[string]uint32{"z.test.": 5})
		if table.HealthChanged(usable) {
			t.Errorf("%s: the table does not know what it answers", tt.name)
		}
		s := newServer(t, table, nil)
		var got []string
		for _, qtype := range []string{" A", " AAAA"} {
			for _, rr := range lookup(t, s, "web.z.test."+qtype, "127.0.0.1").Answer {
				got = append(got, strings.Fields(rr.String())[4])
				if ttl := rr.Header().Ttl; ttl != healthTTL {
					t.Errorf("%s: TTL %d, want %d", tt.name, ttl, healthTTL)
				}
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		e, err := s.Explain(t.Context(), Question{Name: "web.z.test", From: netip.MustParseAddr("127.0.0.1")})
		if want := fmt.Sprintf(", from %d of 3 backends of balancer web", len(e.Records)); err != nil || !strings.HasSuffix(e.Steps[0].Text, want) {
			t.Errorf("%s: %v: %+v, want %q", tt.name, err, e.Steps, want)
		}
		wantAnswers(t, s, "127.0.0.1", []dialogue{{"host.z.test. A", "NOERROR aa\nan host.z.test. A 10.0.0.1"}})
		if moved := before != table.Contents()[0].Hash; moved != !slices.Equal(got, answered) && answered != nil {
			t.Errorf("%s: %v after %v; the content of the zone moved: %v", tt.name, got, answered, moved)
		}
		answered = got
	}
}

// TestLeaseOfOneNIC: of a host with several NICs the lease of that whose address its name has makes the name, forward and backward alike.
func TestLeaseOfOneNIC(t *testing.T) {
	t.Parallel()
	first, second := netip.MustParseAddr("10.0.0.150"), netip.MustParseAddr("10.1.0.150")
	leases := leaseBook{{first, lab.MAC{2, 1}, ""}, {second, lab.MAC{2, 2}, ""}}
	for _, boots := range []int{1, 2} { // its name has the address of the first, which boots or not
		h := &lab.Host{Name: "two", FQDN: "two.z.test", MACs: []lab.MAC{{2, 1}}, NICs: []lab.NIC{{MAC: lab.MAC{2, 2}, FQDN: "two-b.z.test"}}}
		if boots == 2 {
			h = &lab.Host{Name: "two", FQDN: "two.z.test", MACs: []lab.MAC{{2, 2}}, IP: netip.MustParseAddr("10.1.0.12"), Named: 1, NICs: []lab.NIC{{MAC: lab.MAC{2, 1}, FQDN: "two.z.test"}}}
		}
		l := &lab.Lab{Domain: "z.test", Zones: []*lab.Zone{derived("z.test."), derived("10.in-addr.arpa.")}, Networks: []*lab.Network{{Name: "n", Subnet: netip.MustParsePrefix("10.0.0.0/8")}}, Hosts: []*lab.Host{h}}
		l.Index()
		s := newServer(t, compile(t, l).WithLearned(Learned{Leases: leases, Leased: leases.all}), leases)
		wantAnswers(t, s, "127.0.0.1", []dialogue{
			{"two.z.test. A", "NOERROR aa\nan two.z.test. A 10.0.0.150"},
			{"150.0.0.10.in-addr.arpa. PTR", "NOERROR aa\nan 150.0.0.10.in-addr.arpa. PTR two.z.test."},
			{"150.0.1.10.in-addr.arpa. PTR", "NXDOMAIN aa\nns 10.in-addr.arpa. SOA bootlab.z.test."},
		})
	}
}

// TestLeasesInTransfers: zones that want them have the names of DHCP clients in transfers, the same that answers have; their serial and
// IXFR follow. Other zones do not.
func TestLeasesInTransfers(t *testing.T) {
	t.Parallel()
	leases := leaseBook{
		{netip.MustParseAddr("10.0.0.50"), lab.MAC{2, 2}, "phone-of-x"}, {netip.MustParseAddr("10.0.0.51"), lab.MAC{2, 3}, "host"},
		{netip.MustParseAddr("10.0.0.52"), lab.MAC{2, 4}, "wpad"}, {netip.MustParseAddr("10.0.0.77"), lab.MAC{2, 1}, "calls-itself-so"},
	}
	zone, reverse, other := derived("z.test.", "host.z.test. A 10.0.0.1"), derived("0.0.10.in-addr.arpa."), derived("other.test.", "x.other.test. A 10.0.0.2")
	zone.Leases, reverse.Leases = true, true
	l := &lab.Lab{Domain: "z.test", Zones: []*lab.Zone{zone, reverse, other}, Networks: []*lab.Network{{Name: "n", Subnet: netip.MustParsePrefix("10.0.0.0/24")}},
		Hosts: []*lab.Host{{Name: "pooled", FQDN: "pooled.z.test", MACs: []lab.MAC{{2, 1}}}}}
	l.Index()
	l.DNS.Transfer = []lab.Access{{From: netip.MustParsePrefix("127.0.0.0/8")}}
	var inForce atomic.Pointer[Table]
	table := compile(t, l).WithLearned(Learned{Leases: leases, Leased: leases.all}).WithSerials(map[string]uint32{"z.test.": 5, "0.0.10.in-addr.arpa.": 5})
	s := newServer(t, table, leases)
	inForce.Store(table)
	s.deps.Table = inForce.Load
	ap := serve(t, s, "127.0.0.1")
	transferred := func(origin string) (got []string) {
		for _, rr := range transfer(t, ap.String(), new(dns.Msg).SetAxfr(origin)) {
			if rr.Header().Rrtype != dns.TypeSOA && rr.Header().Rrtype != dns.TypeNS {
				got = append(got, strings.Join(strings.Fields(rr.String()), " "))
			}
		}
		slices.Sort(got)
		return got
	}
	if diff := cmp.Diff([]string{"host.z.test. 60 IN A 10.0.0.1", "phone-of-x.z.test. 30 IN A 10.0.0.50", "pooled.z.test. 30 IN A 10.0.0.77"}, transferred("z.test.")); diff != "" {
		t.Errorf("z.test. (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"50.0.0.10.in-addr.arpa. 30 IN PTR phone-of-x.z.test.", "77.0.0.10.in-addr.arpa. 30 IN PTR pooled.z.test."}, transferred("0.0.10.in-addr.arpa.")); diff != "" {
		t.Errorf("reverse (-want +got):\n%s", diff)
	}
	s.changes.see(s.deps.Table)
	before := table
	leases = leases[1:]
	if table = before.WithLearned(Learned{}); !table.SameLeases(before) {
		t.Error("leases changed while nobody looked at them")
	}
	table = before.WithLearned(Learned{Leases: leases, Leased: leases.all}).WithSerials(map[string]uint32{"z.test.": 6, "0.0.10.in-addr.arpa.": 6})
	inForce.Store(table)
	if table.SameLeases(before) || table.Contents()[0].Hash == before.Contents()[0].Hash {
		t.Error("the content of the zone is the same after a lease ended")
	}

	m := new(dns.Msg)
	m.SetIxfr("z.test.", 5, "ns.", "h.")
	if got := transfer(t, ap.String(), m); len(got) != 5 || got[2].Header().Name != "phone-of-x.z.test." {
		t.Errorf("IXFR has %v, want that one name went", got)
	}
	for _, tt := range []dialogue{{"pooled.z.test. A", "NOERROR aa\nan pooled.z.test. A 10.0.0.77"}} {
		wantAnswers(t, s, "127.0.0.1", []dialogue{tt})
	}
}

// transfer returns all records of a zone transfer.
func transfer(t *testing.T, server string, m *dns.Msg) (all []dns.RR) {
	t.Helper()
	ch, err := (&dns.Transfer{ReadTimeout: time.Minute}).In(m, server)
	if err != nil {
		t.Fatal(err)
	}
	for e := range ch {
		if e.Error != nil {
			t.Fatal(e.Error)
		}
		all = append(all, e.RR...)
	}
	return all
}
