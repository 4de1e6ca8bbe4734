package leases

import (
	"cmp"
	"slices"
	"time"
)

// A class is what can be done with an address of a pool.
type class uint8

const (
	free    class = iota // never leased, or forgotten
	spare                // its lease ended or was given back; the machine is remembered
	held                 // promised to a machine
	live                 // leased
	aside                // declined, or in conflict
	blocked              // not the pool's to give
	classes
)

// A shelf is a pool as it is now. The one without a pool has what belongs to none: reservations, and what is left of
// earlier pools.
type shelf struct {
	pool   *Pool
	free   bitset
	class  [][]class // in chunks; nil: all free or blocked
	count  [classes]int
	spares list // of entries: the longest ended first
	offers list // of offers: the one not asked for longest first

	ports map[uint64]int32 // how many live leases there are behind a relay port, by its hash

	holders   []Lease // what Holders last found
	holdersAt time.Time
}

const classChunk = 4096

func newShelf(p *Pool) *shelf {
	s := &shelf{
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

// setClass files the address at place i under c.
func (s *shelf) setClass(i int, c class) {
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
	was := &chunk[i%classChunk]
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

// shelfLocked returns where an address belongs: its pool's shelf if that may give it, or the one for the rest.
func (b *Book) shelfLocked(a uint32) *shelf {
	if s := b.poolShelfLocked(a); s != nil && s.pool.gives(a) {
		return s
	}
	return &b.rest
}

func (b *Book) poolShelfLocked(a uint32) *shelf {
	return shelfIn(b.shelves, a)
}

// shelfIn finds the shelf with a pool that contains a among shelves in the order of addresses.
func shelfIn(shelves []*shelf, a uint32) *shelf {
	lo, hi := 0, len(shelves)
	for lo < hi {
		mid := (lo + hi) / 2
		if shelves[mid].pool.first <= a {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo > 0 && shelves[lo-1].pool.contains(a) {
		return shelves[lo-1]
	}
	return nil
}

// reclassLocked is called after anything happened to an address. It finds out what the address is now, and files it.
func (b *Book) reclassLocked(a uint32) {
	i := b.findLocked(a)
	s := b.shelfLocked(a)
	c := b.classifyLocked(a, i)
	if s.pool != nil {
		s.setClass(int(a-s.pool.first), c)
	}
	if i == 0 {
		return
	}
	b.countLocked(s, i, c == live && s.pool != nil)
	e := b.entries.at(i)
	onList := e.flags&lapsed != 0 && (c == spare || s.pool == nil)
	switch is := e.flags&onShelf != 0; {
	case onList && !is:
		b.shelveLocked(s, i)
	case !onList && is:
		b.unshelveLocked(s, i)
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
		return aside
	case b.offerOnLocked(a) != 0:
		return held
	case i != 0:
		return spare
	}
	return free
}

// shelveLocked puts an ended lease among the spares, by the time it ended. That is nearly always at the end. One that was
// held in between belongs near the front, and need not be placed exactly.
func (b *Book) shelveLocked(s *shelf, i uint32) {
	const steps = 16
	e := b.entries.at(i)
	e.flags |= onShelf
	next := uint32(0)
	if s.spares.tail != 0 && b.entries.at(s.spares.tail).expiry > e.expiry {
		next = s.spares.head
		for n := 0; n < steps && b.entries.at(next).expiry <= e.expiry; n++ {
			next = b.entries.at(next).next
		}
	}
	insert(&b.entries, &s.spares, i, next)
}

func (b *Book) unshelveLocked(s *shelf, i uint32) {
	b.entries.at(i).flags &^= onShelf
	unlink(&b.entries, &s.spares, i)
}

// Serve says which pools there are, after each reload of the lab. Others are forgotten; their leases are not. A pool that
// is the same as before costs nothing, another one a look at its leases. Serve is not needed: a pool that the book was not
// told of is served from its first use on, instead of those that overlap it.
func (b *Book) Serve(pools ...*Pool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.serveLocked(pools)
}

// useLocked returns the shelf of a pool.
func (b *Book) useLocked(p *Pool) *shelf {
	if s := b.poolShelfLocked(p.first); s != nil && s.pool.same(p) {
		s.pool = p
		return s
	}
	pools := []*Pool{p}
	for _, s := range b.shelves {
		if !s.pool.overlaps(p) {
			pools = append(pools, s.pool)
		}
	}
	b.serveLocked(pools)
	return shelfIn(b.shelves, p.first)
}

func (b *Book) serveLocked(pools []*Pool) {
	shelves := make([]*shelf, 0, len(pools))
	kept := map[*shelf]bool{&b.rest: true}
	for _, p := range pools {
		if p.size == 0 || slices.ContainsFunc(shelves, func(s *shelf) bool { return s.pool.overlaps(p) }) {
			continue
		}
		s := b.poolShelfLocked(p.first)
		if s == nil || !s.pool.same(p) {
			s = newShelf(p)
		} else {
			s.pool = p
			kept[s] = true
		}
		shelves = append(shelves, s)
	}
	slices.SortFunc(shelves, func(x, y *shelf) int { return cmp.Compare(x.pool.first, y.pool.first) })
	if len(shelves) != len(b.shelves) || len(kept) != len(shelves)+1 {
		b.moveLocked(shelves, kept)
	}
}

// moveLocked files on new shelves what lay on those that go, or belongs on those that come.
func (b *Book) moveLocked(shelves []*shelf, kept map[*shelf]bool) {
	stays := func(a uint32) bool {
		if !kept[b.shelfLocked(a)] {
			return false
		}
		s := shelfIn(shelves, a)
		return s == nil || !s.pool.gives(a) || kept[s]
	}
	var moved, offers []uint32
	for i := uint32(1); i <= b.entries.last; i++ {
		if e := b.entries.at(i); e.addr != 0 && !stays(e.addr) {
			s := b.shelfLocked(e.addr)
			b.countLocked(s, i, false)
			if e.flags&onShelf != 0 {
				b.unshelveLocked(s, i)
			}
			moved = append(moved, i)
		}
	}
	for i := uint32(1); i <= b.offers.last; i++ {
		if o := b.offers.at(i); o.addr != 0 && !stays(o.addr) {
			unlink(&b.offers, &b.shelfLocked(o.addr).offers, i)
			offers = append(offers, i)
		}
	}
	b.shelves = shelves
	slices.SortFunc(offers, func(x, y uint32) int { return cmp.Compare(b.offers.at(x).asked, b.offers.at(y).asked) })
	for _, i := range offers {
		o := b.offers.at(i)
		insert(&b.offers, &b.shelfLocked(o.addr).offers, i, 0)
		b.reclassLocked(o.addr)
	}
	b.refileLocked(moved)
	for a := range b.conflicts {
		b.reclassLocked(a)
	}
}

// refileLocked files entries that are on no shelf, those that ended longest ago first.
func (b *Book) refileLocked(entries []uint32) {
	slices.SortFunc(entries, func(x, y uint32) int { return cmp.Compare(b.entries.at(x).expiry, b.entries.at(y).expiry) })
	for _, i := range entries {
		b.reclassLocked(b.entries.at(i).addr)
	}
}
