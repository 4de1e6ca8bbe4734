package load

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

func (r *resolver) hypervisorList() {
	slab := make([]lab.Hypervisor, len(r.raw.Hypervisors.Entries))
	for i, e := range r.raw.Hypervisors.Entries {
		key := "hypervisors." + e.Name
		r.identName(e.spot, key, e.Name)
		if e.Name == anyHypervisor {
			r.fail(e.spot, key, "any is the word for all hypervisors: want another name")
		}
		missing(r, &e.V.URI, e.spot, key+".uri", "a libvirt URI such as qemu:///system")
		h := &slab[i]
		*h = lab.Hypervisor{
			Pos: r.pos(e.spot), Name: e.Name, URI: string(e.V.URI.V), URIPos: r.pos(e.V.URI.spot), Pool: string(e.V.Pool.or(defaultPool)),
			DomainType: string(e.V.DomainType.or(defaultDomainType)), Bridges: r.attachments(e, key),
		}
		if h.URI != "" && !strings.Contains(h.URI, ":") {
			r.fail(e.V.URI.spot, key+".uri", "%q is not a libvirt URI: want one like qemu:///system or qemu+ssh://root@kvm1/system", h.URI)
		}
		r.createdOnce(h, key)
		r.hypervisors[e.Name] = h
		r.lab.Hypervisors = append(r.lab.Hypervisors, h)
	}
}

func (r *resolver) attachments(e *entry[rawHypervisor], key string) []lab.Attachment {
	var out []lab.Attachment
	for _, b := range e.V.Bridges.Entries {
		n := r.networks[b.Name]
		if n == nil {
			n = r.networks[r.unknownName(b.spot, key+".bridges."+b.Name, "network", b.Name, r.raw.Networks.names())]
		}
		if n == nil {
			continue
		}
		a := lab.Attachment{Pos: r.pos(b.V.Short.spot), Network: n, Bridge: string(b.V.Short.or(""))}
		if long := b.V.Long; long != nil {
			r.attachment(&a, long, b.spot, key+".bridges."+b.Name)
		}
		out = append(out, a)
	}
	return out
}

// attachment resolves the long form of what carries a network.
func (r *resolver) attachment(a *lab.Attachment, raw *rawAttachment, s spot, key string) {
	a.LibvirtNetwork, a.OVS, a.Macvtap = string(raw.Network.V), string(raw.OVS.V), string(raw.Macvtap.V)
	a.PortGroup, a.VLAN = string(raw.PortGroup.V), int(raw.VLAN.V)
	var first spot
	for _, k := range [...]struct {
		name string
		s    spot
	}{{"network", raw.Network.spot}, {"ovs", raw.OVS.spot}, {"macvtap", raw.Macvtap.spot}} {
		switch {
		case !k.s.set():
		case first.set():
			r.fail(k.s, key+"."+k.name, "excludes the one before (%s): want one of network, ovs and macvtap", r.pos(first))
		default:
			first = k.s
		}
	}
	a.Pos = r.pos(first)
	switch {
	case !first.set():
		r.failMissing(s, key+".network", "is missing: want the name of a libvirt network, or ovs: BRIDGE, or macvtap: INTERFACE")
	case raw.PortGroup.set() && a.LibvirtNetwork == "":
		r.fail(raw.PortGroup.spot, key+".portgroup", "is of a libvirt network only: want network too")
	case raw.VLAN.set() && a.Macvtap != "":
		r.fail(raw.VLAN.spot, key+".vlan", "is not possible with macvtap: want an interface of that VLAN")
	case a.VLAN > 4094:
		r.fail(raw.VLAN.spot, key+".vlan", "%d is no VLAN tag: want 1 to 4094", a.VLAN)
	}
	r.createdNetwork(a, raw, key)
}

// maxInterfaceName is the length of the longest name of an interface in Linux.
const maxInterfaceName = 15

// createdNetwork resolves how a libvirt network is created.
func (r *resolver) createdNetwork(a *lab.Attachment, raw *rawAttachment, key string) {
	if !raw.Create.set() {
		const alone = "is of a libvirt network that bootlab creates: want create too"
		if raw.Bridge.set() {
			r.fail(raw.Bridge.spot, key+".bridge", alone)
		}
		if raw.Address.set() {
			r.fail(raw.Address.spot, key+".address", alone)
		}
		return
	}
	n := &lab.LibvirtNetwork{Pos: r.pos(raw.Create.spot), Forward: raw.Create.V, Bridge: string(raw.Bridge.V)}
	a.Create = n
	address, s := raw.Address.V.Addr, raw.Address.spot
	if n.Forward == lab.ForwardNAT && !s.set() {
		address, s = a.Network.Router, raw.Create.spot
	}
	if address.IsValid() && a.Network.Subnet.IsValid() {
		n.Address = netip.PrefixFrom(address, a.Network.Subnet.Bits())
	}
	switch {
	case raw.Create.bad() || raw.Address.bad() || raw.Bridge.bad(): // reported already
	case a.LibvirtNetwork == "":
		r.fail(raw.Create.spot, key+".create", "is of a libvirt network only: want network too")
	case len(n.Bridge) > maxInterfaceName:
		r.fail(raw.Bridge.spot, key+".bridge", "%q is too long for the name of an interface: want at most %d bytes", n.Bridge, maxInterfaceName)
	case n.Forward == lab.ForwardBridge && n.Bridge == "":
		r.fail(raw.Create.spot, key+".create", "bridge needs the Linux bridge of the hypervisor: want bridge too")
	case n.Forward == lab.ForwardBridge && raw.Address.set():
		r.fail(raw.Address.spot, key+".address", "is not possible with create: bridge: the bridge has its own address")
	case n.Forward == lab.ForwardNAT && !n.Address.IsValid():
		r.fail(raw.Create.spot, key+".create", "nat needs an address of the hypervisor, which is the machines' router: want address, or router of network %s", a.Network.Name)
	case n.Address.IsValid() && !a.Network.Subnet.Contains(address):
		r.failOutside(subnetOf{n: a.Network}, s, key+".address", single(address), "one inside "+a.Network.Subnet.String())
	}
}

// createdOnce reports a libvirt network that a hypervisor is to create for two networks of the lab.
func (r *resolver) createdOnce(h *lab.Hypervisor, key string) {
	first := map[string]lab.Attachment{}
	for _, a := range h.Bridges {
		if a.Create == nil || a.Create.Forward == "" {
			continue
		}
		if other, ok := first[a.LibvirtNetwork]; ok {
			r.failAt(a.Create.Pos, key+".bridges."+a.Network.Name+".create", "libvirt network %s is created for network %s (%s) already: want another, or no create",
				a.LibvirtNetwork, other.Network.Name, other.Create.Pos)
			continue
		}
		first[a.LibvirtNetwork] = a
	}
}

// vmHypervisors sets where a VM may run.
func (r *resolver) vmHypervisors(raw *oneOrMore[ident], h *lab.Host, vm *lab.VM, owner spot, key string) {
	if len(raw.Items) == 0 && !raw.bad() {
		r.failMissing(owner, key, "is missing: want the hypervisor that it runs on, a list of them, or any")
	}
	if len(raw.Items) == 1 && raw.Items[0].V == anyHypervisor {
		r.anyHypervisor(h, vm, raw.Items[0].spot, key)
		return
	}
	for i := range raw.Items {
		item := &raw.Items[i]
		name := string(item.V)
		hv := r.hypervisors[name]
		switch {
		case !item.ok():
			continue
		case name == anyHypervisor:
			r.fail(item.spot, key, "any is all hypervisors, and stands alone: want any, or a list of names")
		case hv == nil:
			if hv = r.hypervisors[r.unknownName(item.spot, key, "hypervisor", name, r.raw.Hypervisors.names())]; hv != nil {
				vm.Candidates = append(vm.Candidates, hv)
			}
		case slices.Contains(vm.Candidates, hv):
			r.fail(item.spot, key, "%s is in the list twice: want each name once", name)
		default:
			r.attached(h, hv, item.spot, key)
			vm.Candidates = append(vm.Candidates, hv)
		}
	}
	if len(vm.Candidates) == 1 && len(raw.Items) == 1 {
		vm.Hypervisor, vm.Candidates = vm.Candidates[0], nil
	}
	slices.SortFunc(vm.Candidates, func(a, b *lab.Hypervisor) int { return strings.Compare(a.Name, b.Name) })
}

// anyHypervisor is what the lab file says where any hypervisor may run a VM. It is the name of none.
const anyHypervisor = "any"

// anyHypervisor lets a VM run on all hypervisors that have its networks.
func (r *resolver) anyHypervisor(h *lab.Host, vm *lab.VM, s spot, key string) {
	for _, hv := range r.lab.Hypervisors {
		if lacks(h, hv) == nil {
			vm.Candidates = append(vm.Candidates, hv)
		}
	}
	switch {
	case len(vm.Candidates) > 0:
	case len(r.lab.Hypervisors) == 0:
		r.fail(s, key, "any is not possible: the lab has no hypervisors")
	default:
		r.fail(s, key, "any is not possible: no hypervisor has a bridge for each of the host's networks: want bridges for them on one of %s", orList(r.raw.Hypervisors.names()))
	}
}

// lacks returns a network of a host that a hypervisor does not carry; nil: none.
func lacks(h *lab.Host, hv *lab.Hypervisor) *lab.Network {
	if h.Network == nil {
		return nil // reported already, or a lab without networks
	}
	for _, as := range h.Interfaces() {
		if n := as.Network; n != nil && !slices.ContainsFunc(hv.Bridges, func(a lab.Attachment) bool { return a.Network == n }) {
			return n
		}
	}
	return nil
}

// attached reports a hypervisor that does not reach the network of its VM.
func (r *resolver) attached(h *lab.Host, hv *lab.Hypervisor, s spot, key string) {
	if n := lacks(h, hv); n != nil {
		r.failOnce(s, key, "hypervisor %[2]s (%[3]s) has no bridge for network %[4]s%[1]s: want bridges: {%[4]s: …} there", hv.Name, hv.Pos, n.Name)
	}
}
