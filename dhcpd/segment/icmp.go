package segment

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"

	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/host/pause"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

// listenICMP opens a raw socket that receives echo replies and no other ICMP. It is bound to no interface: the routing table
// decides how to reach a network past a relay.
func listenICMP() (*ipv4.PacketConn, error) {
	raw, err := net.ListenPacket("ip4:icmp", "0.0.0.0")
	if err != nil {
		return nil, err
	}
	conn := ipv4.NewPacketConn(raw)
	var filter ipv4.ICMPFilter
	filter.SetAll(true)
	filter.Accept(ipv4.ICMPTypeEchoReply)
	if err := conn.SetICMPFilter(&filter); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// An icmpSender sends pings past relays.
type icmpSender struct {
	conn *ipv4.PacketConn
	id   uint16 // distinguishes our replies from those to other programs of this machine
}

func (w icmpSender) send(addr netip.Addr) error {
	f := echoRequest(w.id)
	_, err := w.conn.WriteTo(f[:], nil, &net.IPAddr{IP: addr.AsSlice()})
	return err
}

// dropped is always false: the socket receives only replies to our own pings, which are few.
func (w icmpSender) dropped() bool { return false }

func (p *Prober) serveICMP(ctx context.Context, s *Socket) {
	w := icmpSender{s.icmp, uint16(rand.Uint32())}
	defer p.attach(Path{Interface: s.iface, Relay: true}, w)()
	defer interruptReads(ctx, s.icmp)()
	buf := make([]byte, 128)
	for wait := minWait; ctx.Err() == nil; {
		n, _, from, err := s.icmp.ReadFrom(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) || pause.For(ctx, wait) != nil {
				return
			}
			wait = min(2*wait, maxWait)
			continue
		}
		wait = minWait
		if ip, ok := from.(*net.IPAddr); ok && isEchoReply(buf[:n], w.id) {
			if addr, ok := netip.AddrFromSlice(ip.IP.To4()); ok {
				p.observeEcho(addr)
			}
		}
	}
}

// echoSize is an echo request with the eight bytes that the smallest ping has.
const echoSize = 16

// echoRequest is an ICMP echo request (RFC 792).
func echoRequest(id uint16) (b [echoSize]byte) {
	b[0] = byte(ipv4.ICMPTypeEcho)
	b[4], b[5] = byte(id>>8), byte(id)
	copy(b[8:], "bootlab?")
	sum := ^packet.Sum(0, b[:])
	b[2], b[3] = byte(sum>>8), byte(sum)
	return b
}

// isEchoReply reports whether b is a reply to echoRequest.
func isEchoReply(b []byte, id uint16) bool {
	m, err := icmp.ParseMessage(1, b)
	if err != nil || m.Type != ipv4.ICMPTypeEchoReply || m.Code != 0 || packet.Sum(0, b) != 0xffff {
		return false
	}
	e, ok := m.Body.(*icmp.Echo)
	return ok && e.ID == int(id) && string(e.Data) == "bootlab?"
}
