package leases

import (
	"context"
	"net/netip"
	"slices"
	"time"
)

// A made-up machine that requests what it is offered gets a lease like any other, and is never heard of again. Until the book
// is reopened it knows such leases: the first of their machine, which has sent nothing since.

// AskedOnce returns the addresses of a pool that are leased to machines which had no address before and have sent nothing
// since some time: at most n, the oldest lease first. Whether they are in use is for the caller to find out.
func (b *Book) AskedOnce(p *Pool, since time.Time, n int) []netip.Addr {
	now, before := seconds(b.now()), seconds(since)
	var found []uint64 // start and address
	b.walk(func(_ uint32, e *slot) {
		if e.flags&askedOnce != 0 && e.live(now) && e.start <= before && p.gives(e.addr) {
			found = append(found, uint64(e.start)<<32|uint64(e.addr))
		}
	}, func() {})
	slices.Sort(found)
	addrs := make([]netip.Addr, min(n, len(found)))
	for i := range addrs {
		addrs[i] = addrOf(uint32(found[i]))
	}
	return addrs
}

// EndSilent ends the leases of addresses that were found unused, unless their machines have sent something meanwhile, and
// returns how many. They are stored as released.
func (b *Book) EndSilent(ctx context.Context, addrs []netip.Addr) (int, error) {
	now := b.now()
	b.commits.Lock()
	defer b.commits.Unlock()
	b.mu.Lock()
	var changes []*Change
	for _, addr := range addrs {
		a, _ := addr4(addr)
		if i := b.findLocked(a); i != 0 && b.slots.at(i).flags&askedOnce != 0 && b.slots.at(i).live(seconds(now)) {
			c := &Change{Lease: b.leaseLocked(i)}
			c.State, c.Expiry = Released, now
			changes = append(changes, c)
		}
	}
	b.mu.Unlock()
	b.plan(changes)
	err := b.carryOut(ctx)
	ended := 0
	for _, c := range changes {
		if c.Err == nil {
			ended++
		}
	}
	return ended, err
}
