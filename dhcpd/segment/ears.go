package segment

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// Serve lets the prober hear and ask on a socket's segment, and past its relays, until ctx ends or the socket is closed.
func (p *Prober) Serve(ctx context.Context, s *Socket) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { p.servePings(ctx, s) })
	if s.arp != nil {
		p.serveARP(ctx, s)
	}
}

func (p *Prober) serveARP(ctx context.Context, s *Socket) {
	defer p.attach(Path{Interface: s.iface}, arpWire{s})()
	defer readUntil(ctx, s.arp.conn)()
	buf := make([]byte, arpSize)
	hear := func(n int) {
		if addr, mac, ok := parseARP(buf[:n]); ok && mac != s.MAC() {
			p.hear(addr, mac)
		}
	}
	listen(ctx, s.arp, buf, maxARP, hear, func() { p.deafened(Path{Interface: s.iface}) })
}

// attach makes a wire the way to a segment until the returned function is called.
func (p *Prober) attach(path Path, w wire) (detach func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wires[path] = w
	if s := p.surveys[path]; s != nil {
		s.next = time.Time{} // it rested, since nobody could be asked
	}
	p.rouse()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.wires[path] == w {
			delete(p.wires, path)
		}
	}
}

// readUntil lets reads fail from the end of ctx on, until the returned function is called.
func readUntil(ctx context.Context, c interface{ SetReadDeadline(time.Time) error }) (stop func()) {
	_ = c.SetReadDeadline(time.Time{}) // a reader before this one may have ended by it
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = c.SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !cancel() {
			<-done // else it might end the next reader
		}
	}
}

const (
	// maxARP bounds what a flood costs: so many frames are read a second, the kernel drops the rest.
	maxARP   = 4000
	maxReply = 1000 // the same for other servers' answers
)

// listen calls f for each frame of a tap until ctx ends or the tap is closed, at most perSecond times a second: after a
// pause, in which the kernel may have dropped frames, it calls paused.
func listen(ctx context.Context, t *tap, buf []byte, perSecond int, f func(n int), paused func()) {
	budget, wait := perSecond/10, minWait
	for since := time.Now(); ctx.Err() == nil; {
		n, err := t.read(buf)
		if err != nil {
			// The interface flaps, or ctx ended, which the pause notices.
			if errors.Is(err, net.ErrClosed) || pause.For(ctx, wait) != nil {
				return
			}
			wait = min(2*wait, maxWait)
			continue
		}
		wait = minWait
		f(n)
		if budget--; budget > 0 {
			continue
		}
		budget = perSecond / 10
		if early := time.Second/10 - time.Since(since); early > 0 {
			_ = pause.For(ctx, early)
			paused()
		}
		since = time.Now()
	}
}

// arpWire asks on a segment.
type arpWire struct{ sock *Socket }

// ask says where the answer is to go, so it wants the interface's MAC as it is now.
func (w arpWire) ask(addr netip.Addr) error {
	_ = w.sock.arp.sys.Control(w.sock.learnMAC)
	f := arpProbe(w.sock.MAC(), addr)
	to := &unix.SockaddrLinklayer{Ifindex: w.sock.index, Halen: uint8(len(lab.MAC{}))}
	copy(to.Addr[:], broadcastMAC[:])
	return w.sock.arp.write(f[:], to)
}

func (w arpWire) lost() bool {
	stats, err := w.sock.arp.conn.Stats()
	return err == nil && stats.Drops > 0
}

// icmpWire asks past relays.
type icmpWire struct {
	conn *ipv4.PacketConn
	id   uint16 // tells our answers from those to other programs of this machine
}

func (w icmpWire) ask(addr netip.Addr) error {
	f := echoRequest(w.id)
	_, err := w.conn.WriteTo(f[:], nil, &net.IPAddr{IP: addr.AsSlice()})
	return err
}

// lost is always false: what comes past relays is answers to our own questions, of which there are few.
func (w icmpWire) lost() bool { return false }

func (p *Prober) servePings(ctx context.Context, s *Socket) {
	w := icmpWire{s.icmp, uint16(rand.Uint32())}
	defer p.attach(Path{Interface: s.iface, Relay: true}, w)()
	defer readUntil(ctx, s.icmp)()
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
				p.hearEcho(addr)
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
	sum := ^sum16(0, b[:])
	b[2], b[3] = byte(sum>>8), byte(sum)
	return b
}

// isEchoReply reports whether b is an answer to echoRequest.
func isEchoReply(b []byte, id uint16) bool {
	m, err := icmp.ParseMessage(1, b)
	if err != nil || m.Type != ipv4.ICMPTypeEchoReply || m.Code != 0 || sum16(0, b) != 0xffff {
		return false
	}
	e, ok := m.Body.(*icmp.Echo)
	return ok && e.ID == int(id) && string(e.Data) == "bootlab?"
}
