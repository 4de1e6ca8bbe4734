package load

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

func (r *resolver) networkList() {
	slab := make([]lab.Network, len(r.raw.Networks.Entries))
	for i, e := range r.raw.Networks.Entries {
		n := &slab[i]
		r.network(e, n)
		r.networks[e.Name] = n
		r.lab.Networks = append(r.lab.Networks, n)
		if n.Subnet.IsValid() {
			r.bySubnet = append(r.bySubnet, n)
		} else {
			r.noSubnets = true
		}
	}
	r.noSubnets = r.noSubnets || r.incomplete["networks"]
	r.bySubnet = lab.SortBySubnet(r.bySubnet)
	r.overlappingSubnets()
	r.overlappingSubnets6()
}

func (r *resolver) network(e *entry[rawNetwork], n *lab.Network) {
	raw, key := &e.V, "networks."+e.Name
	r.identName(e.spot, key, e.Name)
	*n = lab.Network{
		Pos: r.pos(e.spot), Name: e.Name, Subnet: raw.Subnet.V.Prefix, Interface: string(raw.Interface.or("")),
		Address: raw.Address.V.Addr, Router: raw.Router.V.Addr,
		NoTFTP: r.lab.Appliance.TFTP == nil, DNS: values(raw.DNS, addr4.addr), NTP: values(raw.NTP, addr4.addr),
		MTU: int(raw.MTU.or(0)), DHCP: raw.DHCP.or(lab.DHCPServer), Probe: bool(raw.Probe.or(true)),
		Lease:  r.lease(&raw.Lease, defaultLease, key),
		Routes: r.routes(&raw.Routes, key), Options: r.options(&raw.Options, key, networkOptionKey),
	}
	for i := range raw.Search.Items {
		if s := &raw.Search.Items[i]; s.ok() {
			n.Search = append(n.Search, r.plainDomain(s, fmt.Sprintf("%s.search[%d]", key, i)))
		}
	}
	if !raw.Search.set() && r.lab.Domain != "" {
		n.Search = []string{r.lab.Domain}
	}
	if missing(r, &raw.Subnet, e.spot, key+".subnet", "a prefix such as 192.168.16.0/24") {
		r.subnet(e, n, key)
	}
	if bits := raw.Subnet6.V.Bits(); raw.Subnet6.ok() {
		n.Subnet6 = raw.Subnet6.V.Prefix
		if bits < 48 || bits > 126 {
			r.fail(raw.Subnet6.spot, key+".subnet6", "%s has the length /%d: want /48 to /126", n.Subnet6, bits)
		}
	}
	if raw.MTU.ok() && (n.MTU < 576 || n.MTU > 65535) {
		r.fail(raw.MTU.spot, key+".mtu", "%d is not an MTU: want 576 to 65535 bytes", n.MTU)
	}
}

func (a addr4) addr() netip.Addr { return a.Addr }

func (r *resolver) subnet(e *entry[rawNetwork], n *lab.Network, key string) {
	raw := &e.V
	if bits := n.Subnet.Bits(); bits < 8 || bits > 30 {
		r.fail(raw.Subnet.spot, key+".subnet", "%s has the length /%d: want /8 to /30", n.Subnet, bits)
	}
	if own := &raw.Router; own.ok() {
		r.hostAddress(n, own.V.Addr, own.spot, key+".router")
	}
}

// hostAddress reports an address that no machine of n can have.
func (r *resolver) hostAddress(n *lab.Network, a netip.Addr, s spot, key string) bool {
	switch {
	case !n.Subnet.Contains(a):
		r.failOutside(subnetOf{n: n}, s, key, single(a), "one inside "+n.Subnet.String())
	case a == n.Subnet.Addr():
		r.fail(s, key, "%s is the network address of network %s: want one between it and %s", a, n.Name, lastAddr(n.Subnet))
	case a == lastAddr(n.Subnet):
		r.fail(s, key, "%s is the broadcast address of network %s: want one before it", a, n.Name)
	default:
		r.inside[subnetOf{n: n}] = true
		return true
	}
	return false
}

// lastAddr returns the broadcast address of an IPv4 prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	n := binary.BigEndian.Uint32(b[:]) | uint32(1<<(32-p.Bits())-1)
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

func (r *resolver) overlappingSubnets() {
	var widest *lab.Network // with the highest last address so far
	for _, n := range r.bySubnet {
		if widest != nil && widest.Subnet.Overlaps(n.Subnet) {
			r.overlaps = append(r.overlaps, [2]*lab.Network{widest, n})
		}
		if widest == nil || lastAddr(widest.Subnet).Less(lastAddr(n.Subnet)) {
			widest = n
		}
	}
}

// overlappingSubnets6 reports IPv6 subnets that share addresses.
func (r *resolver) overlappingSubnets6() {
	for i, n := range r.lab.Networks {
		for _, other := range r.lab.Networks[:i] {
			if n.Subnet6.IsValid() && other.Subnet6.IsValid() && n.Subnet6.Overlaps(other.Subnet6) {
				r.fail(r.raw.Networks.Entries[i].V.Subnet6.spot, "networks."+n.Name+".subnet6", "%s overlaps %s of network %s (%s): want subnets that do not "+
					"overlap", n.Subnet6, other.Subnet6, other.Name, other.Pos)
			}
		}
	}
}

func (r *resolver) lease(v *scalar[span], fallback time.Duration, key string) time.Duration {
	d := time.Duration(v.or(span(fallback)))
	if v.ok() && (d < time.Second || d > math.MaxUint32*time.Second) {
		r.fail(v.spot, key+".lease", "%s is not a lease time: want 1s or more, such as 12h", d)
	}
	return d
}

// maxRoutes is how many routes of 9 bytes fit in option 121 of one message (see maxOptionData).
const maxRoutes = 100

func (r *resolver) routes(raw *list[rawRoute], key string) []lab.Route {
	if !raw.set() {
		return nil
	}
	routes := make([]lab.Route, 0, len(raw.Items))
	for i := range raw.Items {
		item, at := &raw.Items[i], ""
		if !item.To.set() || !item.Via.set() {
			at = fmt.Sprintf("%s.routes[%d]", key, i)
		}
		near := item.To.spot
		if !near.set() {
			near = item.Via.spot
		}
		if !near.set() {
			near = raw.spot
		}
		to := missing(r, &item.To, near, at+".to", "a destination such as 10.0.0.0/19")
		via := missing(r, &item.Via, near, at+".via", "a gateway such as 192.168.16.101")
		if to && via {
			routes = append(routes, lab.Route{To: item.To.V.Prefix, Via: item.Via.V.Addr})
		}
	}
	if len(raw.Items) > maxRoutes {
		r.fail(raw.spot, key+".routes", "%d routes do not fit in one message: want %d or fewer", len(raw.Items), maxRoutes)
	}
	return routes
}

// gateways reports routes by gateways that no machine of the lab's networks can reach.
func (r *resolver) gateways() {
	if r.noSubnets {
		return // reported already
	}
	for _, n := range r.raw.Networks.Entries {
		r.gatewaysOf(&n.V.Routes, "networks", n.Name)
		for _, p := range n.V.Pools.Entries {
			r.gatewaysOf(&p.V.Routes, "networks."+n.Name+".pools", p.Name)
		}
	}
	for _, h := range r.raw.Hosts.Entries {
		r.gatewaysOf(&h.V.Routes, "hosts", h.Name)
	}
}

// gatewaysOf accepts 0.0.0.0 too: the destination is on the link (RFC 3442).
func (r *resolver) gatewaysOf(raw *list[rawRoute], section, name string) {
	for i := range raw.Items {
		via := &raw.Items[i].Via
		if via.ok() && !via.V.IsUnspecified() && lab.FindSubnet(r.bySubnet, via.V.Addr) == nil {
			r.failOutside(subnetOf{}, via.spot, fmt.Sprintf("%s.%s.routes[%d].via", section, name, i), single(via.V.Addr), "a gateway inside "+r.subnets())
		}
	}
}

// addresses sets the appliance's address in each network, and the values derived from it.
func (r *resolver) addresses() {
	for i, e := range r.raw.Networks.Entries {
		n := r.lab.Networks[i]
		if n.Subnet.IsValid() && !e.V.Address.set() {
			r.findAddress(n)
		}
		r.hostsAt(n)
	}
	for i, e := range r.raw.Networks.Entries {
		n, own := r.lab.Networks[i], &e.V.Address
		switch {
		case !n.Subnet.IsValid():
		case own.ok():
			r.writtenAddress(n, own)
		case !own.set() && !n.HasAppliance():
			if n.Address = r.addressElsewhere(n); !n.Address.IsValid() && n.DHCP != lab.DHCPOff && !slices.ContainsFunc(r.lab.Networks, (*lab.Network).Served) {
				r.fail(e.spot, "networks."+n.Name+".address", "is missing: want the appliance's address in %s, or in another network, or interface, or dhcp: off", n.Subnet)
			}
		}
		if !n.Address.IsValid() {
			continue
		}
		if !e.V.DNS.set() && r.lab.Appliance.DNS != nil {
			n.DNS = []netip.Addr{n.Address}
		}
		n.BaseURL = fmt.Sprintf("http://%s:%d", n.Address, r.lab.Appliance.HTTPPort)
	}
}

// writtenAddress checks the appliance's address that the lab file gives for a network. Machines behind a relay may reach it at the one that it
// has in another network.
func (r *resolver) writtenAddress(n *lab.Network, own *scalar[addr4]) {
	a, key := own.V.Addr, "networks."+n.Name+".address"
	if n.Interface != "" || n.Subnet.Contains(a) {
		r.hostAddress(n, a, own.spot, key)
		return
	}
	other := lab.FindSubnet(r.bySubnet, a)
	if known := other != nil && (other.HasAppliance() || other.Interface == ""); other == nil || known && other.Address != a {
		r.failOutside(subnetOf{n: n}, own.spot, key, single(a), "one inside "+n.Subnet.String()+", or the appliance's in another network")
	}
}

// addressElsewhere returns the appliance's address for the machines of a network in which it has none: they are behind a relay. That leads to
// the network's interface. Without one, nothing says where it leads: to a network where the appliance gives the addresses, if there is one.
func (r *resolver) addressElsewhere(n *lab.Network) (a netip.Addr) {
	served := false
	for _, other := range r.lab.Networks {
		if !other.HasAppliance() || n.Interface != "" && other.Interface != n.Interface {
			continue
		}
		if serves := other.Interface != "" && other.DHCP == lab.DHCPServer; !a.IsValid() || serves && !served {
			a, served = other.Address, serves
		}
	}
	if !a.IsValid() && n.Interface != "" && r.o.InterfaceAddr != nil {
		if own, ok := r.o.InterfaceAddr(n.Interface, netip.PrefixFrom(netip.IPv4Unspecified(), 0)); ok {
			return own
		}
	}
	return a
}

// hostsAt reports a host with the appliance's or the router's address.
func (r *resolver) hostsAt(n *lab.Network) {
	if h := r.hostByIP[n.Address]; h != nil && h.Role != lab.RoleAppliance {
		r.fail(r.addressSpot(h, n.Address), "hosts."+h.Name+".ip", "%s is the appliance's address in network %s (%s): want another one, or role: appliance", n.Address, n.Name, n.Pos)
	}
	h := r.hostByIP[n.Router]
	if h != nil && n.Router != n.Address && len(h.MACs) > 0 && h.Role != "router" && h.Role != lab.RoleAppliance {
		r.fail(r.addressSpot(h, n.Router), "hosts."+h.Name+".ip", "%s is the router of network %s (%s): want another one, or role: router", n.Router, n.Name, n.Pos)
	}
}

func (r *resolver) findAddress(n *lab.Network) {
	if n.Interface != "" && r.o.InterfaceAddr != nil {
		if a, ok := r.o.InterfaceAddr(n.Interface, n.Subnet); ok && n.Subnet.Contains(a) {
			n.Address = a
			return
		}
	}
	for _, h := range r.lab.Hosts {
		if a := h.AddrIn(n.Subnet); h.Role == lab.RoleAppliance && a.IsValid() && n.Subnet.Contains(a) {
			n.Address = a
			return
		}
	}
	if n.Served() {
		r.lab.Warnings.Addf(n.Pos, "networks."+n.Name+".address", "interface %s has no address in %s on this machine: want address, or a host with role: appliance", n.Interface, n.Subnet)
	}
}

// poolLists resolves the pools of all networks; profiles are known by then.
func (r *resolver) poolLists() {
	for i, e := range r.raw.Networks.Entries {
		n := r.lab.Networks[i]
		for _, p := range e.V.Pools.Entries {
			n.Pools = append(n.Pools, r.pool(p, n))
		}
		r.overlappingPools(e, n)
		r.unreachablePools(e, n)
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
			p.Profile = r.profiles[r.unknownName(raw.Profile.spot, key+".profile", "profile", string(raw.Profile.V), r.raw.Profiles.names())]
		}
	}
	if missing(r, &raw.Range, e.spot, key+".range", "two addresses such as 192.168.16.130-192.168.16.135") && n.Subnet.IsValid() {
		r.poolRange(p, raw.Range.spot, key+".range")
	}
	return p
}

// criteria returns the criteria of one key of a pool.
func criteria[T any](r *resolver, raw *oneOrMore[T], key string) []T {
	if raw.set() && !raw.bad() && len(raw.Items) == 0 {
		r.fail(raw.spot, key, "is an empty list: leave it out to serve anyone")
	}
	return values(raw.scalars, func(v T) T { return v })
}

// poolRange checks a range against its network. It may contain addresses of hosts, clusters, the router and the appliance;
// those are never handed out, see lab.Lab.NotPooled.
func (r *resolver) poolRange(p *lab.Pool, s spot, key string) {
	n := p.Network
	if !inNetwork(p) {
		r.failOutside(subnetOf{n: n}, s, key, p.Range, "addresses inside "+n.Subnet.String())
		return
	}
	r.inside[subnetOf{n: n}] = true
	first, last := n.Subnet.Addr(), lastAddr(n.Subnet)
	switch {
	case p.Range.Contains(first) && p.Range.Contains(last):
		r.fail(s, key, "%s contains the network address, %s, and the broadcast address, %s: want a range without them", p.Range, first, last)
	case p.Range.Contains(first):
		r.fail(s, key, "%s contains the network address, %s: want a range without it", p.Range, first)
	case p.Range.Contains(last):
		r.fail(s, key, "%s contains the broadcast address, %s: want a range without it", p.Range, last)
	}
}

// inNetwork reports whether the range of p is inside its network.
func inNetwork(p *lab.Pool) bool {
	subnet := p.Network.Subnet
	return subnet.Contains(p.Range.First) && subnet.Contains(p.Range.Last)
}

// overlappingPools reports ranges that overlap. One that is outside its network is reported as that alone.
func (r *resolver) overlappingPools(e *entry[rawNetwork], n *lab.Network) {
	for i, p := range n.Pools {
		for j, q := range n.Pools[:i] {
			if overlap(p, q) && inNetwork(p) && inNetwork(q) {
				r.fail(e.V.Pools.Entries[i].V.Range.spot, "networks."+n.Name+".pools."+p.Name+".range", "%s overlaps %s of pool %s (%s): want ranges that do not overlap",
					p.Range, q.Range, q.Name, r.pos(e.V.Pools.Entries[j].V.Range.spot))
			}
		}
	}
}

// overlap reports whether two pools have an address in common.
func overlap(p, q *lab.Pool) bool {
	return p.Range.First.IsValid() && q.Range.First.IsValid() && p.Range.First.Compare(q.Range.Last) <= 0 && q.Range.First.Compare(p.Range.Last) <= 0
}

// unreachablePools warns of pools that are never used: every client that matches also matches an earlier pool at least as well.
// A pool whose range is not valid or is that of another is reported as that.
func (r *resolver) unreachablePools(e *entry[rawNetwork], n *lab.Network) {
	for i, p := range n.Pools {
		for j, first := range n.Pools[:i] {
			if !covers(first, p) || overlap(first, p) || !e.V.Pools.Entries[i].V.Range.ok() || !e.V.Pools.Entries[j].V.Range.ok() {
				continue
			}
			r.lab.Warnings.Addf(p.Pos, "networks."+n.Name+".pools."+p.Name, "is never reached: pool %s (%s) takes the same machines and comes first by name: "+
				"want other criteria, or one range", first.Name, first.Pos)
			break
		}
	}
}

// covers reports whether first matches every client that p matches, key by key.
func covers(first, p *lab.Pool) bool {
	return subset(anyMAC(p.MACs), anyMAC(first.MACs)) && subset(p.Archs, first.Archs) &&
		subset(p.VendorClasses, first.VendorClasses) && subset(p.UserClasses, first.UserClasses) &&
		subset(p.CircuitIDs, first.CircuitIDs) && subset(p.RemoteIDs, first.RemoteIDs)
}

// anyMAC returns nil if one of the patterns matches every MAC.
func anyMAC(patterns []lab.MACPattern) []lab.MACPattern {
	if !slices.ContainsFunc(patterns, func(p lab.MACPattern) bool { return p.Bits() > 0 }) {
		return nil
	}
	return patterns
}

// subset reports whether every pattern of a is in b. An empty list equals an empty list only.
func subset[T comparable](a, b []T) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	return !slices.ContainsFunc(a, func(p T) bool { return !slices.Contains(b, p) })
}
