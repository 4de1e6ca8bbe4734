package dhcpd

import (
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/dhcpd/segment"
)

// TestReservedAddressIsOfferedAtOnce: an address that is picked from a pool is probed for before it is offered; one that the lab file
// reserves, or that the machine has had, is not: it would only make the boot later.
func TestReservedAddressIsOfferedAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	had := "02:00:00:00:01:01"
	b.lease(t, had, udhcpc) // without a socket nothing is probed
	for _, tt := range []struct {
		name, mac string
		atOnce    bool
	}{{"reserved", master0, true}, {"leased before", had, true}, {"new to a pool", other, false}} {
		wire := &capture{}
		before := b.probes.b.tokens
		b.handle(&exchange{iface: "lab0", port: 67, sock: &segment.Socket{}, out: wire},
			message(t, dhcpv4.MessageTypeDiscover, mac(t, tt.mac), ovmf))
		if got := len(wire.sent) == 1; got != tt.atOnce {
			t.Errorf("%s: offered at once: %v, want %v", tt.name, got, tt.atOnce)
		}
		if probed := b.probes.b.tokens != before; probed == tt.atOnce {
			t.Errorf("%s: probed: %v", tt.name, probed)
		}
	}
}
