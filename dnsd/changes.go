package dnsd

import (
	"bytes"
	"encoding/binary"
	"slices"
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
	changed []string // origins of zones whose secondaries are to be notified
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
		for _, z := range t.zones {
			c.changed = append(c.changed, z.text) // the server may have been away
		}
		return
	}
	for _, z := range t.zones {
		old := before.zoneNamed(z.text)
		switch {
		case z.broken || old == z:
		case old == nil || old.broken:
			delete(c.zones, z.text)
			c.changed = append(c.changed, z.text)
		case old.serial() != z.serial():
			c.zones[z.text] = bounded(append(c.zones[z.text], compare(old, z)))
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
		if from := all[i].from; binary.BigEndian.Uint32(from[len(from)-soaNumbers:]) == serial {
			return all[i:], true
		}
	}
	return nil, false
}

// compare returns what became of a zone. Names whose records are the same, which are nearly all of a large zone, cost a lookup each.
func compare(before, now *zone) difference {
	d := difference{from: before.soaRecord(), to: now.soaRecord()}
	d.size = len(d.from) + len(d.to)
	kept := 0
	for i := range now.nodes {
		nd := &now.nodes[i]
		was := before.counterpart(now.nameOf(nd))
		if was != nil {
			kept++
		}
		d.addRecords(&d.added, now, nd, before, was)
		d.addRecords(&d.removed, before, was, now, nd)
	}
	if kept < len(before.nodes) {
		for i := range before.nodes {
			if nd := &before.nodes[i]; now.counterpart(before.nameOf(nd)) == nil {
				d.addRecords(&d.removed, before, nd, now, nil)
			}
		}
	}
	d.addLeases(&d.removed, before.leases, now.leases)
	d.addLeases(&d.added, now.leases, before.leases)
	return d
}

// addLeases adds to a list the records of DHCP clients that are not among others. Both are sorted.
func (d *difference) addLeases(list *[]string, records, others []string) {
	for _, rr := range records {
		if _, there := slices.BinarySearch(others, rr); !there {
			*list = append(*list, rr)
			d.size += len(rr)
		}
	}
}

// counterpart returns the node of a name, which is in wire form, or nil.
func (z *zone) counterpart(wire []byte) *node {
	var n name
	if _, err := n.parse(wire); err != nil {
		return nil
	}
	return z.node(&n, 0)
}

// addRecords adds to a list the records of a node that the same name does not have in another table. Either node may be nil.
func (d *difference) addRecords(list *[]string, z *zone, nd *node, other *zone, counterpart *node) {
	if nd == nil {
		return
	}
	sets := z.setsOf(nd)
	for i := range sets {
		set := &sets[i]
		var there []byte
		if counterpart != nil {
			if s := other.set(counterpart, set.rtype); s != nil && s.ttl == set.ttl {
				there = other.setData(s)
			}
		}
		if set.rtype == typeSOA || bytes.Equal(z.setData(set), there) {
			continue
		}
		for rdata := range z.data(set) {
			if !hasData(there, rdata) {
				rr := string(appendRecord(nil, z.nameOf(nd), set, rdata))
				*list = append(*list, rr)
				d.size += len(rr)
			}
		}
	}
}

// hasData reports whether one of (length, data) pairs has that data.
func hasData(pairs, rdata []byte) bool {
	for len(pairs) > 0 {
		n := 2 + int(binary.BigEndian.Uint16(pairs))
		if bytes.Equal(pairs[2:n], rdata) {
			return true
		}
		pairs = pairs[n:]
	}
	return false
}

// appendRecord appends one record without compression.
func appendRecord(b, owner []byte, set *rrset, rdata []byte) []byte {
	b = append(b, owner...)
	b = append(b, byte(set.rtype>>8), byte(set.rtype), 0, classIN)
	b = binary.BigEndian.AppendUint32(b, set.ttl)
	b = binary.BigEndian.AppendUint16(b, uint16(len(rdata)))
	return append(b, rdata...)
}
