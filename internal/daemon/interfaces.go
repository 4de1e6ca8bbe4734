package daemon

import (
	"net"
	"net/netip"
	"slices"

	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
)

// InterfaceAddr returns the address that the interface has inside subnet, the default of a network's address.
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

// AddressWarnings warns of networks whose interface exists while no interface of this machine has their address: machines would
// be sent there for everything they boot.
func AddressWarnings(l *lab.Lab) (warnings lab.Problems) {
	for _, n := range l.Networks {
		if !addressMissing(n) {
			continue
		}
		warnings.Addf(n.Pos, "networks."+n.Name+".address", "no interface of this machine has %[1]s, from which machines boot: run ip addr add %[1]s/%[2]d dev %[3]s, or set the address that it has", n.Address, n.Subnet.Bits(), n.Interface)
	}
	return warnings
}

// addressMissing reports whether this machine has the interface of n, but not its address.
func addressMissing(n *lab.Network) bool {
	if n.Interface == "" || !n.Address.IsValid() || n.DHCP == lab.DHCPOff {
		return false
	}
	if _, err := net.InterfaceByName(n.Interface); err != nil {
		return false // the lab of another machine, or a bridge that is made later
	}
	addrs, err := net.InterfaceAddrs()
	return err == nil && !slices.ContainsFunc(addrs, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr() == n.Address
	})
}

// currentWarnings returns the warnings that hold now: those of the load, and addresses lost since.
func currentWarnings(s *snapshot.Snapshot) []string {
	ws := warnings(s)
	for _, p := range AddressWarnings(s.Lab) {
		if text := p.Error(); !slices.Contains(ws, text) {
			ws = append(ws, text)
		}
	}
	return ws
}

// look is called every lookEvery. It follows the memory limit, logs new warnings, and reports whether the lab has to be reloaded for an address that
// exists now.
func (d *Daemon) look() bool {
	d.watchStore()
	d.followMemory()
	d.warnNew(d.current.Load())
	return d.addressFound()
}

// addressFound reports whether an interface has an address now that its network lacked at the load.
func (d *Daemon) addressFound() bool {
	l := d.current.Load().Lab
	for _, n := range l.Networks {
		warned := slices.ContainsFunc(l.Warnings, func(w *lab.Problem) bool { return w.Pos == n.Pos && w.Key == "networks."+n.Name+".address" })
		if warned && n.Address.IsValid() && !addressMissing(n) {
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
