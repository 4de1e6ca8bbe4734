package dnsd

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// An updateSize is how much dynamic updates have made.
type updateSize struct{ sets, octets int }

func sizeOf(sets []RRSet) updateSize {
	size := updateSize{sets: len(sets)}
	for i := range sets {
		size.octets += length(sets[i].Data)
	}
	return size
}

func (s updateSize) plus(o updateSize) updateSize {
	return updateSize{s.sets + o.sets, s.octets + o.octets}
}

func (s updateSize) minus(o updateSize) updateSize {
	return updateSize{s.sets - o.sets, s.octets - o.octets}
}

// updateSize returns how much is kept of all zones, whether it is served or not.
func (t *Table) updateSize() (all updateSize) {
	for _, z := range t.zones {
		all = all.plus(z.kept)
	}
	for _, size := range t.homeless {
		all = all.plus(size)
	}
	return all
}

// An UpdateQuota is how many records dynamic updates may still add. It is for what was stored by others, as in a backup: an update itself is refused
// if it is above the quota.
type UpdateQuota struct {
	all   updateSize
	zones map[string]updateSize
}

// NewUpdateQuota returns the whole quota.
func NewUpdateQuota() *UpdateQuota { return &UpdateQuota{zones: map[string]updateSize{}} }

// Take reports whether an RRset is within the quota, and takes it from that.
func (q *UpdateQuota) Take(s *RRSet) bool {
	one := updateSize{1, length(s.Data)}
	zone, all := q.zones[s.Zone].plus(one), q.all.plus(one)
	if s.tooLarge() || zone.sets > maxZoneUpdates || zone.octets > maxZoneOctets || all.sets > maxUpdates || all.octets > maxUpdateOctets {
		return false
	}
	q.zones[s.Zone], q.all = zone, all
	return true
}

// withAllUpdates returns a table that was just compiled with what dynamic updates made. The lab file takes precedence: what it has now, or
// hides, or no longer lets be updated, is kept, not served, with a warning.
func (t *Table) withAllUpdates(sets []RRSet) *Table {
	byZone := map[string][]RRSet{}
	for _, set := range sets {
		byZone[set.Zone] = append(byZone[set.Zone], set)
	}
	t.homeless = map[string]updateSize{}
	for _, origin := range slices.Sorted(maps.Keys(byZone)) {
		z := t.zoneNamed(origin)
		if z == nil {
			t.homeless[origin] = sizeOf(byZone[origin])
			continue
		}
		t.zones[z.index] = z.withUpdates(t, byZone[origin])
	}
	return t
}

// WithUpdates returns a table whose zone of that origin has what dynamic updates made of it, which is sets and nothing else, and what was
// learned of it. All other zones are those of t. The zone has the serial of the lab file: see WithSerials.
func (t *Table) WithUpdates(origin string, sets []RRSet, l Learned) *Table {
	c := *t
	old := t.zoneNamed(origin)
	if old == nil {
		c.homeless = maps.Clone(t.homeless)
		c.homeless[origin] = sizeOf(sets)
		return &c
	}
	constant := cmp.Or(old.constant, old)
	z := cmp.Or(constant.plain, constant).withUpdates(t, sets)
	c.zones = slices.Clone(t.zones)
	c.zones[z.index] = z
	leases := old.leases
	if l.Leases != nil {
		leases = c.leaseRecords(l)[z.index]
	}
	c.zones[z.index] = z.withLearned(l.Usable, leases)
	return &c
}

// unserved returns warnings about what dynamic updates made and is not served.
func (t *Table) unserved() (warnings lab.Problems) {
	all := map[string]int{}
	for origin, size := range t.homeless {
		all[origin] = size.sets
	}
	for _, z := range t.zones {
		all[z.text] = z.kept.sets - len(z.updated)
	}
	for _, origin := range slices.Sorted(maps.Keys(all)) {
		var pos lab.Pos
		if z := t.zoneNamed(origin); z != nil {
			pos = z.source.Pos
		}
		if all[origin] > 0 {
			warnings.Addf(pos, "dns.zones."+strings.TrimSuffix(origin, "."),
				"%d RRsets of dynamic updates are kept, but not served: the lab file has or hides their names, or allows no updates of the zone; bootlab dns updates lists them", all[origin])
		}
	}
	return warnings
}

// withUpdates returns a zone, which is as it was compiled, with what dynamic updates made of it, as far as the lab file lets it.
func (z *zone) withUpdates(t *Table, sets []RRSet) *zone {
	if len(sets) == 0 {
		return z
	}
	sets = slices.Clone(sets)
	slices.SortFunc(sets, RRSet.Compare)
	size := sizeOf(sets)
	u := zoneUpdater{t: t, zone: z.clone(2*len(sets), 96*len(sets)+size.octets)}
	u.plain, u.kept, u.updated = z, size, make(map[setKey]*RRSet, len(sets))
	if z.broken || len(z.source.Update) == 0 {
		return u.zone
	}
	for first := 0; first < len(sets); {
		last := first + 1
		for last < len(sets) && sets[last].Name == sets[first].Name {
			last++
		}
		u.addName(sets[first:last])
		first = last
	}
	return u.zone
}

// A zoneUpdater adds to a copy of a zone what dynamic updates made.
type zoneUpdater struct {
	*zone
	t *Table
	n name
}

// addName adds all RRsets of one name.
func (u *zoneUpdater) addName(sets []RRSet) {
	wire, err := packName(sets[0].Name)
	if err == nil {
		_, err = u.n.parse(wire)
	}
	if in, _ := u.t.zoneOf(&u.n, 0); err != nil || in == nil || in.index != u.index || u.plain.mayAdd(u.t, &u.n) != nil {
		return
	}
	var made []rrset
	if nd := u.zone.node(&u.n, 0); nd != nil {
		made = slices.Clone(u.setsOf(nd))
	}
	before := len(made)
	for i := range sets {
		if set, ok := u.addSet(&sets[i], made); ok {
			made = append(made, set)
		}
	}
	if len(made) > before {
		u.replaceSets(u.ensure(&u.n, 0, 0), made)
	}
}

// asCompiled returns a zone without dynamic updates and without what was learned.
func (z *zone) asCompiled() *zone {
	z = cmp.Or(z.constant, z)
	return cmp.Or(z.plain, z)
}

// mayAdd reports why updates cannot have records at a name of a zone, which is as it was compiled: the lab file has it, or decides about it
// from above, or programs trust it.
func (z *zone) mayAdd(t *Table, n *name) error {
	if err := z.mayTouch(t, n); err != nil {
		return err
	}
	text := nameText(n.bytes())
	switch m := z.match(n, n.labels-z.labels); {
	case z.reserved(n):
		return refuse(refused, "%s is reserved, as programs trust such names unasked: dns.zones.NAME.update_reserved may list it", text)
	case m.cut >= 0 || m.dname > 0:
		return refuse(notZone, "%s is delegated or redirected", text)
	case m.node != nil && m.node.derived && !(n.wire[1] == '_' && n.labels == len(labelsOf(z.nameOf(m.node)))):
		return refuse(refused, "%s is a name that the lab file has by a wildcard; only names such as _acme-challenge can be added there", text)
	}
	return nil
}

// mayTouch reports why updates cannot change a name of a zone: it is that of one of the lab file's hosts and clusters.
func (z *zone) mayTouch(t *Table, n *name) error {
	if _, ok := t.pooled[string(n.bytes())]; ok {
		return refuse(refused, "%s is the name of a host", nameText(n.bytes()))
	}
	if nd := z.node(n, 0); nd != nil && nd.derived {
		return refuse(refused, "%s is a name of the lab file's hosts and clusters", nameText(n.bytes()))
	}
	return nil
}

// addSet adds the data of an RRset of u.n, which has others already. It reports false if it does not go together with those.
func (u *zoneUpdater) addSet(s *RRSet, others []rrset) (rrset, bool) {
	rtype, known := typeNumber(s.Type)
	switch {
	case !known || !updatable(rtype) || len(s.Data) == 0 || len(others) >= maxNodeTypes:
		return rrset{}, false
	case slices.ContainsFunc(others, func(o rrset) bool { return o.rtype == rtype || o.rtype == typeCNAME || rtype == typeCNAME }):
		return rrset{}, false
	}
	set := rrset{data: uint32(len(u.blob)), ttl: s.TTL, rtype: rtype, n: uint16(len(s.Data))}
	for _, rdata := range s.Data {
		u.appendData(rdata)
	}
	u.updated[setKey{string(u.n.bytes()), rtype}] = s
	return set, true
}

// replaceSets gives a node other RRsets, in the order of their types.
func (u *zoneUpdater) replaceSets(nd int, sets []rrset) {
	old := &u.nodes[nd]
	first := uint32(len(u.sets))
	slices.SortFunc(sets, func(x, y rrset) int { return cmp.Compare(x.rtype, y.rtype) })
	for i := range u.followed { // at the apex: other names that follow backends are the lab's alone
		f := &u.followed[i]
		if f.set < old.first || f.set >= old.first+uint32(old.sets) {
			continue
		}
		rtype := u.sets[f.set].rtype
		f.set = first + uint32(slices.IndexFunc(sets, func(s rrset) bool { return s.rtype == rtype }))
	}
	u.sets = append(u.sets, sets...)
	old.first, old.sets = first, uint8(len(sets))
}

// updatable reports whether updates may add records of a type. A SOA, NS, DS or DNAME changes the zone for other names.
func updatable(rtype uint16) bool {
	switch rtype {
	case typeSOA, typeNS, typeDS, typeDNAME:
		return false
	}
	return !isMeta(rtype)
}

// tooLarge reports whether an RRset would not fit into a reply.
func (s *RRSet) tooLarge() bool { return len(s.Data) > maxSetRecords || length(s.Data) > maxSetOctets }
