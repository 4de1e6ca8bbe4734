package lab

import (
	"net/netip"
	"slices"
	"strings"
)

// A Hop is what a balancer does with a connection: it comes to Listen and goes on to one of Backends.
type Hop struct {
	Listen   Binds
	UDP      bool             // its ports are of UDP
	Backends []netip.AddrPort // port 0: the port that the client has connected to; invalid: not known
	Names    []string         // that its clients ask for; none: any
	Renames  bool             // its backends are asked for other names
}

// HopOf returns what b does, without the backends whose address is learned at run time.
func HopOf(b *Balancer) Hop {
	h := Hop{Listen: b.Listen, UDP: b.Mode == ModeUDP, Backends: make([]netip.AddrPort, len(b.Backends)), Names: slices.Concat(b.Match.SNI, b.Match.Host), Renames: b.BackendTLS.On}
	for i := range b.Backends {
		h.Backends[i] = b.Backends[i].Addr
	}
	return h
}

// Hops finds balancers that pass a connection on in a loop: each round takes further connections, until none are left.
type Hops struct {
	all  []Hop
	own  []netip.Addr
	at   map[netip.AddrPort][]int // binds of one port, by address
	wide map[netip.Addr][]int     // of several
}

// NewHops indexes hops. own are the addresses of this machine.
func NewHops(all []Hop, own []netip.Addr) *Hops {
	h := &Hops{all: all, own: own, at: map[netip.AddrPort][]int{}, wide: map[netip.Addr][]int{}}
	for i := range all {
		for _, b := range all[i].Listen {
			if b.First == b.Last {
				a := netip.AddrPortFrom(b.Addr, b.First)
				h.at[a] = append(h.at[a], i)
			} else {
				h.wide[b.Addr] = append(h.wide[b.Addr], i)
			}
		}
	}
	return h
}

// Loop returns the hops that a connection of hop i to backend m takes until it is at i again: i first. It is nil if it never is.
func (h *Hops) Loop(i int, m netip.AddrPort) []int {
	seen := map[int]bool{}
	var search func(from int, m netip.AddrPort) []int
	search = func(from int, m netip.AddrPort) []int {
		for _, to := range h.next(from, m) {
			if to == i {
				return []int{from}
			}
			if seen[to] {
				continue
			}
			seen[to] = true
			for _, further := range h.all[to].Backends {
				if rest := search(to, further); rest != nil {
					return append([]int{from}, rest...)
				}
			}
		}
		return nil
	}
	return search(i, m)
}

// next returns the hops that a connection of a hop to its backend m may come to.
func (h *Hops) next(from int, m netip.AddrPort) (found []int) {
	if !m.Addr().IsValid() {
		return nil
	}
	for _, addr := range []netip.Addr{m.Addr(), netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		found = append(found, h.wide[addr]...)
		if m.Port() != 0 {
			found = append(found, h.at[netip.AddrPortFrom(addr, m.Port())]...)
			continue
		}
		for at := range h.all[from].Listen.All() {
			found = append(found, h.at[netip.AddrPortFrom(addr, at.Port())]...)
		}
	}
	slices.Sort(found)
	return slices.DeleteFunc(slices.Compact(found), func(to int) bool { return !h.leads(&h.all[from], m, &h.all[to]) })
}

// leads reports whether a connection of a hop to its backend m may come to another hop.
func (h *Hops) leads(from *Hop, m netip.AddrPort, to *Hop) bool {
	return from.UDP == to.UDP && (from.Renames || mayShareName(from.Names, to.Names)) && slices.ContainsFunc(to.Listen, func(at Bind) bool {
		return LeadsTo(at, m, h.own) && (m.Port() != 0 || slices.ContainsFunc(from.Listen, at.SharesPort))
	})
}

// mayShareName reports whether a name may be of both lists. A name may begin with "*", and an empty list has all.
func mayShareName(a, b []string) bool {
	matches := func(pattern, name string) bool {
		suffix, any := strings.CutPrefix(pattern, "*")
		return pattern == name || any && strings.HasSuffix(name, suffix)
	}
	return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(x string) bool {
		return slices.ContainsFunc(b, func(y string) bool { return matches(x, y) || matches(y, x) })
	})
}
