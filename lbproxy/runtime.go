package lbproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/host/link/links"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// Errors of changes to backends at run time.
var (
	// ErrInLab is returned for a backend that the lab file names: only a change of that file adds or removes it.
	ErrInLab = errors.New("is in the lab file")
	// ErrBackend is returned for a backend that cannot be added.
	ErrBackend = errors.New("cannot be a backend")
	// ErrWeight is returned for a weight that is none.
	ErrWeight = errors.New("is not a weight")
)

const maxAdded = 256 // backends of one balancer

// A RuntimeBackend is what an admin has set for one backend of a balancer at run time. The lab file has precedence: a line there
// for an added backend replaces it, for good.
type RuntimeBackend struct {
	Balancer string         `json:"-"`
	Addr     netip.AddrPort `json:"-"`
	Added    bool           `json:"added,omitempty"`  // false: it is in the lab file, and only its weight is set
	Name     string         `json:"name,omitempty"`   // of one that was added; empty: its address
	Host     string         `json:"host,omitempty"`   // of the lab, of one that was added
	FQDN     string         `json:"fqdn,omitempty"`   // of Host, which its certificate has where the balancer uses TLS to backends
	Backup   bool           `json:"backup,omitempty"` // of one that was added
	Weight   int            `json:"weight,omitempty"` // 0: that of the lab file
}

// RuntimeBackends stores what is set at run time across restarts. Put and Delete return once the change is durable; to delete one that is not stored
// is no error.
type RuntimeBackends interface {
	// Load returns all that is stored, in no order.
	Load(ctx context.Context) ([]RuntimeBackend, error)
	// Put stores m in place of what is stored for its balancer and address.
	Put(ctx context.Context, m RuntimeBackend) error
	// Delete deletes what is stored for a balancer and address.
	Delete(ctx context.Context, balancer string, addr netip.AddrPort) error
}

// loadRuntime reads what was set at run time.
func (s *Server) loadRuntime(ctx context.Context) error {
	if s.deps.RuntimeBackends == nil {
		return nil
	}
	stored, err := s.deps.RuntimeBackends.Load(ctx)
	if err != nil {
		return fmt.Errorf("load backends that were set at run time: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range stored {
		s.setRuntimeLocked(m)
	}
	s.rejoinLocked()
	return nil
}

func (s *Server) setRuntimeLocked(m RuntimeBackend) {
	of := s.runtime[m.Balancer]
	if of == nil {
		of = make(map[netip.AddrPort]RuntimeBackend)
		s.runtime[m.Balancer] = of
	}
	of[m.Addr] = m
}

// rejoinLocked puts what was learned, or set at run time, in force.
func (s *Server) rejoinLocked() {
	t := s.active.Load().table
	if t == nil {
		return // Commit will
	}
	next := s.joinLocked(t)
	s.active.Store(next)
	s.forgetLocked(next)
	s.signal()
}

// signal wakes Serve after a change of the active table.
func (s *Server) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// withAddedLocked returns f with the backends that were added. Those that f has by itself are forgotten.
func (s *Server) withAddedLocked(f *Frontend) *Frontend {
	var added []RuntimeBackend
	for addr, m := range s.runtime[f.Name] {
		named := slices.ContainsFunc(f.Backends, func(b Backend) bool { return b.Addr == addr })
		switch {
		case m.Added && named:
			delete(s.runtime[f.Name], addr)
			s.superseded = append(s.superseded, m)
		case m.Added:
			added = append(added, m)
		}
	}
	if len(added) == 0 {
		return f
	}
	slices.SortFunc(added, func(a, b RuntimeBackend) int { return a.Addr.Compare(b.Addr) })
	out := *f
	out.Backends = slices.Clone(f.Backends)
	for _, m := range added {
		out.Backends = append(out.Backends, out.addedBackend(m))
	}
	return &out
}

// addedBackend returns a backend that was added. Labels and hashes of the others stay as they are.
func (f *Frontend) addedBackend(m RuntimeBackend) Backend {
	b := Backend{Name: cmp.Or(m.Name, m.Addr.String()), Host: m.Host, Addr: m.Addr, Backup: m.Backup, Weight: max(m.Weight, 1), Added: true,
		ServerName: cmp.Or(m.FQDN, m.Addr.Addr().String()), seed: hash(m.Addr.Addr()), cookie: cookieOf(m.Addr)}
	b.Label = labelOf(b.Name, m.Addr, func(label string) bool {
		return slices.ContainsFunc(f.Backends, func(other Backend) bool { return other.Label == label })
	})
	for _, other := range f.Backends {
		if other.Addr.Addr() == m.Addr.Addr() {
			b.seed = mix(hash(m.Addr.Addr()) + uint64(m.Addr.Port()))
		}
	}
	return b
}

// weightLocked returns the weight that an admin has set for a backend of the lab file; 0: none.
func (s *Server) weightLocked(balancer string, addr netip.AddrPort) int {
	if m := s.runtime[balancer][addr]; !m.Added {
		return m.Weight
	}
	return 0
}

// forgetSuperseded deletes added backends that the lab file names from the store. What fails is tried again after the next change.
func (s *Server) forgetSuperseded(ctx context.Context) {
	s.mu.Lock()
	gone := s.superseded
	s.superseded = nil
	s.mu.Unlock()
	for _, m := range gone {
		s.log.Info("backend is in the lab file now: the one added at run time is dropped", "balancer", m.Balancer, keyBackend, m.Addr)
		if err := s.storeRuntime(ctx, m, RuntimeBackend{}); err != nil {
			s.log.Warn("backend added at run time is not deleted from the store", "balancer", m.Balancer, keyBackend, m.Addr, keyErr, err)
			s.mu.Lock()
			s.superseded = append(s.superseded, m)
			s.mu.Unlock()
		}
	}
}

// storeRuntime stores next in place of old; a next without an address: deletes old.
func (s *Server) storeRuntime(ctx context.Context, old, next RuntimeBackend) error {
	switch {
	case s.deps.RuntimeBackends == nil:
		return nil
	case next.Addr.IsValid():
		return s.deps.RuntimeBackends.Put(ctx, next)
	}
	return s.deps.RuntimeBackends.Delete(ctx, old.Balancer, old.Addr)
}

// AddBackend adds a backend to a balancer, or changes one that was added. Weight 0 is the weight that it has, else 1. It is durable when AddBackend returns, with
// what became of it. The error wraps ErrUnknown, ErrInLab, ErrBackend or ErrWeight, or comes from Deps.RuntimeBackends.
func (s *Server) AddBackend(ctx context.Context, m RuntimeBackend) ([]BackendStatus, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	before := s.runtime[m.Balancer][m.Addr]
	s.mu.Unlock()
	m.Added, m.Weight = true, cmp.Or(max(m.Weight, 0), before.Weight, 1)
	err := s.mayAdd(m)
	if errors.Is(err, ErrUnknown) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("backend %s of balancer %s: %w", m.Addr, m.Balancer, err)
	}
	if err = s.storeRuntime(ctx, RuntimeBackend{}, m); err != nil {
		return nil, fmt.Errorf("store backend %s of balancer %s: %w", m.Addr, m.Balancer, err)
	}
	s.applyRuntime(func() { s.setRuntimeLocked(m) })
	if _, added := s.active.Load().find(m.Balancer, m.Addr.String()); len(added) > 0 && m != before { // else nothing has changed, or a reload has removed the balancer meanwhile
		s.deps.Events.Record(added[0].event(event.BackendAdded, m.Balancer))
	}
	return s.statusOf(backendKey{m.Balancer, m.Addr}), nil
}

// mayAdd reports why a backend cannot be added.
func (s *Server) mayAdd(m RuntimeBackend) error {
	t := s.active.Load()
	f, backends := t.find(m.Balancer, m.Addr.String())
	switch {
	case f == nil:
		return unknown(m.Balancer, nil, "")
	case len(backends) > 0 && !backends[0].Added:
		return ErrInLab
	case !m.Addr.IsValid() || m.Addr.Port() == 0 || !ofOneHost(m.Addr.Addr()):
		return fmt.Errorf("%w: want the address and port of a server", ErrBackend)
	case f.Listen.Has(m.Addr):
		return fmt.Errorf("%w: the balancer itself listens there", ErrBackend)
	}
	switch loop := s.balancerLoop(f.Frontend, m.Addr); {
	case len(loop) == 1:
		return fmt.Errorf("%w: the balancer itself listens there, on every address of this machine", ErrBackend)
	case len(loop) > 1:
		return fmt.Errorf("%w: it leads back to the balancer itself, through %s", ErrBackend, strings.Join(loop[1:], ", "))
	case m.Weight > lab.MaxWeight:
		return fmt.Errorf("%d %w: want 1 to %d", m.Weight, ErrWeight, lab.MaxWeight)
	case len(backends) == 0 && s.added(m.Balancer) >= maxAdded:
		return fmt.Errorf("%w: %d were added already", ErrBackend, maxAdded)
	}
	return nil
}

// balancerLoop returns the balancers through which a connection of f to an address would come to f again, f first; none: it does not. Backends that
// were added and addresses that were looked up count too, and every address of this machine.
func (s *Server) balancerLoop(f *Frontend, to netip.AddrPort) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.active.Load()
	all := make([]lab.Hop, len(t.frontends))
	for i, other := range t.frontends {
		all[i] = other.hop
		for _, b := range other.Backends {
			all[i].Backends = append(all[i].Backends[:len(all[i].Backends):len(all[i].Backends)], b.Addr)
		}
	}
	own, _ := links.Addrs() // without them those of the lab count
	for _, i := range lab.NewHops(all, append(own, f.own...)).Loop(f.index, to) {
		names = append(names, t.frontends[i].Name)
	}
	return names
}

// ofOneHost reports whether an address can be that of a server.
func ofOneHost(a netip.Addr) bool {
	a = a.Unmap()
	return !a.IsUnspecified() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// added counts the backends that were added to a balancer.
func (s *Server) added(balancer string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.runtime[balancer] {
		if m.Added {
			n++
		}
	}
	return n
}

// applyRuntime changes what is set at run time and puts it in force.
func (s *Server) applyRuntime(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.rejoinLocked()
}

// RemoveBackend removes a backend that was added. backend is a name, an address or an addr:port. Its connections continue.
// RemoveBackend returns what it has removed, as that was last. The error wraps ErrUnknown or ErrInLab, or comes from Deps.RuntimeBackends or
// Deps.Drains.
func (s *Server) RemoveBackend(ctx context.Context, balancer, backend string) (removed []BackendStatus, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	backends, err := s.findBackends(balancer, backend)
	if err != nil {
		return nil, err
	}
	for _, b := range backends {
		if !b.Added {
			return nil, fmt.Errorf("backend %s of balancer %s: %w", b.Addr, balancer, ErrInLab)
		}
	}
	for _, b := range backends {
		if err := s.storeDrain(ctx, Drain{Balancer: balancer, Backend: b.Addr}, event.BackendReady); err != nil {
			return nil, fmt.Errorf("delete drain of backend %s of balancer %s: %w", b.Addr, balancer, err)
		}
		if err := s.storeRuntime(ctx, RuntimeBackend{Balancer: balancer, Addr: b.Addr}, RuntimeBackend{}); err != nil {
			return nil, fmt.Errorf("delete backend %s of balancer %s: %w", b.Addr, balancer, err)
		}
		s.applyRuntime(func() {
			delete(s.runtime[balancer], b.Addr)
			delete(s.drained, backendKey{balancer, b.Addr})
		})
		s.deps.Events.Record(b.event(event.BackendRemoved, balancer))
		removed = append(removed, b.status())
	}
	return removed, nil
}

// SetWeight sets the weight of the backends that backend names, 1 to 256; 0: that of the lab file, of one that was added 1. It returns what
// became of them. The error wraps ErrUnknown or ErrWeight, or comes from Deps.RuntimeBackends.
func (s *Server) SetWeight(ctx context.Context, balancer, backend string, weight int) (changed []BackendStatus, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	backends, err := s.findBackends(balancer, backend)
	if err != nil {
		return nil, err
	}
	if weight < 0 || weight > lab.MaxWeight {
		return nil, fmt.Errorf("backend %s of balancer %s: %d %w: want 1 to %d", backend, balancer, weight, ErrWeight, lab.MaxWeight)
	}
	for _, b := range backends {
		m := RuntimeBackend{Balancer: balancer, Addr: b.Addr, Weight: weight}
		if b.Added {
			m = RuntimeBackend{Balancer: balancer, Addr: b.Addr, Weight: max(weight, 1), Added: true, Name: b.Name, Host: b.Host, FQDN: b.ServerName, Backup: b.Backup}
		}
		stored := m
		if !b.Added && weight == 0 {
			stored = RuntimeBackend{}
		}
		if err := s.storeRuntime(ctx, m, stored); err != nil {
			return nil, fmt.Errorf("store weight of backend %s of balancer %s: %w", b.Addr, balancer, err)
		}
		s.applyRuntime(func() {
			if stored.Addr.IsValid() {
				s.setRuntimeLocked(m)
			} else {
				delete(s.runtime[balancer], b.Addr)
			}
		})
		for _, now := range s.statusOf(b.state.key) {
			ev := b.event(event.BackendWeight, balancer)
			ev.Detail = fmt.Sprintf("weight %d", now.Weight)
			s.deps.Events.Record(ev)
			changed = append(changed, now)
		}
	}
	return changed, nil
}

// statusOf returns the status of a backend in the active table; none: a reload has removed it meanwhile.
func (s *Server) statusOf(k backendKey) (found []BackendStatus) {
	for _, f := range s.active.Load().frontends {
		for i := range f.backends {
			if b := &f.backends[i]; b.state.key == k {
				found = append(found, b.status())
			}
		}
	}
	return found
}

// findBackends returns the backends of a balancer that backend names, at least one.
func (s *Server) findBackends(balancer, backend string) ([]*backend, error) {
	f, backends := s.active.Load().find(balancer, backend)
	if len(backends) == 0 {
		return nil, unknown(balancer, f, backend)
	}
	return backends, nil
}

// ErrUnknown is returned for a balancer or backend that the active table does not have. The error that wraps it says which of the two.
var ErrUnknown = errors.New("no such balancer or backend")

// An unknownError is ErrUnknown in words of its own.
type unknownError string

// Error implements error.
func (e unknownError) Error() string { return string(e) }

// Is makes it ErrUnknown.
func (e unknownError) Is(target error) bool { return target == ErrUnknown }

// unknown says that there is no such balancer, or that it, f, has no such backend.
func unknown(balancer string, f *frontend, backend string) error {
	if f == nil {
		return unknownError("there is no balancer " + balancer)
	}
	return unknownError("balancer " + balancer + " has no backend " + backend)
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
			case b.Name, b.Label, lab.BackendText(b.Addr), withPort(b.Name, b.Addr), b.Addr.Addr().String():
				out = append(out, b)
			}
		}
		return f, out
	}
	return nil, nil
}
