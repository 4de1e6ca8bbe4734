package load

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// listeners sorts the balancers and reports those that cannot listen side by side.
func (r *resolver) listeners() {
	slices.SortStableFunc(r.lab.Balancers, func(a, b *lab.Balancer) int { return strings.Compare(a.Name, b.Name) })
	r.sharedNames()
	index := listenIndex{specific: map[uint16][]int{}, uses: map[listenUse][]int{}, matches: map[listenMatch][]int{}}
	for i, b := range r.lab.Balancers {
		r.applianceListens(b)
		r.hostListens(b)
		r.ownBackend(b)
		for _, other := range index.beside(b) {
			r.sideBySide(r.lab.Balancers[other], b)
		}
		index.add(i, b)
	}
	r.balancerLoops()
}

// A listenIndex finds the balancers that may be in conflict with another. Not all are compared: the rules of one HAProxy become as many
// balancers on one address.
type listenIndex struct {
	specific map[uint16][]int // by port, without those on every address
	uses     map[listenUse][]int
	matches  map[listenMatch][]int
}

// A listenUse is an address and port, and what balancers that share it must have in common.
type listenUse struct {
	at   netip.AddrPort
	mode lab.BalanceMode
	tls  bool
}

// A listenMatch is one name and one path that a balancer matches; empty: every one.
type listenMatch struct {
	listenUse
	name, path string
}

// add adds the balancer with number i.
func (x *listenIndex) add(i int, b *lab.Balancer) {
	for at := range b.Listen.All() {
		use := listenUse{at, b.Mode, b.EndsTLS()}
		x.uses[use] = append(x.uses[use], i)
		if !at.Addr().IsUnspecified() {
			x.specific[at.Port()] = append(x.specific[at.Port()], i)
		}
		use.matches(b.Match, func(m listenMatch) { x.matches[m] = append(x.matches[m], i) })
	}
}

// beside returns the numbers of the balancers that sideBySide has to compare with b, in order.
func (x *listenIndex) beside(b *lab.Balancer) (found []int) {
	for at := range b.Listen.All() {
		if at.Addr().IsUnspecified() {
			found = append(found, x.specific[at.Port()]...)
		}
		own := listenUse{at, b.Mode, b.EndsTLS()}
		for _, addr := range []netip.Addr{at.Addr(), netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
			for _, mode := range []lab.BalanceMode{lab.ModeTCP, lab.ModeHTTP, lab.ModeUDP} {
				for _, tls := range []bool{false, true} {
					if use := (listenUse{netip.AddrPortFrom(addr, at.Port()), mode, tls}); use != own || mode == lab.ModeUDP {
						found = append(found, x.uses[use]...)
					}
				}
			}
		}
		own.matches(b.Match, func(m listenMatch) { found = append(found, x.matches[m]...) })
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// matches calls yield for each name and path of m together.
func (u listenUse) matches(m lab.Match, yield func(listenMatch)) {
	names, paths := slices.Concat(m.SNI, m.Host), m.Path
	if len(names) == 0 {
		names = []string{""}
	}
	if len(paths) == 0 {
		paths = []string{""}
	}
	for _, name := range names {
		for _, path := range paths {
			yield(listenMatch{u, name, path})
		}
	}
}

// sharedNames reports a balancer of the file with the name of a derived one.
func (r *resolver) sharedNames() {
	for i, b := range r.lab.Balancers[min(1, len(r.lab.Balancers)):] {
		first := r.lab.Balancers[i]
		if first.Name != b.Name {
			continue
		}
		static, derived := first, b
		if static.Cluster != nil {
			static, derived = derived, static
		}
		if derived.Cluster == nil {
			continue
		}
		r.failAt(static.Pos, "balancers."+b.Name, "cluster %s (%s) already defines a balancer of this name: want another name", derived.Cluster.Name, derived.Pos)
	}
}

// applianceListens reports a balancer on a port of the appliance itself.
func (r *resolver) applianceListens(b *lab.Balancer) {
	a := &r.lab.Appliance
	own := r.lab.OwnAddresses()
	for _, server := range []struct {
		key      string
		listen   lab.Listen
		udp, tcp bool
	}{{"http", a.HTTP, false, true}, {"dns", a.DNS, true, true}, {"tftp", a.TFTP, true, false}, {"admin", a.Admin, false, true}} {
		if b.Mode == lab.ModeUDP && !server.udp || b.Mode != lab.ModeUDP && !server.tcp {
			continue
		}
		for _, l := range server.listen.Addrs(own) {
			at := lab.BindTo(l)[0]
			i := slices.IndexFunc(b.Listen, func(bind lab.Bind) bool { return bind.SharesPort(at) && sameAddr(bind.Addr, at.Addr) })
			if i >= 0 {
				r.failAt(b.Pos, balancerKey(b, "listen"), "%s is where the appliance listens (appliance.%s): want another address or port", b.Listen[i], server.key)
				break
			}
		}
	}
}

// hostListens reports a balancer on the address of another machine. Derived balancers are never there.
func (r *resolver) hostListens(b *lab.Balancer) {
	for _, a := range b.Listen.Addrs() {
		h := r.hostByIP[a]
		if b.Cluster == nil && h != nil && h.Role != lab.RoleAppliance && len(h.MACs) > 0 {
			r.failAt(b.Pos, balancerKey(b, "listen"), "%s belongs to host %s (%s): want an address of the appliance", a, h.Name, h.Pos)
		}
	}
}

// ownBackend reports a balancer that would connect to itself.
func (r *resolver) ownBackend(b *lab.Balancer) {
	own := r.lab.OwnAddresses()
	for i := range b.Backends {
		m := &b.Backends[i]
		if slices.ContainsFunc(b.Listen, func(at lab.Bind) bool { return lab.LeadsTo(at, m.Addr, own) }) {
			r.failAt(b.Pos, balancerKey(b, fmt.Sprintf("backends[%d]", i)), "%s is where the balancer itself listens: want the address of a server", m.AddrText())
		}
	}
}

// balancerLoops reports balancers that pass connections on in a loop, each loop once.
func (r *resolver) balancerLoops() {
	all := make([]lab.Hop, len(r.lab.Balancers))
	for i, b := range r.lab.Balancers {
		all[i] = lab.HopOf(b)
	}
	hops, reported := lab.NewHops(all, r.lab.OwnAddresses()), map[int]bool{}
	for i, b := range r.lab.Balancers {
		for j := range b.Backends {
			loop := hops.Loop(i, b.Backends[j].Addr)
			if len(loop) < 2 || slices.ContainsFunc(loop, func(at int) bool { return reported[at] }) {
				continue // ownBackend reports a loop of one
			}
			var through []string
			for _, at := range loop[1:] {
				reported[at] = true
				through = append(through, r.lab.Balancers[at].Name)
			}
			reported[i] = true
			r.failAt(b.Pos, balancerKey(b, fmt.Sprintf("backends[%d]", j)), "%s leads back to the balancer itself, through %s: want the address of a server",
				b.Backends[j].AddrText(), strings.Join(through, ", "))
		}
	}
}

func balancerKey(b *lab.Balancer, key string) string {
	if b.Cluster != nil {
		return "clusters." + b.Cluster.Name + ".address"
	}
	return "balancers." + b.Name + "." + key
}

// sameAddr reports whether two sockets of one port conflict.
func sameAddr(a, b netip.Addr) bool { return a == b || a.IsUnspecified() || b.IsUnspecified() }

// sideBySide reports two balancers that conflict on a port, once. Ports of TCP and UDP have nothing to do with each other.
func (r *resolver) sideBySide(a, b *lab.Balancer) {
	if (a.Mode == lab.ModeUDP) != (b.Mode == lab.ModeUDP) {
		return
	}
	for _, at := range a.Listen {
		for _, on := range b.Listen {
			if at.SharesPort(on) && sameAddr(at.Addr, on.Addr) && r.conflict(a, b, at, on) {
				return
			}
		}
	}
}

func hasAddress(c *lab.Cluster, a netip.Addr) bool {
	return c != nil && (c.Address == a || c.Ingress == a)
}

// conflict reports that two balancers cannot both listen: a on at, b on on.
func (r *resolver) conflict(a, b *lab.Balancer, at, on lab.Bind) (reported bool) {
	shared := lab.Bind{Addr: on.Addr, First: max(at.First, on.First), Last: min(at.Last, on.Last)}
	fail := func(key, format string, args ...any) bool {
		r.failAt(b.Pos, balancerKey(b, key), format, args...)
		return true
	}
	switch {
	case a.Cluster != b.Cluster && hasAddress(a.Cluster, on.Addr) && hasAddress(b.Cluster, on.Addr) && !(a.Cluster.SNI && b.Cluster.SNI):
		return true // sharedAddresses reports it
	case at.Addr != on.Addr:
		return fail("listen", "%s and %s of balancer %s (%s) cannot both be bound: want one address for both, or two that do not overlap", on, at, a.Name, a.Pos)
	case a.Mode != b.Mode:
		return fail("listen", "%s is shared with balancer %s (%s), which has mode %s: want one mode on one address", shared, a.Name, a.Pos, a.Mode)
	case a.EndsTLS() != b.EndsTLS():
		return fail("listen", "%s is shared with balancer %s (%s), and only one of the two has tls: want tls in both or none", shared, a.Name, a.Pos)
	case a.Mode == lab.ModeUDP:
		return fail("listen", "%s is taken by balancer %s (%s): want another address", shared, a.Name, a.Pos)
	case empty(a.Match) && empty(b.Match):
		return fail("listen", "%s is taken by balancer %s (%s): want another address, or match to distinguish them", shared, a.Name, a.Pos)
	}
	if p := common(a.Match, b.Match); p != "" {
		return fail("match", "%s on %s is also matched by balancer %s (%s): want different patterns", p, shared, a.Name, a.Pos)
	}
	return false
}

func empty(m lab.Match) bool { return len(m.SNI) == 0 && len(m.Host) == 0 && len(m.Path) == 0 }

// common returns what both match, or "".
func common(a, b lab.Match) string {
	name, sameName := sharedName(a, b)
	path, samePath := shared(a.Path, b.Path)
	if !sameName || !samePath {
		return ""
	}
	return name + path
}

// sharedName returns a name of both; two without names share everything.
func sharedName(a, b lab.Match) (name string, ok bool) {
	for _, names := range [...][]string{a.SNI, a.Host} {
		for _, name := range names {
			if slices.Contains(b.SNI, name) || slices.Contains(b.Host, name) {
				return name, true
			}
		}
	}
	return "", len(a.SNI)+len(a.Host) == 0 && len(b.SNI)+len(b.Host) == 0
}

// shared returns an item of both lists; two empty lists share everything.
func shared(a, b []string) (item string, ok bool) {
	for _, item := range a {
		if slices.Contains(b, item) {
			return item, true
		}
	}
	return "", len(a) == 0 && len(b) == 0
}
