package dnsd

import (
	"bytes"
	"crypto/x509"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Table is everything that dnsd answers from: the zones, and who may use the forwarder and transfer zones. It is
// immutable and safe for concurrent use.
type Table struct {
	blob  []byte // names, and record data as (length, data) pairs
	zones []zone
	index map[string]int // of zones, by origin as text
	nodes []node
	sets  []rrset
	slots []uint32 // open-addressed hash of nodes: index + 1, or 0
	depth int      // labels of the longest origin

	domain      []byte // of DHCP clients, in wire form; nil: they get no names
	domainText  string
	pooled      map[string][]lab.MAC // by name in wire form: hosts without an address of their own
	networks    []netip.Prefix       // the lab's
	allow       []netip.Prefix       // may use the forwarder: the networks and dns.allow
	keys        []tsigKey
	transfer    []lab.Access
	notify      []lab.Secondary
	forwards    []forwardZone // longest domain first
	forwardHash uint64        // changes with forwards and delegations, so that the cache can be dropped
	delegates   bool          // there is a zone that delegates to others

	rate                     int                       // replies per second to a network outside of the lab; 0: no limit
	cacheEntries, cacheBytes int                       // bounds of the forwarder's cache; 0: its default
	roots                    map[string]*x509.CertPool // by file

	lab      *lab.Lab
	base     *Table            // without what was learned; nil: itself
	followed []followedSet     // RRsets whose records follow the members of a balancer
	updated  map[setKey]*RRSet // what dynamic updates have made
	warnings lab.Problems
	badFiles lab.Problems
	files    []string
}

// A zone is one DNS zone.
type zone struct {
	origin  uint32 // in Table.blob
	labels  uint8
	derived bool
	// forwardMissing says that others have names below the origin too: a name that the zone does not hold is forwarded.
	forwardMissing bool
	broken         bool // its file could not be read: SERVFAIL
	cuts           bool // holds delegations
	delegates      bool // to others: the delegated zone is not here
	dnames         bool // holds DNAMEs
	apex           uint32
	members        []uint32 // its nodes
	leases         []string // records of DHCP clients, in wire form: only transfers have them
	text           string
	source         *lab.Zone
}

// A node is a name of a zone. A node without RRsets is an empty non-terminal (RFC 4592 section 2.2.2).
type node struct {
	hash    uint32
	name    uint32 // in Table.blob
	first   uint32 // in Table.sets
	zone    uint16
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

// A forwardZone sends what lies below domain to servers.
type forwardZone struct {
	domain  []byte
	labels  int
	servers []upstream
}

// Warnings returns what is wrong without being an error, such as a zone file that is not there.
func (t *Table) Warnings() lab.Problems { return t.warnings }

// BadFiles returns the errors in zone files. Their zones answer SERVFAIL; all others are served.
func (t *Table) BadFiles() lab.Problems { return t.badFiles }

// Files returns the absolute paths of all files that the table depends on, read or missing: zone files and what they include, and
// those of dns.forward.
func (t *Table) Files() []string { return t.files }

// slotHash is the hash of a name inside a zone.
func slotHash(zone int, h uint64) uint32 {
	return uint32((h ^ uint64(zone+1)*hashSeed) * hashPrime >> 32)
}

// find returns the index of a node, or -1. h is the hash of the name.
func (t *Table) find(zone int, h uint64, wire []byte) int {
	want, mask := slotHash(zone, h), uint32(len(t.slots)-1)
	for i := want & mask; t.slots[i] != 0; i = (i + 1) & mask {
		nd := &t.nodes[t.slots[i]-1]
		if nd.hash == want && int(nd.zone) == zone && bytes.HasPrefix(t.blob[nd.name:], wire) {
			return int(t.slots[i] - 1)
		}
	}
	return -1
}

// findWithLabel is find for a label in front of a parent, as "*" in front of the closest encloser.
func (t *Table) findWithLabel(zone int, label string, h uint64, parent []byte) int {
	want, mask := slotHash(zone, h), uint32(len(t.slots)-1)
	for i := want & mask; t.slots[i] != 0; i = (i + 1) & mask {
		nd := &t.nodes[t.slots[i]-1]
		if nd.hash != want || int(nd.zone) != zone {
			continue
		}
		name := t.blob[nd.name:]
		if string(name[:min(len(label), len(name))]) == label && bytes.HasPrefix(name[len(label):], parent) {
			return int(t.slots[i] - 1)
		}
	}
	return -1
}

// zoneOf returns the zone with the longest origin that n without its first labels ends in, and the label of n where that starts, or
// -1.
func (t *Table) zoneOf(n *name, first int) (zone, at int) {
	for i := max(first, n.labels-t.depth); i <= n.labels; i++ {
		h, suffix := n.hash[i], n.suffix(i)
		want, mask := slotHash(-1, h), uint32(len(t.slots)-1)
		for s := want & mask; t.slots[s] != 0; s = (s + 1) & mask {
			nd := &t.nodes[t.slots[s]-1]
			if nd.hash == want && nd.zone == originZone && bytes.HasPrefix(t.blob[nd.name:], suffix) {
				return int(nd.first), i
			}
		}
	}
	return -1, 0
}

// originZone marks a node that is no name of a zone but says which zone has this origin: its index is in first.
const originZone = 0xffff

// set returns the RRset of a type, or nil.
func (t *Table) set(nd *node, rtype uint16) *rrset {
	sets := t.sets[nd.first : nd.first+uint32(nd.sets)]
	for i := range sets {
		if sets[i].rtype == rtype {
			return &sets[i]
		}
	}
	return nil
}

// next returns the record data at off and the offset of the one behind it.
func (t *Table) next(off uint32) (rdata []byte, behind uint32) {
	n := uint32(binary.BigEndian.Uint16(t.blob[off:]))
	return t.blob[off+2 : off+2+n], off + 2 + n
}

// nameOf returns the name of a node in wire form.
func (t *Table) nameOf(nd *node) []byte {
	b := t.blob[nd.name:]
	return b[:wireLen(b)]
}

// A match is where a name leads.
type match struct {
	zone  int // -1: to no zone of the table
	at    int // the label of the name where the zone's origin starts
	dname int // the label where the owner of the DNAME starts that the name is below; 0: none
	node  int // its own node, or the wildcard that it is synthesised from; -1: no such name
	cut   int // the label where a delegated zone starts; -1: not delegated
}

// match finds the place of n: RFC 1034 section 4.3.2, with the wildcards of RFC 4592 section 3.3.
func (t *Table) match(n *name) match {
	z, at := t.zoneOf(n, 0)
	return t.matchIn(z, at, n)
}

// matchForDS finds the place of a DS record: in the zone above, where that is here too (RFC 4035 section 3.1.4.1).
func (t *Table) matchForDS(n *name) match {
	z, at := t.zoneOf(n, 0)
	if above, up := t.zoneOf(n, 1); at == 0 && above >= 0 {
		z, at = above, up
	}
	return t.matchIn(z, at, n)
}

// matchIn is match within one zone, whose origin is the name from label at on.
func (t *Table) matchIn(z, at int, n *name) match {
	m := match{zone: z, at: at, node: -1, cut: -1}
	if z < 0 || t.zones[z].broken {
		return m
	}
	if t.zones[z].cuts {
		if m.cut = t.cutAbove(z, at, n); m.cut >= 0 {
			return m
		}
	}
	if m.node = t.find(z, n.hash[0], n.bytes()); m.node >= 0 {
		return m
	}
	for i := 1; i <= at; i++ {
		encloser := t.find(z, n.hash[i], n.suffix(i))
		if encloser < 0 {
			continue
		}
		if t.nodes[encloser].dname {
			m.dname = i
			return m
		}
		h := hashLabel(n.hash[i], []byte(wildcardLabel))
		m.node = t.findWithLabel(z, wildcardLabel, h, n.suffix(i))
		return m
	}
	return m
}

// cutAbove returns the label of n, seen from the apex, where the zone delegates, or -1.
func (t *Table) cutAbove(z, at int, n *name) int {
	for i := at - 1; i >= 0; i-- {
		nd := t.find(z, n.hash[i], n.suffix(i))
		if nd < 0 {
			return -1
		}
		if t.nodes[nd].cut {
			return i
		}
	}
	return -1
}

// isOwn reports whether a name that no zone holds is the lab's all the same: that of a host without an address, or the reverse name
// of an address in one of the lab's networks.
func (t *Table) isOwn(n *name) bool {
	if _, ok := t.pooled[string(n.bytes())]; ok {
		return true
	}
	addr, ok := addrOf(n)
	return ok && contains(t.networks, addr)
}

// upstreams returns the servers to ask about n and the label where their domain starts; none: the query is not forwarded.
func (t *Table) upstreams(n *name) (servers []upstream, at int) {
	for i := range t.forwards {
		if at := n.hasSuffix(t.forwards[i].domain, t.forwards[i].labels); at >= 0 {
			return t.forwards[i].servers, at
		}
	}
	return nil, 0
}

// recursive reports whether there is anything to ask other servers for.
func (t *Table) recursive() bool { return len(t.forwards) > 0 || t.delegates }

// mayRecurse reports whether a client may use the forwarder.
func (t *Table) mayRecurse(a netip.Addr) bool { return a.IsLoopback() || contains(t.allow, a) }

// mayTransfer reports whether a client may transfer zones.
func (t *Table) mayTransfer(a netip.Addr, s *signature) bool { return allows(t.transfer, a, s) }

// allows reports whether a rule holds for a client and the key that it signs with.
func allows(rules []lab.Access, a netip.Addr, s *signature) bool {
	a = a.WithZone("")
	return slices.ContainsFunc(rules, func(r lab.Access) bool {
		return (!r.From.IsValid() || r.From.Contains(a)) && (r.Key == "" || r.Key == s.by())
	})
}

func contains(ps []netip.Prefix, a netip.Addr) bool {
	a = a.WithZone("") // a prefix never contains an address with a zone
	for _, p := range ps {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
