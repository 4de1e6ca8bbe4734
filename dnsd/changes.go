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

// compare returns what became of a zone. Names whose records are the same, which are nearly all of a large zone, cost a lookup each.
func compare(before *Table, old int, now *Table, zone int) difference {
	d := difference{from: before.soaRecord(old), to: now.soaRecord(zone)}
	d.size = len(d.from) + len(d.to)
	kept := 0
	for _, i := range now.zones[zone].members {
		nd := &now.nodes[i]
		was := before.counterpart(old, now.nameOf(nd))
		if was != nil {
			kept++
		}
		d.addRecords(&d.added, now, nd, before, was)
		d.addRecords(&d.removed, before, was, now, nd)
	}
	if members := before.zones[old].members; kept < len(members) {
		for _, i := range members {
			if nd := &before.nodes[i]; now.counterpart(zone, before.nameOf(nd)) == nil {
				d.addRecords(&d.removed, before, nd, now, nil)
			}
		}
	}
	d.addLeases(&d.removed, before.zones[old].leases, now.zones[zone].leases)
	d.addLeases(&d.added, now.zones[zone].leases, before.zones[old].leases)
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
func (t *Table) counterpart(zone int, wire []byte) *node {
	var n name
	if _, err := n.parse(wire); err != nil {
		return nil
	}
	i := t.find(zone, n.hash[0], wire)
	if i < 0 {
		return nil
	}
	return &t.nodes[i]
}

// addRecords adds to a list the records of a node that the same name does not have in another table. Either node may be nil.
func (d *difference) addRecords(list *[]string, t *Table, nd *node, other *Table, counterpart *node) {
	if nd == nil {
		return
	}
	sets := t.sets[nd.first : nd.first+uint32(nd.sets)]
	for i := range sets {
		set := &sets[i]
		var there []byte
		if counterpart != nil {
			if s := other.set(counterpart, set.rtype); s != nil && s.ttl == set.ttl {
				there = other.setData(s)
			}
		}
		if set.rtype == typeSOA || bytes.Equal(t.setData(set), there) {
			continue
		}
		off := set.data
		for range set.n {
			var rdata []byte
			if rdata, off = t.next(off); !hasData(there, rdata) {
				rr := string(appendRecord(nil, t.nameOf(nd), set, rdata))
				*list = append(*list, rr)
				d.size += len(rr)
			}
		}
	}
}

// setData returns the (length, data) pairs of a set.
func (t *Table) setData(set *rrset) []byte {
	end := set.data
	for range set.n {
		_, end = t.next(end)
	}
	return t.blob[set.data:end]
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

// soaRecord returns the SOA record of a zone that has one.
func (t *Table) soaRecord(zone int) []byte {
	nd := &t.nodes[t.zones[zone].apex]
	set := t.set(nd, typeSOA)
	rdata, _ := t.next(set.data)
	return appendRecord(nil, t.nameOf(nd), set, rdata)
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
	for _, rr := range t.zones[zone].leases {
		b = append(b[:0], rr...)
		fn(b, false)
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
