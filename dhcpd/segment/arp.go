package segment

import (
	"context"
	"net/netip"

	"github.com/bootlab/bootlab/internal/host/link/arp"
)

func (p *Prober) serveARP(ctx context.Context, s *Socket) {
	defer p.attach(Path{Interface: s.iface}, arpSender{s})()
	defer interruptReads(ctx, s.arp)()
	buf := make([]byte, arp.Size)
	received := func(n int) {
		addr, mac, op, ok := arp.Parse(buf[:n])
		if !ok || mac == s.MAC() {
			return
		}
		if p.deps.Received != nil {
			p.deps.Received(addr, mac, arp.Source(buf[:n]) == mac)
		}
		if op == arp.OpReply && arp.IsTo(buf[:n], s.MAC()) {
			p.observe(addr, mac)
		} else {
			p.claim(addr, mac)
		}
	}
	readFrames(ctx, s.arp, buf, maxARP, received, func() { p.framesDropped(Path{Interface: s.iface}) })
}

// An arpSender sends ARP probes on a segment.
type arpSender struct{ sock *Socket }

// send refreshes the interface's MAC first, since the reply goes to it.
func (w arpSender) send(addr netip.Addr) error {
	_ = w.sock.arp.Conn().Control(func(fd uintptr) { _ = w.sock.readMAC(fd) }) // else it stays
	f := arp.Request(w.sock.MAC(), netip.Addr{}, arp.Broadcast, addr)
	return w.sock.arp.Send(w.sock.index, f[:])
}

func (w arpSender) dropped() bool {
	stats, err := w.sock.arp.Stats()
	return err == nil && stats.Drops > 0
}
