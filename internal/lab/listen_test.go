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
