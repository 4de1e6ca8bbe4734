package segment

import (
	"context"
	"encoding/binary"
	"net/netip"

	"github.com/bootlab/bootlab/internal/lab"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

func (p *Prober) serveARP(ctx context.Context, s *Socket) {
	defer p.attach(Path{Interface: s.iface}, arpSender{s})()
	defer interruptReads(ctx, s.arp.conn)()
	buf := make([]byte, arpSize)
	received := func(n int) {
		if addr, mac, ok := parseARP(buf[:n]); ok && mac != s.MAC() {
			p.observe(addr, mac)
		}
	}
	readFrames(ctx, s.arp, buf, maxARP, received, func() { p.framesDropped(Path{Interface: s.iface}) })
}

// An arpSender sends ARP probes on a segment.
type arpSender struct{ sock *Socket }

// send refreshes the interface's MAC first, since the reply goes to it.
func (w arpSender) send(addr netip.Addr) error {
	_ = w.sock.arp.sys.Control(func(fd uintptr) { _ = w.sock.readMAC(fd) }) // else it stays
	f := arpProbe(w.sock.MAC(), addr)
	to := &unix.SockaddrLinklayer{Ifindex: w.sock.index, Halen: uint8(len(lab.MAC{}))}
	copy(to.Addr[:], broadcastMAC[:])
	return w.sock.arp.write(f[:], to)
}

func (w arpSender) dropped() bool {
	stats, err := w.sock.arp.conn.Stats()
	return err == nil && stats.Drops > 0
}

// arpSize is an Ethernet header and an ARP packet for IPv4 (RFC 826).
const arpSize = ethernetHeader + 28

// packetOtherHost is PACKET_OTHERHOST: a frame for another host, or of a VLAN that this machine has no interface for.
const packetOtherHost = 3

// arpFilter lets requests and replies of IPv4 over Ethernet pass.
func arpFilter() []bpf.RawInstruction {
	return assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: packetOtherHost, SkipTrue: 7},
		bpf.LoadAbsolute{Off: ethernetHeader, Size: 4}, // hardware type, protocol type
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 1<<16 | unix.ETH_P_IP, SkipTrue: 5},
		bpf.LoadAbsolute{Off: ethernetHeader + 4, Size: 2}, // lengths
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0x0604, SkipTrue: 3},
		bpf.LoadAbsolute{Off: ethernetHeader + 14, Size: 4}, // sender address: a probe has none (RFC 5227)
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1},
		bpf.RetConstant{Val: arpSize},
		bpf.RetConstant{Val: 0},
	})
}

// parseARP returns the sender of an ARP request or reply, which uses addr. ok is false for any other frame.
func parseARP(frame []byte) (addr netip.Addr, mac lab.MAC, ok bool) {
	if len(frame) < arpSize {
		return addr, mac, false
	}
	a := frame[ethernetHeader:]
	op := binary.BigEndian.Uint16(a[6:])
	if binary.BigEndian.Uint64(a)>>16 != 1<<32|unix.ETH_P_IP<<16|0x0604 || op != 1 && op != 2 {
		return addr, mac, false
	}
	addr, mac = netip.AddrFrom4([4]byte(a[14:])), lab.MAC(a[8:14])
	if !addr.IsGlobalUnicast() && !addr.IsLinkLocalUnicast() || mac.IsZero() || mac[0]&1 != 0 {
		return netip.Addr{}, lab.MAC{}, false
	}
	return addr, mac, true
}

// arpProbe is an ARP probe for addr (RFC 5227 section 1.1): its sender address is 0.0.0.0, so it changes no ARP cache.
func arpProbe(hw lab.MAC, addr netip.Addr) (f [arpSize]byte) {
	copy(f[0:], broadcastMAC[:])
	copy(f[6:], hw[:])
	binary.BigEndian.PutUint16(f[12:], unix.ETH_P_ARP)
	copy(f[ethernetHeader:], []byte{0, 1, 8, 0, 6, 4, 0, 1})
	copy(f[ethernetHeader+8:], hw[:])
	a := addr.As4()
	copy(f[ethernetHeader+24:], a[:])
	return f
}
