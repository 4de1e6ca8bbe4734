package dnsd

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"
)

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
