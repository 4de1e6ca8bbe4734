package lab

import (
	"fmt"
	"iter"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Bind is where a balancer listens: an address, an unspecified one of which is every address, and one or several ports.
type Bind struct {
	Addr        netip.Addr
	First, Last uint16 // ports; equal: one
}

// Binds are all of a balancer, sorted as in the lab file; none: its backends are only checked.
type Binds []Bind

// BindTo returns binds of one port each.
func BindTo(addrs ...netip.AddrPort) (b Binds) {
	for _, a := range addrs {
		b = append(b, Bind{a.Addr(), a.Port(), a.Port()})
	}
	return b
}

// Ports returns how many ports it has.
func (b Bind) Ports() int { return int(b.Last) - int(b.First) + 1 }

// String returns the bind as the lab file has it: 192.168.16.10:80 or [fd00::10]:30000-32767.
func (b Bind) String() string {
	text := net.JoinHostPort(b.Addr.String(), strconv.Itoa(int(b.First)))
	if b.Last != b.First {
		text += fmt.Sprintf("-%d", b.Last)
	}
	return text
}

// has reports whether the bind has a port of that address, as it is written.
func (b Bind) has(a netip.AddrPort) bool {
	return b.Addr == a.Addr() && b.First <= a.Port() && a.Port() <= b.Last
}

// SharesPort reports whether the binds have a port in common, of whatever address.
func (b Bind) SharesPort(other Bind) bool { return b.First <= other.Last && other.First <= b.Last }

// String returns the binds with commas between; empty: none.
func (b Binds) String() string {
	texts := make([]string, len(b))
	for i := range b {
		texts[i] = b[i].String()
	}
	return strings.Join(texts, ", ")
}

// All returns each address and port.
func (b Binds) All() iter.Seq[netip.AddrPort] {
	return func(yield func(netip.AddrPort) bool) {
		for _, bind := range b {
			for port := int(bind.First); port <= int(bind.Last); port++ {
				if !yield(netip.AddrPortFrom(bind.Addr, uint16(port))) {
					return
				}
			}
		}
	}
}

// Ports returns how many addresses and ports there are.
func (b Binds) Ports() (n int) {
	for _, bind := range b {
		n += bind.Ports()
	}
	return n
}

// Port returns the port that all binds have; 0: they have several.
func (b Binds) Port() uint16 {
	if len(b) == 0 || slices.ContainsFunc(b, func(o Bind) bool { return o.First != b[0].First || o.Last != b[0].First }) {
		return 0
	}
	return b[0].First
}

// Has reports whether an address and port is among them, as it is written.
func (b Binds) Has(a netip.AddrPort) bool {
	return slices.ContainsFunc(b, func(bind Bind) bool { return bind.has(a) })
}

// Addrs returns the addresses, each once.
func (b Binds) Addrs() (addrs []netip.Addr) {
	for _, bind := range b {
		if !slices.Contains(addrs, bind.Addr) {
			addrs = append(addrs, bind.Addr)
		}
	}
	return addrs
}

// LeadsTo reports whether a connection to a backend would come to a bind; own are the addresses of this machine.
func LeadsTo(at Bind, m netip.AddrPort, own []netip.Addr) bool {
	if port := m.Port(); port != 0 && (port < at.First || at.Last < port) {
		return false
	}
	return m.Addr() == at.Addr || at.Addr.IsUnspecified() && (m.Addr().IsLoopback() || slices.Contains(own, m.Addr()))
}
