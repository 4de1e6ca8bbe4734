package leases

import (
	"net/netip"
	"slices"
)

// A Pool describes a range of addresses and which of them it may not give. It is immutable and knows no lease. Pools that
// one Book serves at a time have no address in common.
type Pool struct {
	first   uint32
	size    int
	usable  int
	blocked []uint64 // a bit for each address
}

// maxPool is a /8, the largest subnet that a lab may have.
const maxPool = 1 << 24

// NewPool returns the pool of the addresses first to last, without the blocked ones: reserved addresses, those of
// routers and of the appliance. blocked is called once for each address, nil blocks none. An invalid range makes a
// pool without addresses; of one larger than a /8 the first 2^24 are taken.
func NewPool(first, last netip.Addr, blocked func(netip.Addr) bool) *Pool {
	a, ok := addr4(first)
	z, ok2 := addr4(last)
	if !ok || !ok2 || z < a {
		return &Pool{}
	}
	p := &Pool{first: a, size: int(min(uint64(z)-uint64(a)+1, maxPool))}
	p.usable = p.size
	p.blocked = make([]uint64, (p.size+63)/64)
	if blocked == nil {
		return p
	}
	for i := range p.size {
		if blocked(addrOf(p.first + uint32(i))) {
			p.blocked[i/64] |= 1 << (i % 64)
			p.usable--
		}
	}
	return p
}

// Usable returns how many addresses the pool may give.
func (p *Pool) Usable() int { return p.usable }

func (p *Pool) contains(a uint32) bool { return int(a-p.first) < p.size }

func (p *Pool) gives(a uint32) bool {
	i := a - p.first
	return int(i) < p.size && p.blocked[i/64]>>(i%64)&1 == 0
}

// same reports whether two pools give the same addresses, as most do after a reload of the lab.
func (p *Pool) same(q *Pool) bool {
	return p == q || p.first == q.first && p.size == q.size && slices.Equal(p.blocked, q.blocked)
}

func (p *Pool) overlaps(q *Pool) bool {
	return p.size > 0 && q.size > 0 && (p.contains(q.first) || q.contains(p.first))
}
