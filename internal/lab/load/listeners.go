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
	for i, b := range r.lab.Balancers {
		if b.Listen.Port() == 0 {
			continue
		}
		r.applianceListens(b)
		r.hostListens(b)
		r.ownBackend(b)
		for _, other := range r.lab.Balancers[:i] {
			if other.Listen.Port() == b.Listen.Port() {
				r.sideBySide(other, b)
			}
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
		authored, derived := first, b
		if authored.Cluster != nil {
			authored, derived = derived, authored
		}
		if derived.Cluster == nil {
			continue
		}
		r.failAt(authored.Pos, "balancers."+b.Name, "cluster %s (%s) already defines a balancer of this name: want another name", derived.Cluster.Name, derived.Pos)
	}
}

// applianceListens reports a balancer on a port of the appliance itself.
func (r *resolver) applianceListens(b *lab.Balancer) {
	a := &r.lab.Appliance
	own := r.lab.OwnAddresses()
	for _, server := range []struct {
		key    string
		listen lab.Listen
	}{{"http", a.HTTP}, {"dns", a.DNS}, {"admin", a.Admin}} {
		if slices.ContainsFunc(server.listen.Addrs(own), func(l netip.AddrPort) bool {
			return l.Port() == b.Listen.Port() && sameAddr(l.Addr(), b.Listen.Addr())
		}) {
			r.failAt(b.Pos, balancerKey(b, "listen"), "%s is where the appliance listens (appliance.%s): want another address or port", b.Listen, server.key)
		}
	}
}

// hostListens reports a balancer on the address of another machine. Derived balancers are never there.
func (r *resolver) hostListens(b *lab.Balancer) {
	h := r.hostByIP[b.Listen.Addr()]
	if b.Cluster == nil && h != nil && h.Role != lab.RoleAppliance && len(h.MACs) > 0 {
		r.failAt(b.Pos, balancerKey(b, "listen"), "%s belongs to host %s (%s): want an address of the appliance", b.Listen.Addr(), h.Name, h.Pos)
	}
}

// ownBackend reports a balancer that would connect to itself.
func (r *resolver) ownBackend(b *lab.Balancer) {
	for i, m := range b.Backends {
		here := m.Addr == b.Listen || b.Listen.Addr().IsUnspecified() && m.Addr.Port() == b.Listen.Port() &&
			(m.Addr.Addr().IsLoopback() || slices.Contains(r.lab.OwnAddresses(), m.Addr.Addr()))
		if here {
			r.failAt(b.Pos, balancerKey(b, fmt.Sprintf("backends[%d]", i)), "%s is where the balancer itself listens: want the address of a server", m.Addr)
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

// sideBySide reports two balancers of one port that conflict.
func (r *resolver) sideBySide(a, b *lab.Balancer) {
	where := func() string { return fmt.Sprintf("balancer %s (%s)", a.Name, a.Pos) }
	switch {
	case a.Listen != b.Listen && sameAddr(a.Listen.Addr(), b.Listen.Addr()):
		r.failAt(b.Pos, balancerKey(b, "listen"), "%s and %s of %s cannot both be bound: want one address for both, or two that do not overlap", b.Listen, a.Listen, where())
	case a.Listen != b.Listen:
	case a.Mode != b.Mode:
		r.failAt(b.Pos, balancerKey(b, "listen"), "%s is shared with %s, which has mode %s: want one mode on one address", b.Listen, where(), a.Mode)
	case a.EndsTLS() != b.EndsTLS():
		r.failAt(b.Pos, balancerKey(b, "listen"), "%s is shared with %s, and only one of the two has tls: want tls in both or none", b.Listen, where())
	case empty(a.Match) && empty(b.Match):
		r.failAt(b.Pos, balancerKey(b, "listen"), "%s is taken by %s: want another address, or match to distinguish them", b.Listen, where())
	default:
		if p := common(a.Match, b.Match); p != "" {
			r.failAt(b.Pos, balancerKey(b, "match"), "%s on %s is also matched by %s: want different patterns", p, b.Listen, where())
		}
	}
}

func empty(m lab.Match) bool { return len(m.SNI) == 0 && len(m.Host) == 0 && len(m.Path) == 0 }

// common returns what both match, or "".
func common(a, b lab.Match) string {
	names, otherNames := append(slices.Clone(a.SNI), a.Host...), append(slices.Clone(b.SNI), b.Host...)
	name, sameName := shared(names, otherNames)
	path, samePath := shared(a.Path, b.Path)
	if !sameName || !samePath {
		return ""
	}
	return name + path
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
