package dnsd

import (
	"encoding/binary"
	"net/netip"

	"github.com/bootlab/bootlab/internal/lab"
)

// maxChain bounds a chain of CNAMEs.
const maxChain = 12

// A lookupResult is how far the table got with a question.
type lookupResult uint8

const (
	answered  lookupResult = iota // the reply is complete
	noZone                        // the name is in no zone
	notInZone                     // the zone does not hold the name: the reply says NXDOMAIN, the forwarder may know better
	delegated                     // the reply is a referral
)

// A zoneKind is what a reply came from, for the metrics.
type zoneKind uint8

const (
	kindNone zoneKind = iota
	kindStatic
	kindDerived
	kindLease
	kindForward
	kindLocal
	zoneKinds
)

// A request is one question on its way to a reply.
type request struct {
	t    *Table
	from netip.Addr
	tcp  bool
	q    query
	w    writer

	cur      *name // what is looked for: the question's name, or at the end of a chain of CNAMEs next
	next     name
	owner    int  // where cur stands in the message
	chained  bool // cur is not the question's name
	chainEnd mark // behind the chain: what stays if the forwarder is asked about cur
	scratch  name

	delegated bool // cur is in a zone that a zone of ours delegates
	recurse   bool // this client may use the forwarder, and asked for recursion
	insider   bool // a client of the lab's networks, of dns.allow, or of this machine
	cookie    cookieState
	sig       *signature // of a request with a TSIG record; nil: there is none
	update    []byte     // the message of a dynamic update that may be done
	flags     uint16
	code      rcode
	kind      zoneKind
	zone      *zone  // that has the question's name; nil: none
	trace     *trace // why the reply is what it is; nil: not wanted
}

// begin readies a parsed request for its reply. onSegment is Deps.OnSegment.
func (r *request) begin(onSegment func(*lab.Lab, netip.Addr) bool) {
	r.w = writer{b: r.w.b[:r.q.end], limit: r.q.limit}
	if r.tcp {
		r.w.limit = maxTCP
	}
	if r.q.edns {
		r.w.limit -= optLen
	}
	if r.q.cookieLen > 0 {
		r.w.limit -= cookieOptionLen
	}
	if r.sig != nil {
		r.w.limit -= r.sig.size()
	}
	r.cur, r.owner, r.chained, r.chainEnd = &r.q.name, question, false, r.w.mark()
	r.update = nil
	r.flags, r.code, r.kind, r.zone, r.recurse, r.delegated = 0, noError, kindNone, nil, false, false
	r.insider = r.t.mayRecurse(r.from) || r.from.Is6() && onSegment != nil && onSegment(r.t.lab, r.from)
	if (len(r.t.forwards) > 0 || r.t.delegates) && r.insider {
		r.flags = flagRA
		r.recurse = r.q.flags&flagRD != 0
	}
}

// answer writes what the table and the leases say.
func (r *request) answer(leases Leases) lookupResult {
	for range maxChain {
		if r.chained && r.cnameLoop() {
			return answered
		}
		m := r.find()
		if m.zone != nil && r.forwardedBelow(m) {
			m.zone = nil
		}
		if m.zone == nil || m.node == nil && m.cut < 0 && m.dname == 0 {
			return r.answerMissing(m, leases)
		}
		r.setAuthoritative(m.zone)
		if r.trace != nil {
			r.traceZone(m)
		}
		switch {
		case m.dname > 0:
			if !r.followDNAME(m) {
				return answered
			}
			continue
		case m.cut == 0 && r.q.qtype == typeDS: // lives above the cut, RFC 4034 section 5
			if !r.records(m.zone, r.cutNode(m)) {
				r.negative(m)
			}
		case m.cut >= 0:
			r.writeReferral(m)
			return delegated
		case r.followCNAME(m):
			continue
		case !r.records(m.zone, m.node):
			r.negative(m)
		}
		return answered
	}
	return answered // what there is of a chain that is too long
}

// find looks the current name up.
func (r *request) find() match {
	if r.q.qtype == typeDS {
		return r.t.matchForDS(r.cur)
	}
	return r.t.match(r.cur)
}

// cutNode returns the node where a delegated zone starts.
func (r *request) cutNode(m match) *node {
	return m.zone.node(r.cur, m.cut)
}

// setAuthoritative marks the reply as an authoritative one of a zone.
func (r *request) setAuthoritative(zone *zone) {
	if r.chained {
		return
	}
	r.zone = zone
	r.flags |= flagAA
	if r.kind = kindStatic; zone.derived {
		r.kind = kindDerived
	}
}

// forwardedBelow reports whether a part of a zone is to be forwarded, and the name is in it.
func (r *request) forwardedBelow(m match) bool {
	if len(r.t.forwards) == 0 {
		return false
	}
	servers, at := r.t.upstreams(r.cur)
	return len(servers) > 0 && at < m.at
}

// answerMissing answers for a name that no zone holds.
func (r *request) answerMissing(m match, leases Leases) lookupResult {
	if m.zone != nil && m.zone.broken {
		r.code, r.kind = servFail, kindStatic
		r.note(byZone, "zone "+m.zone.text+" is not served: "+m.zone.source.File+" has an error, or cannot be read; bootlab check says which")
		return answered
	}
	if leases != nil && r.lease(m, leases) {
		r.note(byLease, "lease of a DHCP client")
		return answered
	}
	if m.zone == nil {
		if r.answerLocal() {
			why := "no server outside has an answer (RFC 6303, 6761)"
			if at, _ := r.t.localZone(r.cur); at < 0 {
				why = "a name of one label is asked nowhere else: add the domain of the host"
			}
			r.note(byLocal, why)
			return answered
		}
		return noZone
	}
	r.setAuthoritative(m.zone)
	r.code = nxDomain
	r.negative(m)
	if r.trace != nil {
		r.note(byZone, m.zone.describe()+" has no such name")
	}
	if m.zone.forwardMissing && !r.t.isOwn(r.cur) {
		r.note(byRule, "names that the zone does not have are forwarded (forward: missing)")
		return notInZone
	}
	return answered
}

// followCNAME writes the CNAME of a node, if it has one and was not asked for it or for what may be beside it, and goes on with its target.
func (r *request) followCNAME(m match) bool {
	if r.q.qtype == typeCNAME || r.q.qtype == typeANY || mayBeBesideCNAME(r.q.qtype) {
		return false
	}
	set := m.zone.set(m.node, typeCNAME)
	if set == nil {
		return false
	}
	rdata, _ := m.zone.next(set.data)
	at := r.w.rr(answers, r.owner, typeCNAME, set.ttl, rdata)
	if _, err := r.next.parse(rdata); err != nil || r.w.full {
		return false
	}
	r.cur, r.owner, r.chained, r.chainEnd = &r.next, at, true, r.w.mark()
	return true
}

// followDNAME writes the DNAME that the name is below and the CNAME that follows from it (RFC 6672 section 3.1), and goes on with its
// target. It reports false if the answer is complete: a name that gets too long is YXDOMAIN.
func (r *request) followDNAME(m match) bool {
	set := m.zone.set(m.zone.node(r.cur, m.dname), typeDNAME)
	rdata, _ := m.zone.next(set.data)
	r.w.rr(answers, r.owner+int(r.cur.off[m.dname]), typeDNAME, set.ttl, rdata)
	var target [2 * maxName]byte
	prefix := r.cur.wire[:r.cur.off[m.dname]]
	wire := append(append(target[:0], prefix...), rdata...)
	if len(wire) > maxName {
		r.code = yxDomain
		return false
	}
	at := r.w.rr(answers, r.owner, typeCNAME, set.ttl, wire)
	if r.w.full || r.q.qtype == typeCNAME || r.q.qtype == typeANY {
		return false
	}
	if _, err := r.next.parse(wire); err != nil {
		return false
	}
	r.cur, r.owner, r.chained, r.chainEnd = &r.next, at, true, r.w.mark()
	return true
}

// cnameLoop reports whether the chain of CNAMEs has come to a name that it has been at.
func (r *request) cnameLoop() bool {
	if r.cur.isAt(r.w.b[question:]) {
		return true
	}
	for off := r.q.end; off < len(r.w.b); {
		h, ok := parseHeader(r.w.b, off)
		if !ok || h.data == r.owner {
			return false
		}
		if r.cur.isAt(r.w.b[h.data:]) {
			return true
		}
		off = h.end
	}
	return false
}

// records writes the records that were asked for. It reports false if there are none: NODATA.
func (r *request) records(z *zone, nd *node) bool {
	set := z.set(nd, r.q.qtype)
	if r.q.qtype == typeANY && nd.sets > 0 {
		set = &z.sets[nd.first] // one RRset is answer enough, RFC 8482 section 4.1
	}
	if set == nil {
		return false
	}
	first := len(r.w.b)
	r.set(answers, r.owner, z, set)
	if r.w.full {
		return true
	}
	switch set.rtype {
	case typeSRV:
		r.addresses(first, 6)
	case typeMX:
		r.addresses(first, 2)
	}
	return true
}

// set writes one RRset.
func (r *request) set(s section, owner int, z *zone, set *rrset) {
	off := set.data
	for range set.n {
		var rdata []byte
		rdata, off = z.next(off)
		switch set.rtype {
		case typeNS, typePTR:
			r.w.rrNames(s, owner, set.rtype, set.ttl, rdata, 0, 1, &r.q.name)
		case typeMX:
			r.w.rrNames(s, owner, set.rtype, set.ttl, rdata, 2, 1, &r.q.name)
		case typeSOA:
			r.w.rrNames(s, owner, set.rtype, set.ttl, rdata, 0, 2, &r.q.name)
		default: // a CNAME's target is where the search goes on, and owns what follows
			r.w.rr(s, owner, set.rtype, set.ttl, rdata)
		}
	}
}

// addresses adds the addresses of the hosts that the records from offset first on point to, as far as the table has them
// and they fit. The host's name stands skip octets into the data.
func (r *request) addresses(first, skip int) {
	end := len(r.w.b)
	for off := first; off < end; {
		h, ok := parseHeader(r.w.b, off)
		if !ok || h.data+skip >= h.end {
			return
		}
		r.glue(h.data + skip)
		off = h.end
	}
}

// glue adds the A and AAAA records of the name at an offset of the message. It reports false if they did not fit.
func (r *request) glue(at int) bool {
	if r.scratch.expand(r.w.b, at, &r.q.name) != nil {
		return true
	}
	z, _ := r.t.zoneOf(&r.scratch, 0)
	if z == nil {
		return true
	}
	nd := z.node(&r.scratch, 0)
	if nd == nil {
		return true
	}
	m := r.w.mark()
	for _, rtype := range [...]uint16{typeA, typeAAAA} {
		if set := z.set(nd, rtype); set != nil {
			r.set(additional, at, z, set)
		}
	}
	if r.w.full {
		r.w.rewind(m)
		return false
	}
	return true
}

// negative writes the SOA of an NXDOMAIN or a NODATA reply, which says how long it may be cached (RFC 2308 section 3).
func (r *request) negative(m match) {
	set := m.zone.set(m.zone.apex(), typeSOA)
	rdata, _ := m.zone.next(set.data)
	ttl := min(set.ttl, binary.BigEndian.Uint32(rdata[len(rdata)-4:]))
	r.w.rrNames(authority, r.owner+int(r.cur.off[m.at]), typeSOA, ttl, rdata, 0, 2, &r.q.name)
}

// writeReferral writes the NS records of a delegation and the addresses below it, without which they could not be reached.
func (r *request) writeReferral(m match) {
	if !r.chained {
		r.flags &^= flagAA
	}
	first := len(r.w.b)
	r.set(authority, r.owner+int(r.cur.off[m.cut]), m.zone, m.zone.set(r.cutNode(m), typeNS))
	if r.w.full {
		return
	}
	end := len(r.w.b)
	for off := first; off < end; {
		h, _ := parseHeader(r.w.b, off)
		if !r.glue(h.data) {
			r.w.full = true // RFC 9471: a referral without its glue is truncated
			return
		}
		off = h.end
	}
}
