package load

import (
	"net/netip"
	"slices"

	"github.com/bootlab/bootlab/internal/lab"
)

// poolLists resolves the pools of all networks; profiles are known by then.
func (r *resolver) poolLists() {
	for i, e := range r.raw.Networks.Entries {
		n := r.lab.Networks[i]
		for _, p := range e.V.Pools.Entries {
			n.Pools = append(n.Pools, r.pool(p, n))
		}
		r.overlappingPools(e, n)
		r.unreachablePools(n)
	}
}

func (r *resolver) pool(e *entry[rawPool], n *lab.Network) *lab.Pool {
	raw, key := &e.V, "networks."+n.Name+".pools."+e.Name
	r.identName(e.spot, key, e.Name)
	p := &lab.Pool{
		Pos: r.pos(e.spot), Name: e.Name, Network: n, Range: raw.Range.V,
		Routes: r.routes(&raw.Routes, key), Options: r.options(&raw.Options, key, hostOptionKey),
		Lease: r.lease(&raw.Lease, n.Lease, key), PerPort: int(raw.PerPort.or(0)),
		MACs: criteria(r, &raw.MAC, key+".mac"), Archs: criteria(r, &raw.Arch, key+".arch"),
		VendorClasses: criteria(r, &raw.VendorClass, key+".vendor_class"), UserClasses: criteria(r, &raw.UserClass, key+".user_class"),
		CircuitIDs: criteria(r, &raw.CircuitID, key+".circuit_id"), RemoteIDs: criteria(r, &raw.RemoteID, key+".remote_id"),
	}
	if raw.Profile.ok() {
		if p.Profile = r.profiles[string(raw.Profile.V)]; p.Profile == nil {
			r.unknownName(raw.Profile.spot, key+".profile", "profile", string(raw.Profile.V), r.raw.Profiles.names())
		}
	}
	if missing(r, &raw.Range, e.spot, key+".range", "two addresses such as 192.168.16.130-192.168.16.135") && n.Subnet.IsValid() {
		r.poolRange(p, raw.Range.spot, key+".range")
	}
	return p
}

// criteria returns what a pool asks for under one key.
func criteria[T any](r *resolver, raw *oneOrMore[T], key string) []T {
	if raw.set() && !raw.bad() && len(raw.Items) == 0 {
		r.fail(raw.spot, key, "is an empty list: leave it out to serve anyone")
	}
	return values(raw.scalars, func(v T) T { return v })
}

// poolRange holds a range against its network. It may cover addresses that are somebody's: hosts', clusters', the router's,
// the appliance's. Those are never handed out.
func (r *resolver) poolRange(p *lab.Pool, s spot, key string) {
	n := p.Network
	if !n.Subnet.Contains(p.Range.First) || !n.Subnet.Contains(p.Range.Last) {
		r.fail(s, key, "%s is outside network %s: want addresses inside %s", p.Range, n.Name, n.Subnet)
		return
	}
	for _, taken := range []struct {
		addr netip.Addr
		what string
	}{{n.Subnet.Addr(), "the network address"}, {lastAddr(n.Subnet), "the broadcast address"}} {
		if p.Range.Contains(taken.addr) {
			r.fail(s, key, "%s holds %s, %s: want a range without it", p.Range, taken.addr, taken.what)
		}
	}
}

func (r *resolver) overlappingPools(e *entry[rawNetwork], n *lab.Network) {
	for i, p := range n.Pools {
		for j, q := range n.Pools[:i] {
			if !p.Range.First.IsValid() || !q.Range.First.IsValid() {
				continue
			}
			if p.Range.First.Compare(q.Range.Last) <= 0 && q.Range.First.Compare(p.Range.Last) <= 0 {
				r.fail(e.V.Pools.Entries[i].V.Range.spot, "networks."+n.Name+".pools."+p.Name+".range", "%s overlaps %s of pool %s (%s): want ranges apart",
					p.Range, q.Range, q.Name, r.pos(e.V.Pools.Entries[j].V.Range.spot))
			}
		}
	}
}

// unreachablePools warns of pools where no machine will ever get: every machine that matches matches an earlier pool at
// least as well.
func (r *resolver) unreachablePools(n *lab.Network) {
	for i, p := range n.Pools {
		for _, first := range n.Pools[:i] {
			if !covers(first, p) {
				continue
			}
			r.lab.Warnings.Addf(p.Pos, "networks."+n.Name+".pools."+p.Name, "is never reached: pool %s (%s) takes the same machines and comes first by name: want other criteria, or one range", first.Name, first.Pos)
			break
		}
	}
}

// covers reports whether each key of p asks for what the same key of first asks for, or less.
func covers(first, p *lab.Pool) bool {
	return subset(anyMAC(p.MACs), anyMAC(first.MACs)) && subset(p.Archs, first.Archs) &&
		subset(p.VendorClasses, first.VendorClasses) && subset(p.UserClasses, first.UserClasses) &&
		subset(p.CircuitIDs, first.CircuitIDs) && subset(p.RemoteIDs, first.RemoteIDs)
}

// anyMAC leaves out patterns that ask for nothing.
func anyMAC(patterns []lab.MACPattern) []lab.MACPattern {
	if !slices.ContainsFunc(patterns, func(p lab.MACPattern) bool { return p.Bits() > 0 }) {
		return nil
	}
	return patterns
}

// subset reports whether every pattern of a is one of b. Asking for nothing is like nothing but itself.
func subset[T comparable](a, b []T) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	return !slices.ContainsFunc(a, func(p T) bool { return !slices.Contains(b, p) })
}
