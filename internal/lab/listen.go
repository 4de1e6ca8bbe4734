package lab

import (
	"cmp"
	"net/netip"
	"slices"
)

// A Listen says where a server of the appliance listens; empty: nowhere. An entry without an address means the lab's own
// addresses and loopback.
type Listen []netip.AddrPort

// Addrs returns the addresses of l, each once, where own are the lab's own ones and loopback. One that an unspecified address
// of l covers is left out: both cannot be bound.
func (l Listen) Addrs(own []netip.Addr) (addrs []netip.AddrPort) {
	for _, e := range l {
		if e.Addr().IsValid() {
			addrs = append(addrs, e)
			continue
		}
		for _, a := range own {
			addrs = append(addrs, netip.AddrPortFrom(a, e.Port()))
		}
	}
	slices.SortFunc(addrs, netip.AddrPort.Compare)
	addrs = slices.Compact(addrs)
	return slices.DeleteFunc(addrs, func(a netip.AddrPort) bool {
		return slices.ContainsFunc(addrs, func(all netip.AddrPort) bool { return all != a && covers(all, a) })
	})
}

// covers reports whether a socket on all receives what is sent to a, too.
func covers(all, a netip.AddrPort) bool {
	return all.Port() == a.Port() && all.Addr().IsUnspecified() && (all.Addr().Is6() || a.Addr().Is4())
}

// OwnAddresses returns the addresses of this machine that the lab has a use for: its own one in each network, and loopback.
func (l *Lab) OwnAddresses() []netip.Addr {
	own := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	for _, n := range l.Networks {
		if n.Address.IsValid() && !slices.Contains(own, n.Address) {
			own = append(own, n.Address)
		}
	}
	return own
}

// AnswersDNS reports whether a name server at an address is this appliance, as far as the lab knows its own addresses.
func (l *Lab) AnswersDNS(server netip.AddrPort) bool {
	addr := server.Addr().Unmap().WithZone("")
	own := addr.IsUnspecified() || slices.Contains(l.OwnAddresses(), addr)
	return slices.ContainsFunc(l.Appliance.DNS.Addrs(l.OwnAddresses()), func(at netip.AddrPort) bool {
		if at.Port() != server.Port() {
			return false
		}
		return at.Addr() == addr || (own || addr.IsLoopback()) && at.Addr().IsUnspecified() || addr.IsUnspecified() && at.Addr().IsLoopback()
	})
}

// A VIP is an address of a cluster or balancer: balancers listen on it, and this machine therefore has to have it.
type VIP struct {
	Pos     Pos
	Key     string // of the lab file
	Addr    netip.Addr
	Network *Network // that it is in; nil: none
	For     string   // who listens there, such as "cluster prod"
}

// VIPs returns those of a lab, sorted, each once. Loopback, this machine's own addresses in
// the networks, and those of other hosts are none.
func (l *Lab) VIPs() (all []VIP) {
	own := l.OwnAddresses()
	for _, b := range l.Balancers {
		for _, a := range b.Listen.Addrs() {
			if s, ok := l.vip(b, a, own); ok {
				all = append(all, s)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b VIP) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(b.Key, a.Key)) // clusters before balancers
	})
	return slices.CompactFunc(all, func(a, b VIP) bool { return a.Addr == b.Addr })
}

// vip returns an address on which b listens; false: it is none that this machine has to have for that.
func (l *Lab) vip(b *Balancer, a netip.Addr, own []netip.Addr) (s VIP, ok bool) {
	if a.IsUnspecified() || a.IsLoopback() || slices.Contains(own, a) {
		return s, false
	}
	if h := l.HostByIP(a); h != nil && len(h.MACs) > 0 { // a single node's own; without a MAC it is a name only
		return s, false
	}
	s = VIP{Pos: b.Pos, Key: b.ListenKey(a), Addr: a, Network: l.NetworkOf(a), For: "balancer " + b.Name}
	if c := b.Cluster; c != nil {
		s.Pos, s.For = c.Pos, "cluster "+c.Name
	}
	return s, true
}

// ListenKey returns the key of the lab file that makes b listen on an address: of a derived balancer it is its cluster's.
func (b *Balancer) ListenKey(a netip.Addr) string {
	switch c := b.Cluster; {
	case c == nil:
		return "balancers." + b.Name + ".listen"
	case a == c.Address:
		return "clusters." + c.Name + ".address"
	default:
		return "clusters." + c.Name + ".ingress"
	}
}
