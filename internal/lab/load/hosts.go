package load

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// hostList resolves all hosts. With thousands of hosts this takes most of the time: hosts and MACs are allocated at once, and
// keys of problems are built only if there is a problem. They are resolved in the order of the file: of two that have the same, the later is
// the mistake.
func (r *resolver) hostList() {
	entries := r.raw.Hosts.Entries
	slab, macs := make([]lab.Host, len(entries)), make([]lab.MAC, 0, len(entries))
	r.lab.Hosts = make([]*lab.Host, len(entries))
	roles := map[string]string{} // as written
	for i, e := range entries {
		r.lab.Hosts[i], r.hosts[e.Name] = &slab[i], &slab[i]
	}
	inFile := slices.Clone(entries)
	slices.SortFunc(inFile, func(a, b *entry[rawHost]) int { return a.spot.compare(b.spot) })
	for _, e := range inFile {
		h := r.hosts[e.Name]
		h.Pos, h.Name, h.IP, h.IP6 = r.pos(e.spot), e.Name, e.V.IP.V.Addr, e.V.IP6.V.Addr
		if e.V.NICs.set() {
			r.nics(e, h)
		} else {
			macs = r.macs(e, h, macs)
			r.hostAddresses(e, h)
		}
		if role := string(e.V.Role.V); role != "" {
			if _, ok := roles[role]; !ok {
				roles[role] = strings.Clone(role)
			}
			if h.Role = canonicalRole(roles[role]); h.Role != role {
				h.RoleSynonym = roles[role]
			}
		}
		r.hostReferences(e, h)
		r.hostNetwork(e, h)
		if e.V.VM.set() && !e.V.NICs.set() && !e.V.MAC.set() {
			if mac := r.derivedMAC(e, h, h.Network, e.spot, hostKey(e, "mac")); !mac.IsZero() {
				h.MACs = []lab.MAC{mac}
			}
		}
		r.hostRest(e, h)
		r.hostNames(e, h)
	}
	r.noAddresses(inFile)
	for _, h := range r.lab.Hosts {
		if h.Cluster != nil {
			h.Cluster.Hosts = append(h.Cluster.Hosts, h)
		}
	}
}

// noAddresses warns of machines that never get an address, once for each network.
func (r *resolver) noAddresses(entries []*entry[rawHost]) {
	first, others := map[*lab.Network]*lab.Host{}, map[*lab.Network]int{}
	for _, e := range entries {
		switch h := r.hosts[e.Name]; {
		case !unaddressed(h) || e.V.IP.set() || r.incomplete["hosts."+e.Name] || r.incomplete["networks."+h.Network.Name]:
		case first[h.Network] == nil:
			first[h.Network] = h
		default:
			others[h.Network]++
		}
	}
	for n, h := range first {
		as := ""
		if others[n] > 0 {
			as = ", as " + lab.Plural(others[n], "other host")
		}
		why, want := "has no pool: the machine never gets an address", "a pool"
		if n.DHCP == lab.DHCPOff {
			why, want = "has dhcp: off: bootlab gives the machine no address", "dhcp: off in the host too if another server gives it one"
		}
		r.lab.Warnings.Addf(h.Pos, "hosts."+h.Name, "has no ip%s, and network %s (%s) %s; want ip, or %s", as, n.Name, n.Pos, why, want)
	}
}

// unaddressed reports whether no server of the lab gives h an address to boot with.
func unaddressed(h *lab.Host) bool {
	if len(h.MACs) == 0 || h.IP.IsValid() || h.IP6.IsValid() || h.Network == nil {
		return false
	}
	from := h.AddressFrom()
	return from == lab.FromNobody || from == lab.FromSilent
}

// roleSynonyms are other words for roles, in lower case: those of OpenShift, kubeadm and Talos.
var roleSynonyms = map[string]string{
	"master": lab.RoleControlPlane, "controlplane": lab.RoleControlPlane, "control_plane": lab.RoleControlPlane, "control-plane": lab.RoleControlPlane,
	"worker": lab.RoleWorker, "bootstrap": lab.RoleBootstrap, "appliance": lab.RoleAppliance,
}

// canonicalRole returns the role that a word means: one that the lab knows, or the word itself.
func canonicalRole(word string) string {
	if role, ok := roleSynonyms[strings.ToLower(word)]; ok {
		return role
	}
	return word
}

func hostKey(e *entry[rawHost], name string) string { return "hosts." + e.Name + "." + name }

// macs adds the MACs of h to slab and returns it.
func (r *resolver) macs(e *entry[rawHost], h *lab.Host, slab []lab.MAC) []lab.MAC {
	start := len(slab)
	for i := range e.V.MAC.Items {
		m := &e.V.MAC.Items[i]
		if !m.ok() {
			continue
		}
		if other := r.hostByMAC[m.V.MAC]; other != nil {
			r.fail(m.spot, hostKey(e, "mac"), "%s is already used by host %s (%s): want another MAC", m.V, other.Name, r.pos(r.macSpot(other)))
		}
		r.hostByMAC[m.V.MAC] = h
		slab = append(slab, m.V.MAC)
	}
	if len(slab) > start {
		h.MACs = slab[start:len(slab):len(slab)]
	}
	return slab
}

func (r *resolver) hostAddresses(e *entry[rawHost], h *lab.Host) {
	for _, a := range [...]struct {
		addr netip.Addr
		s    spot
		key  string
	}{{h.IP, e.V.IP.spot, "ip"}, {h.IP6, e.V.IP6.spot, "ip6"}} {
		if !a.addr.IsValid() {
			continue
		}
		if other := r.hostByIP[a.addr]; other != nil {
			r.fail(a.s, hostKey(e, a.key), "%s is already used by host %s (%s): want another address", a.addr, other.Name, r.pos(r.addressSpot(other, a.addr)))
		}
		r.hostByIP[a.addr] = h
	}
}

func (r *resolver) hostReferences(e *entry[rawHost], h *lab.Host) {
	if v := &e.V.Cluster; v.ok() {
		if h.Cluster = r.clusters[string(v.V)]; h.Cluster == nil {
			h.Cluster = r.clusters[r.unknownName(v.spot, hostKey(e, "cluster"), "cluster", string(v.V), r.raw.Clusters.names())]
		}
	}
	if v := &e.V.Profile; v.ok() {
		if h.Profile = r.profiles[string(v.V)]; h.Profile == nil {
			h.Profile = r.profiles[r.unknownName(v.spot, hostKey(e, "profile"), "profile", string(v.V), r.raw.Profiles.names())]
		}
	}
	if v := &e.V.Network; v.ok() && !e.V.NICs.set() {
		if h.Network = r.networks[string(v.V)]; h.Network == nil {
			h.Network = r.networks[r.unknownName(v.spot, hostKey(e, "network"), "network", string(v.V), r.raw.Networks.names())]
		}
	}
}

// hostNetwork finds the network of h, and checks that its address can be one there.
func (r *resolver) hostNetwork(e *entry[rawHost], h *lab.Host) {
	named := e.V.Network.set()
	if e.V.NICs.set() {
		return // nics has done it
	}
	if h.IP6.IsValid() {
		defer func() { r.inSubnet6(h.Network, h.IP6, e.V.IP6.spot, hostKey(e, "ip6")) }()
	}
	switch {
	case !h.IP.IsValid() && !named && len(r.lab.Networks) == 1:
		h.Network = r.lab.Networks[0]
	case !h.IP.IsValid() && !named && len(h.MACs) > 0 && len(r.lab.Networks) > 1 && !e.V.IP.set():
		r.failMissing(e.spot, hostKey(e, "network"), "is missing, and there is no ip to derive it from: want %s", orList(r.raw.Networks.names()))
	case !h.IP.IsValid():
	case !named:
		if h.Network = lab.FindSubnet(r.bySubnet, h.IP); h.Network == nil && !r.noSubnets {
			r.outside(e, h)
		}
	}
	if h.IP.IsValid() && h.Network != nil && h.Network.Subnet.IsValid() {
		last := h.IP.As4()[3] // avoids building the key for most hosts
		if !h.Network.Subnet.Contains(h.IP) || last == 0 || last == 255 || h.Network.Subnet.Bits() > 24 {
			r.hostAddress(h.Network, h.IP, e.V.IP.spot, hostKey(e, "ip"))
		} else {
			r.inside[subnetOf{n: h.Network}] = true
		}
	}
}

// outside reports an address outside of all networks. A host without a MAC is only a name, which can be a record of a zone.
func (r *resolver) outside(e *entry[rawHost], h *lab.Host) {
	or := ""
	if len(h.MACs) == 0 {
		or = fmt.Sprintf(`, or, for a DNS name only, dns: {zones: {%s: {records: ["%s A %s"]}}}`, r.lab.Domain, h.Name, h.IP)
	}
	r.failOutside(subnetOf{}, e.V.IP.spot, hostKey(e, "ip"), single(h.IP), "an address inside "+r.subnets()+or)
}

func (r *resolver) subnets() string {
	var names []string
	for _, n := range r.bySubnet {
		names = append(names, n.Subnet.String())
		if len(names) == 8 {
			break
		}
	}
	if len(names) == 0 {
		return "a network of the lab, of which there is none"
	}
	return orList(names)
}

func (r *resolver) hostRest(e *entry[rawHost], h *lab.Host) {
	raw := &e.V
	if raw.Lease.set() {
		h.Lease = r.lease(&raw.Lease, time.Duration(0), "hosts."+e.Name)
	}
	if raw.Routes.set() {
		h.Routes = r.routes(&raw.Routes, "hosts."+e.Name)
	}
	if raw.Options.set() {
		h.Options = r.options(&raw.Options, "hosts."+e.Name, hostOptionKey)
	}
	h.Ignored = !bool(raw.DHCP.or(true))
	h.Vars = raw.Vars.V
	if len(raw.MAC.Items) == 0 && !raw.MAC.bad() && !raw.NICs.set() && (!raw.VM.set() || raw.MAC.set()) {
		r.withoutMAC(e)
	}
	if raw.VM.set() {
		h.Serial = h.Name
		h.VM = r.vm(e, h)
	}
	h.Local = raw.Local.or(lab.LocalBootAuto)
	if raw.BMC.set() {
		h.BMC = r.bmc(e)
	}
	r.hostChain(e, h)
}

// hostChain sets what the firmware of h starts: as the host says, else its profile, else as its firmware requires.
func (r *resolver) hostChain(e *entry[rawHost], h *lab.Host) {
	h.Chain = lab.ChainIPXE
	if h.VM != nil && h.VM.Firmware == lab.FirmwareUEFISecure {
		h.Chain = lab.ChainGRUB
	}
	p := h.Profile
	if p != nil && p.Chain != lab.ChainDefault {
		h.Chain = p.Chain
	}
	h.Chain = e.V.Chain.or(h.Chain)
	if h.Chain == lab.ChainGRUB && p != nil && r.lab.Appliance.TFTP == nil {
		r.lab.Warnings.Addf(h.Pos, hostKey(e, "chain"), "firmware fetches GRUB by TFTP, which is off: want chain: ipxe, or appliance.tftp")
	}
	if h.Chain != lab.ChainGRUB || p == nil || p.IPXE == "" || p.Chain == lab.ChainGRUB {
		return
	}
	if e.V.Chain.set() {
		r.fail(e.V.Chain.spot, hostKey(e, "chain"), "GRUB cannot run the iPXE script of profile %s (%s): want a profile with a kernel, or chain: ipxe", p.Name, p.Pos)
	} else {
		r.fail(e.V.Profile.spot, hostKey(e, "profile"), "%s is an iPXE script (%s), and firmware uefi-secure starts GRUB: want a profile with a kernel, or "+
			"chain: ipxe and an iPXE that is signed", p.Name, p.Pos)
	}
}

// withoutMAC reports keys that need a MAC.
func (r *resolver) withoutMAC(e *entry[rawHost]) {
	raw := &e.V
	for _, need := range [...]struct {
		name string
		s    spot
	}{{"profile", raw.Profile.spot}} {
		if need.s.set() {
			if !r.incomplete["hosts."+e.Name] {
				if raw.MAC.set() {
					r.fail(raw.MAC.spot, hostKey(e, "mac"), "is empty, and %s needs it: want the host's MAC", need.name)
					return
				}
				r.fail(need.s, hostKey(e, need.name), "needs the host's MAC: want mac too")
			}
			return
		}
	}
	if !raw.IP.set() && !raw.IP6.set() && !r.incomplete["hosts."+e.Name] {
		r.fail(e.spot, "hosts."+e.Name, "has neither mac nor ip: want at least one")
	}
}

func (r *resolver) vm(e *entry[rawHost], h *lab.Host) *lab.VM {
	raw, key := e.V.VM.V, hostKey(e, "vm")
	vm := &lab.VM{
		CPUs: int(raw.CPUs.or(defaultCPUs)), Memory: raw.Memory.or(defaultMemory), Firmware: raw.Firmware.or(lab.FirmwareBIOS),
		CPU: string(raw.CPU.or("")), Machine: string(raw.Machine.or(defaultMachine)), Arch: string(raw.Arch.or("x86_64")),
		TPM: bool(raw.TPM.or(false)), Video: string(raw.Video.or("vga")), HugePages: raw.HugePages.V,
		Shared: bool(raw.Shared.or(false)), Autostart: bool(raw.Autostart.or(false)),
	}
	if vm.Arch == lab.ArchARM64 {
		r.arm64(raw, vm, key)
	}
	if vm.CPUs == 0 {
		r.fail(raw.CPUs.spot, key+".cpus", "0 CPUs is not possible: want 1 or more")
	}
	if n, err := strconv.ParseUint(vm.CPU, 10, 8); err == nil {
		r.fail(raw.CPU.spot, key+".cpu", "%d is no CPU model: did you mean cpus: %[1]d?", n)
	}
	for i := range raw.Disks.Items {
		vm.Disks = append(vm.Disks, r.disk(&raw.Disks.Items[i], fmt.Sprintf("%s.disks[%d]", key, i)))
	}
	for i := range raw.XML.Items {
		vm.XML = append(vm.XML, r.xmlChange(&raw.XML.Items[i], raw.XML.spot, fmt.Sprintf("%s.xml[%d]", key, i)))
	}
	r.vmHypervisors(&raw.Hypervisor, h, vm, e.V.VM.spot, key+".hypervisor")
	return vm
}

// xmlChange resolves a change of the domain XML. Whether it is possible, virt knows.
func (r *resolver) xmlChange(raw *rawXMLChange, list spot, key string) lab.XMLChange {
	missing(r, &raw.At, list, key+".at", "a path of elements such as devices/disk[1]")
	c := lab.XMLChange{Pos: r.pos(raw.At.spot), At: string(raw.At.V), Add: string(raw.Add.V), AddPos: r.pos(raw.Add.spot), Remove: bool(raw.Remove.V)}
	for name, v := range raw.Set.V {
		switch v.(type) {
		case map[string]any, []any, nil:
			r.fail(raw.Set.spot, key+".set."+name, "is no value of an attribute: want a text or a number")
		default:
			if c.Set == nil {
				c.Set = map[string]string{}
			}
			c.Set[name] = fmt.Sprint(v)
		}
	}
	n := 0
	for _, is := range []bool{c.Add != "", raw.Set.set(), c.Remove} {
		if is {
			n++
		}
	}
	if n != 1 && raw.At.set() && !r.incomplete[key] {
		r.fail(raw.At.spot, key, "says %d things to do: want one of add, set and remove", n)
	}
	return c
}

// arm64 sets what is different on 64-bit ARM, and reports what it does not have.
func (r *resolver) arm64(raw *rawVM, vm *lab.VM, key string) {
	vm.Firmware, vm.Machine = raw.Firmware.or(lab.FirmwareUEFI), string(raw.Machine.or("virt"))
	vm.Video = string(raw.Video.or("virtio"))
	if vm.Firmware != lab.FirmwareUEFI {
		r.fail(raw.Firmware.spot, key+".firmware", "%s is not possible with arch: aarch64: want uefi", vm.Firmware)
	}
	if vm.Video == "vga" || vm.Video == "qxl" {
		r.fail(raw.Video.spot, key+".video", "%s is not possible with arch: aarch64: want virtio or none", vm.Video)
	}
}

func (r *resolver) disk(raw *either[lab.Size, rawDisk], key string) lab.Disk {
	long := raw.Long
	if long == nil {
		return lab.Disk{Size: raw.Short.V, Bus: defaultDiskBus, Format: lab.DiskQCOW2}
	}
	switch {
	case long.Size.set() && long.Volume.set():
		r.fail(long.Size.spot, key+".size", "excludes volume (%s), whose size is its own: want one of the two", r.pos(long.Volume.spot))
	case !long.Volume.set():
		missing(r, &long.Size, raw.spot, key+".size", "a size such as 42GiB, or the volume that exists")
	}
	return lab.Disk{
		Size: long.Size.V, Bus: string(long.Bus.or(defaultDiskBus)), Cache: string(long.Cache.V),
		Pool: string(long.Pool.V), Format: string(long.Format.or(lab.DiskQCOW2)), Volume: string(long.Volume.V),
	}
}

func (r *resolver) bmc(e *entry[rawHost]) *lab.BMC {
	raw, key := e.V.BMC.V, hostKey(e, "bmc")
	switch {
	case raw.Redfish.set() && raw.IPMI.set():
		r.fail(raw.IPMI.spot, key+".ipmi", "excludes redfish (%s): want one of the two", r.pos(raw.Redfish.spot))
	case !raw.Redfish.set() && !raw.IPMI.set() && !r.incomplete[key]:
		r.fail(e.V.BMC.spot, key, "names no controller: want redfish: https://… or ipmi: ADDRESS")
	case raw.CAFile.set() && bool(raw.Insecure.V):
		r.fail(raw.Insecure.spot, key+".insecure", "excludes ca_file (%s): want one of the two", r.pos(raw.CAFile.spot))
	}
	return &lab.BMC{
		Redfish: string(raw.Redfish.V), IPMI: string(raw.IPMI.V), Username: string(raw.Username.V),
		PasswordFile: r.path(string(raw.PasswordFile.V)), CAFile: r.path(string(raw.CAFile.V)), Insecure: bool(raw.Insecure.V),
		Firmware: lab.Firmware(raw.Firmware.V),
	}
}

// hostNames sets the FQDN and the aliases of h.
func (r *resolver) hostNames(e *entry[rawHost], h *lab.Host) {
	h.Domain = r.lab.Domain
	if h.Cluster != nil {
		h.Domain = h.Cluster.Domain
	}
	if !lab.IsLabel(e.Name) {
		r.misnamed["hosts."+e.Name] = true
		r.fail(e.spot, "hosts."+e.Name, "%q is not a host's name: want one label of letters, digits and '-'; its domain comes from the cluster or the lab", e.Name)
		return
	}
	h.FQDN = strings.ToLower(h.Name) + "." + h.Domain
	r.claimName(h.FQDN, e.spot, "hosts."+e.Name, h)
	for i := range e.V.Aliases.Items {
		if a := &e.V.Aliases.Items[i]; a.ok() {
			name, absolute := strings.CutSuffix(string(a.V), ".")
			if !absolute {
				name += "." + h.Domain
			}
			h.Aliases = append(h.Aliases, name)
			key := fmt.Sprintf("hosts.%s.aliases[%d]", e.Name, i)
			if r.names[name] == nil {
				r.aliasAt[name] = keyAt{a.spot, key}
			}
			r.claimName(name, a.spot, key, h)
		}
	}
	r.nicNames(e, h)
}

// claimName records the owner of a name, and reports a name that another host has.
func (r *resolver) claimName(name string, s spot, key string, h *lab.Host) {
	if len(name) > maxName {
		r.fail(s, key, "the name %s has %d characters: want at most %d", name, len(name), maxName)
	}
	first := r.names[name]
	if at := r.aliasAt[name]; first != nil && at.s.set() && key == "hosts."+h.Name { // a name of the host itself: the alias is the mistake
		r.fail(at.s, at.key, "the name %s is that of host %s (%s): want another alias", name, h.Name, h.Pos)
		delete(r.aliasAt, name)
		r.names[name] = h
		return
	}
	if first != nil {
		r.fail(s, key, "the name %s is already used by host %s (%s): want another name", name, first.Name, first.Pos)
		return
	}
	r.names[name] = h
}
