package dnsd

import (
	"bytes"
	"crypto/x509"
	"net/netip"
	"slices"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Table is everything that dnsd answers from: the zones, and who may use the forwarder and transfer zones. It is
// immutable and safe for concurrent use. What changes between two loads of the lab file (dynamic updates, backends of balancers, leases,
// serials) makes a new table that shares all zones that it does not concern.
type Table struct {
	zones   []*zone
	origins *origins

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
	homeless map[string]updateSize // what dynamic updates made of zones that the lab does not have, by origin
	warnings lab.Problems
	badFiles lab.Problems
	noFiles  lab.Problems
	files    []string
}

// origins find zones by their origins. All tables of one lab share it, as the order of their zones is the same.
type origins struct {
	slots []uint32 // open-addressed hash: index in Table.zones + 1, or 0
	index map[string]int
	depth int // labels of the longest origin
}

// A forwardZone sends what lies below domain to servers.
type forwardZone struct {
	domain  []byte
	labels  int
	servers []upstream
}

// Warnings returns what is wrong without being an error, such as a zone file that is not there.
func (t *Table) Warnings() lab.Problems { return slices.Concat(t.warnings, t.noFiles, t.unserved()) }

// NoFiles returns those of Warnings that are about zone files which are missing or cannot be read. Their zones answer SERVFAIL.
func (t *Table) NoFiles() lab.Problems { return t.noFiles }

// BadFiles returns the errors in zone files. Their zones answer SERVFAIL; all others are served.
func (t *Table) BadFiles() lab.Problems { return t.badFiles }

// Files returns the absolute paths of all files that the table depends on, read or missing: zone files and what they include, and
// those of dns.forward.
func (t *Table) Files() []string { return t.files }

// zoneOf returns the zone with the longest origin that n without its first labels ends in, and the label of n where that starts; nil: there
// is none.
func (t *Table) zoneOf(n *name, first int) (z *zone, at int) {
	slots := t.origins.slots
	mask := uint32(len(slots) - 1)
	for i := max(first, n.labels-t.origins.depth); i <= n.labels; i++ {
		want, suffix := slotHash(n.hash[i]), n.suffix(i)
		for s := want & mask; slots[s] != 0; s = (s + 1) & mask {
			if z := t.zones[slots[s]-1]; z.nodes[0].hash == want && bytes.Equal(z.origin, suffix) {
				return z, i
			}
		}
	}
	return nil, 0
}

// zoneNamed returns the zone of an origin, or nil.
func (t *Table) zoneNamed(origin string) *zone {
	if i, ok := t.origins.index[origin]; ok {
		return t.zones[i]
	}
	return nil
}

// A match is where a name leads.
type match struct {
	zone  *zone // nil: to no zone of the table
	at    int   // the label of the name where the zone's origin starts
	dname int   // the label where the owner of the DNAME starts that the name is below; 0: none
	node  *node // its own node, or the wildcard that it is synthesised from; nil: no such name
	cut   int   // the label where a delegated zone starts; -1: not delegated
}

// match finds the place of n: RFC 1034 section 4.3.2, with the wildcards of RFC 4592 section 3.3.
func (t *Table) match(n *name) match {
	z, at := t.zoneOf(n, 0)
	return z.match(n, at)
}

// matchForDS finds the place of a DS record: in the zone above, where that is here too (RFC 4035 section 3.1.4.1).
func (t *Table) matchForDS(n *name) match {
	z, at := t.zoneOf(n, 0)
	if above, up := t.zoneOf(n, 1); at == 0 && above != nil {
		z, at = above, up
	}
	return z.match(n, at)
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
