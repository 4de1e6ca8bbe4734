package health

import (
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
	unknown    bool // the kernel did not answer: nothing counts as missing
}

// thisMachine asks the kernel.
func thisMachine() machine {
	interfaces, errInterfaces := net.Interfaces()
	addrs, errAddrs := links.Addrs()
	return machine{interfaces: interfaces, addrs: addrs, unknown: errInterfaces != nil || errAddrs != nil}
}

// addressError returns errNoAddress for an address and port that clients do not reach: no interface has the address.
func (m machine) addressError(socket string) error {
	at, err := netip.ParseAddrPort(strings.TrimSuffix(socket, udpSuffix))
	if err != nil || m.unknown || m.addrs.Serve(at.Addr()) {
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
		if at, _ := netip.ParseAddrPort(strings.TrimSuffix(socket, udpSuffix)); err == nil || reported(at.Addr()) {
			continue
		} else if text := at.Addr().String() + ": " + err.Error(); !slices.Contains(warnings, text) {
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
