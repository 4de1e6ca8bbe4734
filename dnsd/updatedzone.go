package dnsd

import (
	"maps"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/miekg/dns"
)

// updatedLine marks a record that is neither the lab's nor authored.
const updatedLine = -2

// addUpdates adds what dynamic updates made. The lab file takes precedence: what it has now, or hides, or no longer lets be updated, is
// kept, not served, with a warning.
func (b *builder) addUpdates(sets []RRSet) {
	b.t.updated = make(map[setKey]*RRSet, len(sets))
	zones, hidden := map[string]int{}, map[string]int{}
	for i := range b.t.zones {
		zones[b.t.zones[i].text] = i
	}
	for i := range sets {
		if z, ok := zones[sets[i].Zone]; !ok || !b.addUpdate(z, &sets[i]) {
			hidden[sets[i].Zone]++
		}
	}
	for _, origin := range slices.Sorted(maps.Keys(hidden)) {
		var pos lab.Pos
		if z, ok := zones[origin]; ok {
			pos = b.t.zones[z].source.Pos
		}
		b.t.warnings.Addf(pos, "dns.zones."+strings.TrimSuffix(origin, "."),
			"%d RRsets of dynamic updates are kept, but not served: the lab file has or hides their names, or allows no updates of the zone; bootlab dns updates lists them", hidden[origin])
	}
}

// addUpdate adds one RRset. It reports false if the lab file is against it.
func (b *builder) addUpdate(z int, set *RRSet) bool {
	var wire [maxName + 1]byte
	rtype, known := typeNumber(set.Type)
	n, err := dns.PackDomainName(set.Name, wire[:], 0, nil, false)
	if err != nil || !known || len(b.t.zones[z].source.Update) == 0 || b.t.zones[z].broken {
		return false
	}
	if _, err = b.n.parse(wire[:n]); err != nil {
		return false
	}
	if in, _ := b.t.zoneOf(&b.n, 0); in != z || b.t.pooled[string(b.n.bytes())] != nil {
		return false
	}
	if b.t.reserved(z, &b.n) || !b.fits(z, rtype) {
		return false
	}
	for _, data := range set.Data {
		b.add(z, updatedLine, b.t.zones[z].source.Pos, rtype, set.TTL, data)
	}
	b.t.updated[setKey{z, string(b.n.bytes()), rtype}] = set
	return true
}

// fits reports whether an RRset at b.n goes together with what the lab file has there and above.
func (b *builder) fits(z int, rtype uint16) bool {
	apex := b.n.labels == int(b.t.zones[z].labels)
	for label := 0; label < b.n.labels-int(b.t.zones[z].labels); label++ {
		nd := b.t.find(z, b.n.hash[label], b.n.suffix(label))
		if nd >= 0 && (b.first(uint32(nd), typeDNAME) != nil || b.first(uint32(nd), typeNS) != nil) {
			return false
		}
	}
	nd := b.t.find(z, b.n.hash[0], b.n.bytes())
	if nd < 0 {
		return true
	}
	for r := b.heads[nd]; r >= 0; r = b.recs[r].next {
		rec := &b.recs[r]
		other := rec.rtype != rtype && (rec.rtype == typeCNAME || rtype == typeCNAME)
		if other || rec.line != updatedLine && (rec.rtype == rtype || rec.line == -1 && !apex) {
			return false
		}
	}
	return true
}
