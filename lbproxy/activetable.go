package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/bootlab/bootlab/internal/lab"
)

// An activeTable is the table in use, joined with what was learned. It is immutable; a handler loads it once.
type activeTable struct {
	table     *Table
	frontends []*frontend // one for each of Table.Frontends
	listeners map[netip.AddrPort]*activeListener
	udp       map[netip.AddrPort]*frontend // of mode udp
}

// An activeListener is a listener of the active table.
type activeListener struct {
	*listener
	frontends []*frontend // of the whole table, by Frontend.index
	only      *frontend   // gets every connection; nil: the first bytes decide
}

// frontend returns f joined with what was learned; nil for nil.
func (l *activeListener) frontend(f *Frontend) *frontend {
	if f == nil {
		return nil
	}
	return l.frontends[f.index]
}

// direct reports whether the frontend of a connection is known without its first bytes.
func (l *activeListener) direct() bool { return l.only != nil && len(l.peers) == 0 }

// isDirect reports whether every connection is of one frontend in mode tcp.
func (l *activeListener) isDirect() bool { return l.direct() && l.only.Mode == lab.ModeTCP }

// A Staged is a table whose sockets are open and that is not in use yet. Commit or Discard must follow; only the first
// call has an effect.
type Staged struct {
	s      *Server
	table  *Table
	opened map[netip.AddrPort]net.Listener
	udp    map[netip.AddrPort]*udpSocket
	done   bool
}

// Stage opens the sockets that t needs and that are not open yet. If one cannot be opened, it closes those it opened and
// returns every error, each with balancer, address and cause, such as EADDRINUSE. The active table is not changed. Only
// one table can be staged at a time.
func (s *Server) Stage(t *Table) (*Staged, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.staged {
		return nil, errors.New("stage balancers: another table is already staged")
	}
	st := &Staged{s: s, table: t, opened: make(map[netip.AddrPort]net.Listener), udp: make(map[netip.AddrPort]*udpSocket)}
	var errs []error
	for _, l := range t.listeners {
		if s.sockets[l.addr] != nil {
			continue
		}
		opened, err := s.deps.Listen(context.Background(), l.addr)
		if err != nil {
			errs = append(errs, fmt.Errorf("balancer %s: listen on %s: %w", l.frontends[0].Name, l.addr, err))
			continue
		}
		st.opened[l.addr] = opened
	}
	errs = append(errs, st.openUDP()...)
	if len(errs) > 0 {
		st.close()
		return nil, errors.Join(errs...)
	}
	s.staged = true
	return st, nil
}

// openUDP opens the sockets of mode udp that are not open yet.
func (st *Staged) openUDP() (errs []error) {
	for addr, f := range st.table.udp {
		if st.s.udp.has(addr) {
			continue
		}
		conn, err := st.s.deps.ListenPacket(context.Background(), addr)
		if err == nil {
			if st.udp[addr], err = newUDPSocket(conn, addr); err != nil {
				_ = conn.Close()
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("balancer %s: listen on %s/udp: %w", f.Name, addr, err))
		}
	}
	return errs
}

// close closes the sockets that Stage opened.
func (st *Staged) close() {
	for _, l := range st.opened {
		_ = l.Close()
	}
	for _, sock := range st.udp {
		if sock != nil {
			_ = sock.conn.Close()
		}
	}
}

// endLocked reports whether this is the first Commit or Discard.
func (st *Staged) endLocked() bool {
	if st.done {
		return false
	}
	st.done, st.s.staged = true, false
	return true
}

// Discard closes the sockets that Stage opened; the active table stays.
func (st *Staged) Discard() {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	if st.endLocked() {
		st.close()
	}
}

// Commit makes the table active. Sockets that it does not have stop accepting; their connections continue. What was
// learned of its backends is kept.
func (st *Staged) Commit() {
	s := st.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !st.endLocked() {
		return
	}
	next := s.joinLocked(st.table)
	s.active.Store(next)
	for addr, l := range st.opened {
		s.sockets[addr] = newSocket(l, addr)
	}
	for addr, sock := range s.sockets {
		if next.listeners[addr] == nil {
			sock.close()
			delete(s.sockets, addr)
		}
	}
	s.udp.commit(st.udp, next.udp)
	s.forgetLocked(next)
	for _, f := range s.frontendStates {
		f.notify() // max_connections may have changed
	}
	s.signal()
}

// joinLocked returns t joined with what was learned; what is new starts empty.
func (s *Server) joinLocked(t *Table) *activeTable {
	active := &activeTable{table: t, frontends: make([]*frontend, len(t.Frontends)),
		listeners: make(map[netip.AddrPort]*activeListener, len(t.listeners)), udp: make(map[netip.AddrPort]*frontend, len(t.udp))}
	for i, f := range t.Frontends {
		active.frontends[i] = s.frontendLocked(f)
	}
	for _, l := range t.listeners {
		a := &activeListener{listener: l, frontends: active.frontends}
		a.only = a.frontend(l.only())
		active.listeners[l.addr] = a
	}
	for addr, f := range t.udp {
		active.udp[addr] = active.frontends[f.index]
	}
	return active
}

func (s *Server) frontendLocked(f *Frontend) *frontend {
	state := s.frontendStates[f.Name]
	if state == nil {
		state = &frontendState{freed: make(chan struct{}, 1), metrics: s.metrics.frontend(f.Name, f.Mode)}
		s.frontendStates[f.Name] = state
	}
	f, missing := s.withAddressesLocked(s.withAddedLocked(f))
	out := &frontend{Frontend: f, missing: missing, state: state, backends: make([]backend, len(f.Backends))}
	for i := range f.Backends {
		b := &f.Backends[i]
		health := s.healthLocked(f, b)
		state := s.backendStateLocked(f, b, health)
		health.follow(state)
		out.backends[i] = backend{Backend: b, state: state, health: health}
	}
	return out
}

func (s *Server) backendStateLocked(f *Frontend, b *Backend, health *checkedHealth) *backendState {
	k := backendKey{f.Name, b.Addr}
	state := s.backendStates[k]
	if state == nil {
		state = &backendState{key: k, queue: &s.frontendStates[f.Name].queue}
		state.announced, _, _ = (&backend{Backend: b, state: state, health: health}).currentHealth()
		state.wasUp = state.announced == Up
		state.drained.set(s.drained[k])
		s.backendStates[k] = state
	}
	state.weight.Store(int32(s.weightLocked(f.Name, b.Addr)))
	state.limit.Store(int64(b.Limit))
	state.label = b.Label
	var tcp *tcpMetrics
	if f.Mode == lab.ModeTCP {
		tcp = s.metrics.tcp(f.Name, b.Label)
	}
	state.tcp.Store(tcp)
	return state
}

func (s *Server) healthLocked(f *Frontend, b *Backend) *checkedHealth {
	k := healthKey{addr: b.Addr, check: f.Check}
	if f.Check.Port == 0 {
		k.proxy = f.SendProxy // the port that is checked expects a header
		if f.Mode == lab.ModeHTTP {
			k.requests = backendTLSKey{f.BackendTLS, f.Protocol}
		}
		if f.BackendTLS.On {
			k.serverName = b.ServerName
		}
	}
	h := s.healths[k]
	if h == nil {
		h = newHealth(k, s.deps.Now())
		s.healths[k] = h
	}
	return h
}

// forgetLocked drops what was learned of balancers, backends and checks that next does not have, and sets the gauges.
func (s *Server) forgetLocked(next *activeTable) {
	frontends := make(map[string]*frontendState)
	backends, healths := make(map[backendKey]*backendState), make(map[healthKey]*checkedHealth)
	s.metrics.up.Reset()
	labels := make(map[[2]string]bool)
	for _, f := range next.frontends {
		frontends[f.Name] = f.state
		for i := range f.backends {
			b := &f.backends[i]
			backends[b.state.key] = b.state
			healths[b.health.key] = b.health
			labels[[2]string{f.Name, b.Label}] = true
			s.gauge(f, b)
		}
	}
	for name := range s.frontendStates {
		if frontends[name] == nil {
			s.metrics.forget(name)
		}
	}
	for key, state := range s.backendStates {
		if backends[key] == nil {
			state.pool.end()
			if !labels[[2]string{key.balancer, state.label}] {
				s.metrics.forgetBackend(key.balancer, state.label)
			}
		}
	}
	s.frontendStates, s.backendStates, s.healths = frontends, backends, healths
}

// closeSockets stops accepting everywhere.
func (s *Server) closeSockets() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for addr, sock := range s.sockets {
		sock.close()
		delete(s.sockets, addr)
	}
}
