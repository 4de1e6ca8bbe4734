package dnsd

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
)

// makeRRSets gives every node its RRsets.
func (z *zoneBuilder) makeRRSets() {
	z.sets = make([]rrset, 0, len(z.recs))
	var of []int32
	for nd := range z.nodes {
		of = of[:0]
		for r := z.heads[nd]; r >= 0; r = z.recs[r].next {
			of = append(of, r)
		}
		z.nodes[nd].first = uint32(len(z.sets))
		if len(of) > 1 {
			slices.SortStableFunc(of, func(x, y int32) int { return cmp.Compare(z.recs[x].rtype, z.recs[y].rtype) })
		}
		for len(of) > 0 {
			n := z.makeRRSet(nd, of)
			of = of[n:]
		}
		z.checkNode(nd)
	}
	if z.dnames {
		z.checkBelowDNAMEs()
	}
}

// makeRRSet makes one RRset of the leading records of one type and returns how many those are.
func (z *zoneBuilder) makeRRSet(nd int, of []int32) int {
	first := z.recs[of[0]]
	n := 1
	for n < len(of) && z.recs[of[n]].rtype == first.rtype {
		n++
	}
	set := rrset{data: first.data, ttl: first.ttl, rtype: first.rtype, n: 1}
	if n > 1 {
		set = z.mergeRRSet(of[:n])
	}
	if z.nodes[nd].sets == math.MaxUint8 {
		z.problemAt(nd, "more than 255 types of records")
		return len(of)
	}
	z.sets = append(z.sets, set)
	z.nodes[nd].sets++
	return n
}

// mergeRRSet puts the data of several records of one type side by side, each once. An RRset has one TTL, the smallest
// (RFC 2181 section 5.2).
func (z *zoneBuilder) mergeRRSet(of []int32) rrset {
	set := rrset{data: uint32(len(z.blob)), ttl: math.MaxUint32, rtype: z.recs[of[0]].rtype}
	for i, r := range of {
		rdata, _ := z.next(z.recs[r].data)
		twice := slices.ContainsFunc(of[:i], func(o int32) bool {
			other, _ := z.next(z.recs[o].data)
			return sameData(set.rtype, other, rdata)
		})
		set.ttl = min(set.ttl, z.recs[r].ttl)
		if twice || set.n == math.MaxUint16 {
			continue
		}
		z.appendData(rdata)
		set.n++
	}
	return set
}

// sameData reports whether two records of a type are the same: names in the data are, in whatever case (RFC 4034 section 6.2), where the data is
// one name.
func sameData(rtype uint16, a, b []byte) bool {
	switch rtype {
	case typeNS, typeCNAME, typePTR, typeDNAME:
		return slices.EqualFunc(a, b, func(x, y byte) bool { return lower(x) == lower(y) }) // no length of a label is a letter
	}
	return bytes.Equal(a, b)
}

// mayBeBesideCNAME reports whether a type is of DNSSEC and may stand beside a CNAME (RFC 4034 sections 3 and 4, RFC 3007 section 4.3).
func mayBeBesideCNAME(rtype uint16) bool {
	return rtype == typeRRSIG || rtype == typeNSEC || rtype == typeKEY
}

// checkNode finds what may not stand together at one name.
func (z *zoneBuilder) checkNode(i int) {
	nd := &z.nodes[i]
	beside := func(s rrset) bool { return s.rtype != typeCNAME && !mayBeBesideCNAME(s.rtype) }
	if cname := z.set(nd, typeCNAME); cname != nil && (cname.n > 1 || slices.ContainsFunc(z.setsOf(nd), beside)) {
		z.problemAt(i, "a name with a CNAME has no other record (RFC 1034 section 3.6.2)")
	}
	if soa := z.set(nd, typeSOA); soa != nil && (i != 0 || soa.n > 1) {
		z.problemAt(i, "a zone has one SOA, at its origin %s", z.text)
	}
	if dname := z.set(nd, typeDNAME); dname != nil {
		if dname.n > 1 {
			z.problemAt(i, "a name has one DNAME (RFC 6672 section 2.4)")
		}
		nd.dname, z.dnames = true, true
	}
	if z.set(nd, typeNS) == nil || i == 0 {
		return
	}
	if bytes.HasPrefix(z.blob[nd.name:], []byte(wildcardLabel)) {
		z.problemAt(i, "a wildcard cannot be delegated (RFC 4592 section 4.2)")
	}
	nd.cut, z.cuts = true, true
	z.b.setOwner(z.nameOf(nd))
	if _, at := z.b.t.zoneOf(&z.b.n, 0); at > 0 {
		z.delegates = true
	}
}

// checkBelowDNAMEs finds names below a DNAME, which would never be seen (RFC 6672 section 2.4).
func (z *zoneBuilder) checkBelowDNAMEs() {
	n := &z.b.n
	for i := range z.nodes {
		if z.heads[i] < 0 {
			continue
		}
		z.b.setOwner(z.nameOf(&z.nodes[i]))
		for label := 1; label <= n.labels-z.labels; label++ {
			if up := z.zone.node(n, label); up != nil && up.dname {
				z.problemAt(i, "is below the DNAME of %s (RFC 6672 section 2.4)", nameText(n.suffix(label)))
			}
		}
	}
}

// problemAt reports a problem at the last static line of a node.
func (z *zoneBuilder) problemAt(nd int, format string, args ...any) {
	pos := z.source.Pos
	for r := z.heads[nd]; r >= 0; r = z.recs[r].next {
		if line := z.recs[r].line; line >= 0 {
			pos = z.b.lines[line].Pos
		}
	}
	text := nameText(z.nameOf(&z.nodes[nd])) + ": " + fmt.Sprintf(format, args...)
	if pos.File == z.source.File && pos.File != "" {
		z.brokenFile(pos, text)
		return
	}
	z.b.probs.Addf(pos, "zone "+z.text, "%s", text)
}
