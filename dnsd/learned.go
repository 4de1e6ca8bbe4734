package dnsd

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Learned is what zones have beside what the lab file says, as far as it changes with time and is in their serials. The zero
// Learned is: all backends are healthy, and there are no leases.
type Learned struct {
	// Usable reports whether a backend of a balancer takes connections. nil: all do.
	Usable func(balancer string, backend netip.Addr) bool
	// Leases are the DHCP clients for zones whose transfers have them, and Leased the addresses that they hold. nil: those that the
	// table has are kept.
	Leases Leases
	Leased iter.Seq[netip.Addr]
}

// A followedSet is an RRset of addresses that follows the backends of a balancer.
type followedSet struct {
	set      uint32 // in zone.sets
	balancer string
	backends []followedBackend
	answered []followedBackend // of them
}

type followedBackend struct {
	addr   netip.Addr
	backup bool
}

// Follows reports whether names of the table follow the backends of balancers.
func (t *Table) Follows() bool {
	return slices.ContainsFunc(t.zones, func(z *zone) bool { return len(z.followed) > 0 })
}

// TransfersLeases reports whether transfers of some zone have the names of DHCP clients.
func (t *Table) TransfersLeases() bool {
	return slices.ContainsFunc(t.zones, func(z *zone) bool { return z.source.Leases })
}

// TransfersLeasesOf is TransfersLeases for the zone of an origin.
func (t *Table) TransfersLeasesOf(origin string) bool {
	z := t.zoneNamed(origin)
	return z != nil && z.source.Leases
}

// Learns reports whether WithLearned may return another table.
func (t *Table) Learns() bool { return t.Follows() || t.TransfersLeases() }

// addFollowed notes which RRsets follow the backends of balancers.
func (z *zoneBuilder) addFollowed() {
	records := z.source.Records
	for first := 0; first < len(records); {
		last := first + 1
		for last < len(records) && records[last].Name == records[first].Name && records[last].Type == records[first].Type {
			last++
		}
		if records[first].Follows != nil {
			z.addFollowedSet(records[first:last])
		}
		first = last
	}
}

// addFollowedSet notes one RRset, of the records of one name and type.
func (z *zoneBuilder) addFollowedSet(records []lab.Record) {
	wire, err := appendName(nil, records[0].Name)
	if err != nil {
		return // addDerived reports it
	}
	z.b.setOwner(wire)
	nd := z.find(z.b.n.hash[0], wire)
	if nd < 0 {
		return
	}
	f := followedSet{balancer: records[0].Follows.Name}
	if then := records[0].Then; then.IsValid() {
		f.backends = []followedBackend{{addr: records[0].Addr, backup: true}, {addr: then}}
		z.addFollowedTo(nd, records[0].Addr, f, f.backends[:1])
		return
	}
	for _, r := range records {
		m := followedBackend{addr: r.Addr, backup: true}
		for _, backend := range r.Follows.Backends {
			if backend.Addr.Addr() == r.Addr {
				m.backup = m.backup && backend.Backup
			}
		}
		f.backends = append(f.backends, m)
	}
	z.addFollowedTo(nd, records[0].Addr, f, f.backends)
}

// addFollowedTo notes the RRset of addresses of a node, as those of addr. answered is what the RRset has now.
func (z *zoneBuilder) addFollowedTo(nd int, addr netip.Addr, f followedSet, answered []followedBackend) {
	f.answered = answered
	n := &z.nodes[nd]
	for j := range uint32(n.sets) {
		if set := &z.sets[n.first+j]; (set.rtype == typeA || set.rtype == typeAAAA) && (set.rtype == typeA) == addr.Is4() {
			f.set = n.first + j
			z.followed = append(z.followed, f)
		}
	}
}

// chosen returns the backends whose addresses are answered: the healthy ones; backups if no other is healthy; all if none is.
func (f *followedSet) chosen(usable func(balancer string, backend netip.Addr) bool) []followedBackend {
	var healthy, backups []followedBackend
	for _, m := range f.backends {
		switch {
		case usable != nil && !usable(f.balancer, m.addr):
		case m.backup:
			backups = append(backups, m)
		default:
			healthy = append(healthy, m)
		}
	}
	switch {
	case len(healthy) > 0:
		return healthy
	case len(backups) > 0:
		return backups
	}
	return f.backends
}

// WithLearned returns a table with what was learned. Zones that it changes have the serials of the lab file: see WithSerials.
func (t *Table) WithLearned(l Learned) *Table {
	if !t.Learns() {
		return t
	}
	c := *t
	c.zones = slices.Clone(t.zones)
	leases := t.leaseRecords(l)
	for i, z := range c.zones {
		if l.Leases == nil || !z.source.Leases {
			leases[i] = z.leases
		}
		c.zones[i] = z.withLearned(l.Usable, leases[i])
	}
	return &c
}

// withLearned returns a zone with what was learned, which is the same one if that is what it has.
func (z *zone) withLearned(usable func(balancer string, backend netip.Addr) bool, leases []string) *zone {
	if slices.Equal(z.leases, leases) && !z.healthChanged(usable) {
		return z
	}
	base := cmp.Or(z.constant, z)
	c := *base
	c.constant, c.leases, c.content = base, leases, &contentHash{}
	c.sets, c.followed, c.blob = slices.Clone(base.sets), slices.Clone(base.followed), slices.Clip(base.blob)
	for i := range c.followed {
		c.choose(&c.followed[i], usable)
	}
	return &c
}

// HealthChanged reports whether WithLearned would answer with other backends.
func (t *Table) HealthChanged(usable func(balancer string, backend netip.Addr) bool) bool {
	return slices.ContainsFunc(t.zones, func(z *zone) bool { return z.healthChanged(usable) })
}

func (z *zone) healthChanged(usable func(balancer string, backend netip.Addr) bool) bool {
	return slices.ContainsFunc(z.followed, func(f followedSet) bool { return !slices.Equal(f.chosen(usable), f.answered) })
}

// SameLeases reports whether transfers have the same names of DHCP clients as those of a table of the same lab.
func (t *Table) SameLeases(o *Table) bool {
	return slices.EqualFunc(t.zones, o.zones, func(x, y *zone) bool { return slices.Equal(x.leases, y.leases) })
}

// choose gives a followed RRset the addresses of the backends that are answered.
func (z *zone) choose(f *followedSet, usable func(balancer string, backend netip.Addr) bool) {
	f.answered = f.chosen(usable)
	set := &z.sets[f.set]
	set.data, set.n = uint32(len(z.blob)), uint16(len(f.answered))
	for _, m := range f.answered {
		z.appendData(m.addr.AsSlice())
	}
}

// followedText says how an RRset follows the backends of a balancer; empty: it does not.
func (z *zone) followedText(set *rrset) string {
	for i := range z.followed {
		if f := &z.followed[i]; &z.sets[f.set] == set {
			return fmt.Sprintf("%d of %d backends of balancer %s", len(f.answered), len(f.backends), f.balancer)
		}
	}
	return ""
}

// leaseRecords returns the records of DHCP clients that the transfers of zones have, by index, sorted.
func (t *Table) leaseRecords(l Learned) [][]string {
	all := make([][]string, len(t.zones))
	if l.Leases == nil || l.Leased == nil {
		return all
	}
	add := func(owner []byte, rtype uint16, rdata []byte) {
		var n name
		if _, err := n.parse(owner); err != nil {
			return
		}
		m := t.match(&n)
		if m.zone == nil || m.cut >= 0 || m.dname > 0 || m.node != nil || m.zone.broken || !m.zone.source.Leases {
			return
		}
		all[m.zone.index] = append(all[m.zone.index], string(appendRecord(nil, owner, &rrset{rtype: rtype, ttl: leaseTTL}, rdata)))
	}
	for addr := range l.Leased {
		owner, target := t.leaseOf(l.Leases, addr)
		if owner == "" {
			continue
		}
		name, err := appendName(nil, owner)
		if err != nil {
			continue
		}
		if target {
			add(name, addrType(addr), addr.AsSlice())
		}
		if reverse, err := appendName(nil, reverseText(addr)); err == nil && contains(t.networks, addr) {
			add(reverse, typePTR, name)
		}
	}
	for owner, nics := range t.pooled {
		for _, mac := range nics {
			if has, ok := l.Leases.ByMAC(mac); ok {
				addr := has.Addr.Unmap()
				add([]byte(owner), addrType(addr), addr.AsSlice())
				break
			}
		}
	}
	for i := range all {
		slices.Sort(all[i])
		all[i] = slices.Compact(all[i])
	}
	return all
}

// leaseOf returns the name of the client at an address; empty: it has none. forward reports whether the name leads back to the
// address; that of a host of the lab is found by its network card.
func (t *Table) leaseOf(leases Leases, addr netip.Addr) (owner string, forward bool) {
	l, ok := leases.ByAddr(addr)
	if !ok {
		return "", false
	}
	if owner = t.leaseName(l); owner == "" || t.lab.HostByMAC(l.MAC) != nil {
		return owner, false
	}
	has, ok := leases.ByName(l.Hostname)
	return owner, ok && has.Addr.Unmap() == addr
}

func addrType(a netip.Addr) uint16 {
	if a.Is4() {
		return typeA
	}
	return typeAAAA
}

// reverseText returns the reverse name of an IPv4 address (RFC 1035 section 3.5).
func reverseText(a netip.Addr) string {
	b := a.As4()
	return fmt.Sprintf("%d.%d.%d.%d.in-addr.arpa.", b[3], b[2], b[1], b[0])
}
