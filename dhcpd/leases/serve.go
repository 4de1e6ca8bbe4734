package leases

import (
	"cmp"
	"math/bits"
	"slices"
)

// Serve sets the pools, after each reload of the lab. Other pools are removed; their leases are not. For a pool with the same
// range as before only the differences cost, for another one all leases are looked at. Serve is optional: an unknown pool is
// added at its first use, and replaces the pools that overlap it.
func (b *Book) Serve(pools ...*Pool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.serveLocked(pools)
}

// useLocked returns the state of a pool.
func (b *Book) useLocked(p *Pool) *poolState {
	if s := b.poolAtLocked(p.first); s != nil && s.pool.same(p) {
		s.pool = p
		return s
	}
	pools := []*Pool{p}
	for _, s := range b.states {
		if !s.pool.overlaps(p) {
			pools = append(pools, s.pool)
		}
	}
	b.serveLocked(pools)
	return poolContaining(b.states, p.first)
}

func (b *Book) serveLocked(pools []*Pool) {
	states := make([]*poolState, 0, len(pools))
	kept := map[*poolState]bool{&b.rest: true}
	for _, p := range pools {
		if p.size == 0 || slices.ContainsFunc(states, func(s *poolState) bool { return s.pool.overlaps(p) }) {
			continue
		}
		s := b.poolAtLocked(p.first)
		if s == nil || s.pool.first != p.first || s.pool.size != p.size {
			s = newPoolState(p)
		} else {
			b.updatePoolLocked(s, p)
			kept[s] = true
		}
		states = append(states, s)
	}
	slices.SortFunc(states, func(x, y *poolState) int { return cmp.Compare(x.pool.first, y.pool.first) })
	if len(states) != len(b.states) || len(kept) != len(states)+1 {
		b.rebuildLocked(states, kept)
	}
}

// updatePoolLocked replaces the pool of a state by another one of the same range, with other reservations.
func (b *Book) updatePoolLocked(s *poolState, p *Pool) {
	var changed []uint32
	for w, now := range p.blocked {
		for diff := now ^ s.pool.blocked[w]; diff != 0; diff &= diff - 1 {
			changed = append(changed, p.first+uint32(w*64+bits.TrailingZeros64(diff)))
		}
	}
	for _, a := range changed {
		if o := b.offerByAddr[a]; o != 0 {
			b.forgetOfferLocked(o)
		}
		if i := b.findLocked(a); i != 0 {
			b.detachLocked(i)
		}
		s.stateAt(int(a - p.first)) // fills in the states of its chunk before they change
	}
	s.pool = p
	for _, a := range changed {
		s.setState(int(a-p.first), map[bool]addrState{true: free, false: blocked}[p.gives(a)])
		b.updateAddrLocked(a)
	}
}

// detachLocked takes a slot off the lists and counts of its pool.
func (b *Book) detachLocked(i uint32) {
	e := b.slots.at(i)
	s := b.poolOfLocked(e.addr)
	b.uncountPortLocked(s, i)
	if e.flags&onExpired != 0 {
		b.unlistExpiredLocked(s, i)
	}
}

// rebuildLocked moves leases and offers from the pools that are removed to those that are added.
func (b *Book) rebuildLocked(states []*poolState, kept map[*poolState]bool) {
	stays := func(a uint32) bool {
		if !kept[b.poolOfLocked(a)] {
			return false
		}
		s := poolContaining(states, a)
		return s == nil || !s.pool.gives(a) || kept[s]
	}
	var moved, offers []uint32
	for i := uint32(1); i <= b.slots.last; i++ {
		if e := b.slots.at(i); e.addr != 0 && !stays(e.addr) {
			b.detachLocked(i)
			moved = append(moved, i)
		}
	}
	for i := uint32(1); i <= b.offers.last; i++ {
		if o := b.offers.at(i); o.addr != 0 && !stays(o.addr) {
			unlink(&b.offers, &b.poolOfLocked(o.addr).offers, i)
			offers = append(offers, i)
		}
	}
	b.states = states
	slices.SortFunc(offers, func(x, y uint32) int { return cmp.Compare(b.offers.at(x).asked, b.offers.at(y).asked) })
	for _, i := range offers {
		o := b.offers.at(i)
		insert(&b.offers, &b.poolOfLocked(o.addr).offers, i, 0)
		b.updateAddrLocked(o.addr)
	}
	b.updateSlotsLocked(moved)
	for a := range b.conflicts {
		b.updateAddrLocked(a)
	}
}

// updateSlotsLocked files slots that are on no list; those that ended in the order of their end.
func (b *Book) updateSlotsLocked(slots []uint32) {
	ended := slots[:0]
	for _, i := range slots {
		if e := b.slots.at(i); e.flags&hasEnded == 0 {
			b.updateSlotLocked(e.addr, i)
		} else {
			ended = append(ended, i)
		}
	}
	slices.SortFunc(ended, func(x, y uint32) int { return cmp.Compare(b.slots.at(x).expiry, b.slots.at(y).expiry) })
	for _, i := range ended {
		b.updateSlotLocked(b.slots.at(i).addr, i)
	}
}
