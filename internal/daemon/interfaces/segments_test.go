package interfaces

import (
	"net/netip"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

// TestSegments: link-local addresses belong to the lab by their interface, others by the prefixes of the lab's interfaces.
func TestSegments(t *testing.T) {
	t.Parallel()
	l := &lab.Lab{Networks: []*lab.Network{{Name: "a", Interface: "lo"}, {Name: "gone", Interface: "nosuch0"}, {Name: "relayed"}}}
	s := &Segments{Lab: func() *lab.Lab { return l }}
	for addr, want := range map[string]bool{
		"fe80::5%lo": true, "fe80::5%1": true, "fe80::5%eth7": false, "fe80::5": false, "::1": true, "2001:db8::1": false,
	} {
		if got := s.Contains(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s is on a segment of the lab: %t, want %t", addr, got, want)
		}
	}
	other := &lab.Lab{}
	l = other
	if s.Contains(netip.MustParseAddr("::1")) {
		t.Error("a reload without that network changed nothing")
	}
}
