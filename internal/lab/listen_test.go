package lab

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestListenAddrs(t *testing.T) {
	t.Parallel()
	port := func(p uint16) netip.AddrPort { return netip.AddrPortFrom(netip.Addr{}, p) }
	at := netip.MustParseAddrPort
	l := &Lab{Networks: []*Network{{Address: netip.MustParseAddr("10.0.0.1")}, {}, {Address: netip.MustParseAddr("10.0.0.1")}, {Address: netip.MustParseAddr("10.1.0.1")}}}
	for _, tt := range []struct {
		name string
		l    Listen
		want []string
	}{
		{"off", nil, nil},
		{"the lab's own", Listen{port(53)}, []string{"10.0.0.1:53", "10.1.0.1:53", "127.0.0.1:53", "[::1]:53"}},
		{"one address", Listen{at("10.1.0.1:53")}, []string{"10.1.0.1:53"}},
		{"both families", Listen{at("10.1.0.1:53"), at("[fd00::1]:53")}, []string{"10.1.0.1:53", "[fd00::1]:53"}},
		{"own ones and another", Listen{at("192.0.2.1:80"), port(80)}, []string{"10.0.0.1:80", "10.1.0.1:80", "127.0.0.1:80", "192.0.2.1:80", "[::1]:80"}},
		{"twice", Listen{at("10.1.0.1:53"), port(53), at("10.1.0.1:53")}, []string{"10.0.0.1:53", "10.1.0.1:53", "127.0.0.1:53", "[::1]:53"}},
		{"every IPv4 address", Listen{at("0.0.0.0:53"), port(53)}, []string{"0.0.0.0:53", "[::1]:53"}},
		{"every address", Listen{port(53), at("0.0.0.0:53"), at("[::]:53")}, []string{"[::]:53"}},
		{"two ports", Listen{at("[::]:53"), at("10.0.0.1:54")}, []string{"10.0.0.1:54", "[::]:53"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, a := range tt.l.Addrs(l.OwnAddresses()) {
				got = append(got, a.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestVIPs: of clusters and balancers, each once; not this machine's own ones, and not another host's.
func TestVIPs(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddrPort
	n := &Network{Name: "n", Subnet: netip.MustParsePrefix("10.0.0.0/24"), Subnet6: netip.MustParsePrefix("fd00::/64"), Address: netip.MustParseAddr("10.0.0.1")}
	c := &Cluster{Name: "c", Address: netip.MustParseAddr("10.0.0.10"), Ingress: netip.MustParseAddr("10.0.0.11")}
	l := &Lab{Networks: []*Network{n}, Hosts: []*Host{
		{Name: "node", MACs: []MAC{{2}}, IP: netip.MustParseAddr("10.0.0.20")}, {Name: "vip", IP: netip.MustParseAddr("10.0.0.12")},
	}, Balancers: []*Balancer{
		{Name: "a", Listen: BindTo(at("10.0.0.10:80"))}, {Name: "api", Cluster: c, Listen: BindTo(at("10.0.0.10:6443"))}, {Name: "in", Cluster: c, Listen: BindTo(at("10.0.0.11:443"))},
		{Name: "own", Listen: BindTo(at("10.0.0.1:80"))}, {Name: "all", Listen: BindTo(at("0.0.0.0:81"))}, {Name: "lo", Listen: BindTo(at("127.0.0.1:80"))}, {Name: "single", Listen: BindTo(at("10.0.0.20:6443"))},
		{Name: "named", Listen: BindTo(at("10.0.0.12:80"))}, {Name: "six", Listen: BindTo(at("[fd00::10]:80"))}, {Name: "far", Listen: BindTo(at("192.0.2.1:80"))},
	}}
	l.Index()
	var got []string
	for _, s := range l.VIPs() {
		network := "none"
		if s.Network != nil {
			network = s.Network.Name
		}
		got = append(got, s.Addr.String()+" "+s.Key+" "+network+" "+s.For)
	}
	want := []string{
		"10.0.0.10 clusters.c.address n cluster c", "10.0.0.11 clusters.c.ingress n cluster c", "10.0.0.12 balancers.named.listen n balancer named",
		"192.0.2.1 balancers.far.listen none balancer far", "fd00::10 balancers.six.listen n balancer six",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
