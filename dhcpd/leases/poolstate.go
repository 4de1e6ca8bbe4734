package leases

import "time"

// A poolState is a pool with its leases and offers. The one without a pool has the leases that belong to none: those of reservations and
// of earlier pools.
type poolState struct {
	pool    *Pool
	free    bitset
	addrs   [][]addrState // in chunks; nil: all free or blocked
	count   [addrStates]int
	expired list // of slots: the longest ended first
	offers  list // of offers: the one not asked for longest first

	ports map[uint64]int32 // how many live leases there are behind a relay port, by its hash

	holders   []Lease // what Holders last found
	holdersAt time.Time

	declined   []uint32 // what Declined has to return yet
	declinedAt uint32   // when it last looked, in Unix seconds
}

const stateChunk = 4096

func newPoolState(p *Pool) *poolState {
	s := &poolState{
		pool: p, free: newBitset(p.size), addrs: make([][]addrState, (p.size+stateChunk-1)/stateChunk), ports: map[uint64]int32{},
	}
	for i := range p.size {
		if p.blocked[i/64]>>(i%64)&1 == 0 {
			s.free.set(i)
		}
	}
	s.count[free], s.count[blocked] = p.usable, p.size-p.usable
	return s
}

// stateAt returns where the state of the address at index i is kept.
func (s *poolState) stateAt(i int) *addrState {
	chunk := s.addrs[i/stateChunk]
	if chunk == nil {
		chunk = make([]addrState, min(stateChunk, s.pool.size-i/stateChunk*stateChunk))
		for k := range chunk {
			at := i/stateChunk*stateChunk + k
			if s.pool.blocked[at/64]>>(at%64)&1 != 0 {
				chunk[k] = blocked
			}
		}
		s.addrs[i/stateChunk] = chunk
	}
	return &chunk[i%stateChunk]
}

// setState files the address at index i under state c.
func (s *poolState) setState(i int, c addrState) {
	was := s.stateAt(i)
	if *was == c {
		return
	}
	s.count[*was]--
	s.count[c]++
	switch {
	case c == free:
		s.free.set(i)
	case *was == free:
		s.free.clear(i)
	}
	*was = c
}

// asCounted is the view of the numbers of a pool.
var asCounted = view{counts: true}

// poolOfLocked returns the pool that may give an address, or the state for addresses without a pool.
func (b *Book) poolOfLocked(a uint32) *poolState {
	if s := b.poolAtLocked(a); s != nil && s.pool.gives(a) {
		return s
	}
	return &b.rest
}

func (b *Book) poolAtLocked(a uint32) *poolState {
	return poolContaining(b.states, a)
}

// poolContaining finds the pool that contains a among states in the order of addresses.
func poolContaining(states []*poolState, a uint32) *poolState {
	lo, hi := 0, len(states)
	for lo < hi {
		mid := (lo + hi) / 2
		if states[mid].pool.first <= a {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo > 0 && states[lo-1].pool.contains(a) {
		return states[lo-1]
	}
	return nil
}

// updateAddrLocked is called after every change of an address. It files the address under its new state.
func (b *Book) updateAddrLocked(a uint32) { b.updateSlotLocked(a, b.findLocked(a)) }

// updateSlotLocked is updateAddrLocked for an address whose slot is known.
func (b *Book) updateSlotLocked(a, i uint32) {
	s := b.poolOfLocked(a)
	c := b.addrStateLocked(a, i, &asCounted)
	if s.pool != nil {
		s.setState(int(a-s.pool.first), c)
	}
	if i == 0 {
		return
	}
	if c == live && s.pool != nil {
		b.countPortLocked(s, i)
	} else {
		b.uncountPortLocked(s, i)
	}
	e := b.slots.at(i)
	onList := e.flags&hasEnded != 0 && (c == expired || s.pool == nil)
	switch is := e.flags&onExpired != 0; {
	case onList && !is:
		b.listExpiredLocked(s, i)
	case !onList && is:
		b.unlistExpiredLocked(s, i)
	}
}

// listExpiredLocked adds an ended lease to the list of expired ones, by the time it ended: nearly always at the end. One that
// was offered in between belongs near the front, and need not be placed exactly.
func (b *Book) listExpiredLocked(s *poolState, i uint32) {
	const steps = 16
	e := b.slots.at(i)
	e.flags |= onExpired
	next := uint32(0)
	if s.expired.tail != 0 && b.slots.at(s.expired.tail).expiry > e.expiry {
		next = s.expired.head
		for n := 0; n < steps && b.slots.at(next).expiry <= e.expiry; n++ {
			next = b.slots.at(next).next
		}
	}
	insert(&b.slots, &s.expired, i, next)
}

func (b *Book) unlistExpiredLocked(s *poolState, i uint32) {
	b.slots.at(i).flags &^= onExpired
	unlink(&b.slots, &s.expired, i)
}
