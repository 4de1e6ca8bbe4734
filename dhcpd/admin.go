package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A PoolUse is the use of a pool.
type PoolUse struct {
	Network, Name string
	Range         string // FIRST-LAST
	Usable        int    // addresses that it may give, without reserved ones and those of routers, servers and the appliance
	// How these addresses are used now. Quarantined are those that were declined, or are used by machines without a lease of them; Free are
	// those that a new client can get. They make up Usable.
	Leased, Offered, Quarantined, Free int
}

// Pools returns the use of the pools of a table, in the lab's order. Those of networks where another server gives the addresses have none.
func (s *Server) Pools(t *Table) (all []PoolUse) {
	for _, sc := range t.scopes {
		if !sc.serves() {
			continue
		}
		for _, p := range sc.pools {
			all = append(all, s.useOf(sc, p))
		}
	}
	return all
}

// useOf returns the use of a pool: for the API, the metrics and the reason of a refusal alike.
func (s *Server) useOf(sc *scope, p *pool) PoolUse {
	leased, offered, free := s.deps.Book.Usage(p.addrs)
	usable := p.addrs.Usable()
	return PoolUse{Network: sc.network.Name, Name: p.Name, Range: p.Range.String(), Usable: usable, Leased: leased, Offered: offered,
		Quarantined: usable - leased - offered - free, Free: free}
}

// ErrNoLease is returned by Release for an address that no machine holds.
var ErrNoLease = errors.New("dhcpd: no lease")

// Release ends a lease for an admin, durably, and returns what it was. The client does not learn of it: it uses the address
// until it renews, at half of the lease time, and is then refused if the address is another machine's. A declined address,
// or one that was found in use or was only offered, is free again at once. The error is ErrNoLease, the store's, or ctx's.
func (s *Server) Release(ctx context.Context, addr netip.Addr) (leases.Lease, error) {
	l, ok := s.deps.Book.Holding(addr)
	if !ok {
		return l, fmt.Errorf("%w for %s", ErrNoLease, addr)
	}
	var err error
	switch l.State {
	case leases.Offered:
		s.deps.Book.Withdraw(l.MAC)
	case leases.Active:
		c := &leases.Change{Lease: l, Subnet: netip.PrefixFrom(addr, addr.BitLen())}
		c.State, c.Start, c.Expiry = leases.Released, s.deps.Now(), s.deps.Now()
		if sc := scopeOf(s.deps.Table().scopes, addr); sc != nil {
			c.Subnet = sc.network.Subnet
		}
		s.deps.Book.Commit(ctx, []*leases.Change{c})
		err = c.Err
	default:
		err = s.deps.Book.Forget(ctx, addr)
	}
	if err == nil {
		s.prober.Forget(addr)
		s.deps.Events.Record(event.Event{Kind: event.DHCPRelease, MAC: l.MAC, Addr: addr, Detail: "by an admin", ByAdmin: true})
	}
	return l, err
}
