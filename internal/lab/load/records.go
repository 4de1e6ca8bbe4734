package load

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// deriveZones makes the zones of the lab's names and addresses. A record goes to the zone with the longest origin that
// it lies in, static or derived.
func (r *resolver) deriveZones() {
	if r.lab.Domain != "" {
		r.zone(r.lab.Domain+".", r.pos(r.raw.Domain.spot))
	}
	for _, c := range r.lab.Clusters {
		z := r.zone(c.Domain+".", c.Pos)
		z.Records = slices.Grow(z.Records, len(c.Hosts)+4)
	}
	for _, n := range r.lab.Networks {
		for _, origin := range reverseZones(n.Subnet) {
			z := r.zone(origin, n.Pos)
			z.ForwardMissing = z.ForwardMissing || n.Subnet.Bits() > 24 && !n.Subnet.Addr().IsPrivate() // the rest of the zone is others'
		}
	}
	for _, n := range r.lab.Networks {
		if n.Subnet6.IsValid() {
			z := r.zone(reverseZone6(n.Subnet6), n.Pos)
			z.ForwardMissing = z.ForwardMissing || !n.Subnet6.Addr().IsPrivate() && n.Subnet6.Bits()%4 != 0
		}
	}
	for _, h := range r.lab.Hosts {
		r.hostRecords(h)
	}
	for _, c := range r.lab.Clusters {
		r.clusterRecords(c)
	}
	for _, b := range r.lab.Balancers {
		r.balancerRecords(b)
	}
	for _, z := range r.zones {
		sortRecords(z)
		r.lab.Zones = append(r.lab.Zones, z)
	}
	slices.SortFunc(r.lab.Zones, func(a, b *lab.Zone) int { return strings.Compare(a.Origin, b.Origin) })
}

// sortRecords sorts pointers first and moves each record once, as records are wide.
func sortRecords(z *lab.Zone) {
	if slices.IsSortedFunc(z.Records, func(a, b lab.Record) int { return compareRecords(&a, &b) }) {
		z.Records = slices.Clip(z.Records)
		return
	}
	order := make([]*lab.Record, len(z.Records))
	for i := range z.Records {
		order[i] = &z.Records[i]
	}
	slices.SortFunc(order, compareRecords)
	sorted := make([]lab.Record, len(order))
	for i, rec := range order {
		sorted[i] = *rec
	}
	z.Records = sorted
}

func compareRecords(a, b *lab.Record) int {
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	if c := strings.Compare(a.Type, b.Type); c != 0 {
		return c
	}
	if c := strings.Compare(a.Target, b.Target); c != 0 {
		return c
	}
	return a.Addr.Compare(b.Addr)
}

// zone returns the zone of that origin and makes a derived one if there is none.
func (r *resolver) zone(origin string, pos lab.Pos) *lab.Zone {
	z := r.zones[origin]
	if z == nil {
		// A rule of dns.forward_zones for the zone itself says who knows the names that it does not have.
		z = &lab.Zone{Pos: pos, Origin: origin, Derived: true, ForwardMissing: r.forwarded[origin]}
		r.zones[origin] = z
	}
	return z
}

// zoneOf returns the zone with the longest origin that name lies in. A name outside all zones gets a derived zone of
// its parent, or of its own where the parent is a top-level domain. Other names there are others'.
func (r *resolver) zoneOf(name string, pos lab.Pos) *lab.Zone {
	for rest := name; rest != ""; rest = parent(rest) {
		if z := r.zones[rest]; z != nil {
			return z
		}
	}
	name = strings.TrimPrefix(name, "*.")
	if up := parent(name); parent(up) != "" {
		name = up
	}
	z := r.zone(name, pos)
	z.ForwardMissing = true // the domain is not the lab's
	return z
}

// parent cuts the first label off an absolute name; that of a top-level domain is "".
func parent(name string) string {
	_, rest, _ := strings.Cut(name, ".")
	return rest
}

func (r *resolver) add(pos lab.Pos, rec lab.Record) {
	z := r.zoneOf(rec.Name, pos)
	z.Records = append(z.Records, rec)
}

// hostRecords adds the addresses of a host's names, and the names of its addresses.
func (r *resolver) hostRecords(h *lab.Host) {
	if h.FQDN == "" {
		return
	}
	ip, ip6 := h.NamedAddrs()
	if !ip.IsValid() && !ip6.IsValid() {
		r.zoneOf(h.FQDN+".", h.Pos) // its address will be that of a lease
		return
	}
	source := "host " + h.Name
	r.named(h.Pos, h.FQDN, source, ip, ip6)
	for i, n := range h.NICs {
		if i != h.Named-1 && n.FQDN != "" {
			r.named(h.Pos, n.FQDN, source, n.IP, n.IP6)
		}
	}
	if h.NICName != "" {
		r.named(h.Pos, h.NICName, source, h.IP, h.IP6)
	}
	for _, alias := range h.Aliases {
		r.addressRecords(h.Pos, alias+".", source, ip, ip6)
	}
}

// named adds the addresses of a name, and the name of each address.
func (r *resolver) named(pos lab.Pos, name, source string, addrs ...netip.Addr) {
	r.addressRecords(pos, name+".", source, addrs...)
	for _, a := range addrs {
		if a.IsValid() {
			r.pointer(pos, a, name+".", source)
		}
	}
}

// addressRecords adds A and AAAA records.
func (r *resolver) addressRecords(pos lab.Pos, name, source string, addrs ...netip.Addr) {
	for _, a := range addrs {
		switch {
		case a.Is4():
			r.add(pos, lab.Record{Name: name, Type: "A", Addr: a, Source: source})
		case a.Is6():
			r.add(pos, lab.Record{Name: name, Type: "AAAA", Addr: a, Source: source})
		}
	}
}

// pointer adds a PTR record, in a derived zone of the /24 or the /64 around a where no network has one.
func (r *resolver) pointer(pos lab.Pos, a netip.Addr, target, source string) {
	name := reverseName(a)
	rec := lab.Record{Name: name, Type: "PTR", Target: target, Source: source}
	z := r.zones[parent(name)]
	if z == nil {
		z = r.reverseZone(name, a, pos)
	}
	z.Records = append(z.Records, rec)
}

func (r *resolver) reverseZone(name string, a netip.Addr, pos lab.Pos) *lab.Zone {
	for rest := parent(name); rest != "arpa."; rest = parent(rest) {
		if z := r.zones[rest]; z != nil {
			return z
		}
	}
	if a.Is4() {
		name = parent(name)
	} else {
		name = name[len("0.")*16:]
	}
	z := r.zone(name, pos)
	z.ForwardMissing = !a.IsPrivate()
	return z
}

// clusterRecords adds api, api-int, *.apps and the SRV records of etcd.
func (r *resolver) clusterRecords(c *lab.Cluster) {
	if c.Kind == lab.Plain {
		return
	}
	source := "cluster " + c.Name
	if c.Health {
		r.clusterBackendNames(c, source)
	}
	if c.Address.IsValid() {
		r.clusterName(c, "api", c.API, source)
		if r.hostByIP[c.Address] == nil && !r.hasPointer(c.Address) {
			r.pointer(c.Pos, c.Address, "api."+c.Domain+".", source)
		}
	}
	if c.Address.IsValid() && c.Kind == lab.OpenShift {
		r.clusterName(c, "api-int", c.API, source)
		r.clusterName(c, "*.apps", c.Ingress, source)
	}
	if c.SingleNode() {
		r.thenNode(c)
	}
	if c.EtcdSRV {
		r.etcdRecords(c, source)
	}
}

// thenNode lets api and api-int lead to the node of a single-node cluster once its bootstrap machine has left.
func (r *resolver) thenNode(c *lab.Cluster) {
	at := slices.IndexFunc(r.lab.Balancers, func(b *lab.Balancer) bool { return b.Name == c.BalancerOf(lab.ServiceAPI) })
	z := r.zones[c.Domain+"."]
	if at < 0 || z == nil {
		return
	}
	for i := range z.Records {
		rec := &z.Records[i]
		if rec.Addr == c.API && (rec.Name == "api."+c.Domain+"." || rec.Name == "api-int."+c.Domain+".") {
			rec.Follows, rec.Then = r.lab.Balancers[at], c.Address
		}
	}
}

// clusterName adds a name that a cluster reserves. A host may carry it as an alias if it has the same address.
func (r *resolver) clusterName(c *lab.Cluster, label string, a netip.Addr, source string) {
	name := label + "." + c.Domain
	if first := r.reserved[name]; first != nil {
		r.failAt(c.Pos, "clusters."+c.Name, "the name %s is also reserved by cluster %s (%s): want another name or domain", name, first.Name, first.Pos)
		return
	}
	r.reserved[name] = c
	switch h := r.names[name]; {
	case h == nil:
		r.addressRecords(c.Pos, name+".", source, a)
	case h.Has(a): // its record is there already
	default:
		r.failAt(h.Pos, "hosts."+h.Name, "the name %s is reserved by cluster %s (%s): want another name or alias", name, c.Name, c.Pos)
	}
}

// clusterBackendNames adds the names of a cluster without an address: they follow its backends.
func (r *resolver) clusterBackendNames(c *lab.Cluster, source string) {
	labels := map[string][]string{lab.ServiceAPI: {"api"}}
	if c.Kind == lab.OpenShift {
		labels = map[string][]string{lab.ServiceAPI: {"api", "api-int"}, lab.ServiceIngress: {"*.apps"}}
	}
	for service, names := range labels {
		at := slices.IndexFunc(r.lab.Balancers, func(b *lab.Balancer) bool { return b.Cluster == c && b.Name == c.BalancerOf(service) })
		if at < 0 {
			continue // no members
		}
		for _, label := range names {
			name := label + "." + c.Domain
			if r.claimService(name, c.Pos, "clusters."+c.Name+".health") {
				r.backendRecords(c.Pos, name+".", source, r.lab.Balancers[at])
			}
		}
	}
}

// balancerRecords adds the names of a balancer of the lab file.
func (r *resolver) balancerRecords(b *lab.Balancer) {
	for i, name := range b.Names {
		if !r.claimService(name, b.Pos, fmt.Sprintf("balancers.%s.names[%d]", b.Name, i)) {
			continue
		}
		if b.Health {
			r.backendRecords(b.Pos, name+".", "balancer "+b.Name, b)
		} else {
			r.addressRecords(b.Pos, name+".", "balancer "+b.Name, b.Listen.Addrs()...)
		}
	}
}

// claimService reports a name that a host, a cluster or another balancer has.
func (r *resolver) claimService(name string, pos lab.Pos, key string) bool {
	if h := r.names[name]; h != nil {
		r.failAt(pos, key, "the name %s is already used by host %s (%s): want another name", name, h.Name, h.Pos)
		return false
	}
	if c := r.reserved[name]; c != nil {
		r.failAt(pos, key, "the name %s is reserved by cluster %s (%s): want another name", name, c.Name, c.Pos)
		return false
	}
	if first, taken := r.services[name]; taken {
		r.failAt(pos, key, "the name %s is already used (%s): want another name", name, first)
		return false
	}
	r.services[name] = pos
	return true
}

// backendRecords adds the addresses of a balancer's backends to a name, each once.
func (r *resolver) backendRecords(pos lab.Pos, name, source string, b *lab.Balancer) {
	seen := map[netip.Addr]bool{}
	for _, m := range b.Backends {
		a := m.Addr.Addr()
		if seen[a] || m.Dynamic() {
			continue
		}
		seen[a] = true
		rec := lab.Record{Name: name, Type: "A", Addr: a, Source: source + ", backend " + m.Name, Follows: b}
		if a.Is6() {
			rec.Type = "AAAA"
		}
		r.add(pos, rec)
	}
}

// hasPointer reports whether a has a PTR record: two clusters may share an address, and one name is enough.
func (r *resolver) hasPointer(a netip.Addr) bool {
	name := reverseName(a)
	z := r.zones[parent(name)]
	if z == nil {
		z = r.reverseZone(name, a, lab.Pos{})
	}
	return slices.ContainsFunc(z.Records, func(rec lab.Record) bool { return rec.Name == name })
}

// etcdRecords adds the SRV records of etcd for OpenShift before 4.4: of the host's etcd-N alias, or its own name.
func (r *resolver) etcdRecords(c *lab.Cluster, source string) {
	for _, h := range c.Hosts {
		if h.Role != lab.RoleControlPlane || !r.memberAddr(c, h).IsValid() || h.FQDN == "" {
			continue
		}
		target := h.FQDN
		for _, alias := range h.Aliases {
			label, rest, _ := strings.Cut(alias, ".")
			number, ok := strings.CutPrefix(label, "etcd-")
			if _, err := strconv.ParseUint(number, 10, 16); ok && err == nil && rest == c.Domain {
				target = alias
				break
			}
		}
		r.add(c.Pos, lab.Record{
			Name: "_etcd-server-ssl._tcp." + c.Domain + ".", Type: "SRV", Target: target + ".", Weight: 10, Port: 2380, Source: source,
		})
	}
}

// reverseZones returns the in-addr.arpa zones of a subnet on octet boundaries: all that it consists of, or the one
// around it where it is smaller than a /24.
func reverseZones(subnet netip.Prefix) []string {
	if !subnet.IsValid() || subnet.Bits() < 8 {
		return nil
	}
	octets := min((subnet.Bits()+7)/8, 3)
	count := 1 << max(0, 8*octets-subnet.Bits())
	first := subnet.Addr().As4()
	zones := make([]string, count)
	for i := range zones {
		b := first
		b[octets-1] += byte(i)
		name := make([]byte, 0, 32)
		for j := octets - 1; j >= 0; j-- {
			name = append(strconv.AppendUint(name, uint64(b[j]), 10), '.')
		}
		zones[i] = string(append(name, "in-addr.arpa."...))
	}
	return zones
}

// reverseZone6 returns the ip6.arpa zone of an IPv6 subnet, on a nibble boundary: the one around it where it ends inside a nibble.
func reverseZone6(subnet netip.Prefix) string {
	const digits = 32
	return reverseName(subnet.Addr())[2*(digits-subnet.Bits()/4):]
}

// reverseName returns the owner name of an address's PTR record (RFC 1035 section 3.5, RFC 3596 section 2.5), with a
// final dot.
func reverseName(a netip.Addr) string {
	b := make([]byte, 0, 73)
	if a.Is4() {
		v4 := a.As4()
		for i := 3; i >= 0; i-- {
			b = append(strconv.AppendUint(b, uint64(v4[i]), 10), '.')
		}
		return string(append(b, "in-addr.arpa."...))
	}
	const hex = "0123456789abcdef"
	v6 := a.As16()
	for i := 15; i >= 0; i-- {
		b = append(b, hex[v6[i]&15], '.', hex[v6[i]>>4], '.')
	}
	return string(append(b, "ip6.arpa."...))
}
