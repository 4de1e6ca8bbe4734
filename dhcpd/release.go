package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"bootlab/internal/event"
)

// ErrNoLease is returned by Release for an address that nobody holds.
var ErrNoLease = errors.New("dhcpd: no lease")

// errBusy: the committer has more to do than it can.
var errBusy = errors.New("dhcpd: too many leases wait to be stored; try again")

// Release gives a lease back by hand, durably, and returns what it was. Its machine is not told: it keeps using the address
// until it asks again, at half of the lease time, and is then refused if the address is another's by then. A declined
// address is free again at once. The error is ErrNoLease, the store's, or ctx's.
func (s *Server) Release(ctx context.Context, addr netip.Addr) (Lease, error) {
	l, ok := s.deps.Book.anyByAddr(addr)
	now := s.deps.Now()
	if !ok || l.State == Released || !now.Before(l.Expiry) {
		return Lease{}, fmt.Errorf("%w for %s", ErrNoLease, addr)
	}
	t := s.deps.Table()
	subnet := netip.PrefixFrom(addr, addr.BitLen()) // of a network that the lab has no more
	if scope := t.scopeOf(t.scopes, addr); scope != nil {
		subnet = scope.network.Subnet
	}
	given := l
	given.State, given.Start, given.Expiry = Released, now.Truncate(time.Second), now.Truncate(time.Second)
	done := make(chan error, 1)
	why := s.enqueue(&job{change: &change{lease: given, subnet: subnet}, finish: func(_ outbox, err error) { done <- err }})
	if why != dropNone {
		return l, errBusy
	}
	select {
	case err := <-done:
		if err == nil {
			s.deps.Events.Record(event.Event{Kind: event.DHCPRelease, MAC: l.MAC, Addr: addr, Detail: "by hand"})
		}
		return l, err
	case <-ctx.Done():
		return l, ctx.Err()
	}
}

// anyByAddr returns the lease of an address, live or not.
func (b *Book) anyByAddr(a netip.Addr) (Lease, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.byAddr[a]
	if e == nil {
		return Lease{}, false
	}
	return e.Lease, true
}
