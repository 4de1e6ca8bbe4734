package leases

import (
	"context"
	"net/netip"
	"time"
)

// remembered is how long a lease is kept after it ended, so that a machine that comes back after a holiday has the address
// that it had. A pool that needs the address sooner gives it away sooner.
const remembered = 30 * 24 * time.Hour

// Reclaim removes leases that ended longer ago than they are remembered from the store and the book, at most limit at a
// time, and returns how many. The server calls it now and then, again at once while it returns limit. Leases of pools and
// reservations that are no more go this way.
func (b *Book) Reclaim(ctx context.Context, limit int) (int, error) {
	now := b.now()
	before := seconds(now.Add(-remembered))
	b.commits.Lock()
	defer b.commits.Unlock()
	b.mu.Lock()
	b.advanceLocked(seconds(now), sweepBudget)
	b.tickLocked(seconds(now))
	addrs := b.endedLocked(&b.rest, nil, before, limit)
	for _, s := range b.states {
		addrs = b.endedLocked(s, addrs, before, limit)
	}
	b.mu.Unlock()
	return len(addrs), b.forget(ctx, addrs)
}

// endedLocked collects the leases of a pool that ended before a time, until there are limit.
func (b *Book) endedLocked(s *poolState, addrs []uint32, before uint32, limit int) []uint32 {
	for i := s.expired.head; i != 0 && len(addrs) < limit; i = b.entries.at(i).next {
		e := b.entries.at(i)
		if e.expiry > before {
			break
		}
		addrs = append(addrs, e.addr)
	}
	return addrs
}

// Forget removes what is known of an address, by hand: a lease, a declined address or a conflict. Whoever has the address
// keeps it until it asks again.
func (b *Book) Forget(ctx context.Context, addr netip.Addr) error {
	a, ok := addr4(addr)
	if !ok {
		return nil
	}
	b.commits.Lock()
	defer b.commits.Unlock()
	b.mu.Lock()
	b.endConflictLocked(a)
	known := b.findLocked(a) != 0
	b.mu.Unlock()
	if !known {
		return nil
	}
	return b.forget(ctx, []uint32{a})
}

// forget removes leases from the store, then from memory. One that another daemon changed meanwhile is alive, and stays.
func (b *Book) forget(ctx context.Context, addrs []uint32) error {
	for _, a := range addrs {
		b.committer.planned = append(b.committer.planned, planned{addr: a})
	}
	return b.carryOut(ctx)
}
