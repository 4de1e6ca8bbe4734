package importer

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// Machines are the virtual machines of a hypervisor, as libvirt defines them.
type Machines struct {
	URI      string
	Domains  []Domain
	Networks []string          // XML of libvirt's networks
	Volumes  map[string]Volume // of the disks, by path, or by pool and name as "POOL/NAME"
}

// A Domain is the definition of a domain, as virsh dumpxml --inactive prints it.
type Domain struct{ Name, XML string }

// A Volume is what libvirt knows of a volume.
type Volume struct {
	Pool, Name, Format string
	Size               lab.Size
	Missing            bool   // no storage pool has it
	Err                string // why nothing is known of it
}

// ImportMachines returns a lab file that loads, with the hosts and virtual machines of a hypervisor. The File of a note is the name of a
// domain, its Line that of the definition.
func ImportMachines(in *Machines, o Options) (*Result, error) {
	if o.Check == nil {
		panic("importer: Options.Check is nil")
	}
	if u, err := url.Parse(in.URI); err != nil || u.Host != "" {
		o.Interface, o.Subnet = nil, nil // the bridges are of another machine
	}
	m := &machines{
		draft: newDraft(o), in: in, hv: &mapping{}, name: hypervisorName(in.URI), carriers: map[*network]string{},
		networks: map[string]*network{}, defined: map[string]*element{}, addresses: map[string]netip.Addr{}, taken: map[string]string{},
	}
	for _, text := range in.Networks {
		if err := m.define(text); err != nil {
			return nil, err
		}
	}
	at := place{file: in.URI, line: 1, text: "hypervisor"}
	m.hv.need("uri", at, in.URI)
	for _, d := range in.Domains {
		if err := m.domain(d); err != nil {
			return nil, err
		}
	}
	if m.emulated > 0 && m.accelerated == 0 {
		m.hv.set("domain_type", at, "qemu")
	} else if m.emulated > 0 {
		m.note(at, "%d domains of %d are emulated, of type qemu: here all are of type kvm", m.emulated, len(m.hosts))
	}
	m.hyper.add(&entry{key: m.name, at: at, sub: m.hv})
	return m.result(Libvirt, in.URI)
}

// machines fills a draft from a hypervisor.
type machines struct {
	*draft
	in       *Machines
	name     string // of the hypervisor
	hv       *mapping
	networks map[string]*network // by what carries them
	carriers map[*network]string // the reverse
	unknown  int                 // networks whose subnet nobody knows
	defined  map[string]*element // libvirt's networks, by name

	addresses             map[string]netip.Addr // that libvirt's networks reserve, by MAC
	taken                 map[string]string     // the domain of a volume
	emulated, accelerated int                   // domains of type qemu, and of others
}

// hypervisorName returns the name of a hypervisor: the first label of its machine's name.
func hypervisorName(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Hostname() == "" {
		return "local"
	}
	name := u.Hostname()
	if _, err := netip.ParseAddr(name); err != nil {
		name, _, _ = strings.Cut(name, ".")
	}
	if name = ident(name, "local"); name == "any" {
		return "local"
	}
	return name
}

// define reads the definition of one of libvirt's networks.
func (m *machines) define(text string) error {
	root, err := parseXML("network", []byte(text))
	if err != nil {
		return err
	}
	n := root.children[0]
	for _, c := range n.all("name") {
		m.defined[c.text] = n
	}
	for _, ip := range n.all("ip") {
		for _, dhcp := range ip.all("dhcp") {
			for _, h := range dhcp.all("host") {
				if a, err := netip.ParseAddr(h.attrs["ip"]); err == nil && a.Is4() && h.attrs["mac"] != "" {
					m.addresses[strings.ToLower(h.attrs["mac"])] = a
				}
			}
		}
	}
	return nil
}

// attach returns the network of a NIC, which it adds to the lab and to the bridges of the hypervisor; nil: there is none, and a note.
func (m *machines) attach(nic *element) *network {
	name, carrier := m.carrier(nic)
	if carrier == nil {
		return nil
	}
	key := flowText(carrier)
	if n := m.networks[key]; n != nil {
		return n
	}
	known := len(m.draft.networks)
	n := m.subnetOf(nic, name)
	m.networks[key] = n
	if m.carriers[n] != "" && known == len(m.draft.networks) {
		m.note(nic.at, "network %s is attached to %s here: a network is attached in one way", n.name, m.carriers[n])
		return n
	}
	m.carriers[n] = key
	carrier.key, carrier.at = n.name, nic.at
	m.hv.under("bridges", nic.at).add(carrier)
	return n
}

// carrier returns what a NIC is attached to, as an entry of bridges, and its name; nil: nothing that can be carried, and a note.
func (m *machines) carrier(nic *element) (name string, e *entry) {
	long := &mapping{}
	switch kind := nic.attrs["type"]; {
	case kind == "network" && nic.attr("source", "network") != "":
		name = nic.attr("source", "network")
		long.need("network", nic.at, name)
		long.setIf("portgroup", nic.at, nic.attr("source", "portgroup"))
	case kind == "bridge" && nic.attr("source", "bridge") != "":
		name = nic.attr("source", "bridge")
		if nic.attr("virtualport", "type") != "openvswitch" {
			if len(nic.all("vlan")) > 0 {
				m.weaker(nic.at, "a VLAN is of an Open vSwitch bridge only: it is left out")
			}
			return name, &entry{text: name, needed: true}
		}
		long.need("ovs", nic.at, name)
	case kind == "direct" && nic.attr("source", "dev") != "":
		name = nic.attr("source", "dev")
		if mode := nic.attr("source", "mode"); mode != "bridge" {
			m.note(nic.at, "macvtap is in mode bridge here, not %q", mode)
		}
		long.need("macvtap", nic.at, name)
	default:
		m.note(nic.at, "a NIC of type %s is attached to no network: it is left out", kind)
		return "", nil
	}
	m.vlan(nic, long)
	return name, &entry{sub: long, needed: true}
}

func (m *machines) vlan(nic *element, to *mapping) {
	for _, vlan := range nic.all("vlan") {
		tags := vlan.all("tag")
		if len(tags) != 1 || vlan.attrs["trunk"] == "yes" || to.get("macvtap") != nil {
			m.weaker(vlan.at, "a NIC has one VLAN, and none with macvtap: it is left out")
			continue
		}
		to.setIf("vlan", vlan.at, tags[0].attrs["id"])
	}
}

// setIf sets a text that is not empty.
func (m *mapping) setIf(key string, at place, text string) {
	if text != "" {
		m.set(key, at, text)
	}
}

// subnetOf returns the network on a bridge, a libvirt network or an interface.
func (m *machines) subnetOf(nic *element, name string) *network {
	if defined := m.defined[name]; defined != nil && nic.attrs["type"] == "network" {
		for _, ip := range defined.all("ip") {
			if p := libvirtSubnet(ip); p.IsValid() && p.Addr().Is4() {
				n := m.addNetwork(nic.at, name, p)
				if len(ip.all("dhcp")) > 0 && n.get("dhcp") == nil {
					n.set("dhcp", nic.at, "off")
					m.note(nic.at, "libvirt serves DHCP in network %s: dhcp is off; bootlab import libvirt-net carries what it serves", n.name)
				}
				return n
			}
		}
		if bridge := defined.attr("bridge", "name"); bridge != "" {
			return m.subnetOn(nic, name, bridge)
		}
	}
	return m.subnetOn(nic, name, name)
}

// subnetOn returns the network on an interface of this machine. For one of another machine there is a placeholder, of the addresses
// that RFC 2544 sets apart for benchmarks.
func (m *machines) subnetOn(nic *element, name, bridge string) *network {
	if m.o.Subnet != nil {
		if p := m.o.Subnet(bridge); p.IsValid() {
			n := m.addNetwork(nic.at, name, p)
			n.setIf("interface", nic.at, bridge)
			n.address = p.Addr()
			return n
		}
	}
	p := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18 + byte(m.unknown>>8&1), byte(m.unknown), 0}), 24)
	m.unknown++
	n := m.addNetwork(nic.at, name, p)
	n.set("dhcp", nic.at, "off")
	m.note(nic.at, "the subnet on %s is not known here, and %s stands for it: set subnet, interface and address, and remove dhcp: off", name, p)
	return n
}

// sizeOf reads a size of libvirt, whose default unit is KiB.
func sizeOf(e *element) (lab.Size, bool) {
	var n uint64
	if _, err := fmt.Sscan(e.text, &n); err != nil || n == 0 {
		return 0, false
	}
	units := map[string]uint64{
		"": 1 << 10, "b": 1, "bytes": 1, "KB": 1e3, "k": 1 << 10, "KiB": 1 << 10, "MB": 1e6, "M": 1 << 20, "MiB": 1 << 20,
		"GB": 1e9, "G": 1 << 30, "GiB": 1 << 30, "TB": 1e12, "T": 1 << 40, "TiB": 1 << 40,
	}
	unit := units[e.attrs["unit"]]
	if unit == 0 || n > 1<<62/unit {
		return 0, false
	}
	return lab.Size(n * unit), true
}
