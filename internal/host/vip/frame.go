package vip

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/arp"
	"github.com/bootlab/bootlab/internal/lab"
)

// A claim is what a frame says of an address.
type claim struct {
	addr  netip.Addr
	mac   lab.MAC
	probe bool // the sender does not use the address: it wants to
	link  int
}

// parseARP returns the claim of an ARP frame. A probe claims what it asks for (RFC 5227 section 2.1.1).
func parseARP(frame []byte) (c claim, ok bool) {
	if addr, mac, _, ok := arp.Parse(frame); ok {
		return claim{addr: addr, mac: mac}, true
	}
	addr, mac, ok := arp.ParseProbe(frame)
	return claim{addr: addr, mac: mac, probe: true}, ok
}

// Sizes and values of neighbour discovery (RFC 4861).
const (
	offIPv6       = 14
	offICMP       = offIPv6 + 40
	offTarget     = offICMP + 8
	offOptions    = offTarget + 16
	solicitation  = 135
	advertisement = 136
	optTargetMAC  = 2
	nextICMPv6    = 58
	maxHops       = 255
	maxFrame      = 256 // of what is read of a frame: further options do not matter
)

// filterND lets neighbour solicitations and advertisements pass that are the first header of an IPv6 packet.
func filterND() []bpf.RawInstruction {
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OTHERHOST, SkipTrue: 6},
		bpf.LoadAbsolute{Off: offIPv6 + 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nextICMPv6, SkipTrue: 4},
		bpf.LoadAbsolute{Off: offICMP, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: solicitation, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: advertisement, SkipTrue: 1},
		bpf.RetConstant{Val: maxFrame},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		panic(err) // the program is constant
	}
	return raw
}

// parseND returns the claim of an Ethernet frame with a neighbour advertisement, or with a solicitation of duplicate address detection,
// whose sender has no address yet (RFC 4862 section 5.4.3).
func parseND(frame []byte) (c claim, ok bool) {
	if len(frame) < offOptions || binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_IPV6 {
		return c, false
	}
	ip, icmp := frame[offIPv6:], frame[offICMP:]
	if ip[0]>>4 != 6 || ip[6] != nextICMPv6 || ip[7] != maxHops || icmp[1] != 0 {
		return c, false
	}
	from := netip.AddrFrom16([16]byte(ip[8:24]))
	c = claim{addr: netip.AddrFrom16([16]byte(frame[offTarget:])), mac: lab.MAC(frame[6:12])}
	switch {
	case icmp[0] == solicitation && from.IsUnspecified():
		c.probe = true
	case icmp[0] == advertisement && !from.IsUnspecified():
		for rest := frame[offOptions:]; len(rest) >= 8; {
			n := int(rest[1]) * 8
			if n == 0 || n > len(rest) {
				break
			}
			if rest[0] == optTargetMAC && n == 8 {
				c.mac = lab.MAC(rest[2:8])
			}
			rest = rest[n:]
		}
	default:
		return claim{}, false
	}
	if c.addr.IsMulticast() || c.addr.Is4In6() || c.mac.IsZero() || c.mac[0]&1 != 0 {
		return claim{}, false
	}
	return c, true
}

// probe returns the frame that asks whether anybody uses an address, from a machine that does not.
func probe(mac lab.MAC, a netip.Addr) []byte {
	if a.Is4() {
		f := arp.Request(mac, netip.Addr{}, arp.Broadcast, a)
		return f[:]
	}
	t := a.As16()
	group := netip.AddrFrom16([16]byte{0xff, 2, 11: 1, 12: 0xff, 13: t[13], 14: t[14], 15: t[15]}) // solicited-node, RFC 4291
	return discovery(mac, netip.IPv6Unspecified(), group, solicitation, 0, a, nil)
}

// announcement returns the frame that makes all machines of a segment send to this MAC what is for a: an ARP announcement (RFC 5227
// section 3), or an unsolicited neighbour advertisement that overrides what they know (RFC 4861 section 7.2.6).
func announcement(mac lab.MAC, a netip.Addr) []byte {
	if a.Is4() {
		f := arp.Request(mac, a, arp.Broadcast, a)
		return f[:]
	}
	const override = 1 << 29
	return discovery(mac, a, netip.IPv6LinkLocalAllNodes(), advertisement, override, a, append([]byte{optTargetMAC, 1}, mac[:]...))
}

// discovery returns a frame with a message of neighbour discovery to a multicast group.
func discovery(mac lab.MAC, from, group netip.Addr, kind byte, flags uint32, target netip.Addr, option []byte) []byte {
	src, dst := from.As16(), group.As16()
	f := append([]byte{0x33, 0x33}, dst[12:]...) // RFC 2464 section 7
	f = append(f, mac[:]...)
	f = binary.BigEndian.AppendUint16(f, unix.ETH_P_IPV6)
	f = append(f, 0x60, 0, 0, 0, 0, byte(24+len(option)), nextICMPv6, maxHops)
	f = append(append(f, src[:]...), dst[:]...)
	f = append(f, kind, 0, 0, 0)
	f = binary.BigEndian.AppendUint32(f, flags)
	f = append(append(f, target.AsSlice()...), option...)
	binary.BigEndian.PutUint16(f[offICMP+2:], checksum(f[offIPv6:]))
	return f
}

// checksum returns that of the ICMPv6 message of a packet whose checksum is zero (RFC 8200 section 8.1).
func checksum(packet []byte) uint16 {
	sum := uint32(nextICMPv6) + uint32(len(packet)-40)
	for b := packet[8:]; len(b) > 1; b = b[2:] { // both addresses, and the message, of even length
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
