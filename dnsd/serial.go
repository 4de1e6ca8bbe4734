package dnsd

import (
	"bytes"
	"encoding/binary"
)

// A ZoneContent identifies what a zone holds, so that its serial moves when, and only when, that does.
type ZoneContent struct {
	Origin string // lower case, with a final dot
	Hash   uint64 // of all records but for the serial, in whatever order; the same in every process
	Serial uint32 // as authored; 0: none
}

// Contents returns the content of every zone. Zones whose file cannot be read have none.
func (t *Table) Contents() []ZoneContent {
	all := make([]ZoneContent, 0, len(t.zones))
	for i := range t.zones {
		if z := &t.zones[i]; !z.broken {
			all = append(all, ZoneContent{Origin: z.text, Hash: t.hashZone(i), Serial: t.serialOf(z)})
		}
	}
	return all
}

// serialOf returns the serial of a zone's SOA.
func (t *Table) serialOf(z *zone) uint32 {
	rdata, _ := t.next(t.set(&t.nodes[z.apex], typeSOA).data)
	return binary.BigEndian.Uint32(rdata[len(rdata)-soaNumbers:])
}

// soaNumbers is the length of what follows the two names of a SOA: serial, refresh, retry, expire, minimum.
const soaNumbers = 20

// hashZone adds up the hashes of a zone's records.
func (t *Table) hashZone(zone int) (sum uint64) {
	t.eachRecord(zone, func(rr []byte, soa bool) {
		if soa {
			clear(rr[len(rr)-soaNumbers:][:4])
		}
		sum += stableHash(rr)
	})
	return sum
}

// WithSerials returns a table whose zones have these serials, by origin. A zone that is missing there keeps its own.
func (t *Table) WithSerials(serials map[string]uint32) *Table {
	c := *t
	if c.base == nil && c.Learns() {
		c.base = t
	}
	c.blob = bytes.Clone(t.blob)
	for i := range c.zones {
		z := &c.zones[i]
		serial, ok := serials[z.text]
		if z.broken || !ok {
			continue
		}
		rdata, _ := c.next(c.set(&c.nodes[z.apex], typeSOA).data)
		binary.BigEndian.PutUint32(rdata[len(rdata)-soaNumbers:], serial)
	}
	return &c
}

// NextSerial returns the serial of a zone: before is the one that it had, 0 if it is new; authored is the one that the lab file has,
// or 0; now is the time in seconds, with which serials start, so that they grow even if what is known of them is lost. Serials
// are compared as RFC 1982 says.
func NextSerial(before, authored uint32, changed bool, now uint32) uint32 {
	serial := before
	switch {
	case before == 0 && authored != 0:
		return authored
	case before == 0:
		return max(1, now)
	case changed && authored == 0 && later(now, before):
		serial = now
	case changed:
		serial = max(1, before+1)
	}
	if authored != 0 && later(authored, serial) {
		return authored
	}
	return serial
}

// later reports whether serial a is greater than b (RFC 1982 section 3.2).
func later(a, b uint32) bool { return int32(a-b) > 0 }
