package lbproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"
)

// A name of a backend is looked up again when its TTL has ended, within these bounds; after a failure, and while a host has no
// lease, after retryLookup.
const (
	lookupMin   = 5 * time.Second
	lookupMax   = 5 * time.Minute
	retryLookup = 2 * time.Second
	lookupTime  = 5 * time.Second // that a lookup may take

	lookups      = 8  // at one time
	maxAddresses = 64 // of one name
)

// lookupTick is how often leases are looked at, and whether a TTL has ended.
const lookupTick = 500 * time.Millisecond

// Addresses finds the addresses of backends that the lab file gives none.
type Addresses interface {
	// Lookup returns the addresses that a name has in DNS, and for how long.
	Lookup(ctx context.Context, name string) (addrs []netip.Addr, ttl time.Duration, err error)
	// Lease returns the address that a host has leased; invalid: none.
	Lease(host string) netip.Addr
}

// A source says where the addresses of a backend come from: one of both is set.
type source struct {
	name string // in DNS, without a final dot
	host string // of the lab, that has a lease
}

func (b *Backend) source() source {
	if b.Host != "" {
		return source{host: b.Host}
	}
	return source{name: b.Name}
}

// isDynamic reports whether the lab file gives the backend no address.
func (b *Backend) isDynamic() bool { return !b.Addr.Addr().IsValid() && b.Name != "" }

// found is what the last lookup of a source has found. Guarded by Server.mu.
type found struct {
	addrs   []netip.Addr // sorted; they stay while lookups fail
	err     error        // of the last lookup; nil: it succeeded
	next    time.Time    // the next lookup
	running bool         // a lookup is
}

// withAddressesLocked returns f with a backend for each address of those that the lab file gives none, and those of them that have
// none at present.
func (s *Server) withAddressesLocked(f *Frontend) (*Frontend, []Backend) {
	if !slices.ContainsFunc(f.Backends, func(b Backend) bool { return b.isDynamic() }) {
		return f, nil
	}
	out, missing := *f, []Backend(nil)
	out.Backends = nil
	known := make(map[netip.AddrPort]bool)
	for _, b := range f.Backends {
		known[b.Addr] = !b.isDynamic()
	}
	for _, b := range f.Backends {
		if !b.isDynamic() {
			out.Backends = append(out.Backends, b)
			continue
		}
		any := false
		if of := s.found[b.source()]; of != nil {
			for _, a := range of.addrs {
				if addr := netip.AddrPortFrom(a, b.Addr.Port()); !known[addr] && !f.leadsHere(addr) {
					known[addr], any = true, true
					out.Backends = append(out.Backends, b.withAddr(addr, len(of.addrs)))
				}
			}
		}
		if !any {
			missing = append(missing, b)
		}
	}
	return &out, missing
}

// withAddr returns the backend with one of its addresses, of which there are n.
func (b Backend) withAddr(addr netip.AddrPort, n int) Backend {
	if n > 1 {
		b.Label = lab.BackendText(addr)
	}
	b.Addr, b.seed, b.cookie = addr, mix(hash(addr.Addr())+uint64(addr.Port())), cookieOf(addr)
	return b
}

// leadsHere reports whether a connection to an address would come to the balancer itself.
func (f *Frontend) leadsHere(a netip.AddrPort) bool {
	return slices.ContainsFunc(f.Listen, func(at lab.Bind) bool { return lab.LeadsTo(at, a, f.own) })
}

// lookUp looks up the sources of the active table when it is time, until ctx ends.
func (s *Server) lookUp(ctx context.Context) {
	if s.deps.Addresses == nil {
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	busy := make(chan struct{}, lookups)
	for pause.For(ctx, lookupTick) == nil {
		for _, of := range s.due(time.Now()) {
			if of.host != "" {
				s.foundLease(of)
				continue
			}
			running.Go(func() {
				busy <- struct{}{}
				defer func() { <-busy }()
				_ = s.panics.Run(func() error { s.lookUpName(ctx, of); return nil })
			})
		}
	}
}

// due returns the sources that are to be looked up now, and forgets those that the table does not have.
func (s *Server) due(now time.Time) (all []source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.active.Load().table
	if t == nil {
		return nil
	}
	wanted := make(map[source]*found)
	for _, f := range t.Frontends {
		for i := range f.Backends {
			if b := &f.Backends[i]; b.isDynamic() && wanted[b.source()] == nil {
				wanted[b.source()] = cmp.Or(s.found[b.source()], &found{})
			}
		}
	}
	s.found = wanted
	for of, state := range wanted {
		if !state.running && !now.Before(state.next) {
			state.running = of.name != ""
			all = append(all, of)
		}
	}
	return all
}

func (s *Server) foundLease(of source) {
	if a := s.deps.Addresses.Lease(of.host); a.IsValid() {
		s.setFound(of, []netip.Addr{a}, 0, nil)
	} else {
		s.setFound(of, nil, 0, errors.New("the host has no lease"))
	}
}

func (s *Server) lookUpName(ctx context.Context, of source) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	addrs, ttl, err := s.deps.Addresses.Lookup(ctx, of.name)
	if err == nil && len(addrs) == 0 {
		err = errors.New("it has no address")
	}
	if err != nil {
		err = fmt.Errorf("look up %s: %w", of.name, err)
	}
	s.setFound(of, addrs, min(max(ttl, lookupMin), lookupMax), err)
}

// setFound records the addresses of a source. If a lookup fails the last ones stay in use: whether they serve is for checks to say. A
// lease that has ended takes its backend with it. Connections of an address that leaves continue.
func (s *Server) setFound(of source, addrs []netip.Addr, ttl time.Duration, err error) {
	addrs = slices.Clone(addrs)
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	addrs = slices.Compact(addrs)
	addrs = addrs[:min(len(addrs), maxAddresses)]
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.found[of]
	if state == nil {
		return // the table has it no more
	}
	before, failed := state.addrs, state.err != nil
	state.running, state.err, state.next = false, err, time.Now().Add(ttl)
	if err != nil && of.name != "" {
		state.next = time.Now().Add(retryLookup)
		if !failed {
			s.log.Warn("addresses of a backend are not known, or not up to date", keyErr, err)
		}
		return
	}
	if slices.Equal(before, addrs) {
		return
	}
	state.addrs = addrs
	s.log.Info("addresses of a backend changed", keyBackend, cmp.Or(of.name, of.host), "addrs", addrs, "before", before)
	s.rejoinLocked()
}

// whyMissing says why a backend has no address.
func (s *Server) whyMissing(of source) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.found[of]
	switch {
	case state == nil || state.err == nil && len(state.addrs) == 0:
		return "not looked up yet"
	case state.err != nil:
		return state.err.Error()
	}
	texts := make([]string, len(state.addrs))
	for i, a := range state.addrs {
		texts[i] = a.String()
	}
	return "its addresses are those of other backends, or of the balancer itself: " + strings.Join(texts, ", ")
}
