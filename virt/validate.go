package virt

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// compileMachine resolves one virtual machine and adds its errors to problems.
func compileMachine(t *Table, h *lab.Host, problems *lab.Problems) *machine {
	m := &machine{table: t, host: h, vm: h.VM, uuid: domainUUID(t.lab, h.Name)}
	for _, mac := range h.AllMACs() {
		m.macs = append(m.macs, mac.String())
	}
	bad := func(key, format string, args ...any) {
		problems.Addf(h.Pos, "hosts."+h.Name+key, format, args...)
	}
	if len(h.MACs) == 0 {
		bad(".mac", "a virtual machine needs a MAC address: write one such as 52:54:00:00:00:01")
	}
	if h.VM.CPUs <= 0 {
		bad(".vm.cpus", "%d is not a number of CPUs: want 1 or more", h.VM.CPUs)
	}
	if h.VM.Memory < 1<<20 {
		bad(".vm.memory", "%d bytes are not enough for any machine: want a size such as 4GiB", h.VM.Memory)
	}
	m.compileDisks(bad)
	m.compileConfig(bad)
	m.compileFirmware(bad)
	if h.VM.Hypervisor != nil || h.VM.Candidates == nil {
		m.compileAttachment(bad)
		m.compileXML(problems)
		m.markOnce()
		return m
	}
	for _, hv := range h.VM.Candidates {
		there := m.on(hv)
		there.compileAttachment(bad)
		if len(m.candidates) == 0 { // the same on each
			there.compileXML(problems)
		}
		m.candidates = append(m.candidates, there)
	}
	return m
}

// on returns a copy of the machine on another hypervisor.
func (m *machine) on(hv *lab.Hypervisor) *machine {
	vm := *m.vm
	vm.Hypervisor = hv
	there := *m
	there.vm, there.candidates, there.attach = &vm, nil, m.attachments(hv)
	there.markOnce()
	return &there
}

type complain func(key, format string, args ...any)

// busOf returns the bus that a disk is on.
func busOf(d lab.Disk) string {
	if d.Bus == "" {
		return "virtio"
	}
	return d.Bus
}

// devicePrefix returns what the device names of disks on a bus start with, or "" for an unknown bus.
func devicePrefix(bus string) string {
	switch bus {
	case "virtio":
		return "vd"
	case "scsi", "sata", "usb":
		return "sd"
	case "ide":
		return "hd"
	}
	return ""
}

func (m *machine) compileDisks(bad complain) {
	m.targets = make([]string, 0, len(m.disksOf()))
	for _, d := range m.disksOf() {
		bus := busOf(d)
		prefix := devicePrefix(bus)
		letter := m.nextLetter(prefix)
		switch {
		case prefix == "":
			bad(".vm.disks", "unknown bus %q: want virtio, scsi, sata or usb", d.Bus)
		case bus == "ide" && m.isQ35():
			bad(".vm.disks", "machine q35 has no ide bus: want sata, or machine: pc")
		case letter > 'z':
			bad(".vm.disks", "too many disks: want at most 26 of a kind")
		}
		image := m.fromImage() && len(m.targets) == 0
		switch {
		case d.Size == 0 && d.Volume == "" && !image:
			bad(".vm.disks", "a disk needs a size such as 20GiB")
		case d.Format != "" && d.Format != lab.DiskQCOW2 && d.Format != lab.DiskRaw:
			bad(".vm.disks", "unknown format %q: want qcow2 or raw", d.Format)
		case image && d.Volume != "":
			bad(".vm.disks", "the first disk is made from the image of profile %q, so it cannot be volume %s: want a size, or a profile without image", m.host.Profile.Name, d.Volume)
		case image && d.Format == lab.DiskRaw:
			bad(".vm.disks", "the first disk is an overlay on the image of profile %q, which only qcow2 can be: want format: qcow2", m.host.Profile.Name)
		}
		if !slices.Contains([]string{"", "default", "none", "writethrough", "writeback", "directsync", "unsafe"}, d.Cache) {
			bad(".vm.disks", "unknown cache mode %q: want none, writethrough, writeback, directsync or unsafe", d.Cache)
		}
		m.targets = append(m.targets, prefix+string(letter))
	}
}

// nextLetter returns the letter of the next device of that prefix.
func (m *machine) nextLetter(prefix string) rune {
	next := 'a'
	for _, t := range m.targets {
		if strings.HasPrefix(t, prefix) {
			next++
		}
	}
	return next
}

func (m *machine) compileFirmware(bad complain) {
	switch m.vm.Firmware {
	case "", lab.FirmwareBIOS, lab.FirmwareUEFI:
	case lab.FirmwareUEFISecure:
		if !m.isQ35() {
			bad(".vm.firmware", "secure boot needs machine q35, not %q", m.vm.Machine)
		}
	default:
		bad(".vm.firmware", "unknown firmware %q: want bios, uefi or uefi-secure", m.vm.Firmware)
	}
}

// compileConfig checks that bootlab can hand the config document over to the system in an image.
func (m *machine) compileConfig(bad complain) {
	if p := m.host.Profile; m.fromImage() && p.Config != "" && p.OS != lab.OSCoreOS && p.OS != lab.OSFlatcar && p.OS != lab.OSCloudInit {
		bad(".profile", "profile %q makes the disk from an image and has a config document, which only Ignition (os: coreos, flatcar) and "+
			"cloud-init (os: cloud-init) find without a network boot: set os, take config out of the profile, or install over the network (kernel)", p.Name)
	}
}

// isQ35 reports whether the machine type is q35 or a version of it, such as pc-q35-7.2.
func (m *machine) isQ35() bool {
	return m.vm.Machine == "" || strings.Contains(m.vm.Machine, "q35")
}

// attachments returns what carries the network of each NIC on a hypervisor; the zero value for a network that it lacks.
func (m *machine) attachments(hv *lab.Hypervisor) (all []lab.Attachment) {
	for _, as := range m.host.Interfaces() {
		var a lab.Attachment
		if i := slices.IndexFunc(hv.Bridges, func(a lab.Attachment) bool { return a.Network == as.Network }); i >= 0 {
			a = hv.Bridges[i]
		}
		all = append(all, a)
	}
	return all
}

func (m *machine) compileAttachment(bad complain) {
	hv := m.vm.Hypervisor
	if hv == nil {
		bad(".vm.hypervisor", "no hypervisor: want the name of one under hypervisors")
		return
	}
	attach := m.attachments(hv)
	m.attach = nil // with an error
	for i, as := range m.host.Interfaces() {
		n := as.Network
		if n == nil {
			bad(".network", "a virtual machine needs a network: give the host an ip, or a network")
			return
		}
		if attach[i].Network == nil {
			bad(".vm.hypervisor", "hypervisor %q has no bridge for network %q: add %q to hypervisors.%s.bridges",
				hv.Name, n.Name, n.Name+": BRIDGE", hv.Name)
			return
		}
	}
	m.attach = attach
}

// checkShared reports volumes that are disks of two machines: both would write to them.
func checkShared(machines []*machine, problems *lab.Problems) {
	type place struct {
		uri string
		VolumeID
	}
	owner := map[place]*machine{}
	named := map[place]*machine{} // with volume in the lab file
	for _, m := range machines {
		problem := ""
		for _, on := range m.everywhere() {
			for i, d := range on.disksOf() {
				at := place{on.vm.Hypervisor.URI, on.volumeID(i)}
				if other := owner[at]; other != nil && (d.Volume != "" || named[at] != nil) {
					problem = fmt.Sprintf("volume %s in pool %s is a disk of host %s (%s) too: a volume is of one machine",
						at.Name, at.Pool, other.host.Name, other.host.Pos)
				}
				owner[at] = m
				if d.Volume != "" {
					named[at] = m
				}
			}
		}
		if problem != "" {
			problems.Addf(m.host.Pos, "hosts."+m.host.Name+".vm.disks", "%s", problem)
		}
	}
}

// everywhere returns the machine on each hypervisor that it may be on; nil: none, which is reported already.
func (m *machine) everywhere() []*machine {
	if m.isPlaced() {
		return []*machine{m}
	}
	return m.candidates
}
