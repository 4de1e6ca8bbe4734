package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
)

// Each client connection may have one connection to a backend, which is part of the limit of client connections. Further ones need a slot
// (Config.BackendConnections): those of further requests of an HTTP/2 connection, and HTTP/2 connections to backends, which requests share.
// Idle connections may be as many as both leave. Further dials of clients that wait for a backend are limited by Config.Waiting.

// errBackendLimit says that a request had no slot for a connection to a backend.
var errBackendLimit = errors.New("too many connections to backends")

// backendSlots are slots for connections to backends. Requests may wait for one.
type backendSlots struct {
	taken *connlimit.Counter

	mu      sync.Mutex
	waiters []*slotWaiter // as they came
}

// A slotWaiter is a request that waits for a slot.
type slotWaiter struct {
	client netip.Addr
	handed chan func() // the release of its slot
}

func newBackendSlots(most int) *backendSlots {
	return &backendSlots{taken: connlimit.NewCounter(most)}
}

// An ownSlot is for the one connection to a backend that a client connection may have: it holds a value while it is taken.
type ownSlot chan struct{}

func (o ownSlot) release() { <-o }

// take takes the slot, unless it is taken. release gives it back, once the socket is closed or idle; nil: it is taken.
func (o ownSlot) take() (release func()) {
	select {
	case o <- struct{}{}:
		return o.release
	default:
		return nil
	}
}

// take takes a slot. release gives it back, once the socket is closed or idle; nil: the client may have none now.
func (s *backendSlots) take(client netip.Addr) (release func()) {
	if !s.taken.Take(client) {
		return nil
	}
	return func() { s.release(client) }
}

// release gives a slot to the waiter whose client has the fewest, of equals to the first.
func (s *backendSlots) release(client netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken.Release(client)
	if len(s.waiters) == 0 {
		return
	}
	next := slices.MinFunc(s.waiters, func(a, b *slotWaiter) int { return s.taken.Of(a.client) - s.taken.Of(b.client) })
	if release := s.take(next.client); release != nil {
		s.leaveLocked(next)
		next.handed <- release
	}
}

// await waits for own or a slot of all, for limit at most. The error is errBackendLimit or that of ctx.
func (s *backendSlots) await(ctx context.Context, own ownSlot, client netip.Addr, limit time.Duration) (release func(), err error) {
	w := &slotWaiter{client: client, handed: make(chan func(), 1)}
	s.mu.Lock() // so that no slot is given back between the two
	if release = s.take(client); release == nil {
		s.waiters = append(s.waiters, w)
	}
	s.mu.Unlock()
	if release != nil {
		return release, nil
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case release = <-w.handed:
		return release, nil
	case own <- struct{}{}:
		release = own.release
	case <-timer.C:
		err = fmt.Errorf("%w: none ended within %s", errBackendLimit, limit)
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.leave(w)
	return release, err
}

// awaited reports whether a request waits for a slot.
func (s *backendSlots) awaited() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiters) > 0
}

// leave removes a waiter, and gives back a slot that was handed to it meanwhile.
func (s *backendSlots) leave(w *slotWaiter) {
	s.mu.Lock()
	s.leaveLocked(w)
	s.mu.Unlock()
	select {
	case release := <-w.handed:
		release()
	default:
	}
}

func (s *backendSlots) leaveLocked(w *slotWaiter) {
	if i := slices.Index(s.waiters, w); i >= 0 {
		s.waiters = slices.Delete(s.waiters, i, i+1)
	}
}

// opening counts a connection to a backend in HTTP mode, before it is opened. What opens it calls closed.
func (p *httpProxy) opening() {
	p.backends.Add(1)
	p.trimIdle()
}

// closed counts a connection to a backend out, once it is closed, or could not be opened.
func (p *httpProxy) closed() { p.backends.Add(-1) }

// excess reports whether there are more connections to backends than the clients and the slots allow.
func (p *httpProxy) excess() bool {
	return p.backends.Load() > p.clients.Load()+int64(p.s.cfg.BackendConnections)
}

// trimIdle closes idle connections to backends while there are too many.
func (p *httpProxy) trimIdle() {
	for p.excess() && p.closeIdleBackend() {
	}
}

// trimHTTP2 closes idle HTTP/2 connections to backends if requests wait for their slots. It is not called for each request that waits:
// connections that are being opened at the same time are not shared (net/http).
func (p *httpProxy) trimHTTP2() {
	if p.excess() || p.s.slots.awaited() {
		p.h2.transport.CloseIdleConnections()
	}
}

// closeIdleBackend closes a connection to a backend in HTTP/1 that is idle. It returns false if there is none.
func (p *httpProxy) closeIdleBackend() bool {
	for _, f := range p.s.active.Load().frontends {
		for i := range f.backends {
			if f.backends[i].state.pool.closeOldest() {
				return true
			}
		}
	}
	return false
}

// own returns the slot of the client's connection.
func (x *exchange) own() ownSlot {
	if s, ok := x.client.(*http2Stream); ok {
		return s.c.own
	}
	c, _ := x.client.(*httpConn)
	if c.own == nil {
		c.own = make(ownSlot, 1)
	}
	return c.own
}

// takeSlot takes a slot for a connection to a backend in HTTP/1, if the client may have several connections.
func (x *exchange) takeSlot() bool {
	s, ok := x.client.(*http2Stream)
	if !ok || x.slot != nil {
		return true
	}
	if x.slot = s.c.own.take(); x.slot == nil {
		x.slot = x.proxy.s.slots.take(x.src.Addr())
	}
	return x.slot != nil
}

func (x *exchange) giveSlotBack() {
	if x.slot != nil {
		x.slot()
		x.slot = nil
	}
}

// awaitSlot waits for a slot of a request, for timeouts.queue at most.
func (p *httpProxy) awaitSlot(ctx context.Context, f *frontend, own ownSlot, client netip.Addr) (release func(), err error) {
	s := p.s
	s.logLimit.Do(func() {
		s.log.Warn("limit of connections to backends reached: HTTP/2 requests wait until others end; LimitNOFILE of the service sets the limit",
			"limit", s.cfg.BackendConnections, "balancer", f.Name)
	})
	f.state.metrics.queued.Inc()
	defer f.state.metrics.queued.Dec()
	return s.slots.await(ctx, own, client, f.Timeouts.Queue)
}
