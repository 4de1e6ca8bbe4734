package daemon

import (
	"net"
	"net/netip"
)

// InterfaceAddr returns the address that the interface has inside subnet: what a network without `address` takes.
func InterfaceAddr(name string, subnet netip.Prefix) (netip.Addr, bool) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return netip.Addr{}, false
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		return netip.Addr{}, false
	}
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err == nil && subnet.Contains(prefix.Addr()) {
			return prefix.Addr(), true
		}
	}
	return netip.Addr{}, false
}
