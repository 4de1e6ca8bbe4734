package dnsd

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// makeRRSets gives every node its RRsets.
func (b *builder) makeRRSets() {
	b.t.sets = make([]rrset, 0, len(b.recs))
	var of []int32
	for nd := range b.t.nodes {
		if b.t.nodes[nd].zone == originZone {
			continue
		}
		of = of[:0]
		for r := b.heads[nd]; r >= 0; r = b.recs[r].next {
			of = append(of, r)
		}
		b.t.nodes[nd].first = uint32(len(b.t.sets))
		if len(of) > 1 {
			slices.SortStableFunc(of, func(x, y int32) int { return cmp.Compare(b.recs[x].rtype, b.recs[y].rtype) })
		}
		for len(of) > 0 {
			n := b.makeRRSet(nd, of)
			of = of[n:]
		}
		b.checkNode(nd)
	}
	b.checkBelowDNAMEs()
}

// makeRRSet makes one RRset of the leading records of one type and returns how many those are.
func (b *builder) makeRRSet(nd int, of []int32) int {
	first := b.recs[of[0]]
	n := 1
	for n < len(of) && b.recs[of[n]].rtype == first.rtype {
		n++
	}
	set := rrset{data: first.data, ttl: first.ttl, rtype: first.rtype, n: 1}
	if n > 1 {
		set = b.mergeRRSet(of[:n])
	}
	if b.t.nodes[nd].sets == math.MaxUint8 {
		b.problemAt(nd, "more than 255 types of records")
		return len(of)
	}
	b.t.sets = append(b.t.sets, set)
	b.t.nodes[nd].sets++
	return n
}

// join puts the data of several records of one type side by side, each once. An RRset has one TTL, the smallest
// (RFC 2181 section 5.2).
func (b *builder) mergeRRSet(of []int32) rrset {
	set := rrset{data: uint32(len(b.t.blob)), ttl: math.MaxUint32, rtype: b.recs[of[0]].rtype}
	for i, r := range of {
		rdata, _ := b.t.next(b.recs[r].data)
		twice := slices.ContainsFunc(of[:i], func(o int32) bool {
			other, _ := b.t.next(b.recs[o].data)
			return bytes.Equal(other, rdata)
		})
		set.ttl = min(set.ttl, b.recs[r].ttl)
		if twice || set.n == math.MaxUint16 {
			continue
		}
		b.t.blob = binary.BigEndian.AppendUint16(b.t.blob, uint16(len(rdata)))
		b.t.blob = append(b.t.blob, rdata...)
		set.n++
	}
	return set
}

// checkNode finds what may not stand together at one name.
func (b *builder) checkNode(i int) {
	nd := &b.t.nodes[i]
	z := &b.t.zones[nd.zone]
	if cname := b.t.set(nd, typeCNAME); cname != nil && (nd.sets > 1 || cname.n > 1) {
		b.problemAt(i, "a name with a CNAME has no other record (RFC 1034 section 3.6.2)")
	}
	if soa := b.t.set(nd, typeSOA); soa != nil && (uint32(i) != z.apex || soa.n > 1) {
		b.problemAt(i, "a zone has one SOA, at its origin %s", z.text)
	}
	if dname := b.t.set(nd, typeDNAME); dname != nil {
		if dname.n > 1 {
			b.problemAt(i, "a name has one DNAME (RFC 6672 section 2.4)")
		}
		nd.dname, z.dnames = true, true
	}
	if b.t.set(nd, typeNS) == nil || uint32(i) == z.apex {
		return
	}
	if bytes.HasPrefix(b.t.blob[nd.name:], []byte(wildcardLabel)) {
		b.problemAt(i, "a wildcard cannot be delegated (RFC 4592 section 4.2)")
	}
	nd.cut, z.cuts = true, true
	b.setOwner(b.t.nameOf(nd))
	if _, at := b.t.zoneOf(&b.n, 0); at > 0 {
		z.delegates = true
	}
}

// checkBelowDNAMEs finds names below a DNAME, which would never be seen (RFC 6672 section 2.4).
func (b *builder) checkBelowDNAMEs() {
	for i := range b.t.nodes {
		nd := b.t.nodes[i]
		if nd.zone == originZone || !b.t.zones[nd.zone].dnames || b.heads[i] < 0 {
			continue
		}
		b.setOwner(b.t.nameOf(&nd))
		for label := 1; label <= b.n.labels-int(b.t.zones[nd.zone].labels); label++ {
			if up := b.t.find(int(nd.zone), b.n.hash[label], b.n.suffix(label)); up >= 0 && b.t.nodes[up].dname {
				b.problemAt(i, "is below the DNAME of %s (RFC 6672 section 2.4)", nameText(b.n.suffix(label)))
			}
		}
	}
}

// problemAt reports a problem at the last authored line of a node.
func (b *builder) problemAt(nd int, format string, args ...any) {
	z := b.t.zones[b.t.nodes[nd].zone]
	pos := z.source.Pos
	for r := b.heads[nd]; r >= 0; r = b.recs[r].next {
		if line := b.recs[r].line; line >= 0 {
			pos = b.lines[line].Pos
		}
	}
	text := nameText(b.t.nameOf(&b.t.nodes[nd])) + ": " + fmt.Sprintf(format, args...)
	if pos.File == z.source.File && pos.File != "" {
		b.brokenFile(int(b.t.nodes[nd].zone), pos, text)
		return
	}
	b.probs.Addf(pos, "zone "+z.text, "%s", text)
}
