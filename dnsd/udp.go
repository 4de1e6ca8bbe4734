package dnsd

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/host/socket/datagram"

	"golang.org/x/sys/unix"
)

const (
	udpBatch  = 64   // messages that one system call takes
	udpBuffer = 1280 // octets of a query and of its reply, which takes its place
)

// A udpReader receives, answers and sends the messages of one socket in batches, in place. A query for the forwarder leaves
// it as a copy.
type udpReader struct {
	s    *Server
	conn *net.UDPConn
	in   *datagram.Receiver
	out  *datagram.Sender
	req  request
	wg   sync.WaitGroup // queries that wait for the forwarder
}

func (s *Server) serveUDP(ctx context.Context, conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = datagram.Prepare(raw)
	}
	if err != nil {
		return fmt.Errorf("prepare socket %s: %w", conn.LocalAddr(), err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) }) // replies in progress still leave
	defer stop()
	u := &udpReader{s: s, conn: conn, in: datagram.NewReceiver(udpBatch, udpBuffer), out: datagram.NewSender(udpBatch)}
	defer u.wg.Wait()
	for {
		n, err := u.in.Receive(raw)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && transient(err):
			continue
		case err != nil:
			return fmt.Errorf("receive on %s: %w", conn.LocalAddr(), err)
		}
		for i := range n {
			if m := u.in.Message(i); u.answer(ctx, m) {
				u.out.Add(u.req.w.b, m.From, m.Local)
			}
		}
		u.out.Send(raw, nil) // a client that is gone is no error of ours
	}
}

// transient reports whether a socket works again after an error. An ICMP message, say, shows as an error of a socket.
func transient(err error) bool {
	e, ok := errors.AsType[unix.Errno](err)
	return ok && e != unix.EBADF && e != unix.ENOTSOCK && e != unix.EINVAL && e != unix.EFAULT
}

// answer answers a message and reports whether there is a reply, in u.req, to be sent with the batch.
func (u *udpReader) answer(ctx context.Context, m datagram.Message) bool {
	defer u.s.recoverPanic()
	if len(m.Data) < headerLen { // or longer than the buffer
		u.s.metrics.dropped[dropMalformed].Inc()
		return false
	}
	r := &u.req
	r.from = m.From.Addr().Unmap()
	r.w.b = m.Data[:min(len(m.Data), maxUDP)]
	switch u.s.handle(r) {
	case ready:
		return u.s.applyRateLimit(r)
	case pending:
		return u.forward(ctx, m)
	default:
		u.s.metrics.dropped[dropMalformed].Inc()
	}
	return false
}

// forward passes a copy of the query to the forwarder, and reports whether there is a reply at once instead.
func (u *udpReader) forward(ctx context.Context, m datagram.Message) bool {
	if taken := u.s.takeForward(&u.req); taken != pending {
		return taken == ready
	}
	r, source := u.req.clone(), datagram.AppendSource(nil, m.Local)
	u.wg.Go(func() {
		defer u.s.forwards.Release(r.from)
		defer u.s.recoverPanic()
		u.s.answerForwarded(ctx, r)
		_, _, _ = u.conn.WriteMsgUDPAddrPort(r.w.b, source, m.From) // a client that is gone is no error of ours
	})
	return false
}

// A rateLimit bounds the replies over UDP to one network outside of the lab: its address may be forged, so that the replies attack it.
// Of the replies beyond the rate every second one is cut to nothing and marked as truncated: a real client then asks by TCP. It is
// safe for concurrent use.
type rateLimit struct {
	seed maphash.Seed

	mu      sync.Mutex
	buckets [rateBuckets]rateBucket
}

const (
	rateBuckets = 1 << 14 // networks that share one share a rate
	rateBurst   = 2       // seconds' worth of replies that may come at once
	rateSlip    = 2       // one of so many replies is truncated instead of dropped

	rateBits4, rateBits6 = 24, 56 // of a network: who can forge one address can forge its neighbours
)

// A rateBucket is what the networks of one hash may still get: 24 bytes, where a rate.Limiter has 88 and a lock of its own.
type rateBucket struct {
	last   int64   // nanoseconds
	left   float64 // replies
	beyond uint32
}

// A replyAction is what becomes of a reply.
type replyAction uint8

const (
	sendReply replyAction = iota
	truncateReply
	dropReply
)

// take counts a reply to an address at so many per second and returns what is to become of it.
func (l *rateLimit) take(to netip.Addr, rate int, now time.Time) replyAction {
	width := rateBits4
	if to.Is6() {
		width = rateBits6
	}
	p, _ := to.Prefix(width)
	a := p.Addr().As16()
	var key [17]byte
	copy(key[:], a[:])
	key[16] = byte(width)
	b := &l.buckets[maphash.Bytes(l.seed, key[:])%rateBuckets]
	l.mu.Lock()
	defer l.mu.Unlock()
	passed := float64(now.UnixNano()-b.last) / float64(time.Second)
	b.last = now.UnixNano()
	b.left = min(b.left+max(passed, 0)*float64(rate), float64(rateBurst*rate))
	if b.left >= 1 {
		b.left--
		return sendReply
	}
	if b.beyond++; b.beyond%rateSlip == 0 {
		return truncateReply
	}
	return dropReply
}

// applyRateLimit bounds the replies to clients outside of the lab: it may cut a reply that is ready, and reports whether it is to be sent. A
// client that has shown one of our cookies is who it says, and one that could show one is asked to.
func (s *Server) applyRateLimit(r *request) (send bool) {
	if r.t.rate == 0 || r.insider || r.cookie == cookieValid || r.sig != nil {
		return true
	}
	what := s.rate.take(r.from, r.t.rate, s.deps.Now())
	if what == sendReply {
		return true
	}
	s.metrics.rateLimited[what-1].Inc()
	if what == dropReply {
		return false
	}
	r.w.rewind(mark{n: r.q.end})
	r.code, r.w.full = noError, true // truncated
	if r.cookie == cookieClient {
		r.code, r.w.full = badCookie, false
	}
	r.w.finish(&r.q, r.flags&^flagAA, r.code)
	return true
}
