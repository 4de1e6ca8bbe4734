package dnsd

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// addApex adds the NS and SOA records that a zone lacks.
func (z *zoneBuilder) addApex() {
	if z.broken {
		return
	}
	ns, soa := z.first(typeNS), z.first(typeSOA)
	if soa != nil {
		z.labSerial = binary.BigEndian.Uint32(soa[len(soa)-soaNumbers:])
	}
	primary := z.b.primary
	if primary == nil {
		primary = z.origin
	}
	if ns != nil {
		primary = bytes.Clone(ns)
	} else {
		z.b.setOwner(z.origin)
		z.add(-1, z.source.Pos, typeNS, derivedTTL, primary)
		z.addPrimary(primary)
	}
	if soa != nil {
		return
	}
	z.b.setOwner(z.origin)
	z.add(-1, z.source.Pos, typeSOA, derivedTTL, soaData(primary, z.origin))
}

// addPrimary gives the appliance's name its addresses, in the zone that it is in, unless it has some already.
func (z *zoneBuilder) addPrimary(primary []byte) {
	b := z.b
	b.setOwner(primary)
	if in, _ := b.t.zoneOf(&b.n, 0); in != z.zone || z.has(b.n.bytes()) > 0 {
		return
	}
	for _, n := range b.t.lab.Networks {
		if n.Address.IsValid() && n.Address.Is4() {
			z.add(-1, n.Pos, typeA, derivedTTL, n.Address.AsSlice())
		}
	}
}

// delegateFromParent adds to a derived zone the delegation of a zone below it that is here too: a server that has only the upper one, as a
// secondary may, then knows that there is one, and a DS is asked of it.
func (z *zoneBuilder) delegateFromParent() {
	z.b.setOwner(z.origin)
	above, _ := z.b.t.zoneOf(&z.b.n, 1)
	if z.labels == 0 || z.broken || above == nil || !above.derived || above.broken {
		return
	}
	parent := z.b.zones[above.index]
	if parent.has(z.origin) >= 0 {
		return
	}
	for r := z.heads[0]; r >= 0; r = z.recs[r].next {
		if z.recs[r].rtype != typeNS {
			continue
		}
		host, _ := z.next(z.recs[r].data)
		z.b.setOwner(z.origin)
		parent.add(-1, z.source.Pos, typeNS, z.recs[r].ttl, host)
		z.addGlue(parent, host)
	}
}

// addGlue adds the addresses that a zone has for a name of its own to the zone above.
func (z *zoneBuilder) addGlue(parent *zoneBuilder, host []byte) {
	z.b.setOwner(host)
	nd := z.find(z.b.n.hash[0], host)
	if nd < 0 || parent.has(host) >= 0 { // for another zone
		return
	}
	for r := z.heads[nd]; r >= 0; r = z.recs[r].next {
		rec := z.recs[r]
		if rdata, _ := z.next(rec.data); rec.rtype == typeA || rec.rtype == typeAAAA {
			parent.add(-1, z.source.Pos, rec.rtype, rec.ttl, rdata)
		}
	}
}

// first returns the data of the first record of a type at the apex, or nil.
func (z *zoneBuilder) first(rtype uint16) []byte {
	for r := z.heads[0]; r >= 0; r = z.recs[r].next {
		if z.recs[r].rtype == rtype {
			rdata, _ := z.next(z.recs[r].data)
			return rdata
		}
	}
	return nil
}

// soaData returns the data of a synthesised SOA record, with serial 0: see WithSerials.
func soaData(primary, origin []byte) []byte {
	b := slices.Concat(primary, []byte("\x0ahostmaster"), origin)
	if len(origin)+11 > maxName {
		b = slices.Concat(primary, origin)
	}
	for _, n := range []uint32{0, soaRefresh, soaRetry, soaExpire, soaMinimum} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}
