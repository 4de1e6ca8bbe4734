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

// ErrUnknown is returned for a balancer or backend that the table in force does not have.
var ErrUnknown = errors.New("no such balancer or backend")

// A Drain is one backend that was taken out of one balancer by hand.
type Drain struct {
	Balancer string
	Backend  netip.AddrPort // its Addr: a name may move
}

// Drains keeps drains over restarts. Put and Delete return once the change is durable; putting what is there and
// deleting what is not are no errors.
type Drains interface {
	// Load returns all that are kept, in no order.
	Load(ctx context.Context) ([]Drain, error)
	// Put keeps d.
	Put(ctx context.Context, d Drain) error
	// Delete forgets d.
	Delete(ctx context.Context, d Drain) error
}

// loadDrains reads the drains of former lives.
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
		k := memberKey{d.Balancer, d.Backend}
		s.drained[k] = true
		if m := s.members[k]; m != nil {
			m.drained.Store(true)
		}
	}
	for _, f := range s.live.Load().fronts {
		for i := range f.seats {
			s.gauge(f, &f.seats[i])
		}
	}
	return nil
}

// Drain takes a backend out of a balancer: it gets no new connection, those it has go on. backend is its name, its
// address or its addr:port; every member it fits is drained. It is durable when Drain returns. The error wraps
// ErrUnknown or comes from Deps.Drains.
func (s *Server) Drain(ctx context.Context, balancer, backend string) error {
	return s.setDrain(ctx, balancer, backend, event.BackendDrained)
}

// Ready takes a drained backend back in. Its health decides whether it gets connections.
func (s *Server) Ready(ctx context.Context, balancer, backend string) error {
	return s.setDrain(ctx, balancer, backend, event.BackendReady)
}

func (s *Server) setDrain(ctx context.Context, balancer, backend string, kind event.Kind) error {
	f, seats := s.live.Load().seats(balancer, backend)
	if len(seats) == 0 {
		return fmt.Errorf("backend %s of balancer %s: %w", backend, balancer, ErrUnknown)
	}
	for _, seat := range seats {
		if err := s.keepDrain(ctx, Drain{balancer, seat.Addr}, kind); err != nil {
			return fmt.Errorf("keep drain of backend %s of balancer %s: %w", seat.Addr, balancer, err)
		}
		out := kind == event.BackendDrained
		s.mu.Lock()
		s.drained[seat.member.key] = out
		s.mu.Unlock()
		seat.member.drained.Store(out)
		s.gauge(f, seat)
		s.deps.Events.Record(event.Event{Kind: kind, Addr: seat.Addr.Addr(), Host: seat.Host, Detail: f.Name + " " + seat.Addr.String()})
	}
	return nil
}

func (s *Server) keepDrain(ctx context.Context, d Drain, kind event.Kind) error {
	switch {
	case s.deps.Drains == nil:
		return nil
	case kind == event.BackendDrained:
		return s.deps.Drains.Put(ctx, d)
	}
	return s.deps.Drains.Delete(ctx, d)
}

// seats returns the members of a balancer that a person may mean by backend.
func (l *live) seats(balancer, backend string) (*front, []*seat) {
	for _, f := range l.fronts {
		if f.Name != balancer {
			continue
		}
		var out []*seat
		for i := range f.seats {
			s := &f.seats[i]
			if backend == s.Name || backend == s.Label || backend == s.Addr.String() || backend == s.Addr.Addr().String() {
				out = append(out, s)
			}
		}
		return f, out
	}
	return nil, nil
}

// A BalancerState is a balancer as it is now.
type BalancerState struct {
	Name        string          `json:"name"`
	Listen      netip.AddrPort  `json:"listen"`
	Mode        lab.BalanceMode `json:"mode"`
	Balance     lab.Algorithm   `json:"balance"`
	Connections int64           `json:"connections"` // under way
	Limit       int             `json:"limit,omitempty"`
	Backends    []BackendState  `json:"backends"`
}

// A BackendState is a member as it is now.
type BackendState struct {
	Name        string         `json:"name"`
	Host        string         `json:"host,omitempty"`
	Addr        netip.AddrPort `json:"addr"`
	Backup      bool           `json:"backup,omitempty"`
	Check       lab.CheckKind  `json:"check"`
	Condition   Condition      `json:"condition"`
	Drained     bool           `json:"drained,omitempty"`
	Reason      string         `json:"reason,omitempty"` // why it is down, or the last failure that did not put it down yet
	Since       time.Time      `json:"since"`            // that Condition is believed
	Connections int64          `json:"connections"`      // in HTTP mode: requests
}

// States returns every balancer of the table in force, sorted by name, its backends in the order of the lab.
func (s *Server) States() []BalancerState {
	l := s.live.Load()
	out := make([]BalancerState, len(l.fronts))
	for i, f := range l.fronts {
		out[i] = BalancerState{
			Name: f.Name, Listen: f.Listen, Mode: f.Mode, Balance: f.Balance,
			Connections: f.pool.active.Load(), Limit: f.MaxConnections, Backends: make([]BackendState, len(f.seats)),
		}
		for j := range f.seats {
			out[i].Backends[j] = f.seats[j].state()
		}
	}
	return out
}

func (s *seat) state() BackendState {
	condition, reason, since := s.health.snapshot()
	return BackendState{
		Name: s.Name, Host: s.Host, Addr: s.Addr, Backup: s.Backup, Check: s.Check(), Condition: condition,
		Drained: s.member.drained.Load(), Reason: reason, Since: since, Connections: s.member.active.Load(),
	}
}
