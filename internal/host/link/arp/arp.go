// Package arp encodes, parses and filters ARP packets of IPv4 over Ethernet (RFC 826), for packet sockets. It opens no socket.
//
//	frame := arp.Request(ours, ourAddr, lab.MAC{}, addr)  // who has addr?
//	addr, mac, op, ok := arp.Parse(frame)                 // mac uses addr
package arp

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/lab"
)

const header = 14 // of Ethernet

// Size is an Ethernet header and an ARP packet for IPv4.
const Size = header + 28

// An Op is the kind of an ARP packet.
type Op uint16

// The operations.
const (
	OpRequest Op = 1
	OpReply   Op = 2
)

// Filter lets requests and replies of IPv4 over Ethernet pass, for this host or for all. Other frames (PACKET_OTHERHOST) are for another
// host, or of a VLAN that this machine has no interface for. Probes (RFC 5227) do not pass: their sender uses no address.
func Filter() []bpf.RawInstruction {
	return filter(
		bpf.LoadAbsolute{Off: header + 14, Size: 4}, // sender address: a probe has none
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1},
	)
}

// FilterWithProbes is Filter, and lets probes pass.
func FilterWithProbes() []bpf.RawInstruction { return filter() }

// filter ends with further tests, which skip one instruction to refuse.
func filter(tests ...bpf.Instruction) []bpf.RawInstruction {
	more := uint8(len(tests))
	program := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OTHERHOST, SkipTrue: 5 + more},
		bpf.LoadAbsolute{Off: header, Size: 4}, // hardware type, protocol type
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 1<<16 | unix.ETH_P_IP, SkipTrue: 3 + more},
		bpf.LoadAbsolute{Off: header + 4, Size: 2}, // lengths
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0x0604, SkipTrue: 1 + more},
	}
	program = append(program, tests...)
	raw, err := bpf.Assemble(append(program, bpf.RetConstant{Val: Size}, bpf.RetConstant{Val: 0}))
	if err != nil {
		panic(err) // the program is constant
	}
	return raw
}

// Parse returns the sender of an ARP request or reply, which uses addr. ok is false for any other frame.
func Parse(frame []byte) (addr netip.Addr, mac lab.MAC, op Op, ok bool) {
	if len(frame) < Size {
		return addr, mac, op, false
	}
	a := frame[header:]
	op = Op(binary.BigEndian.Uint16(a[6:]))
	if binary.BigEndian.Uint64(a)>>16 != 1<<32|unix.ETH_P_IP<<16|0x0604 || op != OpRequest && op != OpReply {
		return addr, mac, op, false
	}
	addr, mac = netip.AddrFrom4([4]byte(a[14:])), lab.MAC(a[8:14])
	if !addr.IsGlobalUnicast() && !addr.IsLinkLocalUnicast() || mac.IsZero() || mac[0]&1 != 0 {
		return netip.Addr{}, lab.MAC{}, op, false
	}
	return addr, mac, op, true
}

// Source returns the machine that sent the frame of a packet that Parse takes. What the packet says of its sender may differ.
func Source(frame []byte) lab.MAC { return lab.MAC(frame[6:12]) }

// IsTo reports whether a packet that Parse takes is to a machine: the frame, or the target that it names, as a reply names who asked. Not
// every stack fills in both.
func IsTo(frame []byte, mac lab.MAC) bool {
	return lab.MAC(frame[:6]) == mac || lab.MAC(frame[header+18:header+24]) == mac
}

// ParseProbe returns which address the sender of a probe (RFC 5227 section 1.1) asks for, which it does not use yet. ok is false for any
// other frame.
func ParseProbe(frame []byte) (target netip.Addr, mac lab.MAC, ok bool) {
	if len(frame) < Size {
		return target, mac, false
	}
	a := frame[header:]
	if binary.BigEndian.Uint64(a) != 1<<48|unix.ETH_P_IP<<32|0x0604<<16|uint64(OpRequest) || binary.BigEndian.Uint32(a[14:]) != 0 {
		return target, mac, false
	}
	if mac = lab.MAC(a[8:14]); mac.IsZero() || mac[0]&1 != 0 {
		return target, lab.MAC{}, false
	}
	return netip.AddrFrom4([4]byte(a[24:])), mac, true
}

// Broadcast is the address of all machines of a segment.
var Broadcast = lab.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Request is a request for the MAC of target, from a machine with that MAC and address, sent to that MAC. Without an address it is a probe
// (RFC 5227 section 1.1), which changes no ARP cache.
func Request(from lab.MAC, addr netip.Addr, to lab.MAC, target netip.Addr) (f [Size]byte) {
	copy(f[0:], to[:])
	copy(f[6:], from[:])
	binary.BigEndian.PutUint16(f[12:], unix.ETH_P_ARP)
	copy(f[header:], []byte{0, 1, 8, 0, 6, 4, 0, byte(OpRequest)})
	copy(f[header+8:], from[:])
	if addr.Is4() {
		a := addr.As4()
		copy(f[header+14:], a[:])
	}
	a := target.As4()
	copy(f[header+24:], a[:])
	return f
}
