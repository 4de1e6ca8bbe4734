package interfaces

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// TestSegments: link-local addresses belong to the lab by their interface, others by the prefixes of the lab's interfaces.
func TestSegments(t *testing.T) {
	t.Parallel()
	l := &lab.Lab{Networks: []*lab.Network{{Name: "a", Interface: "lo"}, {Name: "gone", Interface: "nosuch0"}, {Name: "relayed"}}}
	s := &Segments{}
	for addr, want := range map[string]bool{
		"fe80::5%lo": true, "fe80::5%1": true, "fe80::5%eth7": false, "fe80::5": false, "::1": true, "2001:db8::1": false,
	} {
		if got := s.Contain(l, netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s is on a segment of the lab: %t, want %t", addr, got, want)
		}
	}
	if s.Contain(&lab.Lab{}, netip.MustParseAddr("::1")) {
		t.Error("an address is on a segment of a lab without networks")
	}
}

// TestAddressFound: an address that a network lacked at the load is found once. One in another network, as behind a relay, is none of those.
func TestAddressFound(t *testing.T) {
	t.Parallel()
	const text = "version: 1\ndomain: lab.test\nnetworks: {far: {subnet: SUBNET, interface: lo}}\n"
	for _, tt := range []struct {
		name, subnet string
		known        bool // at the load
		want         bool
	}{
		{"in its subnet", "127.0.0.0/8", false, true},
		{"in another subnet", "10.9.0.0/24", false, true},
		{"the load knew it", "127.0.0.0/8", true, false},
		{"the load knew the one in another subnet", "10.9.0.0/24", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := load.Options{}
			if tt.known {
				o.InterfaceAddr = AddrIn
			}
			l, err := load.Parse("lab.yaml", []byte(strings.Replace(text, "SUBNET", tt.subnet, 1)), o)
			if err != nil {
				t.Fatal(err)
			}
			if got := AddressFound(l); got != tt.want {
				t.Errorf("got %v, want %v; address %s, warnings %v", got, tt.want, l.Networks[0].Address, l.Warnings)
			}
		})
	}
}
