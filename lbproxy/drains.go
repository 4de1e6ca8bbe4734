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
		k := endpointKey{d.Balancer, d.Backend}
		s.drained[k] = true
		if e := s.endpointStates[k]; e != nil {
			e.drained.Store(true)
		}
	}
	for _, f := range s.active.Load().frontends {
		for i := range f.endpoints {
			s.gauge(f, &f.endpoints[i])
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
	f, endpoints := s.active.Load().find(balancer, backend)
	if len(endpoints) == 0 {
		return fmt.Errorf("backend %s of balancer %s: %w", backend, balancer, ErrUnknown)
	}
	for _, e := range endpoints {
		if err := s.storeDrain(ctx, Drain{balancer, e.Addr}, kind); err != nil {
			return fmt.Errorf("store drain of backend %s of balancer %s: %w", e.Addr, balancer, err)
		}
		drained := kind == event.BackendDrained
		s.mu.Lock()
		s.drained[e.state.key] = drained
		s.mu.Unlock()
		e.state.drained.Store(drained)
		s.gauge(f, e)
		s.deps.Events.Record(event.Event{Kind: kind, Addr: e.Addr.Addr(), Host: e.Host, Detail: f.Name + " " + lab.MemberText(e.Addr)})
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

// find returns the endpoints of a balancer whose name, label or address is backend.
func (t *activeTable) find(balancer, backend string) (*frontend, []*endpoint) {
	for _, f := range t.frontends {
		if f.Name != balancer {
			continue
		}
		var out []*endpoint
		for i := range f.endpoints {
			e := &f.endpoints[i]
			if backend == e.Name || backend == e.Label || backend == lab.MemberText(e.Addr) || backend == fmt.Sprintf("%s:%d", e.Name, e.Addr.Port()) || backend == e.Addr.Addr().String() {
				out = append(out, e)
			}
		}
		return f, out
	}
	return nil, nil
}

// A BalancerState is the current state of a balancer.
type BalancerState struct {
	Name        string          `json:"name"`
	Listen      lab.Binds       `json:"listen"`
	Mode        lab.BalanceMode `json:"mode"`
	Balance     lab.Algorithm   `json:"balance"`
	Connections int64           `json:"connections"` // open
	Limit       int             `json:"limit,omitempty"`
	Queued      int             `json:"queued,omitempty"` // clients that wait for a backend with less than its limit
	Checked     bool            `json:"checked"`          // its backends are
	Backends    []BackendState  `json:"backends"`
}

// A BackendState is the current state of a backend.
type BackendState struct {
	Name        string         `json:"name"`
	Host        string         `json:"host,omitempty"`
	Addr        netip.AddrPort `json:"addr"`
	Backup      bool           `json:"backup,omitempty"`
	Weight      int            `json:"weight"`
	LabWeight   int            `json:"lab_weight,omitempty"` // of the lab file, if another is set at run time
	Added       bool           `json:"added,omitempty"`      // at run time: it is not in the lab file
	Limit       int            `json:"limit,omitempty"`      // of Connections; 0: none
	Check       lab.CheckKind  `json:"check"`
	Condition   Condition      `json:"condition"`
	Drained     bool           `json:"drained,omitempty"`
	Reason      string         `json:"reason,omitempty"` // of Condition, or the last failure if it is still up
	Since       time.Time      `json:"since"`            // Condition holds
	Connections int64          `json:"connections"`      // in HTTP mode: requests
	Total       int64          `json:"total"`            // connections, in HTTP mode requests, since the start
	Errors      int64          `json:"errors"`           // failed connects, and in HTTP mode responses that are 5xx, missing or cut, since the start
	P50, P99    time.Duration  `json:"-"`                // of the last 10 to 20 seconds, until connected, in HTTP mode until the head of the response; 0: none
}

// States returns every balancer of the active table, sorted by name, its backends in the order of the lab file.
func (s *Server) States() []BalancerState {
	t := s.active.Load()
	out := make([]BalancerState, len(t.frontends))
	for i, f := range t.frontends {
		out[i] = BalancerState{
			Name: f.Name, Listen: f.Listen, Mode: f.Mode, Balance: f.Balance,
			Connections: f.state.active.Load(), Limit: f.MaxConnections, Queued: int(f.state.queue.len.Load()), Checked: f.Check.Kind != lab.CheckNone, Backends: make([]BackendState, len(f.endpoints)),
		}
		for j := range f.endpoints {
			out[i].Backends[j] = f.endpoints[j].current()
		}
		for _, b := range f.missing {
			out[i].Backends = append(out[i].Backends, BackendState{
				Name: b.Name, Host: b.Host, Backup: b.Backup, Weight: max(b.Weight, 1), Check: f.Check.Kind, Condition: Unchecked, Reason: s.whyMissing(b.source()),
			})
		}
	}
	return out
}

func (e *endpoint) current() BackendState {
	condition, reason, since := e.condition()
	labWeight := 0
	p50, p99 := e.state.traffic.quantiles()
	if set := e.state.weight.Load(); set > 0 && int(set) != e.Weight {
		labWeight = e.Weight
	}
	return BackendState{
		LabWeight: labWeight, Added: e.Added,
		Name: e.Name, Host: e.Host, Addr: e.Addr, Backup: e.Backup, Weight: e.weight(), Limit: e.Limit, Check: e.health.key.check.Kind, Condition: condition,
		Drained: e.state.drained.Load(), Reason: reason, Since: since, Connections: e.state.active.Load(),
		Total: e.state.traffic.total.Load(), Errors: e.state.traffic.errors.Load(), P50: p50, P99: p99,
	}
}
