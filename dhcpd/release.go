package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// ErrNoLease is returned by Release for an address that nobody holds.
var ErrNoLease = errors.New("dhcpd: no lease")

// Release gives a lease back by hand, durably, and returns what it was. Its machine is not told: it keeps using the address
// until it asks again, at half of the lease time, and is then refused if the address is another's by then. A declined
// address, or one that was found in use or was only offered, is free again at once. The error is ErrNoLease, the store's, or ctx's.
func (s *Server) Release(ctx context.Context, addr netip.Addr) (leases.Lease, error) {
	l, err := s.setAside(addr)
	if err != nil {
		return l, err
	}
	switch l.State {
	case leases.Offered:
		s.deps.Book.Withdraw(l.MAC)
	case leases.Active:
		c := &leases.Change{Lease: l, Subnet: netip.PrefixFrom(addr, addr.BitLen())}
		c.State, c.Start, c.Expiry = leases.Released, s.deps.Now(), s.deps.Now()
		if scope := s.deps.Table().scopeOf(s.deps.Table().scopes, addr); scope != nil {
			c.Subnet = scope.network.Subnet
		}
		s.deps.Book.Commit(ctx, []*leases.Change{c})
		err = c.Err
	default:
		err = s.deps.Book.Forget(ctx, addr)
	}
	if err == nil {
		s.prober.Forget(addr)
		s.deps.Events.Record(event.Event{Kind: event.DHCPRelease, MAC: l.MAC, Addr: addr, Detail: "by hand"})
	}
	return l, err
}

// setAside returns what keeps an address from others now.
func (s *Server) setAside(addr netip.Addr) (leases.Lease, error) {
	if l, ok := s.deps.Book.ByAddr(addr); ok {
		return l, nil
	}
	now := s.deps.Now()
	all := append(s.deps.Book.Offers(), s.deps.Book.All()...)
	i := slices.IndexFunc(all, func(l leases.Lease) bool {
		return l.Addr == addr && l.State != leases.Released && l.State != leases.Active && now.Before(l.Expiry)
	})
	if i < 0 {
		return leases.Lease{}, fmt.Errorf("%w for %s", ErrNoLease, addr)
	}
	return all[i], nil
}
