package health

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/host/link/links"
	"github.com/bootlab/bootlab/internal/lab"
)

// A machine is what this machine has of interfaces and addresses at one moment.
type machine struct {
	interfaces []net.Interface
	addrs      links.Addresses
	unlinked   map[netip.Addr]net.Interface // of the addresses that only an interface has which is down, or has no carrier
	unknown    bool                         // the kernel did not answer: nothing counts as missing
}

// thisMachine asks the kernel.
func thisMachine() machine {
	interfaces, errInterfaces := net.Interfaces()
	addrs, errAddrs := links.Addrs()
	return machine{interfaces: interfaces, addrs: addrs, unlinked: unlinked(interfaces, addrs), unknown: errInterfaces != nil || errAddrs != nil}
}

// unlinked returns the addresses that no interface which is up and connected has, each with an interface that has it.
func unlinked(interfaces []net.Interface, addrs links.Addresses) map[netip.Addr]net.Interface {
	const linked = net.FlagUp | net.FlagRunning
	by, times := map[netip.Addr]net.Interface{}, map[netip.Addr]int{}
	for _, ifi := range interfaces {
		if ifi.Flags&linked == linked || ifi.Flags&net.FlagLoopback != 0 {
			continue
		}
		prefixes, _ := links.Prefixes(ifi.Name) // an error: it has gone
		for _, p := range prefixes {
			by[p.Addr()] = ifi
			times[p.Addr()]++
		}
	}
	for _, a := range addrs {
		times[a]--
	}
	maps.DeleteFunc(by, func(a netip.Addr, _ net.Interface) bool { return times[a] < 0 }) // another interface has it, too
	return by
}

// socketError returns why clients do not reach a socket that a server has opened; nil: they do. An address of balancers that this machine lacks
// may be another machine's for now, but not while the interface of its network is gone or down.
func (m machine) socketError(server, socket string, l *lab.Lab) error {
	if server == DHCP {
		return m.interfaceError(socket)
	}
	if ifi, ok := m.unlinked[addrOf(socket)]; ok && ifi.Flags&net.FlagUp == 0 {
		return &downError{ifi.Name}
	}
	err := m.addressError(socket)
	if server != LB || err == nil {
		return err
	}
	if n := l.NetworkOf(addrOf(socket)); n != nil {
		return m.interfaceError(n.Interface)
	}
	return nil
}

// A downError is segment.ErrDown of the interface of an address.
type downError struct{ name string }

// Error implements error.
func (e *downError) Error() string { return e.name + " is down" }

// Unwrap returns segment.ErrDown.
func (e *downError) Unwrap() error { return segment.ErrDown }

// errNoCarrier is why a server that serves is reached by nobody on an interface.
var errNoCarrier = errors.New("interface has no carrier")

// unconnected returns one warning for each interface of the sockets of a server that is unconnected.
func (m machine) unconnected(server string, sockets []string, is func(iface string) bool) (warnings []string) {
	for _, socket := range sockets {
		name := socket
		if server != DHCP {
			name = m.unlinked[addrOf(socket)].Name
		}
		text := name + ": " + errNoCarrier.Error() + ": nobody is reached on it"
		if name != "" && !slices.Contains(warnings, text) && is(name) {
			warnings = append(warnings, text)
		}
	}
	return warnings
}

// addrOf returns the address of a socket; zero: it has none.
func addrOf(socket string) netip.Addr {
	at, _ := netip.ParseAddrPort(strings.TrimSuffix(socket, udpSuffix))
	return at.Addr().WithZone("").Unmap()
}

// addressError returns errNoAddress for an address and port that clients do not reach: no interface has the address.
func (m machine) addressError(socket string) error {
	addr := addrOf(socket)
	if !addr.IsValid() || m.unknown || m.addrs.Serve(addr) {
		return nil
	}
	return errNoAddress
}

// interfaceError returns why an interface cannot be served: ErrNoInterface, ErrDown, else nil. The empty name is that of all.
func (m machine) interfaceError(name string) error {
	if name == "" || m.unknown {
		return nil
	}
	i := slices.IndexFunc(m.interfaces, func(ifi net.Interface) bool { return ifi.Name == name })
	switch {
	case i < 0:
		return segment.ErrNoInterface
	case m.interfaces[i].Flags&net.FlagUp == 0:
		return segment.ErrDown
	}
	return nil
}

// missing returns one warning for each address of these sockets that this machine lacks, unless it is reported already.
func (m machine) missing(sockets []string, reported func(netip.Addr) bool) (warnings []string) {
	for _, socket := range sockets {
		err := m.addressError(socket)
		if err == nil || reported(addrOf(socket)) {
			continue
		}
		if text := addrOf(socket).String() + ": " + err.Error(); !slices.Contains(warnings, text) {
			warnings = append(warnings, text)
		}
	}
	return warnings
}

// reportsAddress reports whether an address has a line of its own in the status when it is missing: those of networks have a warning, those
// of clusters and balancers a state.
func reportsAddress(l *lab.Lab) func(netip.Addr) bool {
	vips := l.VIPs()
	return func(a netip.Addr) bool {
		return slices.ContainsFunc(l.Networks, func(n *lab.Network) bool { return n.Address == a }) ||
			slices.ContainsFunc(vips, func(s lab.VIP) bool { return s.Addr == a })
	}
}
