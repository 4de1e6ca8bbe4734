package load

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// nics resolves the long form of a host's NICs. The one that boots becomes the host's MAC, addresses and network.
func (r *resolver) nics(e *entry[rawHost], h *lab.Host) {
	for _, short := range [...]struct {
		name string
		s    spot
	}{{"mac", e.V.MAC.spot}, {"ip", e.V.IP.spot}, {"ip6", e.V.IP6.spot}, {"network", e.V.Network.spot}} {
		if short.s.set() {
			r.fail(short.s, hostKey(e, short.name), "excludes nics (%s): want it in an item of nics", r.pos(e.V.NICs.spot))
		}
	}
	items := e.V.NICs.Items
	if len(items) == 0 {
		if e.V.NICs.bad() {
			return // reported already
		}
		r.failMissing(e.V.NICs.spot, hostKey(e, "nics"), "is empty: want a list of NICs such as [{network: lan, mac: \"52:54:00:00:00:01\"}]")
		return
	}
	boots := r.bootNIC(e)
	h.IP, h.IP6 = netip.Addr{}, netip.Addr{}
	used := map[*lab.Network]bool{}
	for i := range items {
		key := fmt.Sprintf("%s[%d]", hostKey(e, "nics"), i)
		n := r.nic(e, h, &items[i], key)
		fits := n.Network != nil && (!n.IP.IsValid() || n.Network.Subnet.Contains(n.IP)) // else its network or its ip is wrong
		if fits && used[n.Network] {
			s, of := items[i].Network.spot, ".network"
			if !s.set() {
				s, of = items[i].IP.spot, ".ip"
			}
			r.fail(s, key+of, "%s has another NIC of this host: want networks that differ, or mac as a list for NICs with one address", n.Network.Name)
		}
		used[n.Network] = used[n.Network] || fits
		switch {
		case i == boots:
			h.IP, h.IP6, h.Network, h.Model = n.IP, n.IP6, n.Network, n.Model
			if !n.MAC.IsZero() {
				h.MACs = []lab.MAC{n.MAC}
			}
		default:
			h.NICs = append(h.NICs, n)
		}
	}
	if boots > 0 {
		h.Named = 1 // the first of the list is the first of the others
	}
}

// bootNIC returns the index of the NIC that boots.
func (r *resolver) bootNIC(e *entry[rawHost]) int {
	boots := -1
	for i := range e.V.NICs.Items {
		b := &e.V.NICs.Items[i].Boot
		switch {
		case !bool(b.or(false)):
		case boots >= 0:
			r.fail(b.spot, fmt.Sprintf("%s[%d].boot", hostKey(e, "nics"), i), "is true for another NIC too (%s): want one", r.pos(e.V.NICs.Items[boots].Boot.spot))
		default:
			boots = i
		}
	}
	return max(boots, 0)
}

// nic resolves one NIC and claims its MAC and addresses.
func (r *resolver) nic(e *entry[rawHost], h *lab.Host, raw *rawNIC, key string) (n lab.NIC) {
	n = lab.NIC{MAC: raw.MAC.V.MAC, IP: raw.IP.V.Addr, IP6: raw.IP6.V.Addr, Model: string(raw.Model.or(""))}
	near := raw.MAC.spot
	if !near.set() {
		near = e.V.NICs.spot
	}
	if e.V.VM.set() && !raw.MAC.set() {
		defer func() { n.MAC = r.derivedMAC(e, h, n.Network, near, key+".mac") }()
	} else if missing(r, &raw.MAC, near, key+".mac", "the MAC address of the NIC") {
		if other := r.hostByMAC[n.MAC]; other != nil {
			r.fail(raw.MAC.spot, key+".mac", "%s is already used by host %s (%s): want another MAC", n.MAC, other.Name, r.pos(r.macSpot(other)))
		}
		r.hostByMAC[n.MAC] = h
	}
	r.nicNetwork(raw, &n, near, key)
	for _, a := range [...]struct {
		addr netip.Addr
		s    spot
		key  string
	}{{n.IP, raw.IP.spot, "ip"}, {n.IP6, raw.IP6.spot, "ip6"}} {
		if !a.addr.IsValid() {
			continue
		}
		if other := r.hostByIP[a.addr]; other != nil {
			r.fail(a.s, key+"."+a.key, "%s is already used by host %s (%s): want another address", a.addr, other.Name, r.pos(r.addressSpot(other, a.addr)))
		}
		r.hostByIP[a.addr] = h
	}
	if n.IP6.IsValid() {
		r.inSubnet6(n.Network, n.IP6, raw.IP6.spot, key+".ip6")
	}
	return n
}

// derivedMAC returns the MAC of a virtual machine's NIC that the lab file does not give.
func (r *resolver) derivedMAC(e *entry[rawHost], h *lab.Host, n *lab.Network, s spot, key string) lab.MAC {
	if n == nil {
		return lab.MAC{} // reported already
	}
	mac := lab.DerivedMAC(r.lab.Name, e.Name, n.Name)
	if other := r.hostByMAC[mac]; other != nil {
		r.fail(s, key, "%s, derived from the names of lab, host and network, is already used by host %s (%s): want a MAC of your own", mac, other.Name, r.pos(r.macSpot(other)))
	}
	r.hostByMAC[mac] = h
	return mac
}

// nicNetwork finds the network of a NIC, and checks that its address can be one there.
func (r *resolver) nicNetwork(raw *rawNIC, n *lab.NIC, near spot, key string) {
	switch {
	case raw.Network.ok():
		if n.Network = r.networks[string(raw.Network.V)]; n.Network == nil {
			n.Network = r.networks[r.unknownName(raw.Network.spot, key+".network", "network", string(raw.Network.V), r.raw.Networks.names())]
		}
	case n.IP.IsValid():
		if n.Network = lab.FindSubnet(r.bySubnet, n.IP); n.Network == nil && !r.noSubnets {
			r.failOutside(subnetOf{}, raw.IP.spot, key+".ip", single(n.IP), "an address inside "+r.subnets())
		}
	case !raw.Network.set() && !raw.IP.set():
		r.failMissing(near, key+".network", "is missing, and there is no ip to derive it from: want %s", orList(r.raw.Networks.names()))
	}
	if n.Network != nil && n.IP.IsValid() && n.Network.Subnet.IsValid() {
		r.hostAddress(n.Network, n.IP, raw.IP.spot, key+".ip")
	}
}

// inSubnet6 reports an IPv6 address outside the IPv6 subnet of its network, if it has one.
func (r *resolver) inSubnet6(n *lab.Network, a netip.Addr, s spot, key string) {
	switch {
	case n == nil || !n.Subnet6.IsValid():
	case n.Subnet6.Contains(a):
		r.inside[subnetOf{n, true}] = true
	default:
		r.failOutside(subnetOf{n, true}, s, key, single(a), "one inside "+n.Subnet6.String())
	}
}

// nicNames gives each NIC that does not have the name of its host one of its own: <host>-<network>.
func (r *resolver) nicNames(e *entry[rawHost], h *lab.Host) {
	for i := range h.NICs {
		n := &h.NICs[i]
		if n.Network == nil {
			continue
		}
		n.FQDN = r.nicName(e, h, n.Network)
		if i == h.Named-1 {
			n.FQDN = h.FQDN
		}
	}
	if h.Named > 0 && h.Network != nil {
		h.NICName = r.nicName(e, h, h.Network)
	}
}

// nicName claims <host>-<network>.<domain>.
func (r *resolver) nicName(e *entry[rawHost], h *lab.Host, n *lab.Network) string {
	label := strings.ToLower(h.Name + "-" + strings.NewReplacer(".", "-", "_", "-").Replace(n.Name))
	name := label + "." + h.Domain
	if !lab.IsLabel(label) {
		r.fail(e.spot, "hosts."+e.Name, "%q, the name of its NIC in network %s, is not a label of a DNS name: want a shorter name", label, n.Name)
		return name
	}
	r.claimName(name, e.spot, "hosts."+e.Name, h)
	return name
}

// macSpot returns where a host has its MACs.
func (r *resolver) macSpot(h *lab.Host) spot {
	e := r.raw.Hosts.byName[h.Name]
	switch raw := &e.V; {
	case raw.NICs.set():
		return raw.NICs.spot
	case raw.MAC.set():
		return raw.MAC.spot
	}
	return e.spot // derived
}

// addressSpot returns where a host has an address.
func (r *resolver) addressSpot(h *lab.Host, a netip.Addr) spot {
	raw := &r.raw.Hosts.byName[h.Name].V
	for i := range raw.NICs.Items {
		n := &raw.NICs.Items[i]
		if n.IP.V.Addr == a {
			return n.IP.spot
		}
		if n.IP6.V.Addr == a {
			return n.IP6.spot
		}
	}
	if a.Is6() {
		return raw.IP6.spot
	}
	return raw.IP.spot
}
