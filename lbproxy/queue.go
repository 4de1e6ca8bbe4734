package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/host/client/clientaddr"
)

// errQueueFull and errQueueTimeout say why a client got no backend although some are up: all have max_connections.
var (
	errQueueFull    = errors.New("every backend has max_connections, and the queue is full")
	errQueueTimeout = errors.New("every backend has max_connections, and none became free within timeouts.queue")
)

// A queue holds the clients of one balancer that wait for a backend with less than max_connections, in the order in which
// they came. The zero value is empty and ready.
type queue struct {
	len atomic.Int32 // of waiters; read for every connection that ends

	mu      sync.Mutex
	waiters []*waiter
}

// A waiter is one client in a queue.
type waiter struct {
	client  netip.Addr
	evicted chan struct{}      // closed when the waiter loses its place in the queue
	handed  chan *backendState // a connection's place at a backend, which stays in its active count
}

// join adds a client; nil: the queue has most clients. In a full queue the client (see clientaddr.Of) with the most waiting loses its last
// one to one that has fewer even then.
func (q *queue) join(most int, client netip.Addr) *waiter {
	client = clientaddr.Of(client)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiters) >= most && !q.evictLocked(client) {
		return nil
	}
	w := &waiter{client: client, evicted: make(chan struct{}), handed: make(chan *backendState, 1)}
	q.waiters = append(q.waiters, w)
	q.len.Store(int32(len(q.waiters)))
	return w
}

// evictLocked takes a place from the client address with the most, if another one's first place is worth more.
func (q *queue) evictLocked(client netip.Addr) bool {
	waiting, most := make(map[netip.Addr]int), client
	for _, w := range q.waiters {
		if waiting[w.client]++; waiting[w.client] > waiting[most] {
			most = w.client
		}
	}
	if waiting[most] <= waiting[client]+1 {
		return false
	}
	for i, w := range slices.Backward(q.waiters) {
		if w.client == most {
			q.waiters = slices.Delete(q.waiters, i, i+1)
			close(w.evicted)
			return true
		}
	}
	return false
}

// leave removes a client. It returns a place that was handed to it; nil: none.
func (q *queue) leave(w *waiter) *backendState {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiters, w); i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
		q.len.Store(int32(len(q.waiters)))
	}
	select {
	case state := <-w.handed:
		return state
	default:
		return nil
	}
}

// hand gives a place at a backend to the first client. It returns false if no client waits.
func (q *queue) hand(state *backendState) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.waiters {
		select {
		case w.handed <- state:
			return true
		default: // it has one already and will leave
		}
	}
	return false
}

// release gives a connection's place at the backend back, or to a client that waits for one.
func (s *backendState) release() {
	if q := s.queue; q != nil && q.len.Load() > 0 && s.active.Load() <= s.limit.Load() && q.hand(s) {
		return
	}
	s.active.Add(-1)
}

// full reports whether the backend has max_connections.
func (s *backendState) full() bool {
	limit := s.limit.Load()
	return limit > 0 && s.active.Load() >= limit
}

// take counts a connection, unless the backend has max_connections.
func (s *backendState) take() bool {
	n, limit := s.active.Add(1), s.limit.Load()
	if limit > 0 && n > limit {
		s.active.Add(-1)
		return false
	}
	return true
}

// queuePoll is how often a waiting client looks for itself: a backend that becomes healthy hands out nothing, and a client that hangs up
// wakes nobody.
const queuePoll = 250 * time.Millisecond

// choose picks a backend for a client. If all that may have it have max_connections, or the last has just gone down (awaitsReturn), it
// waits until one may have it, for timeouts.queue at most, or until gone reports that the client has hung up. The error is errNoBackend,
// errQueueFull, errQueueTimeout, errClientGone or that of ctx.
func (s *Server) choose(ctx context.Context, f *frontend, client netip.Addr, gone func() bool) (*backend, error) {
	b, full := f.pickOrFull(client, nil)
	switch {
	case b != nil:
		return b, nil
	case !full && !f.awaitsReturn(client, s.deps.Now()):
		return nil, errNoBackend
	}
	w := f.state.queue.join(f.Queue, client)
	switch {
	case w == nil && !full:
		return nil, errNoBackend
	case w == nil:
		return nil, fmt.Errorf("%w (%d clients)", errQueueFull, f.Queue)
	}
	f.state.metrics.queued.Inc()
	defer f.state.metrics.queued.Dec()
	b, err := s.await(ctx, f, w, client, gone)
	if handed := f.state.queue.leave(w); handed != nil { // meanwhile
		handed.release()
	}
	return b, err
}

// awaitsReturn reports whether a client waits although no backend is up: one went down within timeouts.queue. Machines that fail and return
// in turn are all down for a moment, because checks are late; so is one that restarts.
func (f *frontend) awaitsReturn(client netip.Addr, now time.Time) bool {
	return slices.ContainsFunc(f.backends, func(b backend) bool {
		return !b.state.drained.is() && !b.excludes(client) && b.wentDown(now.Add(-f.Timeouts.Queue))
	})
}

// await waits for a backend.
func (s *Server) await(ctx context.Context, f *frontend, w *waiter, client netip.Addr, gone func() bool) (*backend, error) {
	limit := time.NewTimer(f.Timeouts.Queue)
	defer limit.Stop()
	poll := time.NewTicker(queuePoll)
	defer poll.Stop()
	for {
		b, full := f.pickOrFull(client, nil)
		switch {
		case b != nil:
			return b, nil
		case !full && !f.awaitsReturn(client, s.deps.Now()):
			return nil, errNoBackend
		}
		select {
		case state := <-w.handed:
			if b := f.backendOf(state); b != nil && b.usable() && !b.excludes(client) {
				return b, nil
			}
			state.active.Add(-1)
		case <-w.evicted:
			return nil, fmt.Errorf("%w (%d clients), and this address has the most of them", errQueueFull, f.Queue)
		case <-poll.C:
			if gone() {
				return nil, errClientGone
			}
		case <-limit.C:
			if !full {
				return nil, errNoBackend
			}
			return nil, fmt.Errorf("%w (%s)", errQueueTimeout, f.Timeouts.Queue)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// backendOf returns the backend with a state; nil: the balancer does not have it any more.
func (f *frontend) backendOf(state *backendState) *backend {
	for i := range f.backends {
		if f.backends[i].state == state {
			return &f.backends[i]
		}
	}
	return nil
}
