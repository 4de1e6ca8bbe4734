package lbproxy

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/observe/event"
)

// A Drain is a backend that an admin took out of a balancer.
type Drain struct {
	Balancer string
	Backend  netip.AddrPort // not its name, which may move to another machine
	Since    time.Time
}

// drained is since when a backend is drained; the zero drained: it is not.
type drained struct{ at atomic.Pointer[time.Time] }

func (d *drained) is() bool { return d.at.Load() != nil }

func (d *drained) since() time.Time {
	if at := d.at.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// set sets since when, zero: it is not drained, and reports whether that drains it or ends a drain.
func (d *drained) set(since time.Time) (changed bool) {
	if since.IsZero() {
		return d.at.Swap(nil) != nil
	}
	return d.at.Swap(&since) == nil
}

// Drains stores drains across restarts. Put and Delete return once the change is durable. Putting a drain that is stored
// and deleting one that is not are no errors.
type Drains interface {
	// Load returns all stored drains, in no order.
	Load(ctx context.Context) ([]Drain, error)
	// Put stores d.
	Put(ctx context.Context, d Drain) error
	// Delete deletes d.
	Delete(ctx context.Context, d Drain) error
}

// loadDrains reads the stored drains.
func (s *Server) loadDrains(ctx context.Context) error {
	if s.deps.Drains == nil {
		return nil
	}
	drains, err := s.deps.Drains.Load(ctx)
	if err != nil {
		return fmt.Errorf("load drains of balancers: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range drains {
		k := backendKey{d.Balancer, d.Backend}
		s.drained[k] = d.Since
		if b := s.backendStates[k]; b != nil {
			b.drained.set(d.Since)
		}
	}
	for _, f := range s.active.Load().frontends {
		for i := range f.backends {
			s.gauge(f, &f.backends[i])
		}
	}
	return nil
}

// Drain takes a backend out of a balancer: it gets no new connections, its open ones continue. backend is a name, an
// address or an addr:port; every backend that it matches is drained. The drain is durable when Drain returns, with what
// became of them. The error wraps ErrUnknown or comes from Deps.Drains.
func (s *Server) Drain(ctx context.Context, balancer, backend string) ([]BackendStatus, error) {
	return s.setDrain(ctx, balancer, backend, event.BackendDrained)
}

// Ready ends what Drain did. The backend's health decides whether it gets connections.
func (s *Server) Ready(ctx context.Context, balancer, backend string) ([]BackendStatus, error) {
	return s.setDrain(ctx, balancer, backend, event.BackendReady)
}

func (s *Server) setDrain(ctx context.Context, balancer, backend string, kind event.Kind) (found []BackendStatus, err error) {
	f, backends := s.active.Load().find(balancer, backend)
	if len(backends) == 0 {
		return nil, unknown(balancer, f, backend)
	}
	for _, b := range backends {
		since := time.Time{}
		if kind == event.BackendDrained {
			since = cmp.Or(b.state.drained.since(), s.deps.Now())
		}
		if err := s.storeDrain(ctx, Drain{balancer, b.Addr, since}, kind); err != nil {
			return nil, fmt.Errorf("store drain of backend %s of balancer %s: %w", b.Addr, balancer, err)
		}
		s.mu.Lock()
		s.drained[b.state.key] = since
		s.mu.Unlock()
		changed := b.state.drained.set(since)
		s.gauge(f, b)
		if changed {
			s.deps.Events.Record(b.event(kind, f.Name))
		}
		found = append(found, b.status())
	}
	return found, nil
}

func (s *Server) storeDrain(ctx context.Context, d Drain, kind event.Kind) error {
	switch {
	case s.deps.Drains == nil:
		return nil
	case kind == event.BackendDrained:
		return s.deps.Drains.Put(ctx, d)
	}
	return s.deps.Drains.Delete(ctx, d)
}
