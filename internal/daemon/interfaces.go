package daemon

import (
	"net"
	"net/netip"
	"slices"

	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
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

// AddressWarnings warns of networks whose interface is here and whose address no interface of this machine has: their machines
// would be sent there for all that they boot.
func AddressWarnings(l *lab.Lab) (warnings lab.Problems) {
	for _, n := range l.Networks {
		if !unheld(n) {
			continue
		}
		warnings.Addf(n.Pos, "networks."+n.Name+".address", "no interface of this machine has %[1]s, where machines are told to fetch what they boot: ip addr add %[1]s/%[2]d dev %[3]s, or want the address that it has", n.Address, n.Subnet.Bits(), n.Interface)
	}
	return warnings
}

// unheld reports whether the lab says an address of ours that this machine does not have, though it has the interface.
func unheld(n *lab.Network) bool {
	if n.Interface == "" || !n.Address.IsValid() || n.DHCP == lab.DHCPOff {
		return false
	}
	if _, err := net.InterfaceByName(n.Interface); err != nil {
		return false // another machine's lab, or a bridge that is made after us
	}
	addrs, err := net.InterfaceAddrs()
	return err == nil && !slices.ContainsFunc(addrs, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr() == n.Address
	})
}

// interfaceWarnings warns of networks whose interface this machine does not have (any more).
func interfaceWarnings(l *lab.Lab) (warnings lab.Problems) {
	for _, n := range l.Networks {
		if n.Interface == "" || n.DHCP == lab.DHCPOff {
			continue
		}
		if _, err := net.InterfaceByName(n.Interface); err != nil {
			warnings.Addf(n.Pos, "networks."+n.Name+".interface", "this machine has no interface %s, so nobody of this network gets an answer by DHCP until it has: ip link shows those that it has", n.Interface)
		}
	}
	return warnings
}

// standing returns the warnings that stand now: those of the load that still hold, and what the machine has lost since.
func standing(s *snapshot.Snapshot) []string {
	ws := warnings(s)
	for _, p := range slices.Concat(AddressWarnings(s.Lab), interfaceWarnings(s.Lab)) {
		if text := p.Error(); !slices.Contains(ws, text) {
			ws = append(ws, text)
		}
	}
	return ws
}

// look is called every lookEvery. It tells what the machine has lost since, and reports whether the lab is to be read again
// for an address that is there now.
func (d *Daemon) look() bool {
	d.watchStore()
	d.warnNew(d.current.Load())
	return d.addressFound()
}

// addressFound reports whether a network of the lab in force, that takes its address from its interface and has none,
// could have one now, or one that was missed is there: its bridge may be made after us.
func (d *Daemon) addressFound() bool {
	l := d.current.Load().Lab
	for _, n := range l.Networks {
		missed := slices.ContainsFunc(l.Warnings, func(w *lab.Problem) bool { return w.Pos == n.Pos && w.Key == "networks."+n.Name+".address" })
		if missed && n.Address.IsValid() && !unheld(n) {
			return true
		}
		if n.Interface == "" || n.Address.IsValid() {
			continue
		}
		if _, ok := InterfaceAddr(n.Interface, n.Subnet); ok {
			return true
		}
	}
	return false
}
