package vip

import (
	"net/netip"

	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/link/nd"
	"github.com/bootlab/bootlab/internal/lab"
)

// A claim is what a frame says of an address.
type claim struct {
	addr  netip.Addr
	mac   lab.MAC
	probe bool // the sender does not use the address: it wants to
	link  int
}

// parseARP returns the claim of an ARP frame. A probe claims what it asks for (RFC 5227 section 2.1.1).
func parseARP(frame []byte) (c claim, ok bool) {
	if addr, mac, _, ok := arp.Parse(frame); ok {
		return claim{addr: addr, mac: mac}, true
	}
	addr, mac, ok := arp.ParseProbe(frame)
	return claim{addr: addr, mac: mac, probe: true}, ok
}

// parseND returns the claim of a neighbour advertisement, or of a probe (RFC 4862 section 5.4.3).
func parseND(frame []byte) (c claim, ok bool) {
	if addr, mac, ok := nd.ParseAdvertisement(frame); ok {
		if mac.IsZero() {
			mac = lab.MAC(frame[6:12])
		}
		return claim{addr: addr, mac: mac}, !mac.IsZero() && mac[0]&1 == 0
	}
	addr, mac, ok := nd.ParseProbe(frame)
	return claim{addr: addr, mac: mac, probe: true}, ok
}

// probe returns the frame that asks whether anybody uses an address, from a machine that does not.
func probe(mac lab.MAC, a netip.Addr) []byte {
	if a.Is4() {
		f := arp.Request(mac, netip.Addr{}, arp.Broadcast, a)
		return f[:]
	}
	return nd.Solicitation(mac, netip.Addr{}, nd.Multicast(a), a)
}

// gratuitousARP returns the frame that makes all machines of a segment send to this MAC what is for a: an ARP announcement (RFC 5227
// section 3), or an unsolicited neighbour advertisement that overrides what they know (RFC 4861 section 7.2.6).
func gratuitousARP(mac lab.MAC, a netip.Addr) []byte {
	if a.Is4() {
		f := arp.Request(mac, a, arp.Broadcast, a)
		return f[:]
	}
	return nd.Announcement(mac, a)
}
