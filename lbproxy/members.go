package lbproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// Errors of changes to backends at run time.
var (
	// ErrInLab is returned for a backend that the lab file names: only a change of that file adds or removes it.
	ErrInLab = errors.New("is in the lab file")
	// ErrMember is returned for a backend that cannot be added.
	ErrMember = errors.New("cannot be a backend")
	// ErrWeight is returned for a weight that is none.
	ErrWeight = errors.New("is not a weight")
)

const maxAdded = 256 // backends of one balancer

// A Member is what an admin has set for one backend of a balancer at run time. The lab file has precedence: a line there
// for an added member replaces it, for good.
type Member struct {
	Balancer string
	Addr     netip.AddrPort
	Added    bool   // false: it is in the lab file, and only its weight is set
	Name     string // of one that was added; empty: its address
	Host     string // of the lab, of one that was added
	FQDN     string // of Host, which its certificate has where the balancer uses TLS to backends
	Backup   bool   // of one that was added
	Weight   int    // 0: that of the lab file
}

// Members stores members across restarts. Put and Delete return once the change is durable; to delete one that is not stored
// is no error.
type Members interface {
	// Load returns all stored members, in no order.
	Load(ctx context.Context) ([]Member, error)
	// Put stores m in place of what is stored for its balancer and address.
	Put(ctx context.Context, m Member) error
	// Delete deletes what is stored for a balancer and address.
	Delete(ctx context.Context, balancer string, addr netip.AddrPort) error
}

// loadMembers reads the stored members.
func (s *Server) loadMembers(ctx context.Context) error {
	if s.deps.Members == nil {
		return nil
	}
	members, err := s.deps.Members.Load(ctx)
	if err != nil {
		return fmt.Errorf("load backends that were set at run time: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range members {
		s.setMemberLocked(m)
	}
	s.rejoinLocked()
	return nil
}

func (s *Server) setMemberLocked(m Member) {
	of := s.members[m.Balancer]
	if of == nil {
		of = make(map[netip.AddrPort]Member)
		s.members[m.Balancer] = of
	}
	of[m.Addr] = m
}

// rejoinLocked puts the members in force.
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

// withMembersLocked returns f with the members that were added. Members that f has by itself are forgotten.
func (s *Server) withMembersLocked(f *Frontend) *Frontend {
	var added []Member
	for addr, m := range s.members[f.Name] {
		named := slices.ContainsFunc(f.Backends, func(b Backend) bool { return b.Addr == addr })
		switch {
		case m.Added && named:
			delete(s.members[f.Name], addr)
			s.superseded = append(s.superseded, m)
		case m.Added:
			added = append(added, m)
		}
	}
	if len(added) == 0 {
		return f
	}
	slices.SortFunc(added, func(a, b Member) int { return a.Addr.Compare(b.Addr) })
	out := *f
	out.Backends = slices.Clone(f.Backends)
	for _, m := range added {
		out.Backends = append(out.Backends, out.newMember(m))
	}
	return &out
}

// newMember returns the backend of a member. Labels and hashes of the others stay as they are.
func (f *Frontend) newMember(m Member) Backend {
	b := Backend{Name: m.Name, Host: m.Host, Addr: m.Addr, Backup: m.Backup, Weight: max(m.Weight, 1), Added: true, ServerName: cmp.Or(m.FQDN, m.Addr.Addr().String()), seed: hash(m.Addr.Addr()), cookie: cookieOf(m.Addr)}
	if b.Name == "" {
		b.Name = m.Addr.String()
	}
	b.Label = b.Name
	for _, other := range f.Backends {
		if other.Label == b.Label {
			b.Label = m.Addr.String()
		}
		if other.Addr.Addr() == m.Addr.Addr() {
			b.seed = mix(hash(m.Addr.Addr()) + uint64(m.Addr.Port()))
		}
	}
	return b
}

// weightLocked returns the weight that an admin has set for a backend of the lab file; 0: none.
func (s *Server) weightLocked(balancer string, addr netip.AddrPort) int {
	if m := s.members[balancer][addr]; !m.Added {
		return m.Weight
	}
	return 0
}

// forgetSuperseded deletes members that the lab file names from the store. What fails is tried again after the next change.
func (s *Server) forgetSuperseded(ctx context.Context) {
	s.mu.Lock()
	gone := s.superseded
	s.superseded = nil
	s.mu.Unlock()
	for _, m := range gone {
		s.log.Info("backend is in the lab file now: the one added at run time is dropped", "balancer", m.Balancer, keyBackend, m.Addr)
		if err := s.storeMember(ctx, m, Member{}); err != nil {
			s.log.Warn("backend added at run time is not deleted from the store", "balancer", m.Balancer, keyBackend, m.Addr, keyErr, err)
			s.mu.Lock()
			s.superseded = append(s.superseded, m)
			s.mu.Unlock()
		}
	}
}

// storeMember stores next in place of old; a next without an address: deletes old.
func (s *Server) storeMember(ctx context.Context, old, next Member) error {
	switch {
	case s.deps.Members == nil:
		return nil
	case next.Addr.IsValid():
		return s.deps.Members.Put(ctx, next)
	}
	return s.deps.Members.Delete(ctx, old.Balancer, old.Addr)
}

// AddMember adds a backend to a balancer, or changes one that was added. It is durable when AddMember returns. The error wraps
// ErrUnknown, ErrInLab, ErrMember or ErrWeight, or comes from Deps.Members.
func (s *Server) AddMember(ctx context.Context, m Member) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	m.Added, m.Weight = true, max(m.Weight, 1)
	if err := s.mayAdd(m); err != nil {
		return fmt.Errorf("backend %s of balancer %s: %w", m.Addr, m.Balancer, err)
	}
	if err := s.storeMember(ctx, Member{}, m); err != nil {
		return fmt.Errorf("store backend %s of balancer %s: %w", m.Addr, m.Balancer, err)
	}
	s.applyMember(func() { s.setMemberLocked(m) })
	s.deps.Events.Record(event.Event{Kind: event.BackendAdded, Addr: m.Addr.Addr(), Host: m.Host, Detail: m.Balancer + " " + m.Addr.String()})
	return nil
}

// mayAdd reports why a member cannot be added.
func (s *Server) mayAdd(m Member) error {
	t := s.active.Load()
	f, endpoints := t.find(m.Balancer, m.Addr.String())
	switch {
	case f == nil:
		return ErrUnknown
	case len(endpoints) > 0 && !endpoints[0].Added:
		return ErrInLab
	case !m.Addr.IsValid() || m.Addr.Port() == 0 || !ofOneHost(m.Addr.Addr()):
		return fmt.Errorf("%w: want the address and port of a server", ErrMember)
	case f.Listen.Has(m.Addr):
		return fmt.Errorf("%w: the balancer itself listens there", ErrMember)
	case len(s.ring(f.Frontend, m.Addr)) > 0:
		return fmt.Errorf("%w: it leads back to the balancer itself, through %s", ErrMember, strings.Join(s.ring(f.Frontend, m.Addr), ", "))
	case m.Weight > lab.MaxWeight:
		return fmt.Errorf("%d %w: want 1 to %d", m.Weight, ErrWeight, lab.MaxWeight)
	case len(endpoints) == 0 && s.added(m.Balancer) >= maxAdded:
		return fmt.Errorf("%w: %d were added already", ErrMember, maxAdded)
	}
	return nil
}

// ring returns the balancers through which a connection of f to a member would come to f again; none: it does not. Members that were added
// and addresses that were looked up count too.
func (s *Server) ring(f *Frontend, m netip.AddrPort) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.active.Load()
	all := make([]lab.Hop, len(t.frontends))
	for i, other := range t.frontends {
		all[i] = other.hop
		for _, b := range other.Backends {
			all[i].Members = append(all[i].Members[:len(all[i].Members):len(all[i].Members)], b.Addr)
		}
	}
	for _, i := range lab.NewHops(all, f.own).Ring(f.index, m) {
		names = append(names, t.frontends[i].Name)
	}
	return names[min(1, len(names)):]
}

// ofOneHost reports whether an address can be that of a server.
func ofOneHost(a netip.Addr) bool {
	a = a.Unmap()
	return !a.IsUnspecified() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// added counts the members that were added to a balancer.
func (s *Server) added(balancer string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members[balancer] {
		if m.Added {
			n++
		}
	}
	return n
}

// applyMember changes the members and puts them in force.
func (s *Server) applyMember(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.rejoinLocked()
}

// RemoveMember removes a backend that was added. backend is a name, an address or an addr:port. Its connections continue.
// The error wraps ErrUnknown or ErrInLab, or comes from Deps.Members or Deps.Drains.
func (s *Server) RemoveMember(ctx context.Context, balancer, backend string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	endpoints, err := s.findMembers(balancer, backend)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		if !e.Added {
			return fmt.Errorf("backend %s of balancer %s: %w", e.Addr, balancer, ErrInLab)
		}
	}
	for _, e := range endpoints {
		if err := s.storeDrain(ctx, Drain{balancer, e.Addr}, event.BackendReady); err != nil {
			return fmt.Errorf("delete drain of backend %s of balancer %s: %w", e.Addr, balancer, err)
		}
		if err := s.storeMember(ctx, Member{Balancer: balancer, Addr: e.Addr}, Member{}); err != nil {
			return fmt.Errorf("delete backend %s of balancer %s: %w", e.Addr, balancer, err)
		}
		s.applyMember(func() {
			delete(s.members[balancer], e.Addr)
			delete(s.drained, endpointKey{balancer, e.Addr})
		})
		s.deps.Events.Record(event.Event{Kind: event.BackendRemoved, Addr: e.Addr.Addr(), Host: e.Host, Detail: balancer + " " + e.Addr.String()})
	}
	return nil
}

// SetWeight sets the weight of a backend, 1 to 256; 0: that of the lab file, of one that was added 1. The error wraps
// ErrUnknown or ErrWeight, or comes from Deps.Members.
func (s *Server) SetWeight(ctx context.Context, balancer, backend string, weight int) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	endpoints, err := s.findMembers(balancer, backend)
	if err != nil {
		return err
	}
	if weight < 0 || weight > lab.MaxWeight {
		return fmt.Errorf("backend %s of balancer %s: %d %w: want 1 to %d", backend, balancer, weight, ErrWeight, lab.MaxWeight)
	}
	for _, e := range endpoints {
		m := Member{Balancer: balancer, Addr: e.Addr, Weight: weight}
		if e.Added {
			m = Member{Balancer: balancer, Addr: e.Addr, Weight: max(weight, 1), Added: true, Name: e.Name, Host: e.Host, FQDN: e.ServerName, Backup: e.Backup}
		}
		stored := m
		if !e.Added && weight == 0 {
			stored = Member{}
		}
		if err := s.storeMember(ctx, m, stored); err != nil {
			return fmt.Errorf("store weight of backend %s of balancer %s: %w", e.Addr, balancer, err)
		}
		s.applyMember(func() {
			if stored.Addr.IsValid() {
				s.setMemberLocked(m)
			} else {
				delete(s.members[balancer], e.Addr)
			}
		})
		s.deps.Events.Record(event.Event{Kind: event.BackendWeight, Addr: e.Addr.Addr(), Host: e.Host, Detail: fmt.Sprintf("%s %s weight %d", balancer, lab.MemberText(e.Addr), max(weight, 1))})
	}
	return nil
}

// findMembers returns the backends of a balancer that backend names, at least one.
func (s *Server) findMembers(balancer, backend string) ([]*endpoint, error) {
	_, endpoints := s.active.Load().find(balancer, backend)
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("backend %s of balancer %s: %w", backend, balancer, ErrUnknown)
	}
	return endpoints, nil
}
