package lbproxy

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestCompile(t *testing.T) {
	t.Parallel()
	host := &lab.Host{Name: "worker-0", FQDN: "worker-0.lab.test"}
	table := compile(t, &lab.Balancer{
		Name: "web", Listen: lab.BindTo(netip.MustParseAddrPort("10.0.0.1:80")),
		Backends: []lab.Backend{
			{Name: "worker-0", Host: host, Addr: netip.MustParseAddrPort("10.0.0.2:80")},
			{Name: "worker-0", Host: host, Addr: netip.MustParseAddrPort("10.0.0.2:81")},
			{Name: "10.0.0.3", Addr: netip.MustParseAddrPort("10.0.0.3:80"), Backup: true},
			{Name: "worker-1", Addr: netip.MustParseAddrPort("10.0.0.4:80")}, // one host with two addresses
			{Name: "worker-1", Addr: netip.MustParseAddrPort("10.0.1.4:80")},
			{Name: "worker-1", Addr: netip.MustParseAddrPort("10.0.1.4:81")},
		},
	})
	want := &Frontend{
		Name: "web", Listen: lab.BindTo(netip.MustParseAddrPort("10.0.0.1:80")), Mode: lab.ModeTCP, Balance: lab.RoundRobin,
		Check:    lab.Check{Kind: lab.CheckTCP, Path: "/", Interval: 5 * time.Second, Timeout: time.Minute, Rise: 2, Fall: 3},
		Timeouts: lab.Timeouts{Connect: time.Minute, Idle: 10 * time.Minute}.WithDefaults(),
		Backends: []Backend{
			{Name: "worker-0", Label: "worker-0:80", Host: "worker-0", ServerName: "worker-0.lab.test", Weight: 1, Addr: netip.MustParseAddrPort("10.0.0.2:80")},
			{Name: "worker-0", Label: "worker-0:81", Host: "worker-0", ServerName: "worker-0.lab.test", Weight: 1, Addr: netip.MustParseAddrPort("10.0.0.2:81")},
			{Name: "10.0.0.3", Label: "10.0.0.3", ServerName: "10.0.0.3", Weight: 1, Addr: netip.MustParseAddrPort("10.0.0.3:80"), Backup: true},
			{Name: "worker-1", Label: "10.0.0.4:80", ServerName: "10.0.0.4", Weight: 1, Addr: netip.MustParseAddrPort("10.0.0.4:80")},
			{Name: "worker-1", Label: "10.0.1.4:80", ServerName: "10.0.1.4", Weight: 1, Addr: netip.MustParseAddrPort("10.0.1.4:80")},
			{Name: "worker-1", Label: "worker-1:81", ServerName: "10.0.1.4", Weight: 1, Addr: netip.MustParseAddrPort("10.0.1.4:81")},
		},
	}
	got := table.Frontends[0]
	for i := range got.Backends {
		if got.Backends[i].seed == 0 {
			t.Errorf("backend %d has no seed", i)
		}
		got.Backends[i].seed, got.Backends[i].cookie = 0, ""
	}
	got.own, got.hop = nil, lab.Hop{}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Frontend{}, Backend{}), cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMostSpecificNameFirst(t *testing.T) {
	t.Parallel()
	patterns := []string{"api.a.lab", "*.a.lab", "*.apps.a.lab", "x.apps.a.lab", "*"}
	var n nameTable
	for _, p := range patterns {
		n.add(p, nil, &Frontend{Name: p})
	}
	tests := []struct{ name, want string }{
		{"api.a.lab", "api.a.lab"},
		{"other.a.lab", "*.a.lab"},
		{"deep.other.a.lab", "*.a.lab"},
		{"x.apps.a.lab", "x.apps.a.lab"},
		{"y.apps.a.lab", "*.apps.a.lab"},
		{"z.y.apps.a.lab", "*.apps.a.lab"},
		{"apps.a.lab", "*.a.lab"},
		{"a.lab", "*"},
		{"elsewhere", "*"},
	}
	for _, test := range tests {
		if f := n.find(test.name, nil); f == nil || f.Name != test.want {
			t.Errorf("find(%q) = %+v, want the owner of %q", test.name, f, test.want)
		}
	}
	if f := n.find("", nil); f != nil {
		t.Errorf("the empty name matches %q, want none", f.Name)
	}
	if f := (&nameTable{}).find("a.lab", nil); f != nil {
		t.Errorf("an empty table found %+v", f)
	}
}

func TestHostname(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		{"Example.COM", "example.com"},
		{"example.com:8080", "example.com"},
		{"example.com.", "example.com"},
		{"[fd00::1]:80", "fd00::1"},
		{"[fd00::1]", "fd00::1"},
		{"10.0.0.1:80", "10.0.0.1"},
		{"", ""},
	}
	for _, test := range tests {
		if got := hostname(test.in); got != test.want {
			t.Errorf("hostname(%q) = %q, want %q", test.in, got, test.want)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	// A large lab: 10,000 hosts in 100 clusters, each behind four balancers.
	l := &lab.Lab{}
	for c := range 100 {
		for _, port := range []int{80, 443, 6443, 22623} {
			bal := &lab.Balancer{Name: fmt.Sprintf("c%d-%d", c, port), Listen: lab.BindTo(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(c), 1}), uint16(port)))}
			for h := range 100 {
				bal.Backends = append(bal.Backends, lab.Backend{Name: fmt.Sprintf("h%d", h), Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(c), byte(h)}), uint16(port))})
			}
			l.Balancers = append(l.Balancers, bal)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		Compile(l)
	}
}
