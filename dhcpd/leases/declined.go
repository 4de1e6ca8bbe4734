package leases

import (
	"cmp"
	"net/netip"
	"slices"
)

// Anybody can decline addresses in the names of machines that do not exist. A pool without another address has its declined ones
// probed: those at which nobody answers are given again.

// Declined returns declined addresses of a pool, those declined longest ago first, at most n. Each is returned once in a while
// only; whether it is in use is for the caller to find out. Addresses at which a probe found a machine are not among them.
func (b *Book) Declined(p *Pool, n int) (found []netip.Addr) {
	now := seconds(b.now())
	var all []uint32
	if b.mustSearch(p, now) {
		all = b.declinedIn(p, now)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.useLocked(p)
	if s == nil {
		return nil
	}
	s.declined = append(s.declined, all...)
	for len(s.declined) > 0 && len(found) < n {
		a := s.declined[0]
		s.declined = s.declined[1:]
		if i := b.findLocked(a); i != 0 && b.declinedLocked(i, now) {
			found = append(found, addrOf(a))
		}
	}
	return found
}

// mustSearch reports, once a second, whether a pool has declined addresses of which none is left to return. To find them means to look at
// every lease, which the caller does without the lock.
func (b *Book) mustSearch(p *Pool, now uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.useLocked(p)
	if s == nil || s.count[quarantined] == 0 || len(s.declined) > 0 || s.declinedAt == now {
		return false
	}
	s.declinedAt = now
	return true
}

func (b *Book) declinedIn(p *Pool, now uint32) []uint32 {
	type declined struct{ start, addr uint32 }
	var all []declined
	b.walk(func(i uint32, e *slot) {
		if p.gives(e.addr) && b.declinedLocked(i, now) {
			all = append(all, declined{e.start, e.addr})
		}
	}, func() {})
	slices.SortFunc(all, func(x, y declined) int { return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.addr, y.addr)) })
	addrs := make([]uint32, len(all))
	for i, d := range all {
		addrs[i] = d.addr
	}
	return addrs
}

// declinedLocked reports whether a slot is a declined address in quarantine, and no probe found a machine there.
func (b *Book) declinedLocked(i, now uint32) bool {
	e := b.slots.at(i)
	c, inUse := b.conflicts[e.addr]
	return e.state == Declined && !e.ended(now) && !(inUse && now < c.until)
}

// EndDeclined ends the quarantine of a declined address that was found unused, in memory only: after a restart it holds again,
// until the next probe. It reports whether the address was declined.
func (b *Book) EndDeclined(addr netip.Addr) bool {
	a, _ := addr4(addr)
	now := seconds(b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.findLocked(a)
	if i == 0 || !b.declinedLocked(i, now) {
		return false
	}
	e := b.slots.at(i)
	e.flags |= foundUnused
	if e.flags&hasEnded == 0 {
		b.expireLocked(i)
	}
	return true
}
