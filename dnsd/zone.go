package dnsd

import (
	"bytes"
	"encoding/binary"
	"iter"
	"slices"

	"github.com/bootlab/bootlab/internal/lab"
)

// A zone is one DNS zone, with its own arrays and hash, so that a zone that changes is replaced alone. It is immutable once its table is
// compiled, and several tables may have it.
type zone struct {
	blob  []byte // names, and record data as (length, data) pairs
	nodes []node // the first is the apex
	sets  []rrset
	slots []uint32 // open-addressed hash of nodes: index + 1, or 0

	index   int // in Table.zones
	origin  []byte
	labels  int    // of the origin
	text    string // the origin, with a final dot
	derived bool
	// forwardMissing says that others have names below the origin too: a name that the zone does not hold is forwarded.
	forwardMissing bool
	broken         bool   // its file could not be read: SERVFAIL
	cuts           bool   // holds delegations
	delegates      bool   // to others: the delegated zone is not here
	dnames         bool   // holds DNAMEs
	labSerial      uint32 // the serial in the lab file; 0: none
	content        *contentHash
	source         *lab.Zone

	plain    *zone             // the zone without dynamic updates; nil: it has none
	updated  map[setKey]*RRSet // what dynamic updates have made of it, as far as it is served
	kept     updateSize        // of all that they have made
	constant *zone             // the zone without what was learned; nil: nothing was
	followed []followedSet     // RRsets whose records follow the backends of a balancer
	leases   []string          // records of DHCP clients, in wire form: only transfers have them
}

// A node is a name of a zone. A node without RRsets is an empty non-terminal (RFC 4592 section 2.2.2).
type node struct {
	hash    uint32
	name    uint32 // in zone.blob
	first   uint32 // in zone.sets
	sets    uint8
	cut     bool // NS below the apex
	dname   bool
	derived bool // has records that follow from hosts and clusters
}

// An rrset is what a node holds of one type: n pairs of length (two octets) and data from data on.
type rrset struct {
	data  uint32
	ttl   uint32
	rtype uint16
	n     uint16
}

// slotHash is the part of a name's hash that nodes and origins are found by.
func slotHash(h uint64) uint32 { return uint32((h ^ hashSeed) * hashPrime >> 32) }

func (z *zone) apex() *node { return &z.nodes[0] }

// find returns the index of a node, or -1. h is the hash of the name.
func (z *zone) find(h uint64, wire []byte) int {
	want, mask := slotHash(h), uint32(len(z.slots)-1)
	for i := want & mask; z.slots[i] != 0; i = (i + 1) & mask {
		nd := &z.nodes[z.slots[i]-1]
		if nd.hash == want && bytes.HasPrefix(z.blob[nd.name:], wire) {
			return int(z.slots[i] - 1)
		}
	}
	return -1
}

// node returns the node of n without its first labels, or nil.
func (z *zone) node(n *name, label int) *node {
	if i := z.find(n.hash[label], n.suffix(label)); i >= 0 {
		return &z.nodes[i]
	}
	return nil
}

// wildcard returns the node of "*" in front of n without its first labels, or nil.
func (z *zone) wildcard(n *name, label int) *node {
	parent := n.suffix(label)
	want, mask := slotHash(hashLabel(n.hash[label], []byte(wildcardLabel))), uint32(len(z.slots)-1)
	for i := want & mask; z.slots[i] != 0; i = (i + 1) & mask {
		nd := &z.nodes[z.slots[i]-1]
		if nd.hash != want {
			continue
		}
		name := z.blob[nd.name:]
		if string(name[:min(len(wildcardLabel), len(name))]) == wildcardLabel && bytes.HasPrefix(name[len(wildcardLabel):], parent) {
			return nd
		}
	}
	return nil
}

// set returns the RRset of a type, or nil.
func (z *zone) set(nd *node, rtype uint16) *rrset {
	sets := z.setsOf(nd)
	for i := range sets {
		if sets[i].rtype == rtype {
			return &sets[i]
		}
	}
	return nil
}

// setsOf returns all RRsets of a node.
func (z *zone) setsOf(nd *node) []rrset { return z.sets[nd.first : nd.first+uint32(nd.sets)] }

// next returns the record data at off and the offset of the one behind it.
func (z *zone) next(off uint32) (rdata []byte, behind uint32) {
	n := uint32(binary.BigEndian.Uint16(z.blob[off:]))
	return z.blob[off+2 : off+2+n], off + 2 + n
}

// data returns the data of each record of a set.
func (z *zone) data(set *rrset) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		off := set.data
		for range set.n {
			rdata, behind := z.next(off)
			if !yield(rdata) {
				return
			}
			off = behind
		}
	}
}

// nameOf returns the name of a node in wire form.
func (z *zone) nameOf(nd *node) []byte {
	b := z.blob[nd.name:]
	return b[:wireLen(b)]
}

// match finds the place of a name in a zone, whose origin is the name from label at on. The zone may be nil.
func (z *zone) match(n *name, at int) match {
	m := match{zone: z, at: at, cut: -1}
	if z == nil || z.broken {
		return m
	}
	if z.cuts {
		if m.cut = z.cutAbove(at, n); m.cut >= 0 {
			return m
		}
	}
	if m.node = z.node(n, 0); m.node != nil {
		return m
	}
	for i := 1; i <= at; i++ {
		encloser := z.node(n, i)
		if encloser == nil {
			continue
		}
		if encloser.dname {
			m.dname = i
			return m
		}
		m.node = z.wildcard(n, i)
		return m
	}
	return m
}

// cutAbove returns the label of n, seen from the apex, where the zone delegates, or -1.
func (z *zone) cutAbove(at int, n *name) int {
	for i := at - 1; i >= 0; i-- {
		nd := z.node(n, i)
		if nd == nil {
			return -1
		}
		if nd.cut {
			return i
		}
	}
	return -1
}

// setData returns the (length, data) pairs of a set.
func (z *zone) setData(set *rrset) []byte {
	end := set.data
	for range set.n {
		_, end = z.next(end)
	}
	return z.blob[set.data:end]
}

// soaRecord returns the SOA record of a zone that has one.
func (z *zone) soaRecord() []byte {
	set := z.set(z.apex(), typeSOA)
	rdata, _ := z.next(set.data)
	return appendRecord(nil, z.origin, set, rdata)
}

// eachRecord calls fn for each record of a zone, in wire form. fn may change it, but not keep it.
func (z *zone) eachRecord(fn func(rr []byte, soa bool)) {
	var b []byte
	for i := range z.nodes {
		nd := &z.nodes[i]
		for _, set := range z.setsOf(nd) {
			for rdata := range z.data(&set) {
				b = appendRecord(b[:0], z.nameOf(nd), &set, rdata)
				fn(b, set.rtype == typeSOA)
			}
		}
	}
	for _, rr := range z.leases {
		b = append(b[:0], rr...)
		fn(b, false)
	}
}

// sorted returns the nodes in canonical order (RFC 4034 section 6.1).
func (z *zone) sorted() []*node {
	order := make([]*node, len(z.nodes))
	for i := range z.nodes {
		order[i] = &z.nodes[i]
	}
	slices.SortFunc(order, func(x, y *node) int { return compareNames(z.nameOf(x), z.nameOf(y)) })
	return order
}

// clone returns a copy of a zone whose arrays may be changed and have room for more.
func (z *zone) clone(nodes, octets int) *zone {
	c := *z
	c.nodes = append(make([]node, 0, len(z.nodes)+nodes), z.nodes...)
	c.sets = append(make([]rrset, 0, len(z.sets)+nodes), z.sets...)
	c.blob = append(make([]byte, 0, len(z.blob)+octets), z.blob...)
	c.slots = slices.Clone(z.slots)
	c.content = &contentHash{}
	return &c
}

// insert adds a node.
func (z *zone) insert(nd node) int {
	z.growSlots(len(z.nodes) + 1)
	z.nodes = append(z.nodes, nd)
	z.hashNode(len(z.nodes) - 1)
	return len(z.nodes) - 1
}

func (z *zone) hashNode(nd int) {
	mask := uint32(len(z.slots) - 1)
	i := z.nodes[nd].hash & mask
	for z.slots[i] != 0 {
		i = (i + 1) & mask
	}
	z.slots[i] = uint32(nd + 1)
}

// growSlots makes the hash large enough for so many nodes: half of it stays empty.
func (z *zone) growSlots(nodes int) {
	size := max(len(z.slots), 8)
	for size < 2*nodes {
		size *= 2
	}
	if size == len(z.slots) {
		return
	}
	z.slots = make([]uint32, size)
	for i := range z.nodes {
		z.hashNode(i)
	}
}

// ensure returns the index of the node of n without its first labels, and makes it and its ancestors up to the apex if it is not there.
// stored is where that name stands in the blob; 0: nowhere yet.
func (z *zone) ensure(n *name, label int, stored uint32) int {
	if i := z.find(n.hash[label], n.suffix(label)); i >= 0 {
		return i
	}
	if stored == 0 {
		stored = z.store(n.suffix(label))
	}
	i := z.insert(node{hash: slotHash(n.hash[label]), name: stored})
	if n.labels-label > z.labels {
		z.ensure(n, label+1, stored+1+uint32(n.wire[n.off[label]]))
	}
	return i
}

// store appends a name.
func (z *zone) store(wire []byte) uint32 {
	if len(z.blob) == 0 {
		z.blob = append(z.blob, 0) // so that no name stands at 0
	}
	z.blob = append(z.blob, wire...)
	return uint32(len(z.blob) - len(wire))
}

// appendData appends the data of a record and returns where it is.
func (z *zone) appendData(rdata []byte) uint32 {
	at := uint32(len(z.blob))
	z.blob = binary.BigEndian.AppendUint16(z.blob, uint16(len(rdata)))
	z.blob = append(z.blob, rdata...)
	return at
}
