// Package clientaddr says which addresses are one client, for limits that are fair between clients.
package clientaddr

import "net/netip"

// Of returns what a client is counted by: its IPv4 address, or the /64 network of its IPv6 address, in which one machine may have any number
// of addresses (RFC 4291 section 2.5.1, RFC 8981). An address of IPv4 in IPv6 is one of IPv4, and zones do not count. No address is a client
// like any other: the zero Addr, as all clients of a Unix socket.
func Of(addr netip.Addr) netip.Addr {
	addr = addr.Unmap()
	if !addr.Is6() {
		return addr
	}
	network, _ := addr.WithZone("").Prefix(64) // fails for addresses with a zone, or shorter ones
	return network.Addr()
}
