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
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A Condition is the health of a backend.
type Condition string

// The conditions of a backend.
const (
	Unchecked Condition = "unchecked" // no check has finished yet; used as if up
	Up        Condition = "up"
	Down      Condition = "down" // gets no new connection
)

// A healthKey is an address and how it is checked. Health survives a reload that keeps the pair; balancers with the same
// pair share it.
type healthKey struct {
	addr  netip.AddrPort
	check lab.Check
	proxy int // version of the PROXY header that the check sends; 0: none
}

// A Health is the health of one backend under one check. Checks change it after rise or fall results in a row;
// ejectAfter failed connections in a row change it at once; without checks, an ejection ends after Config.Ejection.
type Health struct {
	key     healthKey
	recheck chan struct{} // holds one value if a check is wanted now

	down   atomic.Bool // read for every connection
	failed atomic.Int32
	rtt    atomic.Int64 // nanoseconds that the last connect took

	mu        sync.Mutex
	condition Condition
	streak    int // results in a row that contradict condition
	reason    string
	since     time.Time
}

// ejectAfter is how many failed connections in a row mark a backend down without a check.
const ejectAfter = 2

// A transition is a change of condition. The zero value is no change.
type transition struct {
	condition Condition
	reason    string
	dur       time.Duration
}

func newHealth(k healthKey, now time.Time) *Health {
	return &Health{key: k, recheck: make(chan struct{}, 1), condition: Unchecked, since: now}
}

// usable reports whether the backend may get a connection.
func (h *Health) usable() bool { return !h.down.Load() }

// checked records the result of a check. The first result counts at once, later ones by rise and fall.
func (h *Health) checked(err error, dur time.Duration, now time.Time) transition {
	h.mu.Lock()
	defer h.mu.Unlock()
	result, threshold, reason := Up, h.key.check.Rise, ""
	if err != nil {
		result, threshold, reason = Down, h.key.check.Fall, err.Error()
	}
	if result == h.condition {
		h.streak, h.reason = 0, reason
		return transition{}
	}
	h.streak++
	if h.condition != Unchecked && h.streak < threshold {
		return transition{}
	}
	return h.setLocked(transition{result, reason, dur}, now)
}

// dialed records a successful connection.
func (h *Health) dialed(took time.Duration) {
	h.rtt.Store(int64(took))
	if h.failed.Load() != 0 {
		h.failed.Store(0)
	}
}

// dialFailed records a failed connection.
func (h *Health) dialFailed(err error, now time.Time) transition {
	defer h.requestCheck() // after the unlock, so that checkLoop sees the transition
	failed := h.failed.Add(1)
	if failed < ejectAfter {
		return transition{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.condition == Down {
		return transition{}
	}
	reason := fmt.Sprintf("%d connections in a row failed: %v", failed, err)
	return h.setLocked(transition{condition: Down, reason: reason}, now)
}

// reinstate ends the ejection of an unchecked backend.
func (h *Health) reinstate(now time.Time) transition {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.condition != Down {
		return transition{}
	}
	return h.setLocked(transition{condition: Up, reason: "not checked; tried again after its ejection"}, now)
}

func (h *Health) setLocked(v transition, now time.Time) transition {
	h.condition, h.reason, h.since, h.streak = v.condition, v.reason, now, 0
	h.failed.Store(0)
	h.down.Store(v.condition == Down)
	return v
}

// requestCheck wakes checkLoop.
func (h *Health) requestCheck() {
	select {
	case h.recheck <- struct{}{}:
	default:
	}
}

// clearRequest undoes requestCheck.
func (h *Health) clearRequest() {
	select {
	case <-h.recheck:
	default:
	}
}

// snapshot returns the condition, its reason and since when it holds.
func (h *Health) snapshot() (Condition, string, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.condition, h.reason, h.since
}

// checkLoop checks one backend until ctx ends: at once, then every interval, plus or minus a tenth so that checks spread,
// and soon after a failed connection.
func (s *Server) checkLoop(ctx context.Context, h *Health) {
	if h.key.check.Kind == lab.CheckNone {
		s.reinstateLoop(ctx, h)
		return
	}
	for {
		s.checkOnce(ctx, h)
		interval := h.key.check.Interval
		timer := time.NewTimer(interval - interval/10 + rand.N(interval/5+1))
		select {
		case <-timer.C:
		case <-h.recheck:
			timer.Stop()
			// Not at once: many connections may fail at the same time.
			if pause.For(ctx, min(interval, minCheckGap)) != nil {
				return
			}
			h.clearRequest()
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// minCheckGap is the shortest time between two checks of a backend.
const minCheckGap = 250 * time.Millisecond

// reinstateLoop ends the ejection of an unchecked backend after Config.Ejection.
func (s *Server) reinstateLoop(ctx context.Context, h *Health) {
	for {
		select {
		case <-h.recheck:
		case <-ctx.Done():
			return
		}
		if h.usable() {
			continue
		}
		if pause.For(ctx, s.cfg.Ejection) != nil {
			return
		}
		s.report(h, h.reinstate(s.deps.Now()))
	}
}

// checkOnce runs one check and records its result.
func (s *Server) checkOnce(ctx context.Context, h *Health) {
	select {
	case s.checkSlots <- struct{}{}:
		defer func() { <-s.checkSlots }()
	case <-ctx.Done():
		return
	}
	start := s.deps.Now()
	connected, err := s.runCheck(ctx, h.key)
	if ctx.Err() != nil {
		return // the check was cancelled
	}
	took := s.deps.Now().Sub(start)
	if connected > 0 && h.key.check.Port == 0 {
		h.rtt.Store(int64(connected))
	}
	s.metrics.checks.WithLabelValues(string(h.key.check.Kind)).Observe(took.Seconds())
	s.report(h, h.checked(err, took, s.deps.Now()))
}

// report records a transition as events and metrics of every balancer that has this backend.
func (s *Server) report(h *Health, t transition) {
	if t.condition == "" {
		return
	}
	kind := event.BackendUp
	if t.condition == Down {
		kind = event.BackendDown
	}
	for _, f := range s.active.Load().frontends {
		for i := range f.endpoints {
			e := &f.endpoints[i]
			if e.health != h {
				continue
			}
			s.gauge(f, e)
			ev := event.Event{Kind: kind, Addr: e.Addr.Addr(), Host: e.Host, Detail: f.Name + " " + e.Addr.String(), Dur: t.dur}
			if t.condition == Down {
				ev.Err = t.reason
			}
			s.deps.Events.Record(ev)
		}
	}
}

// gauge sets the metric backend_up of an endpoint.
func (s *Server) gauge(f *frontend, e *endpoint) {
	up := 0.0
	if e.usable() {
		up = 1
	}
	s.metrics.up.WithLabelValues(f.Name, e.Label).Set(up)
}
