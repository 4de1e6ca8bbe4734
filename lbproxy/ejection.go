package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

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
