package dnsd

import (
	"bytes"
	"encoding/binary"
	"sync"
)

// maxChanges bounds what is kept of a zone's changes, in octets of records: beyond it a whole transfer is no dearer.
const maxChanges = 1 << 20

// A difference is what a zone lost and got from one serial to the next, as records in wire form without compression.
type difference struct {
	from, to       []byte // the SOA records
	removed, added []string
	size           int
}

// changes remember how zones changed since the server started, for IXFR. They are safe for concurrent use.
type changes struct {
	mu      sync.Mutex
	table   *Table // the last one that was seen
	zones   map[string][]difference
	changed []string // origins of zones whose secondaries are to be told
}

// take returns the origins of the zones that have changed since the last call.
func (c *changes) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := c.changed
	c.changed = nil
	return changed
}

// see notes the changes that the table in force has brought. It may be called at any time, by anybody.
func (c *changes) see(inForce func() *Table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, before := inForce(), c.table
	if t == before {
		return
	}
	if c.table = t; before == nil {
		c.zones = map[string][]difference{}
		for i := range t.zones {
			c.changed = append(c.changed, t.zones[i].text) // the server may have been away
		}
		return
	}
	for i := range t.zones {
		z := &t.zones[i]
		old := before.zoneNamed(z.text)
		switch {
		case z.broken:
		case old < 0 || before.zones[old].broken:
			delete(c.zones, z.text)
			c.changed = append(c.changed, z.text)
		case before.serialOf(&before.zones[old]) != t.serialOf(z):
			c.zones[z.text] = bounded(append(c.zones[z.text], compare(before, old, t, i)))
			c.changed = append(c.changed, z.text)
		}
	}
}

// bounded drops the oldest differences.
func bounded(all []difference) []difference {
	size := 0
	for i := len(all) - 1; i >= 0; i-- {
		if size += all[i].size; size > maxChanges {
			return all[i+1:]
		}
	}
	return all
}

// since returns the differences from a serial to that of the table, oldest first. It reports false if they are not known.
func (c *changes) since(t *Table, z *zone, serial uint32) ([]difference, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.zones[z.text]
	if c.table != t {
		return nil, false
	}
	for i := range all {
		if soaSerial(all[i].from) == serial {
			return all[i:], true
		}
	}
	return nil, false
}

// zoneNamed returns the index of a zone, or -1.
func (t *Table) zoneNamed(origin string) int {
	if i, ok := t.index[origin]; ok {
		return i
	}
	return -1
}

func soaSerial(record []byte) uint32 { return binary.BigEndian.Uint32(record[len(record)-soaNumbers:]) }

// compare returns what became of a zone.
func compare(before *Table, old int, now *Table, zone int) difference {
	d := difference{}
	gone := map[string]bool{}
	before.eachRecord(old, func(rr []byte, soa bool) {
		if soa {
			d.from = bytes.Clone(rr)
		} else {
			gone[string(rr)] = true
		}
	})
	now.eachRecord(zone, func(rr []byte, soa bool) {
		switch {
		case soa:
			d.to = bytes.Clone(rr)
		case gone[string(rr)]:
			delete(gone, string(rr))
		default:
			d.added = append(d.added, string(rr))
			d.size += len(rr)
		}
	})
	for rr := range gone {
		d.removed = append(d.removed, rr)
		d.size += len(rr)
	}
	d.size += len(d.from) + len(d.to)
	return d
}

// eachRecord calls fn for each record of a zone, in wire form. fn may change it, but not keep it.
func (t *Table) eachRecord(zone int, fn func(rr []byte, soa bool)) {
	var b []byte
	for _, i := range t.zones[zone].members {
		nd := &t.nodes[i]
		for _, set := range t.sets[nd.first : nd.first+uint32(nd.sets)] {
			off := set.data
			for range set.n {
				var rdata []byte
				rdata, off = t.next(off)
				b = appendRecord(b[:0], t.nameOf(nd), &set, rdata)
				fn(b, set.rtype == typeSOA)
			}
		}
	}
}

// appendRecord appends one record without compression.
func appendRecord(b, owner []byte, set *rrset, rdata []byte) []byte {
	b = append(b, owner...)
	b = append(b, byte(set.rtype>>8), byte(set.rtype), 0, classIN)
	b = binary.BigEndian.AppendUint32(b, set.ttl)
	b = binary.BigEndian.AppendUint16(b, uint16(len(rdata)))
	return append(b, rdata...)
}
