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

	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/lab"
)

// The layout of a frame: Ethernet, IPv6 without extension headers (RFC 8200), ICMPv6, options.
const (
	ether  = 14
	ipv6   = 40
	icmp   = ether + ipv6 // type, code, checksum, flags, target
	option = icmp + 24    // type, length in units of 8 bytes, MAC
)

// Size is as much of a frame as is looked at: all of it, for the checksum.
const Size = 1514

const (
	hops          = 255 // RFC 4861 section 7.1: a lower hop limit came from another network
	solicitation  = 135
	advertisement = 136
	override      = 0x20 // a flag of an advertisement: it replaces what is known
	sourceMAC     = 1    // options (RFC 4861 section 4.6.1)
	targetMAC     = 2
)

// Filter lets neighbour advertisements pass, for this host or for all. Other frames (PACKET_OTHERHOST) are for another host, or of a VLAN
// that this machine has no interface for.
func Filter() []bpf.RawInstruction { return filter(advertisement) }

// FilterWithProbes is Filter, and lets solicitations pass.
func FilterWithProbes() []bpf.RawInstruction { return filter(solicitation) }

// filter lets messages pass from one type on, to advertisements.
func filter(first uint32) []bpf.RawInstruction {
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OTHERHOST, SkipTrue: 6},
		bpf.LoadAbsolute{Off: ether + 6, Size: 2}, // next header, hop limit
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6<<8 | hops, SkipTrue: 4},
		bpf.LoadAbsolute{Off: icmp, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: first, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: advertisement, SkipTrue: 1},
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
// section 4.4). Without an address it is a probe (RFC 4862 section 5.4.2), which changes no neighbour cache.
func Solicitation(from lab.MAC, addr netip.Addr, to lab.MAC, target netip.Addr) []byte {
	t := target.As16()
	group := netip.AddrFrom16([16]byte{0xff, 2, 11: 1, 12: 0xff, 13: t[13], 14: t[14], 15: t[15]})
	if !addr.IsValid() {
		return message(from, netip.IPv6Unspecified(), to, group, solicitation, 0, target, 0)
	}
	return message(from, addr, to, group, solicitation, 0, target, sourceMAC)
}

// Announcement is an advertisement to all machines, which makes them send to that MAC what is for addr (RFC 4861 section 7.2.6).
func Announcement(from lab.MAC, addr netip.Addr) []byte {
	return message(from, addr, lab.MAC{0x33, 0x33, 0, 0, 0, 1}, netip.IPv6LinkLocalAllNodes(), advertisement, override, addr, targetMAC)
}

// message returns a frame. An option names the MAC that sends it; 0: none.
func message(from lab.MAC, addr netip.Addr, to lab.MAC, group netip.Addr, kind, flags byte, target netip.Addr, own byte) []byte {
	source, dest, wanted := addr.As16(), group.As16(), target.As16()
	f := append(to[:], from[:]...)
	f = binary.BigEndian.AppendUint16(f, unix.ETH_P_IPV6)
	f = append(f, 6<<4, 0, 0, 0, 0, option-icmp, unix.IPPROTO_ICMPV6, hops)
	f = append(append(f, source[:]...), dest[:]...)
	f = append(append(f, kind, 0, 0, 0, flags, 0, 0, 0), wanted[:]...)
	if own != 0 {
		f[ether+5] += 8
		f = append(append(f, own, 1), from[:]...)
	}
	binary.BigEndian.PutUint16(f[icmp+2:], ^sum(f[ether:]))
	return f
}

// ParseAdvertisement returns which address a neighbour advertisement is about, and the MAC that it names, zero if it names none. ok is false
// for any other frame. Whether that MAC sent the frame, the caller compares.
func ParseAdvertisement(frame []byte) (target netip.Addr, mac lab.MAC, ok bool) {
	source, target, options, ok := parse(frame, advertisement)
	if ok && !source.IsUnspecified() {
		mac, ok = optionMAC(options, targetMAC)
		return target, mac, ok
	}
	return netip.Addr{}, mac, false
}

// ParseProbe returns which address the sender of a probe wants, which it does not use yet. ok is false for any other frame.
func ParseProbe(frame []byte) (target netip.Addr, mac lab.MAC, ok bool) {
	source, target, _, ok := parse(frame, solicitation)
	if ok && source.IsUnspecified() {
		mac = lab.MAC(frame[6:12])
	}
	return target, mac, !mac.IsZero() && mac[0]&1 == 0
}

// parse makes the checks of RFC 4861 section 7.1.
func parse(frame []byte, kind byte) (source, target netip.Addr, options []byte, ok bool) {
	if len(frame) < option || binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_IPV6 || frame[ether]>>4 != 6 {
		return source, target, nil, false
	}
	length := int(binary.BigEndian.Uint16(frame[ether+4:])) // without what pads a short frame
	if frame[ether+6] != unix.IPPROTO_ICMPV6 || frame[ether+7] != hops || length < option-icmp || icmp+length > len(frame) {
		return source, target, nil, false
	}
	frame = frame[:icmp+length]
	if frame[icmp] != kind || frame[icmp+1] != 0 || sum(frame[ether:]) != 0xffff {
		return source, target, nil, false
	}
	source, target = netip.AddrFrom16([16]byte(frame[ether+8:])), netip.AddrFrom16([16]byte(frame[icmp+8:]))
	return source, target, frame[option:], !target.Is4In6() && (target.IsGlobalUnicast() || target.IsLinkLocalUnicast())
}

// SourceMAC returns the MAC that the options of a solicitation name as its sender's, of a router solicitation too; zero if they name none.
func SourceMAC(options []byte) (mac lab.MAC) {
	mac, _ = optionMAC(options, sourceMAC)
	return mac
}

// optionMAC returns the MAC of the first option of a kind, zero where there is none. ok is false if the options are malformed, or the MAC is
// not that of one machine.
func optionMAC(options []byte, kind byte) (mac lab.MAC, ok bool) {
	for len(options) >= 8 {
		n := int(options[1]) * 8
		if n == 0 || n > len(options) { // RFC 4861 section 4.6: an option without length spoils the packet
			return mac, false
		}
		if options[0] == kind && n == 8 {
			if mac = lab.MAC(options[2:8]); mac.IsZero() || mac[0]&1 != 0 {
				return lab.MAC{}, false
			}
			return mac, true
		}
		options = options[n:]
	}
	return mac, true
}

// sum is that of an ICMPv6 message and its pseudo-header (RFC 8200 section 8.1), p being the IPv6 packet. It is 0xffff if the checksum is
// right.
func sum(p []byte) uint16 {
	return packet.Sum(packet.Sum(unix.IPPROTO_ICMPV6, p[4:6]), p[8:]) // length; addresses and message
}
