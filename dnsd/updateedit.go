package dnsd

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/miekg/dns"
)

// A zoneEdit is a zone and what one update makes of it.
type zoneEdit struct {
	t    *Table
	zone *zone
	key  string
	now  time.Time
	n    name                // scratch: the owner that is looked at
	sets map[setKey]*editSet // that the update has touched
}

// A setKey names an RRset.
type setKey struct {
	owner string // in wire form
	rtype uint16
}

type editSet struct {
	ttl  uint32
	data [][]byte
}

// planUpdate returns what an update changes (RFC 2136 sections 3.2 and 3.4).
func (t *Table) planUpdate(m *dns.Msg, r *request, now time.Time) ([]RRSet, error) {
	z, at := t.zoneOf(&r.q.name, 0)
	if z == nil || at != 0 || z.broken || !allows(z.source.Update, r.from, r.sig) {
		return nil, refuse(refused, "the zone takes no updates any more")
	}
	e := &zoneEdit{t: t, zone: z, key: r.sig.by(), now: now, sets: map[setKey]*editSet{}}
	if err := e.prerequisites(m.Answer); err != nil {
		return nil, err
	}
	for _, rr := range m.Ns {
		if err := e.prescan(rr); err != nil {
			return nil, err
		}
	}
	for _, rr := range m.Ns {
		if err := e.apply(rr); err != nil {
			return nil, err
		}
	}
	return e.changed()
}

// owner parses the owner of a record, which must be in the zone and in none below it.
func (e *zoneEdit) owner(rr dns.RR) error {
	wire, err := packName(rr.Header().Name)
	if err == nil {
		_, err = e.n.parse(wire)
	}
	if err != nil {
		return refuse(formErr, "%q is not a domain name", rr.Header().Name)
	}
	if z, _ := e.t.zoneOf(&e.n, 0); z != e.zone {
		return refuse(notZone, "%s is not in the zone", rr.Header().Name)
	}
	return nil
}

// prerequisites checks what the client takes for granted (RFC 2136 section 3.2).
func (e *zoneEdit) prerequisites(rrs []dns.RR) error {
	wanted := map[setKey][][]byte{}
	for _, rr := range rrs {
		h := rr.Header()
		if err := e.owner(rr); err != nil {
			return err
		}
		empty := h.Class == dns.ClassANY || h.Class == dns.ClassNONE
		switch {
		case h.Ttl != 0 || empty && h.Rdlength != 0 || h.Rrtype != typeANY && isMeta(h.Rrtype) || !empty && (h.Class != classIN || h.Rrtype == typeANY):
			return refuse(formErr, "malformed prerequisite")
		case h.Class == dns.ClassANY && h.Rrtype == typeANY && !e.inUse():
			return refuse(nxDomain, "%s does not exist", h.Name)
		case h.Class == dns.ClassANY && h.Rrtype != typeANY && e.get(h.Rrtype) == nil:
			return refuse(nxRRset, "%s has no %s", h.Name, typeText(h.Rrtype))
		case h.Class == dns.ClassNONE && h.Rrtype == typeANY && e.inUse():
			return refuse(yxDomain, "%s exists", h.Name)
		case h.Class == dns.ClassNONE && h.Rrtype != typeANY && e.get(h.Rrtype) != nil:
			return refuse(yxRRset, "%s has %s", h.Name, typeText(h.Rrtype))
		}
		if !empty {
			data, err := rdataOf(rr)
			if err != nil {
				return err
			}
			k := setKey{string(e.n.bytes()), h.Rrtype}
			if !containsData(wanted[k], data) {
				wanted[k] = append(wanted[k], data)
			}
		}
	}
	for k, data := range wanted {
		_, _ = e.n.parse([]byte(k.owner))
		set := e.get(k.rtype)
		if set == nil || len(set.data) != len(data) || slices.ContainsFunc(data, func(d []byte) bool { return !containsData(set.data, d) }) {
			return refuse(nxRRset, "%s has other %s", nameText([]byte(k.owner)), typeText(k.rtype))
		}
	}
	return nil
}

// prescan checks the form of a change (RFC 2136 section 3.4.1).
func (e *zoneEdit) prescan(rr dns.RR) error {
	if err := e.owner(rr); err != nil {
		return err
	}
	h := rr.Header()
	meta := isMeta(h.Rrtype) && h.Rrtype != typeANY
	ok := false
	switch h.Class {
	case classIN:
		ok = !meta && h.Rrtype != typeANY && (h.Rdlength > 0 || !isKnown(h.Rrtype)) && h.Ttl <= maxUpdateTTL
	case dns.ClassANY:
		ok = !meta && h.Ttl == 0 && h.Rdlength == 0
	case dns.ClassNONE:
		ok = !meta && h.Rrtype != typeANY && h.Ttl == 0
	}
	if !ok {
		return refuse(formErr, "malformed change of %s", h.Name)
	}
	return nil
}

// apply makes one change (RFC 2136 section 3.4.2). What the lab file has is refused, not changed.
func (e *zoneEdit) apply(rr dns.RR) error {
	if err := e.owner(rr); err != nil {
		return err
	}
	h := rr.Header()
	atApex := e.n.labels == e.zone.labels
	if atApex && h.Class != classIN && (h.Rrtype == typeSOA || h.Rrtype == typeNS) {
		return nil // they stay: sections 3.4.2.3 and 3.4.2.4
	}
	types := []uint16{h.Rrtype}
	if h.Rrtype == typeANY {
		types = e.types()
	}
	for _, rtype := range types {
		if atApex && h.Rrtype == typeANY && (rtype == typeSOA || rtype == typeNS) {
			continue
		}
		if err := e.mayChange(rtype, h.Class == classIN); err != nil {
			return err
		}
		switch h.Class {
		case dns.ClassANY:
			e.put(rtype, editSet{})
			continue
		}
		data, err := rdataOf(rr)
		if err != nil {
			return err
		}
		e.change(rtype, h, data)
	}
	return nil
}

// change adds a record, or removes one.
func (e *zoneEdit) change(rtype uint16, h *dns.RR_Header, data []byte) {
	set := editSet{ttl: h.Ttl}
	if old := e.get(rtype); old != nil {
		set.data = slices.Clone(old.data)
		if h.Class == dns.ClassNONE {
			set.ttl = old.ttl
		}
	}
	switch {
	case h.Class == dns.ClassNONE:
		set.data = slices.DeleteFunc(set.data, func(d []byte) bool { return bytes.Equal(d, data) })
	case rtype == typeCNAME:
		if e.inUse() && e.get(typeCNAME) == nil {
			return // section 3.4.2.2
		}
		set.data = [][]byte{data}
	case e.get(typeCNAME) != nil:
		return
	case !containsData(set.data, data):
		set.data = append(set.data, data)
	}
	e.put(rtype, set)
}

// mayChange reports why the RRset of e.n cannot be changed: it is the lab file's, or would hide something that is.
func (e *zoneEdit) mayChange(rtype uint16, adding bool) error {
	compiled, text := e.zone.asCompiled(), nameText(e.n.bytes())
	if err := compiled.mayTouch(e.t, &e.n); err != nil {
		return err
	}
	nd := compiled.node(&e.n, 0)
	if nd != nil && compiled.set(nd, rtype) != nil {
		return refuse(refused, "the lab file has the %s records of %s", typeText(rtype), text)
	}
	if !adding {
		return nil
	}
	if err := compiled.mayAdd(e.t, &e.n); err != nil {
		return err
	}
	switch {
	case !updatable(rtype):
		return refuse(refused, "%s: a %s changes the zone for other names: only the lab file can have it", text, typeText(rtype))
	case nd != nil && compiled.set(nd, typeCNAME) != nil:
		return refuse(refused, "the CNAME of %s is in the lab file", text)
	case nd != nil && rtype == typeCNAME && nd.sets > 0:
		return refuse(refused, "%s has other records in the lab file", text)
	}
	return nil
}

// reserved reports whether updates may not have a name of a zone.
func (z *zone) reserved(n *name) bool {
	labels := n.labels - z.labels
	if labels <= 0 {
		return false
	}
	relative := strings.TrimSuffix(nameText(append(slices.Clip(n.wire[:n.off[labels]]), 0)), ".")
	return lab.ReservedName(relative) && !slices.Contains(z.source.UpdateReserved, relative)
}

// get returns the RRset of e.n as it is after what the update has changed so far, or nil.
func (e *zoneEdit) get(rtype uint16) *editSet {
	if set, ok := e.sets[setKey{string(e.n.bytes()), rtype}]; ok {
		if len(set.data) == 0 {
			return nil
		}
		return set
	}
	nd := e.zone.node(&e.n, 0)
	if nd == nil {
		return nil
	}
	set := e.zone.set(nd, rtype)
	if set == nil {
		return nil
	}
	return &editSet{set.ttl, slices.Collect(e.zone.data(set))}
}

func (e *zoneEdit) put(rtype uint16, set editSet) {
	e.sets[setKey{string(e.n.bytes()), rtype}] = &set
}

// types returns the types of the RRsets of e.n.
func (e *zoneEdit) types() (types []uint16) {
	if nd := e.zone.node(&e.n, 0); nd != nil {
		for _, set := range e.zone.setsOf(nd) {
			types = append(types, set.rtype)
		}
	}
	for k := range e.sets {
		if k.owner == string(e.n.bytes()) && !slices.Contains(types, k.rtype) {
			types = append(types, k.rtype)
		}
	}
	return slices.DeleteFunc(types, func(t uint16) bool { return e.get(t) == nil })
}

func (e *zoneEdit) inUse() bool { return len(e.types()) > 0 }

// changed returns the RRsets that the update has changed, if the zone, and all zones together, stay within their limits.
func (e *zoneEdit) changed() (sets []RRSet, err error) {
	size := e.zone.kept
	for k, set := range e.sets {
		_, _ = e.n.parse([]byte(k.owner))
		old := e.zone.updated[k]
		switch {
		case old == nil && len(set.data) == 0:
			continue
		case old != nil && old.TTL == set.ttl && slices.EqualFunc(old.Data, set.data, bytes.Equal):
			continue
		}
		if old != nil {
			size = size.minus(updateSize{1, length(old.Data)})
		}
		if len(set.data) > 0 {
			size = size.plus(updateSize{1, length(set.data)})
		}
		changed := RRSet{Zone: e.zone.text, Name: nameText([]byte(k.owner)), Type: typeText(k.rtype), TTL: set.ttl, Data: set.data, Key: e.key, At: e.now}
		if changed.tooLarge() || len(e.types()) > maxNodeTypes {
			return nil, refuse(refused, "%s %s: more than %d records or %d octets of one type, or more than %d types at a name",
				changed.Name, changed.Type, maxSetRecords, maxSetOctets, maxNodeTypes)
		}
		sets = append(sets, changed)
	}
	if err := e.withinLimits(size); err != nil {
		return nil, err
	}
	slices.SortFunc(sets, RRSet.Compare)
	return sets, nil
}

// withinLimits returns an error if a zone gets more data by updates than it may have. One that has too much may always lose some.
func (e *zoneEdit) withinLimits(zone updateSize) error {
	before := e.zone.kept
	all := e.t.updateSize().minus(before).plus(zone)
	switch {
	case zone.sets > before.sets && zone.sets > maxZoneUpdates:
		return refuse(refused, "the updates of a zone may make %d RRsets in all", maxZoneUpdates)
	case zone.octets > before.octets && zone.octets > maxZoneOctets:
		return refuse(refused, "the updates of a zone may have %d octets of data in all", maxZoneOctets)
	case zone.sets > before.sets && all.sets > maxUpdates:
		return refuse(refused, "the updates of all zones may make %d RRsets in all", maxUpdates)
	case zone.octets > before.octets && all.octets > maxUpdateOctets:
		return refuse(refused, "the updates of all zones may have %d octets of data in all", maxUpdateOctets)
	}
	return nil
}
