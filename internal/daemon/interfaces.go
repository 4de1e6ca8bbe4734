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

// addressFound reports whether a network of the lab in force, that takes its address from its interface and has none,
// could have one now: its bridge may be made after us.
func (d *Daemon) addressFound() bool {
	for _, n := range d.current.Load().Lab.Networks {
		if n.Interface == "" || n.Address.IsValid() {
			continue
		}
		if _, ok := InterfaceAddr(n.Interface, n.Subnet); ok {
			return true
		}
	}
	return false
}
