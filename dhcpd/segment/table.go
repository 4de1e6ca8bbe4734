package segment

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A table remembers what was seen of addresses, in a bounded amount of memory: when the young generation is full it
// becomes the old one, and the old one is forgotten. An address that is heard again is young again.
type table struct {
	young, old map[uint32]sighting
	half       int
}

// A sighting is small on purpose: a flood of ARP fills the table.
type sighting struct {
	at    int64 // Unix nanoseconds
	mac   lab.MAC
	state State
}

func newTable(size int) *table {
	return &table{young: map[uint32]sighting{}, old: map[uint32]sighting{}, half: max(size/2, 1)}
}

func tableKey(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func (t *table) put(a netip.Addr, s State, mac lab.MAC, at time.Time) {
	k := tableKey(a)
	if _, ok := t.young[k]; !ok && len(t.young) >= t.half {
		t.young, t.old = t.old, t.young
		clear(t.young)
	}
	t.young[k] = sighting{at: at.UnixNano(), mac: mac, state: s}
	delete(t.old, k)
}

func (t *table) get(a netip.Addr) (sighting, bool) {
	k := tableKey(a)
	if s, ok := t.young[k]; ok {
		return s, true
	}
	s, ok := t.old[k]
	return s, ok
}

func (t *table) forget(a netip.Addr) {
	k := tableKey(a)
	delete(t.young, k)
	delete(t.old, k)
}

func (t *table) len() int { return len(t.young) + len(t.old) }
