package leases

// An index finds slots by the hash of a key. It is one open-addressing table cut into shards, so that it grows shard by
// shard and no packet waits for all of it to be hashed anew. It holds no pointers into leases and no keys: who looks
// something up compares the key, which at 32 bits of hash is rarely in vain.
//
// The caller serialises access.
type index struct {
	shards [shardCount]shard
}

const (
	shardCount = 256
	minCells   = 8
)

// A shard probes linearly. A removed cell is filled from behind, so there are no tombstones and no decay.
type shard struct {
	cells []cell
	n     int
}

// A cell is empty when its slot is 0.
type cell struct{ hash, slot uint32 }

func (x *index) shard(hash uint32) *shard { return &x.shards[hash>>24] }

// home is where a hash wants to be: the shard took its upper eight bits, the others spread over any number of cells.
func (s *shard) home(hash uint32) int { return int(uint64(hash<<8) * uint64(len(s.cells)) >> 32) }

// first returns the first slot under hash, 0 if there is none, and where after goes on.
func (x *index) first(hash uint32) (slot uint32, at int) {
	s := x.shard(hash)
	if s.n == 0 {
		return 0, 0
	}
	return s.from(hash, s.home(hash))
}

// after returns the next slot under hash.
func (x *index) after(hash uint32, at int) (uint32, int) {
	s := x.shard(hash)
	if at++; at == len(s.cells) {
		at = 0
	}
	return s.from(hash, at)
}

func (s *shard) from(hash uint32, at int) (uint32, int) {
	for {
		c := &s.cells[at]
		if c.slot == 0 || c.hash == hash {
			return c.slot, at
		}
		if at++; at == len(s.cells) {
			at = 0
		}
	}
}

// add puts a slot under a hash; others may be there already.
func (x *index) add(hash, slot uint32) {
	s := x.shard(hash)
	if 4*(s.n+1) > 3*len(s.cells) {
		s.grow()
	}
	s.place(hash, slot)
	s.n++
}

func (s *shard) place(hash, slot uint32) {
	at := s.home(hash)
	for s.cells[at].slot != 0 {
		if at++; at == len(s.cells) {
			at = 0
		}
	}
	s.cells[at] = cell{hash, slot}
}

func (s *shard) grow() {
	old := s.cells
	s.cells = make([]cell, max(minCells, len(old)+len(old)/2))
	for _, c := range old {
		if c.slot != 0 {
			s.place(c.hash, c.slot)
		}
	}
}

// remove takes a slot from under a hash and reports whether it was there.
func (x *index) remove(hash, slot uint32) bool {
	for got, at := x.first(hash); got != 0; got, at = x.after(hash, at) {
		if got == slot {
			x.shard(hash).free(at)
			return true
		}
	}
	return false
}

// free empties a cell and moves those behind it that would no longer be found.
func (s *shard) free(hole int) {
	s.n--
	for at := hole; ; {
		if at++; at == len(s.cells) {
			at = 0
		}
		c := s.cells[at]
		if c.slot == 0 {
			break
		}
		if between(hole, s.home(c.hash), at) {
			continue
		}
		s.cells[hole] = c
		hole = at
	}
	s.cells[hole] = cell{}
}

// between reports whether home lies in (hole, at] on the circle of cells: then the cell at is found without the hole.
func between(hole, home, at int) bool {
	if hole <= at {
		return hole < home && home <= at
	}
	return hole < home || home <= at
}
