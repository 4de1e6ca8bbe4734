package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// A live is the table in force, joined with what was learned. It is immutable; a handler loads it once.
type live struct {
	table  *Table
	fronts []*front // one per Table.Frontends
	sites  map[netip.AddrPort]*place
}

// A place is a site of the table in force.
type place struct {
	*site
	fronts []*front // of the whole table, by Frontend.index
	solo   *front   // whose every connection here is; nil: they must be told apart
}

// front returns what f is in this table; nil for nil.
func (p *place) front(f *Frontend) *front {
	if f == nil {
		return nil
	}
	return p.fronts[f.index]
}

// direct reports whether a connection is its balancer's without a look at its bytes.
func (p *place) direct() bool { return p.solo != nil && len(p.peers) == 0 }

// A Staged is a table whose listeners are open and that is not in force yet. Exactly one of Commit and Discard must
// follow; what comes after the first is ignored.
type Staged struct {
	s       *Server
	table   *Table
	opened  map[netip.AddrPort]net.Listener
	settled bool
}

// Stage opens the listeners that t needs and that are not open yet. If one cannot be opened it closes those it opened
// and returns every error, each naming balancer and address and wrapping its cause, such as EADDRINUSE. It touches
// nothing that is in force. Only one table can be staged at a time.
func (s *Server) Stage(t *Table) (*Staged, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.staged {
		return nil, errors.New("stage balancers: another table is staged and not settled yet")
	}
	st := &Staged{s: s, table: t, opened: make(map[netip.AddrPort]net.Listener)}
	var errs []error
	for _, site := range t.sites {
		if s.listeners[site.addr] != nil {
			continue
		}
		l, err := s.deps.Listen(context.Background(), site.addr)
		if err != nil {
			errs = append(errs, fmt.Errorf("balancer %s: listen on %s: %w", site.fronts[0].Name, site.addr, err))
			continue
		}
		st.opened[site.addr] = l
	}
	if len(errs) > 0 {
		st.close()
		return nil, errors.Join(errs...)
	}
	s.staged = true
	return st, nil
}

// close closes what was opened. The lock is held.
func (st *Staged) close() {
	for _, l := range st.opened {
		_ = l.Close()
	}
}

// settleLocked reports whether the caller is the first to settle.
func (st *Staged) settleLocked() bool {
	first := !st.settled
	st.settled = true
	if first {
		st.s.staged = false
	}
	return first
}

// Discard closes the listeners that Stage opened; the table in force stays.
func (st *Staged) Discard() {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	if st.settleLocked() {
		st.close()
	}
}

// Commit brings the table into force. Listeners that it does not have stop accepting; connections, whose balancer may
// be gone, go on. What was learned of members that it still has is kept.
func (st *Staged) Commit() {
	s := st.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !st.settleLocked() {
		return
	}
	s.committed = true
	next := s.joinLocked(st.table)
	s.live.Store(next)
	for addr, l := range st.opened {
		s.listeners[addr] = &listener{Listener: l, addr: addr, gone: make(chan struct{})}
	}
	for addr, l := range s.listeners {
		if next.sites[addr] == nil {
			l.retire()
			delete(s.listeners, addr)
		}
	}
	s.forgetLocked(next)
	for _, p := range s.pools {
		p.poke() // its limit may be another
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// joinLocked returns t joined with what was learned; what is new to the server starts blank.
func (s *Server) joinLocked(t *Table) *live {
	l := &live{table: t, fronts: make([]*front, len(t.Frontends)), sites: make(map[netip.AddrPort]*place, len(t.sites))}
	for i, f := range t.Frontends {
		l.fronts[i] = s.frontLocked(f)
	}
	for _, site := range t.sites {
		p := &place{site: site, fronts: l.fronts}
		p.solo = p.front(site.solo())
		l.sites[site.addr] = p
	}
	return l
}

func (s *Server) frontLocked(f *Frontend) *front {
	p := s.pools[f.Name]
	if p == nil {
		p = &pool{name: f.Name, freed: make(chan struct{}, 1), m: s.metrics.pool(f.Name)}
		s.pools[f.Name] = p
	}
	out := &front{Frontend: f, pool: p, seats: make([]seat, len(f.Backends))}
	for i := range f.Backends {
		b := &f.Backends[i]
		out.seats[i] = seat{Backend: b, member: s.memberLocked(f, b), health: s.healthLocked(f, b)}
	}
	return out
}

func (s *Server) memberLocked(f *Frontend, b *Backend) *member {
	k := memberKey{f.Name, b.Addr}
	m := s.members[k]
	if m == nil {
		m = &member{key: k}
		m.drained.Store(s.drained[k])
		s.members[k] = m
	}
	return m
}

func (s *Server) healthLocked(f *Frontend, b *Backend) *Health {
	k := healthKey{addr: b.Addr, check: f.Check}
	if f.Check.Port == 0 {
		k.proxy = f.SendProxy // the port that is checked expects a header
	}
	h := s.healths[k]
	if h == nil {
		h = newHealth(k, s.deps.Now())
		s.healths[k] = h
	}
	return h
}

// forgetLocked drops what was learned of balancers, members and checks that next has not, and sets the gauges anew.
func (s *Server) forgetLocked(next *live) {
	pools, members, healths := make(map[string]*pool), make(map[memberKey]*member), make(map[healthKey]*Health)
	s.metrics.up.Reset()
	for _, f := range next.fronts {
		pools[f.Name] = f.pool
		for i := range f.seats {
			seat := &f.seats[i]
			members[seat.member.key] = seat.member
			healths[seat.health.key] = seat.health
			s.gauge(f, seat)
		}
	}
	for name := range s.pools {
		if pools[name] == nil {
			s.metrics.forget(name)
		}
	}
	s.pools, s.members, s.healths = pools, members, healths
}

// closeListeners stops accepting everywhere.
func (s *Server) closeListeners() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for addr, l := range s.listeners {
		l.retire()
		delete(s.listeners, addr)
	}
}
