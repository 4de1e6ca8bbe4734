package virt

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"strings"
	"sync"

	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
)

// rebootTimeout is how long SeaBIOS waits, in milliseconds, before it tries its boot devices again: a machine that was
// started before its DHCP server recovers by itself.
const rebootTimeout = 5000

// domain returns the domain of the machine, with disks named by pool and volume.
func (m *machine) domain() *libvirtxml.Domain {
	d := m.definition()
	d.Metadata = &libvirtxml.DomainMetadata{XML: m.mark().xml()}
	return d
}

// spec returns a digest of the machine's definition. libvirt adds devices and addresses to it, so the domain that exists cannot be
// compared with it; their digests can.
func (m *machine) spec() string {
	text, err := m.text(m.definition())
	if err != nil {
		panic(fmt.Sprintf("virt: definition of a compiled machine: %v", err)) // Compile has checked it
	}
	return digest(text)
}

// mark returns the metadata of the machine's domain. Its digest takes a large part of a millisecond, so it is made once, when it is
// needed first.
func (m *machine) mark() metadata {
	if m.marked == nil { // an orphan, of which only the names are known
		return m.newMark()
	}
	return m.marked()
}

func (m *machine) newMark() metadata {
	mark := metadata{Lab: m.table.lab, Host: m.host.Name, Spec: m.spec()}
	if m.vm.Autostart {
		mark.Autostart = "yes"
	}
	return mark
}

// markOnce makes mark keep its result. It is called once the machine is complete.
func (m *machine) markOnce() {
	m.marked = sync.OnceValue(m.newMark)
}

// definition returns the domain without its metadata.
func (m *machine) definition() *libvirtxml.Domain {
	nic, disk := m.bootOrder()
	d := &libvirtxml.Domain{
		Type:        m.domainType(),
		Name:        m.host.Name,
		UUID:        m.uuid,
		Title:       m.host.FQDN,
		Description: "created by bootlab from lab " + m.table.lab + "; change the lab file, not this domain",
		Memory:      &libvirtxml.DomainMemory{Value: uint(m.vm.Memory / 1024), Unit: "KiB"},
		VCPU:        &libvirtxml.DomainVCPU{Value: uint(m.vm.CPUs)},
		SysInfo:     []libvirtxml.DomainSysInfo{{SMBIOS: smbios(m.host)}},
		OS:          m.os(),
		Features:    m.features(),
		CPU:         m.cpu(),
		Clock:       &libvirtxml.DomainClock{Offset: "utc"},
		OnPoweroff:  "destroy",
		OnReboot:    "restart",
		OnCrash:     "restart",
		Devices: &libvirtxml.DomainDeviceList{
			Controllers: m.controllers(),
			Disks:       m.disks(disk),
			Interfaces:  m.interfaces(nic),
			RNGs:        []libvirtxml.DomainRNG{rng()},
		},
	}
	if m.vm.Firmware == lab.FirmwareUEFISecure {
		d.Features.SMM = &libvirtxml.DomainFeatureSMM{State: "on"}
	}
	if m.hasSeed() {
		addCD(d, libvirtxml.DomainDiskSource{Volume: &libvirtxml.DomainDiskSourceVolume{Pool: m.pool(), Volume: m.seedVolume()}})
	}
	m.addConsoles(d.Devices)
	if m.vm.TPM {
		d.Devices.TPMs = []libvirtxml.DomainTPM{{Model: m.tpmModel(), Backend: &libvirtxml.DomainTPMBackend{Emulator: &libvirtxml.DomainTPMBackendEmulator{Version: "2.0"}}}}
	}
	d.MemoryBacking = m.memoryBacking()
	return d
}

// memoryBacking returns what is special about the machine's memory; nil: nothing.
func (m *machine) memoryBacking() *libvirtxml.DomainMemoryBacking {
	if m.vm.HugePages == 0 && !m.vm.Shared {
		return nil
	}
	b := &libvirtxml.DomainMemoryBacking{}
	if size := m.vm.HugePages; size > 0 {
		b.MemoryHugePages = &libvirtxml.DomainMemoryHugepages{Hugepages: []libvirtxml.DomainMemoryHugepage{{Size: uint(size / 1024), Unit: "KiB"}}}
	}
	if m.vm.Shared {
		b.MemorySource = &libvirtxml.DomainMemorySource{Type: "memfd"}
		b.MemoryAccess = &libvirtxml.DomainMemoryAccess{Mode: "shared"}
	}
	return b
}

// bootOrder returns the positions of the first NIC and of the first disk in the boot order; 0: not a boot device.
//
// The network is first. With the disk first, an empty disk would fall through to the network and an installed one would
// boot, but only wiping the disk could start another installation. With the network first, arming the host starts one,
// for a VM as for bare metal, and the boot script of a host that is not armed boots the disk.
//
// A machine created from an image has its system on disk and does not boot from the network.
func (m *machine) bootOrder() (nic, disk uint) {
	if m.fromImage() {
		return 0, 1
	}
	return 1, 2
}

// isARM reports whether the machine is 64-bit ARM.
func (m *machine) isARM() bool { return m.vm.Arch == lab.ArchARM64 }

func (m *machine) features() *libvirtxml.DomainFeatureList {
	f := &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}}
	if !m.isARM() {
		f.APIC = &libvirtxml.DomainFeatureAPIC{}
	}
	return f
}

// tpmModel returns the model of a TPM: on ARM there is no CRB interface.
func (m *machine) tpmModel() string {
	if m.isARM() {
		return "tpm-tis"
	}
	return "tpm-crb"
}

func (m *machine) domainType() string {
	if m.vm.Hypervisor.DomainType == "" {
		return "kvm"
	}
	return m.vm.Hypervisor.DomainType
}

// cpu returns the CPU model of the domain. The default is host-passthrough, because QEMU's default lacks x86-64-v2, which
// current systems are compiled for. Emulation has neither host-passthrough nor host-model: both become maximum, so that
// one lab file runs on KVM and on emulation.
func (m *machine) cpu() *libvirtxml.DomainCPU {
	switch mode := m.vm.CPU; mode {
	case "", "host-passthrough", "host-model", "maximum":
		if m.domainType() != "kvm" {
			mode = "maximum"
		}
		if mode == "" {
			mode = "host-passthrough"
		}
		return &libvirtxml.DomainCPU{Mode: mode}
	default:
		return &libvirtxml.DomainCPU{Mode: "custom", Match: "exact", Model: &libvirtxml.DomainCPUModel{Value: mode}}
	}
}

// os returns machine type and firmware. libvirt chooses the UEFI image, because its path differs between distributions.
func (m *machine) os() *libvirtxml.DomainOS {
	os := &libvirtxml.DomainOS{
		Type:   &libvirtxml.DomainOSType{Arch: cmp.Or(m.vm.Arch, "x86_64"), Machine: m.vm.Machine, Type: "hvm"},
		SMBios: &libvirtxml.DomainSMBios{Mode: "sysinfo"},
	}
	if os.Type.Machine == "" {
		os.Type.Machine = map[bool]string{false: "q35", true: "virt"}[m.isARM()]
	}
	switch m.vm.Firmware {
	case lab.FirmwareUEFI:
		os.Firmware, os.FirmwareInfo = "efi", secureBoot("no")
	case lab.FirmwareUEFISecure:
		os.Firmware, os.FirmwareInfo = "efi", secureBoot("yes")
	default:
		timeout := rebootTimeout
		os.BIOS = &libvirtxml.DomainBIOS{UseSerial: "yes", RebootTimeout: &timeout}
	}
	return os
}

func secureBoot(enabled string) *libvirtxml.DomainOSFirmwareInfo {
	return &libvirtxml.DomainOSFirmwareInfo{Features: []libvirtxml.DomainOSFirmwareFeature{
		{Name: "secure-boot", Enabled: enabled},
		{Name: "enrolled-keys", Enabled: enabled},
	}}
}

// smbios sets the serial number, which identifies the machine in templates and as iPXE's ${serial}.
func smbios(h *lab.Host) *libvirtxml.DomainSysInfoSMBIOS {
	serial := h.Serial
	if serial == "" {
		serial = h.Name
	}
	return &libvirtxml.DomainSysInfoSMBIOS{System: &libvirtxml.DomainSysInfoSystem{
		Entry: []libvirtxml.DomainSysInfoEntry{{Name: "serial", Value: serial}},
	}}
}

func (m *machine) interfaces(order uint) []libvirtxml.DomainInterface {
	var nics []libvirtxml.DomainInterface
	for i, as := range m.host.Interfaces() {
		for _, mac := range as.MACs {
			nics = append(nics, m.nic(as, mac, m.attach[i]))
		}
	}
	if order > 0 && len(nics) > 0 {
		nics[0].Boot = &libvirtxml.DomainDeviceBoot{Order: order}
	}
	return nics
}

// nic returns one NIC of a machine in a network, which the host is as seen from.
func (m *machine) nic(as *lab.Host, mac lab.MAC, a lab.Attachment) libvirtxml.DomainInterface {
	nic := libvirtxml.DomainInterface{
		MAC:    &libvirtxml.DomainInterfaceMAC{Address: mac.String()},
		Source: source(a),
		Model:  &libvirtxml.DomainInterfaceModel{Type: cmp.Or(as.Model, "virtio")},
	}
	if m.vm.Firmware == lab.FirmwareUEFISecure {
		// The ROM of the card is an unsigned iPXE. OVMF runs it, but it starts no kernel, and its PXE services of 2019
		// report a wrong file size to shim. The PXE client of the firmware works with Secure Boot.
		nic.ROM = &libvirtxml.DomainROM{Enabled: "no"}
	}
	if mtu := as.Network.MTU; mtu > 0 {
		// A bridge takes the smallest MTU of its ports, so one NIC with 1500 would lower that of the whole network.
		nic.MTU = &libvirtxml.DomainInterfaceMTU{Size: uint(mtu)}
	}
	if a.OVS != "" {
		nic.VirtualPort = &libvirtxml.DomainInterfaceVirtualPort{Params: &libvirtxml.DomainInterfaceVirtualPortParams{OpenVSwitch: &libvirtxml.DomainInterfaceVirtualPortParamsOpenVSwitch{}}}
	}
	if a.VLAN > 0 {
		nic.VLan = &libvirtxml.DomainInterfaceVLan{Tags: []libvirtxml.DomainInterfaceVLanTag{{ID: uint(a.VLAN)}}}
	}
	return nic
}

func source(a lab.Attachment) *libvirtxml.DomainInterfaceSource {
	switch {
	case a.LibvirtNetwork != "":
		return &libvirtxml.DomainInterfaceSource{Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: a.LibvirtNetwork, PortGroup: a.PortGroup}}
	case a.Macvtap != "":
		return &libvirtxml.DomainInterfaceSource{Direct: &libvirtxml.DomainInterfaceSourceDirect{Dev: a.Macvtap, Mode: "bridge"}}
	}
	return &libvirtxml.DomainInterfaceSource{Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: cmp.Or(a.Bridge, a.OVS)}}
}

// controllers returns the controllers for which libvirt's default does not fit: for scsi disks virtio-scsi, which every
// installer has a driver for, instead of an emulated LSI controller.
func (m *machine) controllers() []libvirtxml.DomainController {
	for _, d := range m.disksOf() {
		if d.Bus == "scsi" {
			return []libvirtxml.DomainController{{Type: "scsi", Index: new(uint), Model: "virtio-scsi"}}
		}
	}
	return nil
}

// rng returns a virtio random number generator; new UEFI firmware does not boot from the network without one.
func rng() libvirtxml.DomainRNG {
	return libvirtxml.DomainRNG{Model: "virtio", Backend: &libvirtxml.DomainRNGBackend{
		Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"},
	}}
}

// addConsoles adds a serial console, which firmware, iPXE and installers write to, and VNC on the hypervisor's loopback
// address (virt-manager and virt-viewer tunnel to it).
func (m *machine) addConsoles(l *libvirtxml.DomainDeviceList) {
	pty := func() *libvirtxml.DomainChardevSource {
		return &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}}
	}
	l.Serials = []libvirtxml.DomainSerial{{Source: pty(), Target: &libvirtxml.DomainSerialTarget{Port: new(uint)}}}
	l.Consoles = []libvirtxml.DomainConsole{{Source: pty(), Target: &libvirtxml.DomainConsoleTarget{Type: "serial", Port: new(uint)}}}
	if m.vm.Video == "none" {
		l.Videos = []libvirtxml.DomainVideo{{Model: libvirtxml.DomainVideoModel{Type: "none"}}} // else libvirt adds one
		return
	}
	l.Graphics = []libvirtxml.DomainGraphic{{VNC: &libvirtxml.DomainGraphicVNC{
		AutoPort:  "yes",
		Listeners: []libvirtxml.DomainGraphicListener{{Address: &libvirtxml.DomainGraphicListenerAddress{Address: "127.0.0.1"}}},
	}}}
	video := cmp.Or(m.vm.Video, map[bool]string{false: "vga", true: "virtio"}[m.isARM()])
	l.Videos = []libvirtxml.DomainVideo{{Model: libvirtxml.DomainVideoModel{Type: video}}}
}

// metadataURI is the XML namespace of the metadata.
const metadataURI = "urn:bootlab:vm:1"

// metadata is the element that bootlab adds to a domain's metadata: the lab and host that own it, a digest of its definition, and
// whether the lab file had it start with its hypervisor, which is no part of the definition.
type metadata struct {
	Lab       string `xml:"lab,attr"`
	Host      string `xml:"host,attr"`
	Spec      string `xml:"spec,attr"`
	Autostart string `xml:"autostart,attr,omitempty"` // "yes"
}

// isOf reports whether two marks are of the same definition.
func (m metadata) isOf(other metadata) bool {
	m.Autostart = other.Autostart
	return m == other
}

// markNow returns the mark of what the domain has at its next start.
func (d Domain) markNow() metadata { return parseMetadata(cmp.Or(d.Next, d.Metadata)) }

// xml returns the element.
func (m metadata) xml() string { return markXML("vm", metadataURI, m) }

// markXML returns the element of a mark in a namespace. libvirt requires a prefix in metadata.
func markXML(name, uri string, mark any) string {
	var b strings.Builder
	element := xml.StartElement{Name: xml.Name{Local: "bootlab:" + name}, Attr: []xml.Attr{{Name: xml.Name{Local: "xmlns:bootlab"}, Value: uri}}}
	if err := xml.NewEncoder(&b).EncodeElement(mark, element); err != nil {
		panic(fmt.Sprintf("virt: marshal metadata: %v", err)) // strings always marshal
	}
	return b.String()
}

// parseMetadata reads a domain's metadata element, with its namespace or without, as libvirt returns it. For any other
// element it returns the zero value.
func parseMetadata(element string) metadata {
	var m metadata
	if err := xml.Unmarshal([]byte(element), &m); err != nil {
		return metadata{}
	}
	return m
}

// digest returns a digest of a definition.
func digest(definition string) string {
	sum := sha256.Sum256([]byte(definition))
	return hex.EncodeToString(sum[:8])
}

// hardwareOf returns the MACs of the interfaces in a domain XML, lower case, their ports in libvirt networks, and the memory in bytes.
// libvirt writes it in KiB.
func hardwareOf(domain string) (macs, ports []string, memory uint64, err error) {
	var d struct {
		Memory uint64 `xml:"memory"`
		MACs   []struct {
			Address string `xml:"address,attr"`
		} `xml:"devices>interface>mac"`
		Sources []struct {
			Port string `xml:"portid,attr"`
		} `xml:"devices>interface>source"`
	}
	if err := xml.Unmarshal([]byte(domain), &d); err != nil {
		return nil, nil, 0, fmt.Errorf("read domain: %w", err)
	}
	for _, mac := range d.MACs {
		macs = append(macs, strings.ToLower(mac.Address))
	}
	for _, s := range d.Sources {
		if s.Port != "" {
			ports = append(ports, s.Port)
		}
	}
	return macs, ports, d.Memory << 10, nil
}
