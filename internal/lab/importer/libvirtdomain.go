package importer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

const noEquivalent = "there is no equivalent: it is left out"

// domainIgnored are elements of a domain that bootlab or libvirt sets by itself, or that say what the machine is called.
const domainIgnored = `name uuid genid title description metadata os features cpu vcpu memory currentMemory memoryBacking
	devices on_poweroff on_reboot on_crash resource seclabel clock pm`

// A domainHost is the host that a domain becomes.
type domainHost struct {
	*machines
	at   place
	root *element
	h    *host
	vm   *mapping
	q35  bool
	arm  bool
	nics []*domainNIC
}

// A domainNIC is a NIC of a domainHost.
type domainNIC struct {
	at      place
	mac     string
	network *network
	model   string
	order   int // in the boot order, from 1; 0: none
}

// domain adds the host of a domain.
func (m *machines) domain(d Domain) error {
	root, err := parseXML(d.Name, []byte(d.XML))
	if err != nil {
		return err
	}
	e := root.children[0]
	if e.name != "domain" {
		return fmt.Errorf("%s:%d: <%s> is not a domain of libvirt", d.Name, e.at.line, clip(e.name))
	}
	g := &domainHost{machines: m, at: e.at, root: e, h: &host{at: e.at, name: hostLabel(d.Name)}, vm: &mapping{}}
	if reason := g.foreign(); reason != "" {
		m.note(e.at, "%s: it is left out", reason)
		return nil
	}
	if g.h.name != strings.ToLower(d.Name) {
		m.note(e.at, "the name of a host has letters, digits and '-': it is %s", g.h.name)
	}
	g.vm.need("hypervisor", e.at, m.name)
	g.platform()
	g.processors()
	g.memory()
	g.devices()
	for _, c := range e.children {
		if !listed(domainIgnored, c.name) {
			m.leaveOutElement(c)
		}
	}
	if len(g.nics) == 0 {
		m.note(e.at, "it has no NIC that can be carried: it is left out")
		return nil
	}
	switch e.attrs["type"] {
	case "qemu":
		m.emulated++
	case "kvm":
		m.accelerated++
	default:
		m.accelerated++
		m.note(e.at, "its type is kvm here")
	}
	g.network()
	g.h.add(&entry{key: "vm", at: g.at, sub: g.vm})
	m.hosts = append(m.hosts, g.h)
	return nil
}

// hostLabel returns the name of a host that is like that of a domain. Dots stay: what follows the first is a domain name.
func hostLabel(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r < 0x80 && (lab.IsAlnum(byte(r)) || r == '-' || r == '.') {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	label, domain, _ := strings.Cut(clean, ".")
	label = strings.Trim(label[:min(len(label), 63)], "-")
	if label == "" {
		label = "vm"
	}
	if domain != "" && lab.IsDomain(domain) && strings.Contains(domain, ".") {
		return label + "." + domain
	}
	return strings.Trim(strings.ReplaceAll(clean, ".", "-")[:min(len(clean), 63)], "-")
}

// foreign says why a domain is no host of a lab file; empty: it is.
func (g *domainHost) foreign() string {
	for _, meta := range g.root.all("metadata") {
		for _, vm := range meta.all("vm") {
			if vm.attrs["bootlab"] == "urn:bootlab:vm:1" {
				return fmt.Sprintf("it is host %s of lab %s already", clip(vm.attrs["host"]), clip(vm.attrs["lab"]))
			}
		}
	}
	for _, os := range g.root.all("os") {
		for _, t := range os.all("type") {
			switch arch := t.attrs["arch"]; {
			case t.text != "hvm":
				return fmt.Sprintf("type %s is no fully virtualized machine", clip(t.text))
			case arch == "aarch64":
				g.arm = true
			case arch != "x86_64" && arch != "i686" && arch != "":
				return fmt.Sprintf("architecture %s is neither x86_64 nor aarch64", clip(arch))
			}
		}
	}
	return ""
}

// platform sets machine type, architecture and firmware.
func (g *domainHost) platform() {
	if g.arm {
		g.vm.set("arch", g.at, "aarch64")
	}
	for _, os := range g.root.all("os") {
		for _, t := range os.all("type") {
			g.q35 = !g.arm && (t.attrs["machine"] == "" || strings.Contains(t.attrs["machine"], "q35"))
			g.vm.setIf("machine", t.at, t.attrs["machine"])
		}
		for _, c := range os.children {
			if !listed("type boot bootmenu bios smbios loader nvram firmware", c.name) {
				g.note(c.at, noEquivalent+"; what a machine boots is in its profile")
			}
		}
		g.firmware(os)
	}
	for _, features := range g.root.all("features") {
		for _, c := range features.children {
			if !listed("acpi apic pae smm vmport gic", c.name) {
				g.leaveOutElement(c)
			}
		}
	}
	for _, c := range g.root.all("clock") {
		if c.attrs["offset"] != "utc" {
			g.note(c.at, "the clock of a machine is UTC here")
		}
	}
}

func (g *domainHost) firmware(os *element) {
	pflash := os.attr("loader", "type") == "pflash"
	if os.attrs["firmware"] != "efi" && !pflash {
		for _, l := range os.all("loader") {
			g.note(l.at, "the firmware is libvirt's BIOS here")
		}
		return
	}
	has := map[string]string{}
	for _, f := range os.all("firmware") {
		for _, feature := range f.all("feature") {
			has[feature.attrs["name"]] = feature.attrs["enabled"]
		}
	}
	secure := lab.UEFIOf(os.attr("loader", "secure"), has["secure-boot"], has["enrolled-keys"]) == lab.FirmwareUEFISecure
	switch {
	case secure && g.q35:
		g.vm.set("firmware", os.at, "uefi-secure")
		return
	case secure:
		g.note(os.at, "Secure Boot needs machine q35: the firmware is uefi here")
	}
	g.vm.set("firmware", os.at, "uefi")
}

// processors sets the number and the model of CPUs.
func (g *domainHost) processors() {
	for _, v := range g.root.all("vcpu") {
		g.vm.setIf("cpus", v.at, v.text)
		if v.attrs["current"] != "" && v.attrs["current"] != v.text {
			g.note(v.at, "a machine has all its CPUs from its start")
		}
		if v.attrs["cpuset"] != "" {
			g.note(v.at, "CPUs are not pinned here")
		}
	}
	cpus := g.root.all("cpu")
	if len(cpus) == 0 {
		g.note(g.at, "it has no CPU model, which is QEMU's default: here it is the hypervisor's")
	}
	for _, c := range cpus {
		switch mode := c.attrs["mode"]; mode {
		case "host-passthrough":
		case "host-model", "maximum":
			g.vm.set("cpu", c.at, mode)
		default:
			for _, model := range c.all("model") {
				g.vm.setIf("cpu", model.at, model.text)
			}
		}
		for _, detail := range c.children {
			if detail.name != "model" && detail.name != "vendor" {
				g.note(detail.at, "a CPU has a model only: it is left out")
			}
		}
	}
}

// memory sets the memory, and the pages that back it.
func (g *domainHost) memory() {
	for _, e := range g.root.all("memory") {
		size, ok := sizeOf(e)
		if !ok {
			g.note(e.at, "%q is no size: it is left out", clip(e.text))
			continue
		}
		g.vm.set("memory", e.at, size.String())
		for _, now := range g.root.all("currentMemory") {
			if n, ok := sizeOf(now); ok && n != size {
				g.note(now.at, "a machine has all its memory from its start: %s", size)
			}
		}
	}
	for _, backing := range g.root.all("memoryBacking") {
		for _, c := range backing.children {
			pages := c.all("page")
			if c.name != "hugepages" || len(pages) != 1 {
				g.note(c.at, noEquivalent+": hugepages has one size")
				continue
			}
			unit := pages[0].attrs["unit"]
			if size, ok := sizeOf(&element{text: pages[0].attrs["size"], attrs: map[string]string{"unit": unit}}); ok {
				g.vm.set("hugepages", c.at, size.String())
			}
		}
	}
}

// network gives the host its NICs: in the short form where that says the same.
func (g *domainHost) network() {
	boots := 0
	for i, n := range g.nics {
		if n.order > 0 && (g.nics[boots].order == 0 || n.order < g.nics[boots].order) {
			boots = i
		}
	}
	same := !slices.ContainsFunc(g.nics, func(n *domainNIC) bool { return n.network != g.nics[0].network })
	if same && (len(g.nics) == 1 || g.nics[0].network != nil) && g.nics[0].model == "" {
		first := slices.Insert(slices.Delete(slices.Clone(g.nics), boots, boots+1), 0, g.nics[boots])
		for _, n := range first {
			g.h.macs = append(g.h.macs, n.mac)
			if n.model != "" {
				g.note(n.at, "NICs in one network have one model: it is left out")
			}
		}
		g.h.network, g.h.ip = first[0].network.name, g.address(first[0])
		return
	}
	used := map[*network]bool{}
	for i, n := range g.nics {
		if used[n.network] {
			g.note(n.at, "the host has another NIC in network %s: it is left out", n.network.name)
			continue
		}
		used[n.network] = true
		item := &mapping{}
		item.need("network", n.at, n.network.name)
		item.need("mac", n.at, n.mac)
		if a := g.address(n); a.IsValid() {
			item.set("ip", n.at, a.String())
		}
		item.setIf("model", n.at, n.model)
		if i == boots && i > 0 {
			item.set("boot", n.at, "true")
		}
		g.h.appendMap("nics", n.at, item)
	}
}

// address returns the address that libvirt's network reserves for a NIC.
func (g *domainHost) address(n *domainNIC) netip.Addr {
	if a := g.addresses[strings.ToLower(n.mac)]; n.network.subnet.Contains(a) {
		return a
	}
	return netip.Addr{}
}
