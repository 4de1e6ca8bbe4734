package lbproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A Health says whether a backend may get connections.
type Health string

// The health of a backend.
const (
	Unchecked Health = "unchecked" // no check has finished yet; used as if up
	Up        Health = "up"
	Down      Health = "down" // gets no new connection
)

// A healthKey is an address and how it is checked. Health survives a reload that keeps the pair; balancers with the same
// pair share it.
type healthKey struct {
	addr  netip.AddrPort
	check lab.Check
	proxy int // version of the PROXY header that the check sends; 0: none

	requests   backendTLSKey // how requests reach the backend, if they do on the port that is checked
	serverName string
}

// A checkedHealth is the health of a backend as its checks show it: rise or fall results in a row change it. What connections
// show is in passive.
type checkedHealth struct {
	key     healthKey
	recheck chan struct{} // holds one value if a check is wanted now

	down atomic.Bool  // read for every connection
	rtt  atomic.Int64 // nanoseconds that connects take

	unreachable atomic.Bool // nobody answered the last check that has a result

	mu      sync.Mutex
	found   Health
	streak  int // results in a row that contradict found
	reason  string
	fault   string // why the last check has no result; empty: it has one
	since   time.Time
	ejected map[*backendState]struct{} // balancers that have ejected the backend
}

func newHealth(k healthKey, now time.Time) *checkedHealth {
	return &checkedHealth{key: k, recheck: make(chan struct{}, 1), found: Unchecked, since: now, ejected: make(map[*backendState]struct{})}
}

// checked records the result of a check. The first result counts at once, later ones by rise and fall. It reports
// whether the health changed.
func (h *checkedHealth) checked(err error, now time.Time) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = ""
	h.unreachable.Store(err != nil && (isSilence(err) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)))
	result, threshold, reason := Up, h.key.check.Rise, ""
	if err != nil {
		result, threshold, reason = Down, h.key.check.Fall, err.Error()
	}
	if result == h.found {
		h.streak, h.reason = 0, reason
		return false
	}
	h.streak++
	if h.found != Unchecked && h.streak < threshold {
		return false
	}
	h.found, h.reason, h.since, h.streak = result, reason, now, 0
	h.down.Store(result == Down)
	return true
}

// unknown notes why a check has no result.
func (h *checkedHealth) unknown(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = fmt.Sprintf("it was not checked, because of this machine: %v", err)
}

// connected records how long a connect took. One that lost a packet is no measure of the others.
func (h *checkedHealth) connected(took time.Duration) {
	rtt := h.rtt.Load()
	if rtt != 0 && int64(took) > rtt {
		took = time.Duration(rtt + (int64(took)-rtt)/8)
	}
	h.rtt.Store(int64(took))
}

// follow makes checks that pass end the ejection of a backend that was ejected while it was checked in another way.
func (h *checkedHealth) follow(state *backendState) {
	if !state.ejected.Load() || state.stalled.Load() {
		return
	}
	h.mu.Lock()
	h.ejected[state] = struct{}{}
	h.mu.Unlock()
	h.requestCheck()
}

// isUp reports whether a check has passed and none contradicts that.
func (h *checkedHealth) isUp() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.found == Up && h.streak == 0
}

// ejections returns the balancers that have ejected the backend.
func (h *checkedHealth) ejections() []*backendState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.ejected))
}

// interval returns how long to wait for the next check: shorter while the health may be about to change.
func (h *checkedHealth) interval() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	interval := h.key.check.Interval
	if h.streak > 0 || len(h.ejected) > 0 {
		return min(interval, cmp.Or(h.key.check.FastInterval, interval))
	}
	return interval
}

// requestCheck wakes checkLoop.
func (h *checkedHealth) requestCheck() {
	select {
	case h.recheck <- struct{}{}:
	default:
	}
}

// clearRequest undoes requestCheck.
func (h *checkedHealth) clearRequest() {
	select {
	case <-h.recheck:
	default:
	}
}

// checkLoop checks one backend until ctx ends: at once, then every interval, plus or minus a tenth so that checks spread,
// and soon after a failed connection.
func (s *Server) checkLoop(ctx context.Context, h *checkedHealth) {
	if h.key.check.Kind == lab.CheckNone {
		s.reinstateLoop(ctx, h)
		return
	}
	for {
		s.checkOnce(ctx, h)
		interval := h.interval()
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

// reinstateLoop ends the ejections of an unchecked backend after Config.Ejection.
func (s *Server) reinstateLoop(ctx context.Context, h *checkedHealth) {
	for {
		select {
		case <-h.recheck:
		case <-ctx.Done():
			return
		}
		for len(h.ejections()) > 0 {
			if pause.For(ctx, s.cfg.Ejection) != nil {
				return
			}
			for _, state := range h.ejections() {
				if state.ejectedFor(s.deps.Now()) >= s.cfg.Ejection {
					s.reinstate(h, state)
				}
			}
		}
	}
}

// checkOnce runs one check and records its result.
func (s *Server) checkOnce(ctx context.Context, h *checkedHealth) {
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
		h.connected(connected)
	}
	s.metrics.checks.WithLabelValues(string(h.key.check.Kind)).Observe(took.Seconds())
	s.checked(h, err, took)
}

// checked records the result of a check. One that passes ends ejections; one that failed because of this machine is no result.
func (s *Server) checked(h *checkedHealth, err error, took time.Duration) {
	if s.countFault(err, h.key.addr) {
		h.unknown(err)
		return
	}
	if h.checked(err, s.deps.Now()) {
		s.report(func(b *backend) bool { return b.health == h }, took)
		if h.down.Load() {
			s.closeDown(h)
		}
	}
	if err == nil {
		for _, state := range h.ejections() {
			if state.mayReturn(s.deps.Now()) {
				s.reinstate(h, state)
			}
		}
	}
}

// closeDown closes connections of a backend that checks found down: idle ones to it, and where on_down is close all.
func (s *Server) closeDown(h *checkedHealth) {
	for _, f := range s.active.Load().frontends {
		for i := range f.backends {
			b := &f.backends[i]
			if b.health != h {
				continue
			}
			if f.OnDown != lab.OnDownClose {
				b.state.pool.lose(loseUnanswered)
				continue
			}
			b.state.pool.lose(loseAll)
			s.sessions.abortOf(b.state)
		}
	}
}

// report records the health of the backends that changed as events and metrics. dur is how long the check took that
// changed them.
func (s *Server) report(changed func(*backend) bool, dur time.Duration) {
	s.announcing.Lock()
	defer s.announcing.Unlock()
	for _, f := range s.active.Load().frontends {
		for i := range f.backends {
			if b := &f.backends[i]; changed(b) {
				s.announce(f, b, dur)
			}
		}
	}
}

// announce records the health of a backend if it is another than the one recorded last.
func (s *Server) announce(f *frontend, b *backend, dur time.Duration) {
	health, reason, changed, wasUp := b.announce()
	if !changed {
		return
	}
	s.gauge(f, b)
	ev := b.event(event.BackendUp, f.Name)
	ev.Dur = dur
	if health == Down {
		b.state.pool.lose(loseIdle)
		ev.Kind, ev.Err = event.BackendDown, reason
		if !wasUp && b.health.down.Load() && !s.wasUp(f, b) { // by its checks: one that refuses clients is worth a warning
			ev.Kind, ev.Detail = event.BackendNew, "it has never been healthy"
		}
	}
	s.deps.Events.Record(ev)
}

// event returns an event of the backend, with the name that it has in metrics and the log of requests.
func (b *Backend) event(kind event.Kind, balancer string) event.Event {
	return event.Event{Kind: kind, Addr: b.Addr.Addr(), Host: b.Host, Balancer: balancer, Backend: b.Label}
}

// wasUp reports whether a backend was healthy in the life of an earlier process.
func (s *Server) wasUp(f *frontend, b *backend) bool {
	return s.deps.WasUp != nil && s.deps.WasUp(f.Name, b.key())
}

// gauge sets the metric backend_up of a backend.
func (s *Server) gauge(f *frontend, b *backend) {
	up := 0.0
	if b.usable() {
		up = 1
	}
	s.metrics.up.WithLabelValues(f.Name, b.Label).Set(up)
}

// currentHealth returns whether the backend may get connections, why, and since when. What checks found goes first.
func (b *backend) currentHealth() (Health, string, time.Time) {
	b.health.mu.Lock()
	health, reason, since := b.health.found, cmp.Or(b.health.fault, b.health.reason), b.health.since
	b.health.mu.Unlock()
	if health == Down || !b.state.ejected.Load() {
		return health, reason, since
	}
	b.state.mu.Lock()
	defer b.state.mu.Unlock()
	return Down, b.state.reason, b.state.since
}

// wentDown reports whether checks found the backend down since a time, and it was up before.
func (b *backend) wentDown(since time.Time) bool {
	b.health.mu.Lock()
	recent := b.health.found == Down && b.health.since.After(since)
	b.health.mu.Unlock()
	b.state.mu.Lock()
	defer b.state.mu.Unlock()
	return recent && b.state.wasUp
}

// announce returns the health of the backend, whether it is another than at the last call, and whether it was Up before.
func (b *backend) announce() (health Health, reason string, changed, wasUp bool) {
	health, reason, _ = b.currentHealth()
	b.state.mu.Lock()
	defer b.state.mu.Unlock()
	changed = b.state.announced != health && health != Unchecked
	if changed {
		b.state.announced = health
	}
	wasUp = b.state.wasUp
	b.state.wasUp = wasUp || health == Up
	return health, reason, changed, wasUp
}
