package lab_test

import (
	"net/netip"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

func TestMayReply(t *testing.T) {
	t.Parallel()
	l := &lab.Lab{Networks: []*lab.Network{
		{Subnet: netip.MustParsePrefix("10.66.0.0/24")}, {Subnet: netip.MustParsePrefix("10.67.0.0/20")}, {Subnet: netip.MustParsePrefix("10.68.0.0/31")},
	}}
	for addr, want := range map[string]bool{
		"10.66.0.255": false, "::ffff:10.66.0.255": false, "10.66.0.0": false, "10.66.0.1": true, "10.66.1.255": true,
		"10.67.15.255": false, "10.67.1.255": true, "10.67.1.0": true, "10.68.0.0": true, "10.68.0.1": true,
		"255.255.255.255": false, "224.0.0.1": false, "0.0.0.0": false, "127.0.0.1": true, "8.8.8.8": true,
		"::": false, "ff02::1%eth0": false, "fe80::1%eth0": true, "2001:db8::1": true,
	} {
		if got := l.MayReply(netip.MustParseAddr(addr)); got != want {
			t.Errorf("MayReply(%s) = %v, want %v", addr, got, want)
		}
	}
	if l.MayReply(netip.Addr{}) {
		t.Error("a reply may be sent to no address")
	}
}
