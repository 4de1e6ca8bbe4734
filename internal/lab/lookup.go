package lab

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// An index finds parts of a Lab by their key.
type index struct {
	hosts     map[string]*Host
	hostByMAC map[MAC]*Host
	hostByIP  map[netip.Addr]*Host
	networks  map[string]*Network
	bySubnet  []*Network // sorted by first address
}

// Index prepares the lookups below. Who makes a lab calls it once, before the lab is shared.
func (l *Lab) Index() {
	ix := index{
		hosts: make(map[string]*Host, len(l.Hosts)), hostByMAC: make(map[MAC]*Host, len(l.Hosts)),
		hostByIP: make(map[netip.Addr]*Host, len(l.Hosts)), networks: make(map[string]*Network, len(l.Networks)),
	}
	for _, h := range l.Hosts {
		ix.hosts[h.Name] = h
		for _, m := range h.MACs {
			ix.hostByMAC[m] = h
		}
		for _, a := range [...]netip.Addr{h.IP, h.IP6} {
			if a.IsValid() {
				ix.hostByIP[a] = h
			}
		}
		for _, n := range h.NICs {
			ix.hostByMAC[n.MAC] = h
			for _, a := range [...]netip.Addr{n.IP, n.IP6} {
				if a.IsValid() {
					ix.hostByIP[a] = h
				}
			}
		}
	}
	for _, n := range l.Networks {
		ix.networks[n.Name] = n
		n.pools = newPoolIndex(n.Pools)
	}
	ix.bySubnet = SortBySubnet(l.Networks)
	l.index = ix
}

// SortBySubnet returns the networks sorted by the first address of their subnets.
func SortBySubnet(networks []*Network) []*Network {
	return slices.SortedStableFunc(slices.Values(networks), func(a, b *Network) int { return a.Subnet.Addr().Compare(b.Subnet.Addr()) })
}

// Host returns the host of that name, or nil.
func (l *Lab) Host(name string) *Host { return l.index.hosts[name] }

// Find returns the host with that name or FQDN (in any case), MAC or address, or nil.
func (l *Lab) Find(text string) *Host {
	if h := l.Host(text); h != nil {
		return h
	}
	if m, err := ParseMAC(text); err == nil {
		return l.HostByMAC(m)
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return l.HostByIP(a)
	}
	name := strings.TrimSuffix(text, ".")
	for _, h := range l.Hosts {
		if strings.EqualFold(name, h.Name) || strings.EqualFold(name, h.FQDN) || slices.ContainsFunc(h.NICs, func(n NIC) bool { return strings.EqualFold(name, n.FQDN) }) {
			return h
		}
	}
	return nil
}

// HostByMAC returns the host that has that NIC, or nil.
func (l *Lab) HostByMAC(m MAC) *Host { return l.index.hostByMAC[m] }

// HostByIP returns the host that has that address (IPv4 or IPv6), or nil.
func (l *Lab) HostByIP(a netip.Addr) *Host { return l.index.hostByIP[a] }

// Network returns the network of that name, or nil.
func (l *Lab) Network(name string) *Network { return l.index.networks[name] }

// GivesAddressesOn reports whether machines on an interface get their addresses from this server, so that another DHCP server there is one
// too many. Several networks may have the interface.
func (l *Lab) GivesAddressesOn(iface string) bool {
	return slices.ContainsFunc(l.Networks, func(n *Network) bool { return n.Served() && n.Interface == iface && n.DHCP == DHCPServer })
}

// NetworkOf returns the network whose subnet or IPv6 subnet holds a, or nil. Subnets never overlap.
func (l *Lab) NetworkOf(a netip.Addr) *Network {
	if a.Is4() {
		return FindSubnet(l.index.bySubnet, a)
	}
	if i := slices.IndexFunc(l.Networks, func(n *Network) bool { return n.Subnet6.Contains(a) }); i >= 0 {
		return l.Networks[i]
	}
	return nil
}

// FindSubnet returns the network of a sorted list (see SortBySubnet) whose IPv4 subnet holds a, or nil.
func FindSubnet(bySubnet []*Network, a netip.Addr) *Network {
	i, found := slices.BinarySearchFunc(bySubnet, a, func(n *Network, a netip.Addr) int { return n.Subnet.Addr().Compare(a) })
	if !found {
		i--
	}
	if i < 0 || !bySubnet[i].Subnet.Contains(a) {
		return nil
	}
	return bySubnet[i]
}

// Cluster returns the cluster of that name, or nil.
func (l *Lab) Cluster(name string) *Cluster {
	for _, c := range l.Clusters {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// MachineOf returns the host that has that NIC or, for an address inside a pool that boots a profile, a host
// made for this MAC. What pool a machine was put in may depend on what it said of itself, and its firmware and its
// system say different things: it stays a host of the pool that holds its address, unless that pool is not for its MAC. It
// returns nil for a machine that the lab has nothing for.
//
// The address is the caller's question: the machine's lease asks who holds it, the source of a request who asks, and the address of an offer
// whose it would be.
func (l *Lab) MachineOf(m MAC, a netip.Addr) *Host {
	if h := l.HostByMAC(m); h != nil {
		return h
	}
	p := l.PoolAt(a)
	if p == nil || p.Profile == nil || m.IsZero() || !p.Admits(m) {
		return nil
	}
	return l.PoolHost(p, m, a)
}

// PoolHost returns the host made for a machine with that MAC and that address of the pool, which boots a profile.
func (l *Lab) PoolHost(p *Pool, m MAC, a netip.Addr) *Host {
	name := m.Hyphens()
	return &Host{
		Pos: p.Pos, Name: name, FQDN: name + "." + l.Domain, Domain: l.Domain, MACs: []MAC{m}, IP: a, Network: p.Network,
		Role: RolePool, Profile: p.Profile, Lease: p.Lease, Routes: p.Routes, Options: p.Options, Pool: p, Vars: map[string]any{},
		Chain: cmp.Or(p.Profile.Chain, ChainIPXE),
	}
}

// Summary counts what the lab has: "8 hosts, 1 network, 2 clusters".
func (l *Lab) Summary() string {
	parts := []string{Plural(len(l.Hosts), "host"), Plural(len(l.Networks), "network")}
	for _, more := range []struct {
		n    int
		noun string
	}{{len(l.Clusters), "cluster"}, {len(l.Profiles), "profile"}, {len(l.Balancers), "balancer"}, {len(l.Zones), "zone"}} {
		if more.n > 0 {
			parts = append(parts, Plural(more.n, more.noun))
		}
	}
	return strings.Join(parts, ", ")
}

// Plural counts things in words: "1 host", "2 hosts".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// NotPooled returns the IPv4 addresses that no pool gives, although its range may hold them: those of hosts, with and without a MAC, of the
// appliance, of routers, of servers that networks name, of clusters and of balancers.
func (l *Lab) NotPooled() map[netip.Addr]struct{} {
	all := make([]netip.Addr, 0, len(l.Hosts))
	for _, h := range l.Hosts {
		all = append(all, h.IP)
		for _, n := range h.NICs {
			all = append(all, n.IP)
		}
	}
	for _, n := range l.Networks {
		all = append(append(append(all, n.Address, n.Router), n.DNS...), n.NTP...)
		for _, r := range n.Routes {
			all = append(all, r.Via)
		}
	}
	for _, c := range l.Clusters {
		all = append(all, c.Address, c.Ingress)
	}
	for _, b := range l.Balancers {
		all = append(all, b.Listen.Addrs()...)
	}
	set := make(map[netip.Addr]struct{}, len(all))
	for _, a := range all {
		if a.Is4() {
			set[a] = struct{}{}
		}
	}
	return set
}
