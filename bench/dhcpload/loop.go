package dhcpload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/ipv4"
)

const (
	batch   = 64 // messages per system call
	maxSent = 4  // times a message is sent before its exchange has failed
	look    = 50 * time.Millisecond
)

// A loop is one socket and the exchanges in flight on it. One goroutine runs it.
type loop struct {
	work   *work
	source uint32
	conn   *net.UDPConn
	batch  *ipv4.PacketConn
	in     []ipv4.Message
	out    []ipv4.Message // the first queued of them are to be sent
	queued int
	slots  []slot
	open   int // slots in use
	seen   Result
}

// A slot is one exchange in flight.
type slot struct {
	message message // that was sent last; xid's low byte is the slot's number
	used    bool
	sends   int
	began   time.Time // of the exchange
	asked   time.Time // when the message was sent first
	sent    time.Time
	offered uint32
	leg     time.Duration // DISCOVER to OFFER
}

func newLoop(w *work, source netip.AddrPort, inFlight int) (*loop, error) {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(source))
	if err != nil {
		return nil, fmt.Errorf("dhcpload: be a relay: %w", err)
	}
	l := &loop{
		work: w, source: number(source.Addr()), conn: conn, batch: ipv4.NewPacketConn(conn),
		in: make([]ipv4.Message, batch), out: make([]ipv4.Message, inFlight), slots: make([]slot, inFlight),
	}
	for i := range l.in {
		l.in[i].Buffers = [][]byte{make([]byte, longest)}
	}
	to := net.UDPAddrFromAddrPort(w.client.cfg.Server)
	for i := range l.out {
		l.out[i].Buffers, l.out[i].Addr = [][]byte{make([]byte, shortest)}, to
	}
	return l, nil
}

func (l *loop) close() { _ = l.conn.Close() }

func (l *loop) run(ctx context.Context) error {
	now := time.Now()
	for i := range l.slots {
		l.begin(ctx, i, now)
	}
	for looked := now; l.open > 0; {
		if err := l.flush(); err != nil {
			return err
		}
		if err := l.conn.SetReadDeadline(looked.Add(look)); err != nil {
			return err
		}
		n, err := l.batch.ReadBatch(l.in, 0)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("dhcpload: receive: %w", err)
		}
		now = time.Now()
		for i := range max(n, 0) {
			l.hear(ctx, l.in[i].Buffers[0][:l.in[i].N], now)
		}
		if now.Sub(looked) >= look {
			looked = now
			l.again(ctx, now)
		}
	}
	return nil
}

// begin starts the next exchange in a slot, or leaves it empty when there are no more.
func (l *loop) begin(ctx context.Context, i int, now time.Time) {
	machine, ok := 0, false
	if ctx.Err() == nil {
		machine, ok = l.work.next()
	}
	s := &l.slots[i]
	if !ok {
		if s.used {
			s.used = false
			l.open--
		}
		return
	}
	if !s.used {
		l.open++
	}
	*s = slot{used: true, began: now}
	s.message = message{kind: l.work.first, machine: int32(machine), giaddr: l.source}
	if l.work.first == request {
		s.message.ciaddr = l.work.client.leases[machine]
	}
	l.ask(i, now)
}

// ask sends the slot's message for the first time. Each has its own transaction: an answer that comes late cannot be mistaken.
func (l *loop) ask(i int, now time.Time) {
	s := &l.slots[i]
	s.message.xid = l.work.client.serial.Add(1)<<8 | uint32(i)
	s.asked, s.sends = now, 0
	l.send(s, now)
}

func (l *loop) send(s *slot, now time.Time) {
	if l.queued == len(l.out) {
		return // cannot be: a slot has one message; the next look sends it
	}
	s.sent = now
	s.sends++
	s.message.put(l.out[l.queued].Buffers[0])
	l.queued++
}

func (l *loop) flush() error {
	for sent := 0; sent < l.queued; {
		n, err := l.batch.WriteBatch(l.out[sent:l.queued], 0)
		if err != nil {
			return fmt.Errorf("dhcpload: send: %w", err)
		}
		sent += n
	}
	l.queued = 0
	return nil
}

// hear takes one answer and goes on with its exchange.
func (l *loop) hear(ctx context.Context, b []byte, now time.Time) {
	m, ok := parse(b)
	if ok && m.machine == probeMachine {
		return // of the question whether the server is there
	}
	if !ok || b[0] != 2 || int(m.xid&0xff) >= len(l.slots) {
		l.seen.complain("not an answer to this relay")
		return
	}
	i := int(m.xid & 0xff)
	s := &l.slots[i]
	if !s.used || m.xid != s.message.xid {
		l.seen.Late++
		return
	}
	if why := l.wrong(s, &m); why != "" {
		l.seen.complain(why)
		l.seen.Failed++
		l.begin(ctx, i, now)
		return
	}
	if m.kind == offer {
		s.offered, s.leg = m.yiaddr, now.Sub(s.asked)
		s.message.kind, s.message.requested, s.message.server = request, m.yiaddr, m.server
		l.ask(i, now)
		return
	}
	l.seen.took(s, now, l.work.first)
	l.begin(ctx, i, now)
}

// wrong says what is wrong with an answer, nothing if it is right.
func (l *loop) wrong(s *slot, m *message) string {
	c := l.work.client
	want := offer
	if s.message.kind == request {
		want = ack
	}
	switch {
	case m.kind != want:
		return fmt.Sprintf("message type %d instead of %d", m.kind, want)
	case m.machine != s.message.machine:
		return "another machine's"
	case m.server == 0 || m.lease == 0:
		return "no server identifier, or no lease time"
	case m.yiaddr < c.first || int(m.yiaddr-c.first) >= len(c.owner):
		return fmt.Sprintf("address %s outside the pool", addr(m.yiaddr))
	case m.kind == offer:
		return ""
	case s.message.ciaddr != 0 && m.yiaddr != s.message.ciaddr, s.offered != 0 && m.yiaddr != s.offered:
		return "acknowledged is not what was offered or had"
	}
	if id := m.machine + 1; !c.owner[m.yiaddr-c.first].CompareAndSwap(0, id) && c.owner[m.yiaddr-c.first].Load() != id {
		return fmt.Sprintf("address %s given to two machines", addr(m.yiaddr))
	}
	if s.offered != 0 { // else it is a renewal: this load may renew one machine twice at once, and nothing changes
		c.leases[m.machine] = m.yiaddr
	}
	return ""
}

// again sends what had no answer for a timeout, and gives up where that was often enough.
func (l *loop) again(ctx context.Context, now time.Time) {
	for i := range l.slots {
		s := &l.slots[i]
		if !s.used || now.Sub(s.sent) < l.work.client.cfg.Timeout {
			continue
		}
		if s.sends >= maxSent || ctx.Err() != nil {
			l.seen.Failed++
			l.begin(ctx, i, now)
			continue
		}
		l.seen.Retries++
		l.send(s, now)
	}
}
