package leases

import "time"

// A class is what can be done with an address of a pool.
type class uint8

const (
	free        class = iota // never leased, or forgotten
	expired                  // its lease ended or was released; the machine is remembered
	offered                  // to a machine
	live                     // leased
	quarantined              // declined, or in conflict
	blocked                  // not the pool's to give
	classes
)

// A poolState is a pool with its leases and offers. The one without a pool has what belongs to none: reservations, and what is left of
// earlier pools.
type poolState struct {
	pool    *Pool
	free    bitset
	class   [][]class // in chunks; nil: all free or blocked
	count   [classes]int
	expired list // of entries: the longest ended first
	offers  list // of offers: the one not asked for longest first

	ports map[uint64]int32 // how many live leases there are behind a relay port, by its hash

	holders   []Lease // what Holders last found
	holdersAt time.Time
}

const classChunk = 4096

func newPoolState(p *Pool) *poolState {
	s := &poolState{
		pool: p, free: newBitset(p.size), class: make([][]class, (p.size+classChunk-1)/classChunk), ports: map[uint64]int32{},
	}
	for i := range p.size {
		if p.blocked[i/64]>>(i%64)&1 == 0 {
			s.free.set(i)
		}
	}
	s.count[free], s.count[blocked] = p.usable, p.size-p.usable
	return s
}

// classAt returns where the class of place i is kept.
func (s *poolState) classAt(i int) *class {
	chunk := s.class[i/classChunk]
	if chunk == nil {
		chunk = make([]class, min(classChunk, s.pool.size-i/classChunk*classChunk))
		for k := range chunk {
			at := i/classChunk*classChunk + k
			if s.pool.blocked[at/64]>>(at%64)&1 != 0 {
				chunk[k] = blocked
			}
		}
		s.class[i/classChunk] = chunk
	}
	return &chunk[i%classChunk]
}

// setClass files the address at place i under c.
func (s *poolState) setClass(i int, c class) {
	was := s.classAt(i)
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

// poolOfLocked returns where an address belongs: its pool if that may give it, or the one for the rest.
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

// reclassLocked is called after anything happened to an address. It finds out what the address is now, and files it.
func (b *Book) reclassLocked(a uint32) { b.refileLocked(a, b.findLocked(a)) }

// refileLocked is reclassLocked where the entry of the address is known.
func (b *Book) refileLocked(a, i uint32) {
	s := b.poolOfLocked(a)
	c := b.classifyLocked(a, i)
	if s.pool != nil {
		s.setClass(int(a-s.pool.first), c)
	}
	if i == 0 {
		return
	}
	b.countLocked(s, i, c == live && s.pool != nil)
	e := b.entries.at(i)
	onList := e.flags&lapsed != 0 && (c == expired || s.pool == nil)
	switch is := e.flags&onExpired != 0; {
	case onList && !is:
		b.listExpiredLocked(s, i)
	case !onList && is:
		b.unlistExpiredLocked(s, i)
	}
}

func (b *Book) classifyLocked(a, i uint32) class {
	ended := true
	if i != 0 {
		e := b.entries.at(i)
		ended = e.flags&lapsed != 0
		if !ended && e.state == Active {
			return live
		}
	}
	switch {
	case !ended || len(b.conflicts) > 0 && b.inConflictLocked(a):
		return quarantined
	case b.offerOnLocked(a) != 0:
		return offered
	case i != 0:
		return expired
	}
	return free
}

// listExpiredLocked puts an ended lease among the expired, by the time it ended. That is nearly always at the end. One that was
// offered in between belongs near the front, and need not be placed exactly.
func (b *Book) listExpiredLocked(s *poolState, i uint32) {
	const steps = 16
	e := b.entries.at(i)
	e.flags |= onExpired
	next := uint32(0)
	if s.expired.tail != 0 && b.entries.at(s.expired.tail).expiry > e.expiry {
		next = s.expired.head
		for n := 0; n < steps && b.entries.at(next).expiry <= e.expiry; n++ {
			next = b.entries.at(next).next
		}
	}
	insert(&b.entries, &s.expired, i, next)
}

func (b *Book) unlistExpiredLocked(s *poolState, i uint32) {
	b.entries.at(i).flags &^= onExpired
	unlink(&b.entries, &s.expired, i)
}
