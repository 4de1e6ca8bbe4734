package dhcpd

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/lab"
)

const defaultLease = 12 * time.Hour

// A Table is everything that the server answers from, made from one lab. It is immutable.
type Table struct {
	domain       string
	httpPort     uint16
	scopes       []*scope // in the lab's order
	byIface      map[string][]*scope
	reservations map[lab.MAC]*Reservation
	reserved     map[netip.Addr]*Reservation
	members      map[lab.MAC]*member // hosts without an address
	ignored      map[lab.MAC]struct{}
	taken        map[netip.Addr]struct{} // never handed out by a pool: network, broadcast, routers, appliance, clusters …
	machineOf    func(lab.MAC, netip.Addr) *lab.Host
}

// A Reservation is the address of one host, for all its NICs.
type Reservation struct {
	Host    *lab.Host
	scope   *scope
	options *wire.Options
	lease   time.Duration
}

// A Pool gives addresses to machines without a reservation.
type Pool struct {
	pool    *lab.Pool
	options *wire.Options
	lease   time.Duration
	range_  *leases.Pool // its addresses, without what the lab gave away already
}

// A scope is one network as this server sees it.
type scope struct {
	network *lab.Network
	options *wire.Options
	lease   time.Duration
	pools   []*Pool
	away    atomic.Pointer[lab.Network] // what home made last
}

// Compile indexes a lab for answering DHCP. It does no I/O and cannot fail: the loader has checked that a packet can carry
// what the lab says.
func Compile(l *lab.Lab) *Table {
	t := &Table{
		domain:       l.Domain,
		httpPort:     l.Appliance.HTTPPort,
		byIface:      map[string][]*scope{},
		reservations: make(map[lab.MAC]*Reservation, len(l.Hosts)),
		reserved:     make(map[netip.Addr]*Reservation, len(l.Hosts)),
		members:      map[lab.MAC]*member{},
		ignored:      map[lab.MAC]struct{}{},
		taken:        map[netip.Addr]struct{}{},
		machineOf:    l.MachineOf,
	}
	byNetwork := make(map[*lab.Network]*scope, len(l.Networks))
	for _, n := range l.Networks {
		byNetwork[n] = t.addScope(n)
	}
	t.addHosts(l.Hosts, byNetwork)
	t.take(l)
	t.fence()
	return t
}

func (t *Table) addScope(n *lab.Network) *scope {
	s := &scope{network: n, options: optionsOf(n, n.Routes, n.Options), lease: n.Lease}
	if s.lease <= 0 {
		s.lease = defaultLease
	}
	for _, p := range n.Pools {
		s.pools = append(s.pools, newPool(s, p))
	}
	t.scopes = append(t.scopes, s)
	if n.Interface != "" && n.DHCP != lab.DHCPOff {
		t.byIface[n.Interface] = append(t.byIface[n.Interface], s)
	}
	return s
}

func newPool(s *scope, p *lab.Pool) *Pool {
	out := &Pool{pool: p, options: s.options, lease: p.Lease}
	if out.lease <= 0 {
		out.lease = s.lease
	}
	if p.Routes != nil || p.Options != nil {
		out.options = optionsOf(s.network, either(p.Routes, s.network.Routes), either(p.Options, s.network.Options))
	}
	return out
}

// optionsOf encodes the options of a network; routes and custom may be those of a host or pool.
func optionsOf(n *lab.Network, routes []lab.Route, custom []lab.Option) *wire.Options {
	return wire.Builder{
		Subnet: n.Subnet, Router: n.Router, DNS: n.DNS, NTP: n.NTP, MTU: n.MTU, Search: n.Search, Routes: routes, Custom: custom,
	}.Build()
}

func (t *Table) addHosts(hosts []*lab.Host, byNetwork map[*lab.Network]*scope) {
	all := make([]Reservation, 0, len(hosts)) // one allocation for all; never grows, so pointers into it stay good
	for _, h := range hosts {
		if h.Ignored {
			for _, m := range h.MACs {
				t.ignored[m] = struct{}{}
			}
		}
		s := byNetwork[h.Network]
		switch {
		case s == nil || len(h.MACs) == 0:
			continue // a name without a NIC, or in a network that is itself wrong
		case !h.IP.IsValid():
			t.addMember(s, h)
			continue
		}
		all = append(all, Reservation{Host: h, scope: s, options: s.options, lease: h.Lease})
		r := &all[len(all)-1]
		if r.lease <= 0 {
			r.lease = s.lease
		}
		if h.Routes != nil || h.Options != nil {
			r.options = optionsOf(s.network, either(h.Routes, s.network.Routes), either(h.Options, s.network.Options))
		}
		t.reserved[h.IP] = r
		for _, m := range h.MACs {
			t.reservations[m] = r
		}
	}
}

// take collects the addresses that no pool may give away although its range covers them.
func (t *Table) take(l *lab.Lab) {
	mark := func(addrs ...netip.Addr) {
		for _, a := range addrs {
			if a.Is4() {
				t.taken[a] = struct{}{}
			}
		}
	}
	for _, s := range t.scopes {
		n := s.network
		mark(n.Address, n.Router)
		mark(n.DNS...)
		mark(n.NTP...)
		for _, r := range n.Routes {
			mark(r.Via)
		}
	}
	for _, c := range l.Clusters {
		mark(c.Address, c.Ingress)
	}
	for _, b := range l.Balancers {
		mark(b.Listen.Addr())
	}
}

// fence makes the ranges of the pools, once it is known what they must keep off.
func (t *Table) fence() {
	for _, s := range t.scopes {
		for _, p := range s.pools {
			r := p.pool.Range
			p.range_ = leases.NewPool(r.First, r.Last, func(a netip.Addr) bool { return !t.poolMayGive(a) })
		}
	}
}

// ranges returns the ranges of all pools.
func (t *Table) ranges() (all []*leases.Pool) {
	for _, s := range t.scopes {
		for _, p := range s.pools {
			all = append(all, p.range_)
		}
	}
	return all
}

// Interfaces returns the interfaces to serve, sorted. A lab whose networks are all reached through relays has the one
// interface "", which stands for any.
func (t *Table) Interfaces() []string {
	var names []string
	relayed := false
	for _, s := range t.scopes {
		if s.network.DHCP == lab.DHCPOff {
			continue
		}
		if s.network.Interface == "" {
			relayed = true
			continue
		}
		names = append(names, s.network.Interface)
	}
	if len(names) == 0 && relayed {
		return []string{""}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// serves reports whether the network's machines get their addresses from here.
func (t *Table) serves(s *scope) bool { return s.network.DHCP == lab.DHCPServer }

// servesOn reports whether machines on the interface get their addresses from here.
func (t *Table) servesOn(iface string) bool { return slices.ContainsFunc(t.byIface[iface], t.serves) }

// advertises reports whether a router solicitation of m is answered on the interface: of anybody where we give out addresses; beside
// another DHCP server, whose network may have routers, of the hosts that boot from here.
func (t *Table) advertises(iface string, m lab.MAC) bool {
	if t.servesOn(iface) {
		return true
	}
	h := t.machineOf(m, netip.Addr{})
	return h != nil && h.Profile != nil && slices.ContainsFunc(t.byIface[iface], func(s *scope) bool {
		return s.network == h.Network && s.network.DHCP == lab.DHCPProxy
	})
}

// ignores reports whether the lab file leaves the machine to others (hosts.NAME.dhcp: off).
func (t *Table) ignores(m lab.MAC) bool {
	_, ok := t.ignored[m]
	return ok
}

// locate returns the network that a request belongs to, or nil.
func (t *Table) locate(r *wire.Packet, iface string) *scope {
	if r.LinkAddr.IsValid() {
		return t.scopeOf(t.scopes, r.LinkAddr)
	}
	here := t.byIface[iface]
	if s := t.scopeOf(t.scopes, r.CIAddr); s != nil && (len(here) == 0 || s.network.Interface == "") {
		return s // a renewal sent straight to us by a client behind a relay
	}
	switch len(here) {
	case 0:
		return nil
	case 1:
		return here[0]
	}
	return t.locateShared(r, here)
}

// locateShared picks among several networks on one wire: where the client lives, where it has a reservation, where it
// wants to live, where the most specific pool takes it, in this order.
func (t *Table) locateShared(r *wire.Packet, here []*scope) *scope {
	if s := t.scopeOf(here, r.CIAddr); s != nil {
		return s
	}
	if res := t.reservations[r.MAC]; res != nil && slices.Contains(here, res.scope) {
		return res.scope
	}
	who := askerOf(r)
	if s := t.scopeOf(here, r.Requested); s != nil && s.poolFor(&who) != nil {
		return s
	}
	best, bestBits := here[0], -1
	for _, s := range here {
		if p := s.poolFor(&who); p != nil && p.bits(r.MAC) > bestBits {
			best, bestBits = s, p.bits(r.MAC)
		}
	}
	return best
}

func (t *Table) scopeOf(scopes []*scope, a netip.Addr) *scope {
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

// home returns the network with the appliance's address as its machines see it. In a network behind a relay the appliance
// has no address: there it is known by that of the interface that the relay reaches, or, where packets come in on any
// interface, by the address that the relay sent to (local).
func (t *Table) home(s *scope, iface string, local netip.Addr) *lab.Network {
	if s.network.Address.IsValid() {
		return s.network
	}
	for _, here := range t.byIface[iface] {
		if here.network.Address.IsValid() {
			local = here.network.Address
			break
		}
	}
	if !local.IsValid() {
		return s.network
	}
	if known := s.away.Load(); known != nil && known.Address == local {
		return known
	}
	n := *s.network
	n.Address, n.BaseURL = local, fmt.Sprintf("http://%s:%d", local, t.httpPort)
	s.away.Store(&n)
	return &n
}

// ownAddress reports whether a is the appliance's in any network.
func (t *Table) ownAddress(a netip.Addr) bool {
	return a.IsValid() && slices.ContainsFunc(t.scopes, func(s *scope) bool { return s.network.Address == a })
}

// poolMayGive reports whether a pool may give a away: nobody has a reservation for it, and it is no infrastructure.
func (t *Table) poolMayGive(a netip.Addr) bool {
	if t.reserved[a] != nil {
		return false
	}
	_, taken := t.taken[a]
	return !taken
}

// poolFor returns the pool of s for a machine without a reservation, or nil.
func (s *scope) poolFor(who *lab.Asker) *Pool {
	if len(s.pools) == 0 {
		return nil
	}
	p := s.network.PoolFor(who)
	for _, mine := range s.pools {
		if mine.pool == p {
			return mine
		}
	}
	return nil
}

// poolHolding returns the pool of s whose range holds a, or nil.
func (s *scope) poolHolding(a netip.Addr) *Pool {
	for _, p := range s.pools {
		if p.range_.Contains(a) {
			return p
		}
	}
	return nil
}

// keeps reports whether a machine that has an address of the pool may keep it. Firmware, iPXE and system of one machine
// say different things of themselves and must not be sent from pool to pool in one boot; its MAC and where it is plugged
// in stay the same.
func (p *Pool) keeps(who *lab.Asker) bool {
	return p.pool.Admits(who.MAC) && matchesAny(p.pool.CircuitIDs, who.CircuitID) && matchesAny(p.pool.RemoteIDs, who.RemoteID)
}

func matchesAny(patterns []lab.Pattern, value []byte) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p lab.Pattern) bool { return p.Match(value) })
}

// gives reports whether some pool may give a away.
func (t *Table) gives(a netip.Addr) bool {
	s := t.scopeOf(t.scopes, a)
	return s != nil && s.poolHolding(a) != nil && t.poolMayGive(a)
}

// bits says how specific the pool's match of a machine is, 0 for a pool open to anyone.
func (p *Pool) bits(m lab.MAC) int {
	best := 0
	for _, pattern := range p.pool.MACs {
		if pattern.Match(m) {
			best = max(best, pattern.Bits())
		}
	}
	return best
}
