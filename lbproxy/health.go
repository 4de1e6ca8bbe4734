package lbproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
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
	ev := event.Event{Kind: event.BackendUp, Addr: b.Addr.Addr(), Host: b.Host, Detail: f.Name + " " + lab.BackendText(b.Addr), Dur: dur}
	if health == Down {
		b.state.pool.lose(loseIdle)
		ev.Kind, ev.Err = event.BackendDown, reason
		if !wasUp && b.health.down.Load() && !s.wasUp(f, b) { // by its checks: one that refuses clients is worth a warning
			ev.Kind = event.BackendNew
		}
	}
	s.deps.Events.Record(ev)
}

// wasUp reports whether a backend was healthy in the life of an earlier process.
func (s *Server) wasUp(f *frontend, b *backend) bool {
	return s.deps.WasUp != nil && s.deps.WasUp(f.Name, b.Addr)
}

// gauge sets the metric backend_up of a backend.
func (s *Server) gauge(f *frontend, b *backend) {
	up := 0.0
	if b.usable() {
		up = 1
	}
	s.metrics.up.WithLabelValues(f.Name, b.Label).Set(up)
}

// A backend is ejected from a balancer after this many refused connections in a row, or connects without an answer in a
// row for at least ejectSilence. One that is ejected is used when no other is left.
const (
	ejectRefused = 2
	ejectSilent  = 5
	ejectSilence = time.Second
)

// An ejection lasts at least ejectMin; the next within a minute twice as long, up to ejectMax: a backend whose checks pass
// and whose connections fail does not change its health at every check.
const (
	ejectMin = 200 * time.Millisecond
	ejectMax = 10 * time.Second
)

// passive is the health of one backend of one balancer as its connections show it.
type passive struct {
	failing atomic.Bool // a connection failed after the last success; read for every connection
	ejected atomic.Bool // read for every connection
	stalled atomic.Bool // ejected because it answers nothing: only answerWatch ends that

	mu          sync.Mutex
	refused     int // connections in a row
	silent      int // connects in a row that did not answer in time
	silentSince time.Time
	reason      string // of the ejection
	since       time.Time
	minimum     time.Duration // that the ejection lasts
	announced   Health        // that the last event and the gauge tell
	wasUp       bool          // announced was Up once
}

// succeeded records a connection. It reports whether that may end an ejection.
func (p *passive) succeeded() bool {
	if !p.failing.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing.Store(false)
	p.refused, p.silent = 0, 0
	return p.ejected.Load() && !p.stalled.Load()
}

// failed records a failed connection. It returns why the backend is to be ejected; empty: it is not.
func (p *passive) failed(err error, now time.Time) (reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing.Store(true)
	if !isSilence(err) {
		p.refused++
		if p.refused < ejectRefused || p.ejected.Load() {
			return ""
		}
		return fmt.Sprintf("%d connections in a row failed: %v", p.refused, err)
	}
	if p.silent++; p.silent == 1 {
		p.silentSince = now
	}
	lasts := now.Sub(p.silentSince)
	if p.silent < ejectSilent || lasts < ejectSilence || p.ejected.Load() {
		return ""
	}
	return fmt.Sprintf("no answer to %d connections in a row, for %s", p.silent, lasts.Round(time.Millisecond))
}

func (p *passive) eject(reason string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.minimum == 0 || now.Sub(p.since) > time.Minute:
		p.minimum = ejectMin
	default:
		p.minimum = min(2*p.minimum, ejectMax)
	}
	p.reason, p.since = reason, now
	p.ejected.Store(true)
}

// ejectedFor returns how long the backend has been ejected.
func (p *passive) ejectedFor(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Sub(p.since)
}

// mayReturn reports whether a passed check or a connection ends the ejection.
func (p *passive) mayReturn(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Sub(p.since) >= p.minimum
}

func (p *passive) reinstate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused, p.silent = 0, 0
	p.failing.Store(false)
	p.stalled.Store(false)
	p.ejected.Store(false)
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

// dialed records a connection to a backend of f. It ends an ejection, unless a TLS handshake follows.
func (s *Server) dialed(f *frontend, b *backend, took time.Duration) {
	b.health.connected(took)
	b.state.connected(took)
	if !f.BackendTLS.On {
		s.reached(b)
	}
}

// reached records that a backend can be used. It ends an ejection.
func (s *Server) reached(b *backend) {
	if b.state.succeeded() && b.state.mayReturn(s.deps.Now()) {
		s.reinstate(b.health, b.state)
	}
}

// dialFailed gives back a backend that could not be connected to, and counts that against it.
func (s *Server) dialFailed(b *backend, err error) {
	b.state.release()
	s.connectFailed(b, err)
}

// connectFailed counts a failed connection against a backend, and asks for a check, unless it failed because of this machine.
func (s *Server) connectFailed(b *backend, err error) {
	if s.countFault(err, b.Addr) {
		return
	}
	b.state.connectFailed(err)
	if b.hasClientPort() && !isSilence(err) {
		return // one port of many says nothing about the others
	}
	defer b.health.requestCheck() // last, so that checkLoop sees the ejection
	if errors.Is(err, context.Canceled) {
		return
	}
	b.state.traffic.errors.Add(1)
	if reason := b.state.failed(err, s.deps.Now()); reason != "" {
		s.eject(b, reason)
	}
}

// eject takes a backend out of its balancer until a check passes or a connection succeeds.
func (s *Server) eject(b *backend, reason string) {
	b.state.eject(reason, s.deps.Now())
	b.health.mu.Lock()
	b.health.ejected[b.state] = struct{}{}
	b.health.mu.Unlock()
	s.report(func(other *backend) bool { return other.state == b.state }, 0)
	b.health.requestCheck()
}

// reinstate ends an ejection.
func (s *Server) reinstate(h *checkedHealth, state *backendState) {
	h.mu.Lock()
	delete(h.ejected, state)
	h.mu.Unlock()
	state.reinstate()
	s.report(func(b *backend) bool { return b.state == state }, 0)
}

// isSilence reports whether a connect ended because there was no answer in time, or because it was cancelled before.
func isSilence(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, syscall.ETIMEDOUT)
}
