package dnsd

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// What the SOA of a local zone says (RFC 6303 section 3). Names there do not change, so they may be cached for long.
const (
	localMinimum = 10800
	localSerial  = 1
)

// localZones are the zones that every resolver answers itself, by origin in wire form: no server outside has an answer, and the
// question alone shows what is inside. A zone of the lab or a rule of dns.forward_zones for the same or a longer name takes
// precedence.
var localZones = makeLocalZones()

func makeLocalZones() map[string]bool {
	zones := map[string]bool{}
	add := func(names ...string) {
		for _, text := range names {
			wire, err := appendName(nil, text)
			if err != nil {
				panic(err) // a name of this function is misspelled
			}
			zones[string(wire)] = true
		}
	}
	add("localhost", "invalid", "test", // RFC 6761
		"local",         // RFC 6762 section 3: mDNS
		"onion",         // RFC 7686
		"home.arpa",     // RFC 8375
		"resolver.arpa") // RFC 9462 section 6.4
	for _, reversed := range strings.Fields("0 127 10 254.169 168.192 2.0.192 100.51.198 113.0.203 255.255.255.255") { // RFC 6303 sections 4.1 and 4.2
		add(reversed + ".in-addr.arpa")
	}
	for i := 16; i < 32; i++ {
		add(fmt.Sprintf("%d.172.in-addr.arpa", i))
	}
	for i := 64; i < 128; i++ { // RFC 7793
		add(fmt.Sprintf("%d.100.in-addr.arpa", i))
	}
	zero := strings.Repeat("0.", 31)
	for _, reversed := range []string{"0." + zero, "1." + zero, "d.f.", "8.e.f.", "9.e.f.", "a.e.f.", "b.e.f.", "8.b.d.0.1.0.0.2."} { // RFC 6303 sections 4.3 to 4.6
		add(reversed + "ip6.arpa")
	}
	return zones
}

// localZone returns the label where the local zone starts that n is in, or -1. forwarded is whether a rule of dns.forward_zones, and not
// only dns.forward, is about n: one for the zone or a part of it means that a server has an answer.
func (t *Table) localZone(n *name) (at int, forwarded bool) {
	_, ruled := t.upstreams(n)
	forwarded = ruled < n.labels && len(t.forwards) > 0
	for i := n.labels - 1; i >= 0; i-- {
		if localZones[string(n.suffix(i))] {
			if forwarded && ruled <= i {
				break
			}
			return i, forwarded
		}
	}
	return -1, forwarded
}

// answerLocal answers, for clients that may recurse, what must not be asked elsewhere. It reports false for all other names.
func (r *request) answerLocal() bool {
	if r.flags&flagRA == 0 {
		return false
	}
	at, forwarded := r.t.localZone(r.cur)
	switch {
	case at >= 0:
		r.localRecords(at)
	case r.cur.labels == 1 && !isDelegationType(r.q.qtype) && !forwarded:
		r.code = nxDomain // a host name without its domain; without a SOA it is not cached, because a machine may take the name
	default:
		return false
	}
	r.setAuthoritativeLocal()
	return true
}

func (r *request) setAuthoritativeLocal() {
	if !r.chained {
		r.flags |= flagAA
		r.kind = kindLocal
	}
}

// localRecords answers from a local zone that starts at a label of the name: localhost and its reverse names have records
// (RFC 6761 section 6.3), every other zone has only an apex.
func (r *request) localRecords(at int) {
	origin := r.cur.suffix(at)
	rtype, rdata := localRecord(r.cur, origin)
	switch {
	case rtype == typeA && r.q.qtype == typeAAAA:
		r.w.rr(answers, r.owner, typeAAAA, localMinimum, append(make([]byte, 15, 16), 1))
		return
	case rtype != 0 && (r.q.qtype == rtype || r.q.qtype == typeANY):
		r.w.rr(answers, r.owner, rtype, localMinimum, rdata)
		return
	case rtype == 0 && at > 0:
		r.code = nxDomain
	}
	soa := append(append([]byte(nil), origin...), "\x06nobody\x07invalid\x00"...)
	for _, n := range []uint32{localSerial, soaRefresh, soaRetry, soaExpire, localMinimum} {
		soa = binary.BigEndian.AppendUint32(soa, n)
	}
	switch {
	case at == 0 && r.q.qtype == typeSOA:
		r.w.rr(answers, r.owner, typeSOA, localMinimum, soa)
	case at == 0 && r.q.qtype == typeNS:
		r.w.rr(answers, r.owner, typeNS, localMinimum, origin)
	default:
		r.w.rr(authority, r.owner+int(r.cur.off[at]), typeSOA, localMinimum, soa)
	}
}

// localRecord returns the type and data of the record of a name below a local origin; type 0: it has none.
func localRecord(n *name, origin []byte) (rtype uint16, rdata []byte) {
	const localhost = "\x09localhost\x00"
	switch {
	case string(origin) == localhost:
		return typeA, []byte{127, 0, 0, 1}
	case string(n.bytes()) == "\x011\x010\x010\x03127"+arpa4, n.labels == 34 && len(origin) == n.n && n.wire[1] == '1':
		return typePTR, []byte(localhost)
	}
	return 0, nil
}

// isDelegationType reports whether a type is asked of top-level domains, by validators for one.
func isDelegationType(rtype uint16) bool {
	return rtype == typeNS || rtype == typeDS || rtype == typeSOA || rtype == typeDNSKEY
}
