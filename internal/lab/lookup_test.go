package lab_test

import (
	"net/netip"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]*lab.Lab{
		"0 hosts, 0 networks":              {},
		"1 host, 1 network":                {Hosts: make([]*lab.Host, 1), Networks: make([]*lab.Network, 1)},
		"2 hosts, 0 networks, 1 cluster":   {Hosts: make([]*lab.Host, 2), Clusters: make([]*lab.Cluster, 1)},
		"0 hosts, 0 networks, 3 balancers": {Balancers: make([]*lab.Balancer, 3)},
	} {
		if got := l.Summary(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestNetworkOf: an address is in a network by its IPv4 subnet or its IPv6 subnet.
func TestNetworkOf(t *testing.T) {
	t.Parallel()
	l := &lab.Lab{Networks: []*lab.Network{
		{Name: "a", Subnet: netip.MustParsePrefix("10.0.0.0/24"), Subnet6: netip.MustParsePrefix("fd00:16::/64")},
		{Name: "b", Subnet: netip.MustParsePrefix("10.0.1.0/24")},
	}}
	l.Index()
	for addr, want := range map[string]string{"10.0.0.7": "a", "10.0.1.7": "b", "fd00:16::7": "a", "10.0.2.7": "", "fd00:17::7": "", "::ffff:10.0.0.7": ""} {
		got := ""
		if n := l.NetworkOf(netip.MustParseAddr(addr)); n != nil {
			got = n.Name
		}
		if got != want {
			t.Errorf("%s is in network %q, want %q", addr, got, want)
		}
	}
	if (&lab.Lab{}).NetworkOf(netip.Addr{}) != nil {
		t.Error("no address is in a network")
	}
}
