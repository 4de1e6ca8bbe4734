// Package nd encodes, parses and filters neighbour solicitations and advertisements of IPv6 over Ethernet (RFC 4861), for packet sockets. It
// opens no socket, and needs no IPv6 in the kernel.
//
//	frame := nd.Solicitation(ours, ourAddr, nd.Multicast(addr), addr) // who has addr?
//	addr, mac, ok := nd.ParseAdvertisement(frame)                    // mac uses addr
package nd

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/lab"
)

// The layout of a frame: Ethernet, IPv6 without extension headers (RFC 8200), ICMPv6, one option.
const (
	ether  = 14
	ipv6   = 40
	icmp   = ether + ipv6 // type, code, checksum, flags, target
	option = icmp + 24    // type, length in units of 8 bytes, MAC
	size   = option + 8   // of a solicitation
)

// Size is as much of a frame as is looked at. Advertisements have one option, or few.
const Size = 256

const (
	hops          = 255 // RFC 4861 section 7.1: a lower hop limit came from another network
	solicitation  = 135
	advertisement = 136
	sourceMAC     = 1 // options (RFC 4861 section 4.6.1)
	targetMAC     = 2
)

// Filter lets neighbour advertisements pass, for this host or for all. Other frames (PACKET_OTHERHOST) are for another host, or of a VLAN
// that this machine has no interface for.
func Filter() []bpf.RawInstruction {
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OTHERHOST, SkipTrue: 5},
		bpf.LoadAbsolute{Off: ether + 6, Size: 2}, // next header, hop limit
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6<<8 | hops, SkipTrue: 3},
		bpf.LoadAbsolute{Off: icmp, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: advertisement, SkipTrue: 1},
		bpf.RetConstant{Val: Size}, bpf.RetConstant{Val: 0},
	})
	if err != nil {
		panic(err) // the program is constant
	}
	return raw
}

// Multicast returns the MAC to which all machines listen that may have an IPv6 address (RFC 2464 section 7 of its solicited-node address).
func Multicast(target netip.Addr) lab.MAC {
	a := target.As16()
	return lab.MAC{0x33, 0x33, 0xff, a[13], a[14], a[15]}
}

// Solicitation is a request for the MAC of target, an IPv6 address, from a machine with that MAC and address, sent to that MAC. The IPv6
// destination is target's solicited-node address even if one machine alone is asked: only an answer to that must name its MAC (RFC 4861
// section 4.4).
func Solicitation(from lab.MAC, addr netip.Addr, to lab.MAC, target netip.Addr) []byte {
	f := make([]byte, size)
	copy(f[0:], to[:])
	copy(f[6:], from[:])
	binary.BigEndian.PutUint16(f[12:], unix.ETH_P_IPV6)
	f[ether] = 6 << 4
	binary.BigEndian.PutUint16(f[ether+4:], size-icmp)
	f[ether+6], f[ether+7] = unix.IPPROTO_ICMPV6, hops
	source, wanted := addr.As16(), target.As16()
	copy(f[ether+8:], source[:])
	copy(f[ether+24:], []byte{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, wanted[13], wanted[14], wanted[15]})
	f[icmp] = solicitation
	copy(f[icmp+8:], wanted[:])
	f[option], f[option+1] = sourceMAC, 1
	copy(f[option+2:], from[:])
	binary.BigEndian.PutUint16(f[icmp+2:], ^sum(f[ether:]))
	return f
}

// ParseAdvertisement returns which address a neighbour advertisement is about, and the MAC that it names. ok is false for any other frame,
// and for one without a MAC. Whether that MAC sent the frame, the caller compares.
func ParseAdvertisement(frame []byte) (target netip.Addr, mac lab.MAC, ok bool) {
	if len(frame) < option || binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_IPV6 || frame[ether]>>4 != 6 {
		return target, mac, false
	}
	length := int(binary.BigEndian.Uint16(frame[ether+4:])) // without what pads a short frame
	if frame[ether+6] != unix.IPPROTO_ICMPV6 || frame[ether+7] != hops || length < option-icmp || icmp+length > len(frame) {
		return target, mac, false
	}
	frame = frame[:icmp+length]
	if frame[icmp] != advertisement || frame[icmp+1] != 0 || sum(frame[ether:]) != 0xffff {
		return target, mac, false
	}
	target = netip.AddrFrom16([16]byte(frame[icmp+8:]))
	mac, ok = optionMAC(frame[option:], targetMAC)
	if !ok || target.Is4In6() || !target.IsGlobalUnicast() && !target.IsLinkLocalUnicast() {
		return netip.Addr{}, lab.MAC{}, false
	}
	return target, mac, true
}

// optionMAC returns the MAC of the first option of a kind.
func optionMAC(options []byte, kind byte) (mac lab.MAC, ok bool) {
	for len(options) >= 8 {
		n := int(options[1]) * 8
		if n == 0 || n > len(options) { // RFC 4861 section 4.6: an option without length spoils the packet
			return mac, false
		}
		if options[0] == kind && n == 8 {
			mac = lab.MAC(options[2:8])
			return mac, !mac.IsZero() && mac[0]&1 == 0
		}
		options = options[n:]
	}
	return mac, false
}

// sum is the sum of RFC 1071 over an ICMPv6 packet and its pseudo-header (RFC 8200 section 8.1), p being the IPv6 packet. It is 0xffff if the
// checksum is right.
func sum(p []byte) uint16 {
	total := uint32(len(p)-ipv6) + unix.IPPROTO_ICMPV6
	for b := p[8:]; len(b) > 0; b = b[min(2, len(b)):] { // addresses and ICMPv6
		total += uint32(b[0]) << 8
		if len(b) > 1 {
			total += uint32(b[1])
		}
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}
