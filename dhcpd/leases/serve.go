package leases

import (
	"cmp"
	"math/bits"
	"slices"
)

// Serve says which pools there are, after each reload of the lab. Others are forgotten; their leases are not. A pool that
// has the range that it had costs what differs, another one a look at all leases. Serve is not needed: a pool that the book was not
// told of is served from its first use on, instead of those that overlap it.
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

// updatePoolLocked makes a state that of another pool of the same range: of the one from before a reservation was added, say.
func (b *Book) updatePoolLocked(s *poolState, p *Pool) {
	var changed []uint32
	for w, now := range p.blocked {
		for diff := now ^ s.pool.blocked[w]; diff != 0; diff &= diff - 1 {
			changed = append(changed, p.first+uint32(w*64+bits.TrailingZeros64(diff)))
		}
	}
	for _, a := range changed {
		if o := b.offerOnLocked(a); o != 0 {
			b.forgetOfferLocked(o)
		}
		if i := b.findLocked(a); i != 0 {
			b.detachLocked(i)
		}
		s.classAt(int(a - p.first)) // knows the class of all places before they change
	}
	s.pool = p
	for _, a := range changed {
		s.setClass(int(a-p.first), map[bool]class{true: free, false: blocked}[p.gives(a)])
		b.reclassLocked(a)
	}
}

// detachLocked takes an entry off the lists and counts of its pool.
func (b *Book) detachLocked(i uint32) {
	e := b.entries.at(i)
	s := b.poolOfLocked(e.addr)
	b.countLocked(s, i, false)
	if e.flags&onExpired != 0 {
		b.unlistExpiredLocked(s, i)
	}
}

// rebuildLocked files on new states what lay on those that go, or belongs on those that come.
func (b *Book) rebuildLocked(states []*poolState, kept map[*poolState]bool) {
	stays := func(a uint32) bool {
		if !kept[b.poolOfLocked(a)] {
			return false
		}
		s := poolContaining(states, a)
		return s == nil || !s.pool.gives(a) || kept[s]
	}
	var moved, offers []uint32
	for i := uint32(1); i <= b.entries.last; i++ {
		if e := b.entries.at(i); e.addr != 0 && !stays(e.addr) {
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
		b.reclassLocked(o.addr)
	}
	b.refileAllLocked(moved)
	for a := range b.conflicts {
		b.reclassLocked(a)
	}
}

// refileAllLocked files entries that are on no list, of those that ended the one that ended longest ago first.
func (b *Book) refileAllLocked(entries []uint32) {
	ended := entries[:0]
	for _, i := range entries {
		if e := b.entries.at(i); e.flags&lapsed == 0 {
			b.refileLocked(e.addr, i)
		} else {
			ended = append(ended, i)
		}
	}
	slices.SortFunc(ended, func(x, y uint32) int { return cmp.Compare(b.entries.at(x).expiry, b.entries.at(y).expiry) })
	for _, i := range ended {
		b.refileLocked(b.entries.at(i).addr, i)
	}
}
