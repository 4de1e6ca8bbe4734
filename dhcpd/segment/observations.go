package segment

import (
	"encoding/binary"
	"net/netip"

	"github.com/bootlab/bootlab/internal/lab"
)

// observations is what was observed of addresses, in bounded memory: when the young generation is full it becomes the old
// one, and the old one is deleted. An address that is observed again is young again.
type observations struct {
	young, old map[uint32]observation
	half       int
}

// An observation is small, since a flood of ARP fills the table.
type observation struct {
	at  int64 // Unix nanoseconds
	mac lab.MAC
	use Use

	answered bool
}

func newObservations(size int) *observations {
	return &observations{young: map[uint32]observation{}, old: map[uint32]observation{}, half: max(size/2, 1)}
}

func tableKey(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func (t *observations) put(a netip.Addr, seen observation) {
	k := tableKey(a)
	if _, ok := t.young[k]; !ok && len(t.young) >= t.half {
		t.young, t.old = t.old, t.young
		clear(t.young)
	}
	t.young[k] = seen
	delete(t.old, k)
}

func (t *observations) get(a netip.Addr) (observation, bool) {
	k := tableKey(a)
	if s, ok := t.young[k]; ok {
		return s, true
	}
	s, ok := t.old[k]
	return s, ok
}
