package dhcpd

import (
	"net/netip"
	"slices"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Table is everything that the server answers from, made from one lab. It is immutable.
type Table struct {
	domain    string
	scopes    []*scope // in the lab's order
	byIface   map[string][]*scope
	hosts     map[lab.MAC]*host
	notPooled map[netip.Addr]struct{}  // see lab.Lab.NotPooled
	reserved  map[netip.Addr]*lab.Host // where this server gives the addresses
	machineOf func(lab.MAC, netip.Addr) *lab.Host
	mayReply  func(netip.Addr) bool
	givesOn   func(iface string) bool // lab.Lab.GivesAddressesOn
	nameOf    func(hostname string) string
}

// A host is a host of the lab file with a MAC: all its MACs lead to one address.
type host struct {
	*lab.Host
	scope       *scope                  // its network; nil: none
	options     *wire.Options           // of a host with a reservation
	poolOptions map[*pool]*wire.Options // of one without, in place of the pool's; nil: the pool's
}

// ofLab returns the lab's host, nil for none.
func (h *host) ofLab() *lab.Host {
	if h == nil {
		return nil
	}
	return h.Host
}

// reserved reports whether the host has an address of its own. A nil host has none.
func (h *host) reserved() bool { return h != nil && h.IP.IsValid() }

// A pool gives addresses to machines without a reservation.
type pool struct {
	*lab.Pool
	options *wire.Options
	addrs   *leases.Pool // its range, without addresses that the lab gives to others
}

// A scope is one network as this server sees it.
type scope struct {
	network *lab.Network
	options *wire.Options
	pools   []*pool
}

// Compile indexes a lab for answering DHCP. It does no I/O and cannot fail: the loader has checked that a packet can carry
// what the lab says.
func Compile(l *lab.Lab) *Table {
	t := &Table{
		domain:    l.Domain,
		byIface:   map[string][]*scope{},
		hosts:     make(map[lab.MAC]*host, len(l.Hosts)),
		notPooled: l.NotPooled(),
		reserved:  make(map[netip.Addr]*lab.Host, len(l.Hosts)),
		machineOf: l.MachineOf, mayReply: l.MayReply, givesOn: l.GivesAddressesOn,
		nameOf: func(string) string { return "" },
	}
	byNetwork := make(map[*lab.Network]*scope, len(l.Networks))
	for _, n := range l.Networks {
		byNetwork[n] = t.addScope(n)
	}
	t.addHosts(l.Hosts, byNetwork)
	for _, s := range t.scopes {
		for _, p := range s.pools {
			p.addrs = leases.NewPool(p.Range.First, p.Range.Last, func(a netip.Addr) bool { return !t.poolMayGive(a) })
		}
	}
	return t
}

// WithNames returns a copy of t that announces to clients the names in DNS that nameOf returns for a host name that no other client has; "": none.
// Compile alone announces none.
func (t *Table) WithNames(nameOf func(hostname string) string) *Table {
	named := *t
	named.nameOf = nameOf
	return &named
}

func (t *Table) addScope(n *lab.Network) *scope {
	s := &scope{network: n, options: optionsOf(n, n.Routes, n.Options)}
	for _, p := range n.Pools {
		added := &pool{Pool: p, options: s.options}
		if p.Routes != nil || p.Options != nil {
			added.options = optionsOf(n, firstSet(p.Routes, n.Routes), firstSet(p.Options, n.Options))
		}
		s.pools = append(s.pools, added)
	}
	t.scopes = append(t.scopes, s)
	if n.Served() {
		t.byIface[n.Interface] = append(t.byIface[n.Interface], s)
	}
	return s
}

func (t *Table) addHosts(hosts []*lab.Host, byNetwork map[*lab.Network]*scope) {
	all := make([]host, len(hosts)) // one allocation for all
	for i, h := range hosts {
		t.addHost(&all[i], h, byNetwork)
		t.reserve(h, h.IP, h.Network)
		for _, n := range h.NICs {
			t.reserve(h, n.IP, n.Network)
		}
		if len(h.NICs) == 0 {
			continue
		}
		for _, as := range h.Interfaces()[1:] {
			as.FQDN = h.FQDN // the machine has one name, whichever NIC asks
			t.addHost(&host{}, as, byNetwork)
		}
	}
}

// reserve notes whose address a is: that of a machine with MACs, in a network whose addresses this server gives.
func (t *Table) reserve(h *lab.Host, a netip.Addr, n *lab.Network) {
	if a.IsValid() && len(h.MACs) > 0 && n != nil && n.DHCP == lab.DHCPServer {
		t.reserved[a] = h
	}
}

// reservedTo returns the host that an address is reserved for, or nil.
func (t *Table) reservedTo(a netip.Addr) *lab.Host { return t.reserved[a] }

func (t *Table) addHost(added *host, h *lab.Host, byNetwork map[*lab.Network]*scope) {
	if len(h.MACs) == 0 {
		return
	}
	*added = host{Host: h, scope: byNetwork[h.Network]}
	for _, m := range h.MACs {
		t.hosts[m] = added
	}
	if s := added.scope; s != nil {
		t.hostOptions(added, s)
	}
}

// hostOptions gives a host its options. What it leaves out of routes and options is its pool's or network's.
func (t *Table) hostOptions(h *host, s *scope) {
	own, n := h.Routes != nil || h.Options != nil, s.network
	switch {
	case h.reserved():
		if h.options = s.options; own {
			h.options = optionsOf(n, firstSet(h.Routes, n.Routes), firstSet(h.Options, n.Options))
		}
	case own:
		h.poolOptions = make(map[*pool]*wire.Options, len(s.pools))
		for _, p := range s.pools {
			h.poolOptions[p] = optionsOf(n, firstSet(h.Routes, p.Routes, n.Routes), firstSet(h.Options, p.Options, n.Options))
		}
	}
}

// optionsOf encodes the options of a network; routes and custom may be those of a host or pool.
func optionsOf(n *lab.Network, routes []lab.Route, custom []lab.Option) *wire.Options {
	return wire.Builder{
		Subnet: n.Subnet, Router: n.Router, DNS: n.DNS, NTP: n.NTP, MTU: n.MTU, Search: n.Search, Routes: routes, Custom: custom,
	}.Build()
}

// firstSet returns the first list that the lab file has. An empty list counts: it takes the others away.
func firstSet[T any](lists ...[]T) []T {
	for _, l := range lists {
		if l != nil {
			return l
		}
	}
	return nil
}

// poolMayGive reports whether a pool may give a.
func (t *Table) poolMayGive(a netip.Addr) bool {
	_, excluded := t.notPooled[a]
	return !excluded
}

// isPooled reports whether some pool may give a.
func (t *Table) isPooled(a netip.Addr) bool {
	s := scopeOf(t.scopes, a)
	return s != nil && s.poolHolding(a) != nil && t.poolMayGive(a)
}

// Pools returns the addresses of all pools, for leases.Book.Serve.
func (t *Table) Pools() (all []*leases.Pool) {
	for _, s := range t.scopes {
		for _, p := range s.pools {
			all = append(all, p.addrs)
		}
	}
	return all
}

// Warnings are of pools that can give no address.
func (t *Table) Warnings() (warnings lab.Problems) {
	for _, s := range t.scopes {
		for _, p := range s.pools {
			if s.serves() && p.addrs.Usable() == 0 {
				warnings.Addf(p.Pos, "networks."+s.network.Name+".pools."+p.Name+".range", "no address of %s is free for machines without a reservation: each is "+
					"reserved, or of the appliance, a router, a server, a cluster or a balancer: want a wider range", p.Range)
			}
		}
	}
	return warnings
}

// Interfaces returns the interfaces to serve, sorted. A lab whose networks are all behind relays has the one interface "",
// which stands for any.
func (t *Table) Interfaces() []string {
	var names []string
	relayed := false
	for _, s := range t.scopes {
		switch n := s.network; {
		case n.Served():
			names = append(names, n.Interface)
		case n.DHCP != lab.DHCPOff:
			relayed = true
		}
	}
	if len(names) == 0 && relayed {
		return []string{""}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// serves reports whether the network's machines get their addresses from this server.
func (s *scope) serves() bool { return s.network.DHCP == lab.DHCPServer }

// advertises reports whether a router solicitation of m on the interface is answered: from any machine where this server
// gives the addresses; beside another DHCP server, whose network may have routers, from hosts that boot from here.
func (t *Table) advertises(iface string, m lab.MAC) bool {
	if t.givesOn(iface) {
		return true
	}
	h := t.hosts[m]
	return h != nil && h.Profile != nil && slices.ContainsFunc(t.byIface[iface], func(s *scope) bool {
		return s == h.scope && s.network.DHCP == lab.DHCPProxy
	})
}

// locate returns the network that a request belongs to, or nil.
func (t *Table) locate(r *wire.Packet, iface string) *scope {
	if r.LinkAddr.IsValid() {
		return scopeOf(t.scopes, r.LinkAddr)
	}
	here := t.byIface[iface]
	if s := scopeOf(t.scopes, r.CIAddr); s != nil && (len(here) == 0 || s.network.Interface == "") {
		return s // a renewal sent directly to us by a client behind a relay
	}
	switch len(here) {
	case 0:
		return nil
	case 1:
		return here[0]
	}
	return t.locateShared(r, here)
}

// locateShared picks among several networks on one segment (a shared network): the network of the client's address, of its
// reservation, of the address that it requests, of the most specific pool that takes it, in this order.
func (t *Table) locateShared(r *wire.Packet, here []*scope) *scope {
	if s := scopeOf(here, r.CIAddr); s != nil {
		return s
	}
	if h := t.hosts[r.MAC]; h.reserved() && slices.Contains(here, h.scope) {
		return h.scope
	}
	traits := traitsOf(r)
	if s := scopeOf(here, r.Requested); s != nil && s.poolFor(&traits) != nil {
		return s
	}
	best, bestBits := here[0], -1
	for _, s := range here {
		if p := s.poolFor(&traits); p != nil && p.bits(r.MAC) > bestBits {
			best, bestBits = s, p.bits(r.MAC)
		}
	}
	return best
}

// scopeOf returns the scope whose subnet holds a, or nil.
func scopeOf(scopes []*scope, a netip.Addr) *scope {
	if !a.IsValid() {
		return nil
	}
	for _, s := range scopes {
		if s.network.Subnet.Contains(a) {
			return s
		}
	}
	return nil
}

// ownAddress reports whether a is the appliance's in any network.
func (t *Table) ownAddress(a netip.Addr) bool {
	return a.IsValid() && slices.ContainsFunc(t.scopes, func(s *scope) bool { return s.network.Address == a })
}

// poolFor returns the pool of s for a machine without a reservation, or nil.
func (s *scope) poolFor(traits *lab.Client) *pool {
	if len(s.pools) == 0 {
		return nil
	}
	p := s.network.PoolFor(traits)
	for _, mine := range s.pools {
		if mine.Pool == p {
			return mine
		}
	}
	return nil
}

// poolHolding returns the pool of s whose range holds a, or nil.
func (s *scope) poolHolding(a netip.Addr) *pool {
	for _, p := range s.pools {
		if p.Range.Contains(a) {
			return p
		}
	}
	return nil
}

// keeps reports whether a machine that has an address of the pool may keep it. Firmware, iPXE and system of one machine
// send different options and must not be moved from pool to pool in one boot; its MAC and its relay port stay the same.
func (p *pool) keeps(r *wire.Packet) bool {
	return p.Admits(r.MAC) && (passedNoRelay(r) || matchesAny(p.CircuitIDs, r.CircuitID) && matchesAny(p.RemoteIDs, r.RemoteID))
}

// passedNoRelay reports whether a machine that has its address sent a packet by unicast, as it does to renew (RFC 2131 section 4.4.5): behind
// a relay or not, the packet has no option 82.
func passedNoRelay(r *wire.Packet) bool {
	return r.CIAddr.IsValid() && !r.GIAddr.IsValid() && len(r.CircuitID)+len(r.RemoteID) == 0
}

func matchesAny(patterns []lab.Pattern, value []byte) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p lab.Pattern) bool { return p.Match(value) })
}

// bits returns how many bits of the machine's MAC the pool asks for, 0 for a pool open to any machine.
func (p *pool) bits(m lab.MAC) int {
	best := 0
	for _, pattern := range p.MACs {
		if pattern.Match(m) {
			best = max(best, pattern.Bits())
		}
	}
	return best
}
