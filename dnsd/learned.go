package dnsd

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Learned is what zones have beside what the lab file says, as far as it changes with time and is in their serials. The zero
// Learned is: all members are healthy, and there are no leases.
type Learned struct {
	// Usable reports whether a member of a balancer takes connections. nil: all do.
	Usable func(balancer string, member netip.Addr) bool
	// Leases are the DHCP clients for zones whose transfers have them, and Leased the addresses that they hold. nil: those that the
	// table has are kept.
	Leases Leases
	Leased iter.Seq[netip.Addr]
}

// A followedSet is an RRset of addresses that follows the members of a balancer.
type followedSet struct {
	set      uint32 // in Table.sets
	zone     int
	balancer string
	members  []followedMember
	answered []followedMember // of them
}

type followedMember struct {
	addr   netip.Addr
	backup bool
}

// Follows reports whether names of the table follow the members of balancers.
func (t *Table) Follows() bool { return len(t.followed) > 0 }

// TransfersLeases reports whether transfers of some zone have the names of DHCP clients.
func (t *Table) TransfersLeases() bool {
	return slices.ContainsFunc(t.zones, func(z zone) bool { return z.source.Leases })
}

// Learns reports whether WithLearned may return another table.
func (t *Table) Learns() bool { return t.Follows() || t.TransfersLeases() }

// addFollowed notes which RRsets follow the members of balancers.
func (b *builder) addFollowed() {
	for i := range b.t.zones {
		records := b.t.zones[i].source.Records
		for first := 0; first < len(records); {
			last := first + 1
			for last < len(records) && records[last].Name == records[first].Name && records[last].Type == records[first].Type {
				last++
			}
			if records[first].Follows != nil {
				b.addFollowedSet(i, records[first:last])
			}
			first = last
		}
	}
}

// addFollowedSet notes one RRset, of the records of one name and type.
func (b *builder) addFollowedSet(z int, records []lab.Record) {
	wire, err := appendName(nil, records[0].Name)
	if err != nil {
		return // addDerived reports it
	}
	b.setOwner(wire)
	nd := b.t.find(z, b.n.hash[0], wire)
	if nd < 0 {
		return
	}
	f := followedSet{zone: z, balancer: records[0].Follows.Name}
	if then := records[0].Then; then.IsValid() {
		f.members = []followedMember{{addr: records[0].Addr, backup: true}, {addr: then}}
		b.addFollowedTo(nd, records[0].Addr, f, f.members[:1])
		return
	}
	for _, r := range records {
		m := followedMember{addr: r.Addr, backup: true}
		for _, backend := range r.Follows.Backends {
			if backend.Addr.Addr() == r.Addr {
				m.backup = m.backup && backend.Backup
			}
		}
		f.members = append(f.members, m)
	}
	b.addFollowedTo(nd, records[0].Addr, f, f.members)
}

// addFollowedTo notes the RRset of addresses of a node, as those of addr. answered is what the RRset has now.
func (b *builder) addFollowedTo(nd int, addr netip.Addr, f followedSet, answered []followedMember) {
	f.answered = answered
	n := &b.t.nodes[nd]
	for j := range uint32(n.sets) {
		if set := &b.t.sets[n.first+j]; (set.rtype == typeA || set.rtype == typeAAAA) && (set.rtype == typeA) == addr.Is4() {
			f.set = n.first + j
			b.t.followed = append(b.t.followed, f)
		}
	}
}

// chosen returns the members whose addresses are answered: the healthy ones; backups if no other is healthy; all if none is.
func (f *followedSet) chosen(usable func(balancer string, member netip.Addr) bool) []followedMember {
	var healthy, backups []followedMember
	for _, m := range f.members {
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
	return f.members
}

// WithLearned returns a table with what was learned. Its serials are those of the lab file: see WithSerials.
func (t *Table) WithLearned(l Learned) *Table {
	base := cmp.Or(t.base, t)
	if !base.Learns() {
		return base
	}
	c := *base
	c.base = base
	c.sets, c.zones, c.followed = slices.Clone(base.sets), slices.Clone(base.zones), slices.Clone(base.followed)
	c.blob = slices.Clip(base.blob)
	for i := range c.followed {
		c.choose(&c.followed[i], l.Usable)
	}
	if l.Leases != nil && l.Leased != nil {
		c.addLeases(l)
		return &c
	}
	for i := range c.zones {
		c.zones[i].leases = t.zones[i].leases
	}
	return &c
}

// HealthChanged reports whether WithLearned would answer with other members.
func (t *Table) HealthChanged(usable func(balancer string, member netip.Addr) bool) bool {
	return slices.ContainsFunc(t.followed, func(f followedSet) bool { return !slices.Equal(f.chosen(usable), f.answered) })
}

// SameLeases reports whether transfers have the same names of DHCP clients as those of a table of the same lab.
func (t *Table) SameLeases(o *Table) bool {
	return slices.EqualFunc(t.zones, o.zones, func(x, y zone) bool { return slices.Equal(x.leases, y.leases) })
}

// choose gives a followed RRset the addresses of the members that are answered.
func (t *Table) choose(f *followedSet, usable func(balancer string, member netip.Addr) bool) {
	f.answered = f.chosen(usable)
	set := &t.sets[f.set]
	set.data, set.n = uint32(len(t.blob)), uint16(len(f.answered))
	for _, m := range f.answered {
		t.blob = binary.BigEndian.AppendUint16(t.blob, uint16(m.addr.BitLen()/8))
		t.blob = append(t.blob, m.addr.AsSlice()...)
	}
}

// followedText says how an RRset follows the members of a balancer; empty: it does not.
func (t *Table) followedText(set *rrset) string {
	for i := range t.followed {
		if f := &t.followed[i]; &t.sets[f.set] == set {
			return fmt.Sprintf("%d of %d members of balancer %s", len(f.answered), len(f.members), f.balancer)
		}
	}
	return ""
}

// addLeases adds the names of DHCP clients to what is transferred of the zones that want them.
func (t *Table) addLeases(l Learned) {
	add := func(owner []byte, rtype uint16, rdata []byte) {
		var n name
		if _, err := n.parse(owner); err != nil {
			return
		}
		m := t.match(&n)
		if m.zone < 0 || m.cut >= 0 || m.dname > 0 || m.node >= 0 || t.zones[m.zone].broken || !t.zones[m.zone].source.Leases {
			return
		}
		z := &t.zones[m.zone]
		z.leases = append(z.leases, string(appendRecord(nil, owner, &rrset{rtype: rtype, ttl: leaseTTL}, rdata)))
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
			if addr, ok := l.Leases.AddrOfNIC(mac); ok {
				add([]byte(owner), addrType(addr.Unmap()), addr.Unmap().AsSlice())
				break
			}
		}
	}
	for i := range t.zones {
		slices.Sort(t.zones[i].leases)
		t.zones[i].leases = slices.Compact(t.zones[i].leases)
	}
}

// leaseOf returns the name of the client at an address; empty: it has none. forward reports whether the name leads back to the
// address; that of a host of the lab is found by its network card.
func (t *Table) leaseOf(leases Leases, addr netip.Addr) (owner string, forward bool) {
	called, ok := leases.NameOf(addr)
	if !ok || strings.HasSuffix(called, ".") || t.domain == nil {
		return called, false
	}
	label := hostLabel(called)
	if label == "" || !t.mayBeClients(label) {
		return "", false
	}
	has, ok := leases.AddrOf(label)
	return label + "." + t.domainText, ok && has.Unmap() == addr
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
