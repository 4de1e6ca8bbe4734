package lbproxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Condition is what is believed of a backend.
type Condition string

// The conditions of a backend.
const (
	Unchecked Condition = "unchecked" // no check has ended yet: used, as if it were up
	Up        Condition = "up"
	Down      Condition = "down" // gets no new connection
)

// A healthKey is what health is kept by: the address that gets the connections and how it is asked. A new table that
// holds the same pair finds its health again; balancers that hold the same pair share it.
type healthKey struct {
	addr  netip.AddrPort
	check lab.Check
	proxy int // version of the PROXY header that the check must send
}

// A Health is what is known of one backend under one check. Three sources feed it: the check's results, counted against
// rise and fall; connections that could not be made, of which ejectAfter in a row put it down at once; and time, for a
// backend that nothing checks.
type Health struct {
	key  healthKey
	kick chan struct{} // asks for a check now

	down   atomic.Bool // read for every connection
	failed atomic.Int32
	rtt    atomic.Int64 // nanoseconds that the last connection took to be made

	mu        sync.Mutex
	condition Condition
	streak    int // results in a row that speak against condition
	reason    string
	since     time.Time
}

// ejectAfter is how many connections in a row must fail to be made before a backend is down without a check.
const ejectAfter = 2

// A verdict is a change of condition. An empty condition is none.
type verdict struct {
	condition Condition
	reason    string
	dur       time.Duration
}

func newHealth(k healthKey, now time.Time) *Health {
	return &Health{key: k, kick: make(chan struct{}, 1), condition: Unchecked, since: now}
}

// usable reports whether the backend may get a connection.
func (h *Health) usable() bool { return !h.down.Load() }

// checked tells the result of one check. The first ever counts at once; later ones by rise and fall.
func (h *Health) checked(err error, dur time.Duration, now time.Time) verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	says, need, reason := Up, h.key.check.Rise, ""
	if err != nil {
		says, need, reason = Down, h.key.check.Fall, err.Error()
	}
	if says == h.condition {
		h.streak, h.reason = 0, reason
		return verdict{}
	}
	h.streak++
	if h.condition != Unchecked && h.streak < need {
		return verdict{}
	}
	return h.turnLocked(verdict{says, reason, dur}, now)
}

// dialed tells that a connection was made.
func (h *Health) dialed(took time.Duration) {
	h.rtt.Store(int64(took))
	if h.failed.Load() != 0 {
		h.failed.Store(0)
	}
}

// dialFailed tells that a connection could not be made.
func (h *Health) dialFailed(err error, now time.Time) verdict {
	defer h.hurry() // after the lock is given back, so that who is woken sees the verdict
	failed := h.failed.Add(1)
	if failed < ejectAfter {
		return verdict{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.condition == Down {
		return verdict{}
	}
	reason := fmt.Sprintf("%d connections in a row failed: %v", failed, err)
	return h.turnLocked(verdict{condition: Down, reason: reason}, now)
}

// forgive ends the ejection of a backend that nothing checks.
func (h *Health) forgive(now time.Time) verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.condition != Down {
		return verdict{}
	}
	return h.turnLocked(verdict{condition: Up, reason: "nothing checks it; tried again"}, now)
}

func (h *Health) turnLocked(v verdict, now time.Time) verdict {
	h.condition, h.reason, h.since, h.streak = v.condition, v.reason, now, 0
	h.failed.Store(0)
	h.down.Store(v.condition == Down)
	return v
}

// hurry asks for a check now.
func (h *Health) hurry() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// calm forgets that a check was asked for.
func (h *Health) calm() {
	select {
	case <-h.kick:
	default:
	}
}

// snapshot returns what is believed, why and since when.
func (h *Health) snapshot() (Condition, string, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.condition, h.reason, h.since
}

// watch checks one backend until ctx ends: at once, then every interval, give or take a tenth so that checks spread, and
// soon after a connection failed.
func (s *Server) watch(ctx context.Context, h *Health) {
	if h.key.check.Kind == lab.CheckNone {
		s.watchUnchecked(ctx, h)
		return
	}
	for {
		s.check(ctx, h)
		interval := h.key.check.Interval
		timer := time.NewTimer(interval - interval/10 + rand.N(interval/5+1))
		select {
		case <-timer.C:
		case <-h.kick:
			timer.Stop()
			// Not at once: many connections may fail in the same moment.
			if pause.For(ctx, min(interval, hurryDelay)) != nil {
				return
			}
			h.calm()
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// hurryDelay is the shortest pause between two checks of one backend.
const hurryDelay = 250 * time.Millisecond

// watchUnchecked gives a backend that nothing checks another chance, some time after it was put down.
func (s *Server) watchUnchecked(ctx context.Context, h *Health) {
	for {
		select {
		case <-h.kick:
		case <-ctx.Done():
			return
		}
		if h.usable() {
			continue
		}
		if pause.For(ctx, s.cfg.Ejection) != nil {
			return
		}
		s.announce(h, h.forgive(s.deps.Now()))
	}
}

// check asks one backend once and tells its health.
func (s *Server) check(ctx context.Context, h *Health) {
	select {
	case s.probes <- struct{}{}:
		defer func() { <-s.probes }()
	case <-ctx.Done():
		return
	}
	began := s.deps.Now()
	connected, err := s.probe(ctx, h.key)
	if ctx.Err() != nil {
		return // stopped in the middle: says nothing about the backend
	}
	took := s.deps.Now().Sub(began)
	if connected > 0 && h.key.check.Port == 0 {
		h.rtt.Store(int64(connected))
	}
	s.metrics.checks.WithLabelValues(string(h.key.check.Kind)).Observe(took.Seconds())
	s.announce(h, h.checked(err, took, s.deps.Now()))
}
