package dnsd

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"
)

// A ZoneContent identifies what a zone holds, so that its serial moves when, and only when, that does.
type ZoneContent struct {
	Origin    string // lower case, with a final dot
	Hash      uint64 // of all records but for the serial, in whatever order; the same in every process
	LabSerial uint32 // the serial in the lab file; 0: none
	Serial    uint32 // that the table has
}

// Contents returns the content of every zone. Zones whose file cannot be read have none.
func (t *Table) Contents() []ZoneContent {
	all := make([]ZoneContent, 0, len(t.zones))
	for _, z := range t.zones {
		if !z.broken {
			all = append(all, ZoneContent{Origin: z.text, Hash: z.hash(), LabSerial: z.labSerial, Serial: z.serial()})
		}
	}
	return all
}

// serial returns the serial of a zone's SOA.
func (z *zone) serial() uint32 {
	rdata, _ := z.next(z.set(z.apex(), typeSOA).data)
	return binary.BigEndian.Uint32(rdata[len(rdata)-soaNumbers:])
}

// soaNumbers is the length of what follows the two names of a SOA: serial, refresh, retry, expire, minimum.
const soaNumbers = 20

// A contentHash is computed once for zones that differ in nothing but their serial.
type contentHash struct {
	once sync.Once
	sum  uint64
}

// hash adds up the hashes of a zone's records.
func (z *zone) hash() uint64 {
	z.content.once.Do(func() {
		z.eachRecord(func(rr []byte, soa bool) {
			if soa {
				clear(rr[len(rr)-soaNumbers:][:4])
			}
			z.content.sum += stableHash(rr)
		})
	})
	return z.content.sum
}

// WithSerials returns a table whose zones have these serials, by origin. A zone that is missing there keeps its own.
func (t *Table) WithSerials(serials map[string]uint32) *Table {
	c := *t
	c.zones = slices.Clone(t.zones)
	for i, z := range c.zones {
		if serial, ok := serials[z.text]; ok && !z.broken && z.serial() != serial {
			c.zones[i] = z.withSerial(serial)
		}
	}
	return &c
}

// withSerial returns a zone that differs in nothing but its serial.
func (z *zone) withSerial(serial uint32) *zone {
	c := *z
	c.blob = bytes.Clone(z.blob)
	rdata, _ := c.next(c.set(c.apex(), typeSOA).data)
	binary.BigEndian.PutUint32(rdata[len(rdata)-soaNumbers:], serial)
	return &c
}

// NextSerial returns the serial of a zone: before is the one that it had, 0 if it is new; labSerial is the one that the lab file has,
// or 0; now is the time in seconds, with which serials start, so that they grow even if what is known of them is lost. Serials
// are compared as RFC 1982 says.
func NextSerial(before, labSerial uint32, changed bool, now uint32) uint32 {
	serial := before
	switch {
	case before == 0 && labSerial != 0:
		return labSerial
	case before == 0:
		return max(1, now)
	case changed && labSerial == 0 && later(now, before):
		serial = now
	case changed:
		serial = max(1, before+1)
	}
	if labSerial != 0 && later(labSerial, serial) {
		return labSerial
	}
	return serial
}

// later reports whether serial a is greater than b (RFC 1982 section 3.2).
func later(a, b uint32) bool { return int32(a-b) > 0 }
