package leases

import (
	"cmp"
	"hash/maphash"
	"net/netip"
	"slices"
	"time"
)

// Usage returns how many addresses of a pool are leased, how many are offered to machines that have no
// lease, and how many a new client could get without taking another's offer. The rest of [Pool.Usable] was declined
// or is in conflict. The numbers are kept, not counted: Usage is as cheap as a look-up, and an offer that was made is in
// them at once. After a storm of leases that end together they may lag by a few calls, on the side of too little free.
func (b *Book) Usage(p *Pool) (live, offered, free int) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advanceLocked(seconds(now), sweepBudget)
	b.tickLocked(seconds(now))
	s := b.useLocked(p)
	if s == nil {
		return 0, 0, 0
	}
	for range tickBudget {
		i := s.offers.head
		if i == 0 || b.offers.at(i).valid(now.UnixMilli()) {
			break
		}
		b.forgetOfferLocked(i)
	}
	return s.usage()
}

func (s *poolState) usage() (int, int, int) {
	return s.count[live], s.count[offered], s.count[free] + s.count[expired]
}

// LiveOnRelayPort returns how many live leases of a pool there are behind a relay port (RFC 3046). The number is kept, too.
func (b *Book) LiveOnRelayPort(p *Pool, port string) int {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advanceLocked(seconds(now), sweepBudget)
	s := b.useLocked(p)
	if s == nil || port == "" {
		return 0
	}
	return int(s.ports[maphash.String(b.seed, port[:min(len(port), maxText)])])
}

// countPortLocked counts a slot behind its relay port, if it has one.
func (b *Book) countPortLocked(s *poolState, i uint32) {
	e := b.slots.at(i)
	if e.flags&(onPortCount|hasRelayPort) != hasRelayPort {
		return
	}
	e.flags |= onPortCount
	s.ports[maphash.String(b.seed, relayPortOf(e.blob))]++
}

// uncountPortLocked undoes countPortLocked, before the slot changes.
func (b *Book) uncountPortLocked(s *poolState, i uint32) {
	e := b.slots.at(i)
	if e.flags&onPortCount == 0 {
		return
	}
	e.flags &^= onPortCount
	h := maphash.String(b.seed, relayPortOf(e.blob))
	if s.ports[h]--; s.ports[h] == 0 {
		delete(s.ports, h)
	}
}

// FreeAddrs returns up to most addresses of a pool that a new client could get: those never leased, then those whose lease
// ended longest ago.
func (b *Book) FreeAddrs(p *Pool, most int) []netip.Addr {
	var all []netip.Addr
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.useLocked(p)
	if s == nil {
		return nil
	}
	for i, ok := s.free.next(0); ok && len(all) < most; i, ok = s.free.next(i + 1) {
		all = append(all, addrOf(p.first+uint32(i)))
	}
	for i := s.expired.head; i != 0 && len(all) < most; i = b.slots.at(i).next {
		all = append(all, addrOf(b.slots.at(i).addr))
	}
	return all
}

// holdersKept is how long an answer of Holders is cached: to find it means to look at every lease, and many clients ask for
// an address of a full pool.
const holdersKept = 2 * time.Second

// Holders returns the leased and declined addresses of a full pool, those that end first, at most n. The answer may be
// some seconds old.
func (b *Book) Holders(p *Pool, n int) []Lease {
	now := b.now()
	b.mu.Lock()
	s := b.useLocked(p)
	if s == nil || n <= 0 {
		b.mu.Unlock()
		return nil
	}
	if age := now.Sub(s.holdersAt); age >= 0 && age < holdersKept && len(s.holders) >= min(n, s.count[live]) {
		defer b.mu.Unlock()
		return slices.Clone(s.holders[:min(n, len(s.holders))])
	}
	b.mu.Unlock()
	found := b.endingFirst(p, n, seconds(now))
	b.mu.Lock()
	defer b.mu.Unlock()
	s.holders, s.holdersAt = found, now
	return slices.Clone(found)
}

// endingFirst looks at all leases, and unlocks the book between batches.
func (b *Book) endingFirst(p *Pool, n int, now uint32) []Lease {
	type end struct{ expiry, addr, slot uint32 }
	order := func(x, y end) int { return cmp.Or(cmp.Compare(x.expiry, y.expiry), cmp.Compare(x.addr, y.addr)) }
	var ends []end
	b.walk(func(i uint32, e *slot) {
		if e.ended(now) || !p.gives(e.addr) {
			return
		}
		x := end{e.expiry, e.addr, i}
		if len(ends) == n && order(x, ends[n-1]) >= 0 {
			return
		}
		at, _ := slices.BinarySearchFunc(ends, x, order)
		ends = slices.Insert(ends, at, x)[:min(n, len(ends)+1)]
	}, func() {})
	var found []Lease
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range ends {
		if b.slots.at(x.slot).addr == x.addr { // it may have been removed
			found = append(found, b.leaseLocked(x.slot))
		}
	}
	return found
}
