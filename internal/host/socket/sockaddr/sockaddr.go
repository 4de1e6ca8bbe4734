// Package sockaddr converts addresses to and from the layout of the kernel, for system calls that are made without package
// net.
package sockaddr

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Raw holds a sockaddr_in, sockaddr_in6 or sockaddr_ll, of which sockaddr_in6 is the largest.
type Raw struct{ raw unix.RawSockaddrInet6 }

// Size is that of a Raw, for system calls that fill it.
const Size = unix.SizeofSockaddrInet6

// Pointer returns where the kernel reads or writes it.
func (s *Raw) Pointer() *byte { return (*byte)(unsafe.Pointer(&s.raw)) }

func (s *Raw) inet4() *unix.RawSockaddrInet4 {
	return (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
}

// port is at the same offset in both families, in network order.
func (s *Raw) port() []byte { return (*[2]byte)(unsafe.Pointer(&s.raw.Port))[:] }

// Set makes s the address of a peer and returns its size.
func (s *Raw) Set(to netip.AddrPort) uint32 {
	size, a := uint32(unix.SizeofSockaddrInet4), to.Addr()
	if a.Is4() {
		*s.inet4() = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: a.As4()}
	} else {
		size = unix.SizeofSockaddrInet6
		s.raw = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: a.As16(), Scope_id: uint32(ZoneIndex(a.Zone()))}
	}
	binary.BigEndian.PutUint16(s.port(), to.Port())
	return size
}

// SetLink makes s the address of a machine on the interface of that index, and returns its size.
func (s *Raw) SetLink(index int, mac [6]byte) uint32 {
	link := (*unix.RawSockaddrLinklayer)(unsafe.Pointer(&s.raw))
	*link = unix.RawSockaddrLinklayer{Family: unix.AF_PACKET, Ifindex: int32(index), Halen: uint8(len(mac))}
	copy(link.Addr[:], mac[:])
	return unix.SizeofSockaddrLinklayer
}

// AddrPort returns the address, with the zone of WithZone.
func (s *Raw) AddrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(s.port())
	if s.raw.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4(s.inet4().Addr), port)
	}
	return netip.AddrPortFrom(WithZone(netip.AddrFrom16(s.raw.Addr), int(s.raw.Scope_id)), port)
}

// WithZone gives a link-local IPv6 address the number of its interface as its zone: the name would cost a system call.
func WithZone(a netip.Addr, index int) netip.Addr {
	if a.IsLinkLocalUnicast() && a.Is6() && !a.Is4In6() && index > 0 {
		return a.WithZone(strconv.Itoa(index))
	}
	return a
}

// ZoneIndex returns the index of the interface that a zone names, by number or by name; 0: none.
func ZoneIndex(zone string) int {
	if zone == "" {
		return 0
	}
	if n, err := strconv.Atoi(zone); err == nil {
		return n
	}
	if ifi, err := net.InterfaceByName(zone); err == nil {
		return ifi.Index
	}
	return 0
}
