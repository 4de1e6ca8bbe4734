package dnsd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/miekg/dns"
)

// Limits of what dynamic updates may put into a zone. A set that is larger would not fit into one reply.
const (
	maxSetRecords  = 500 // of one RRset
	maxSetOctets   = 32 << 10
	maxZoneUpdates = 10_000  // RRsets of one zone
	maxZoneOctets  = 4 << 20 // of their data
	maxNodeTypes   = 64      // types at one name
	maxUpdateTTL   = 1<<31 - 1
)

// The response codes of RFC 2136 section 2.2.
const (
	yxRRset rcode = 7
	nxRRset rcode = 8
	notZone rcode = 10

	opcodeUpdate = 5 << 11 // in the header's second word
)

// An RRSet is what dynamic updates (RFC 2136) made of the records of one type at a name.
type RRSet struct {
	Zone string    `json:"zone"` // lower case, with a final dot
	Name string    `json:"name"` // lower case, with a final dot and escapes
	Type string    `json:"type"` // such as TXT or TYPE65400
	TTL  uint32    `json:"ttl"`
	Data [][]byte  `json:"data"` // in wire form; none: there is no such RRset
	Key  string    `json:"key"`  // that the last change was signed with
	At   time.Time `json:"at"`   // of the last change
}

// Updates keep what dynamic updates put into zones. It is safe for concurrent use.
type Updates interface {
	// Update calls plan with the table in force, stores the RRsets that plan returns, and puts a table in force that has them; then
	// it returns. No other update comes between; where a reload does, the lab file takes precedence. An RRset without data is deleted. The error is that of plan or
	// of the store; then nothing has changed.
	Update(ctx context.Context, plan func(*Table) ([]RRSet, error)) error
}

// An updateError is why an update is refused.
type updateError struct {
	code rcode
	why  string
}

// Error implements error.
func (e *updateError) Error() string { return e.why }

func refuse(code rcode, format string, args ...any) error {
	return &updateError{code, fmt.Sprintf(format, args...)}
}

// acceptUpdate checks what is known before the records are looked at: the zone and who asks (RFC 2136 section 3.1). If the update may go
// on, it is pending.
func (s *Server) acceptUpdate(r *request, msg []byte) result {
	z, at := r.t.zoneOf(&r.q.name, 0)
	switch {
	case r.q.qtype != typeSOA:
		r.code = formErr
	case r.q.qclass != classIN || z < 0 || at != 0:
		r.code = notAuth
	case s.deps.Updates == nil || !allows(r.t.zones[z].source.Update, r.from, r.sig):
		r.code = refused
	case r.t.zones[z].broken:
		r.code = servFail
	default:
		r.update = bytes.Clone(msg)
		return pending
	}
	s.metrics.updateRefused.Inc()
	s.log.Info("dynamic update refused: dns.zones.NAME.update does not list the key, or there is no such zone",
		keyAddr, r.from, keyZone, nameText(r.q.name.bytes()), "key", r.sig.by())
	return s.finish(r)
}

// applyUpdate does an update and finishes its reply. What it changed is stored and answered before that.
func (s *Server) applyUpdate(ctx context.Context, r *request) {
	origin, key := nameText(r.q.name.bytes()), r.sig.by()
	var m dns.Msg
	var changed []RRSet
	err := refuse(formErr, "the message cannot be read")
	if m.Unpack(r.update) == nil {
		err = s.deps.Updates.Update(ctx, func(t *Table) (sets []RRSet, err error) {
			changed, err = t.planUpdate(&m, r, s.deps.Now())
			return changed, err
		})
	}
	var why *updateError
	switch {
	case err == nil:
		s.metrics.updated.Inc()
		s.log.Info("dynamic update", keyZone, origin, keyAddr, r.from, "key", key, "rrsets", len(changed))
		s.changes.see(s.deps.Table)
	case errors.As(err, &why):
		r.code = why.code
		s.metrics.updateRefused.Inc()
		s.log.Info("dynamic update refused", keyZone, origin, keyAddr, r.from, "key", key, keyErr, err)
	default:
		r.code = servFail
		s.log.Error("dynamic update failed", keyZone, origin, keyAddr, r.from, "key", key, keyErr, err)
	}
	s.finish(r)
}

// A zoneEdit is a zone and what one update makes of it.
type zoneEdit struct {
	t    *Table
	zone int
	key  string
	now  time.Time
	n    name                // scratch: the owner that is looked at
	sets map[setKey]*editSet // that the update has touched
}

// A setKey names an RRset.
type setKey struct {
	zone  int
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
	if z < 0 || at != 0 || t.zones[z].broken || !allows(t.zones[z].source.Update, r.from, r.sig) {
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
	var b [maxName + 1]byte
	n, err := dns.PackDomainName(rr.Header().Name, b[:], 0, nil, false)
	if err == nil {
		_, err = e.n.parse(b[:n])
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
			k := setKey{e.zone, string(e.n.bytes()), h.Rrtype}
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
	atApex := e.n.labels == int(e.t.zones[e.zone].labels)
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
	t, text := e.t, nameText(e.n.bytes())
	nd := t.find(e.zone, e.n.hash[0], e.n.bytes())
	if _, ok := t.pooled[string(e.n.bytes())]; ok {
		return refuse(refused, "%s is the name of a host", text)
	}
	if nd >= 0 && t.nodes[nd].derived {
		return refuse(refused, "%s is a name of the lab file's hosts and clusters", text)
	}
	if nd >= 0 && t.set(&t.nodes[nd], rtype) != nil && t.updated[setKey{e.zone, string(e.n.bytes()), rtype}] == nil {
		return refuse(refused, "the %s of %s are in the lab file", typeText(rtype), text)
	}
	if !adding {
		return nil
	}
	if t.reserved(e.zone, &e.n) {
		return refuse(refused, "%s is reserved, as programs trust such names unasked: dns.zones.NAME.update_reserved may list it", text)
	}
	switch rtype {
	case typeSOA, typeNS, typeDS, typeDNAME:
		return refuse(refused, "%s: a %s changes the zone for other names: only the lab file can have it", text, typeText(rtype))
	}
	if nd >= 0 && t.set(&t.nodes[nd], typeCNAME) != nil && t.updated[setKey{e.zone, string(e.n.bytes()), typeCNAME}] == nil {
		return refuse(refused, "the CNAME of %s is in the lab file", text)
	}
	if nd >= 0 && rtype == typeCNAME && e.labHas(nd) {
		return refuse(refused, "%s has other records in the lab file", text)
	}
	_, at := t.zoneOf(&e.n, 0)
	switch m := t.matchIn(e.zone, at, &e.n); {
	case m.cut >= 0 || m.dname > 0:
		return refuse(notZone, "%s is delegated or redirected", text)
	case nd < 0 && m.node >= 0 && t.nodes[m.node].derived && !(e.n.wire[1] == '_' && e.n.labels == int(labelCount(t.nameOf(&t.nodes[m.node])))):
		return refuse(refused, "%s is a name that the lab file has by a wildcard; only names such as _acme-challenge can be added there", text)
	}
	return nil
}

// reserved reports whether updates may not have a name of a zone.
func (t *Table) reserved(zone int, n *name) bool {
	z := &t.zones[zone]
	labels := n.labels - int(z.labels)
	if labels <= 0 {
		return false
	}
	relative := strings.TrimSuffix(nameText(append(slices.Clip(n.wire[:n.off[labels]]), 0)), ".")
	return lab.ReservedName(relative) && !slices.Contains(z.source.UpdateReserved, relative)
}

// labHas reports whether a node has records of the lab file.
func (e *zoneEdit) labHas(nd int) bool {
	n := &e.t.nodes[nd]
	for _, set := range e.t.sets[n.first : n.first+uint32(n.sets)] {
		if e.t.updated[setKey{e.zone, string(e.n.bytes()), set.rtype}] == nil {
			return true
		}
	}
	return false
}

// get returns the RRset of e.n as it is after what the update has changed so far, or nil.
func (e *zoneEdit) get(rtype uint16) *editSet {
	if set, ok := e.sets[setKey{e.zone, string(e.n.bytes()), rtype}]; ok {
		if len(set.data) == 0 {
			return nil
		}
		return set
	}
	nd := e.t.find(e.zone, e.n.hash[0], e.n.bytes())
	if nd < 0 {
		return nil
	}
	set := e.t.set(&e.t.nodes[nd], rtype)
	if set == nil {
		return nil
	}
	s := &editSet{ttl: set.ttl}
	off := set.data
	for range set.n {
		var rdata []byte
		rdata, off = e.t.next(off)
		s.data = append(s.data, rdata)
	}
	return s
}

func (e *zoneEdit) put(rtype uint16, set editSet) {
	e.sets[setKey{e.zone, string(e.n.bytes()), rtype}] = &set
}

// types returns the types of the RRsets of e.n.
func (e *zoneEdit) types() (types []uint16) {
	if nd := e.t.find(e.zone, e.n.hash[0], e.n.bytes()); nd >= 0 {
		n := &e.t.nodes[nd]
		for _, set := range e.t.sets[n.first : n.first+uint32(n.sets)] {
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

// changed returns the RRsets that the update has changed, if the zone stays within its limits.
func (e *zoneEdit) changed() (sets []RRSet, err error) {
	total, octets := 0, 0
	for k, set := range e.t.updated {
		if k.zone == e.zone {
			total++
			octets += length(set.Data)
		}
	}
	before := octets
	for k, set := range e.sets {
		_, _ = e.n.parse([]byte(k.owner))
		old := e.t.updated[k]
		size := length(set.data)
		octets += size
		if old != nil {
			octets -= length(old.Data)
		}
		switch {
		case old == nil && len(set.data) == 0:
			continue
		case old == nil:
			total++
		case old.TTL == set.ttl && slices.EqualFunc(old.Data, set.data, bytes.Equal):
			continue
		}
		if len(set.data) > maxSetRecords || size > maxSetOctets || total > maxZoneUpdates || len(e.types()) > maxNodeTypes {
			return nil, refuse(refused, "%s %s: more than %d records or %d octets of one type, %d types at a name, or %d names and types in a zone",
				nameText([]byte(k.owner)), typeText(k.rtype), maxSetRecords, maxSetOctets, maxNodeTypes, maxZoneUpdates)
		}
		sets = append(sets, RRSet{Zone: e.t.zones[e.zone].text, Name: nameText([]byte(k.owner)), Type: typeText(k.rtype), TTL: set.ttl, Data: set.data, Key: e.key, At: e.now})
	}
	if octets > max(maxZoneOctets, before) {
		return nil, refuse(refused, "the updates of a zone may have %d octets of data in all", maxZoneOctets)
	}
	slices.SortFunc(sets, func(a, b RRSet) int { return strings.Compare(a.Name+" "+a.Type, b.Name+" "+b.Type) })
	return sets, nil
}

// rdataOf returns the data of a record without compression.
func rdataOf(rr dns.RR) ([]byte, error) {
	buf := make([]byte, dns.Len(rr)+16)
	end, err := dns.PackRR(rr, buf, 0, nil, false)
	if err != nil {
		return nil, refuse(formErr, "%s: %v", rr.Header().Name, err)
	}
	owner, err := nameEnd(buf, 0)
	if err != nil || owner+10 > end {
		return nil, refuse(formErr, "%s: malformed record", rr.Header().Name)
	}
	return bytes.Clone(buf[owner+10 : end]), nil
}

// length returns the octets of some data.
func length(all [][]byte) (octets int) {
	for _, d := range all {
		octets += len(d)
	}
	return octets
}

func containsData(all [][]byte, data []byte) bool {
	return slices.ContainsFunc(all, func(d []byte) bool { return bytes.Equal(d, data) })
}

func isKnown(rtype uint16) bool { _, ok := dns.TypeToRR[rtype]; return ok }

func typeText(rtype uint16) string { return dns.Type(rtype).String() }

func labelCount(wire []byte) (n int) {
	for i := 0; wire[i] != 0; i += 1 + int(wire[i]) {
		n++
	}
	return n
}

// typeNumber is the opposite of typeText.
func typeNumber(text string) (uint16, bool) {
	if rtype, ok := dns.StringToType[strings.ToUpper(text)]; ok {
		return rtype, true
	}
	var n uint16
	_, err := fmt.Sscanf(strings.ToUpper(text), "TYPE%d", &n)
	return n, err == nil
}

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
			"%d RRsets of dynamic updates are kept, but not served: the lab file has or hides their names, or lets nobody update the zone; bootlab dns updates lists them", hidden[origin])
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

// Records returns the records as zone-file lines.
func (s RRSet) Records() (lines []string) {
	rtype, _ := typeNumber(s.Type)
	var wire [maxName + 1]byte
	n, err := dns.PackDomainName(s.Name, wire[:], 0, nil, false)
	if err != nil {
		return nil
	}
	for _, data := range s.Data {
		if text, err := recordText(wire[:n], rtype, s.TTL, data); err == nil {
			lines = append(lines, strings.ReplaceAll(text, "\t", " "))
		}
	}
	return lines
}

// ParseRecords sets the data of an RRset from zone-file lines, as Records returns them. The error is of the first that is none.
func (s *RRSet) ParseRecords(lines []string) error {
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil || rr == nil {
			return fmt.Errorf("%q is not a record: %w", line, err)
		}
		data, err := rdataOf(rr)
		if err != nil {
			return fmt.Errorf("%q is not a record: %w", line, err)
		}
		s.Data = append(s.Data, data)
	}
	return nil
}

// Updates returns the RRsets of dynamic updates that the table serves, sorted by zone, name and type.
func (t *Table) Updates() []RRSet {
	sets := make([]RRSet, 0, len(t.updated))
	for _, s := range t.updated {
		sets = append(sets, *s)
	}
	slices.SortFunc(sets, func(a, b RRSet) int {
		return cmp.Or(strings.Compare(a.Zone, b.Zone), strings.Compare(a.Name, b.Name), strings.Compare(a.Type, b.Type))
	})
	return sets
}

// Serves reports whether the table has an RRset of a dynamic update, and not only the store.
func (t *Table) Serves(s RRSet) bool {
	rtype, known := typeNumber(s.Type)
	var wire [maxName + 1]byte
	n, err := dns.PackDomainName(s.Name, wire[:], 0, nil, false)
	z := t.zoneNamed(s.Zone)
	return err == nil && known && z >= 0 && t.updated[setKey{z, string(wire[:n]), rtype}] != nil
}
