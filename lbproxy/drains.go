package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// ErrUnknown is returned for a balancer or backend that the active table does not have.
var ErrUnknown = errors.New("no such balancer or backend")

// A Drain is a backend that an admin took out of a balancer.
type Drain struct {
	Balancer string
	Backend  netip.AddrPort // not its name, which may move to another machine
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
		s.drained[k] = true
		if b := s.backendStates[k]; b != nil {
			b.drained.Store(true)
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
// address or an addr:port; every backend that it matches is drained. The drain is durable when Drain returns. The error
// wraps ErrUnknown or comes from Deps.Drains.
func (s *Server) Drain(ctx context.Context, balancer, backend string) error {
	return s.setDrain(ctx, balancer, backend, event.BackendDrained)
}

// Ready ends a drain. The backend's health decides whether it gets connections.
func (s *Server) Ready(ctx context.Context, balancer, backend string) error {
	return s.setDrain(ctx, balancer, backend, event.BackendReady)
}

func (s *Server) setDrain(ctx context.Context, balancer, backend string, kind event.Kind) error {
	f, backends := s.active.Load().find(balancer, backend)
	if len(backends) == 0 {
		return fmt.Errorf("backend %s of balancer %s: %w", backend, balancer, ErrUnknown)
	}
	for _, b := range backends {
		if err := s.storeDrain(ctx, Drain{balancer, b.Addr}, kind); err != nil {
			return fmt.Errorf("store drain of backend %s of balancer %s: %w", b.Addr, balancer, err)
		}
		drained := kind == event.BackendDrained
		s.mu.Lock()
		s.drained[b.state.key] = drained
		s.mu.Unlock()
		b.state.drained.Store(drained)
		s.gauge(f, b)
		s.deps.Events.Record(event.Event{Kind: kind, Addr: b.Addr.Addr(), Host: b.Host, Detail: f.Name + " " + lab.BackendText(b.Addr)})
	}
	return nil
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

// find returns the backends of a balancer whose name, label or address is name.
func (t *activeTable) find(balancer, name string) (*frontend, []*backend) {
	for _, f := range t.frontends {
		if f.Name != balancer {
			continue
		}
		var out []*backend
		for i := range f.backends {
			b := &f.backends[i]
			switch name {
			case b.Name, b.Label, lab.BackendText(b.Addr), fmt.Sprintf("%s:%d", b.Name, b.Addr.Port()), b.Addr.Addr().String():
				out = append(out, b)
			}
		}
		return f, out
	}
	return nil, nil
}

// A BalancerStatus is the current state of a balancer.
type BalancerStatus struct {
	Name        string
	Listen      lab.Binds
	Mode        lab.BalanceMode
	Balance     lab.Algorithm
	Connections int64 // open
	Limit       int
	Queued      int  // clients that wait for a backend with less than its limit
	Checked     bool // its backends are
	Backends    []BackendStatus
}

// A BackendStatus is the current state of a backend.
type BackendStatus struct {
	Name        string
	Host        string
	Addr        netip.AddrPort
	Backup      bool
	Weight      int
	LabWeight   int  // of the lab file, if another is set at run time
	Added       bool // at run time: it is not in the lab file
	Limit       int  // of Connections; 0: none
	Check       lab.CheckKind
	Condition   Condition
	Drained     bool
	Reason      string        // of Condition, or the last failure if it is still up
	Since       time.Time     // Condition holds
	Connections int64         // in HTTP mode: requests
	Total       int64         // connections, in HTTP mode requests, since the start
	Errors      int64         // failed connects, and in HTTP mode responses that are 5xx, missing or cut, since the start
	P50, P99    time.Duration // of the last 10 to 20 seconds, until connected, in HTTP mode until the head of the response; 0: none
}

// Status returns every balancer of the active table, sorted by name, its backends in the order of the lab file.
func (s *Server) Status() []BalancerStatus {
	t := s.active.Load()
	out := make([]BalancerStatus, len(t.frontends))
	for i, f := range t.frontends {
		out[i] = BalancerStatus{
			Name: f.Name, Listen: f.Listen, Mode: f.Mode, Balance: f.Balance,
			Connections: f.state.active.Load(), Limit: f.MaxConnections, Queued: int(f.state.queue.len.Load()), Checked: f.Check.Kind != lab.CheckNone, Backends: make([]BackendStatus, len(f.backends)),
		}
		for j := range f.backends {
			out[i].Backends[j] = f.backends[j].status()
		}
		for _, b := range f.missing {
			out[i].Backends = append(out[i].Backends, BackendStatus{
				Name: b.Name, Host: b.Host, Backup: b.Backup, Weight: max(b.Weight, 1), Check: f.Check.Kind, Condition: Unchecked, Reason: s.whyMissing(b.source()),
			})
		}
	}
	return out
}

func (b *backend) status() BackendStatus {
	condition, reason, since := b.condition()
	labWeight := 0
	p50, p99 := b.state.traffic.quantiles()
	if set := b.state.weight.Load(); set > 0 && int(set) != b.Weight {
		labWeight = b.Weight
	}
	return BackendStatus{
		LabWeight: labWeight, Added: b.Added,
		Name: b.Name, Host: b.Host, Addr: b.Addr, Backup: b.Backup, Weight: b.weight(), Limit: b.Limit, Check: b.health.key.check.Kind, Condition: condition,
		Drained: b.state.drained.Load(), Reason: reason, Since: since, Connections: b.state.active.Load(),
		Total: b.state.traffic.total.Load(), Errors: b.state.traffic.errors.Load(), P50: p50, P99: p99,
	}
}
