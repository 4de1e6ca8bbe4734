package virt

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"

	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
)

// rebootTimeout is how long SeaBIOS waits, in milliseconds, before it tries its boot devices again: a machine that was
// started before its DHCP server recovers by itself.
const rebootTimeout = 5000

// domain returns the domain of the machine, with disks named by pool and volume.
func (m *machine) domain() *libvirtxml.Domain {
	nic, disk := m.bootOrder()
	d := &libvirtxml.Domain{
		Type:        m.domainType(),
		Name:        m.host.Name,
		UUID:        m.uuid,
		Title:       m.host.FQDN,
		Description: "made by bootlab from lab " + m.lab + "; changes belong into the lab file",
		Memory:      &libvirtxml.DomainMemory{Value: uint(m.vm.Memory / 1024), Unit: "KiB"},
		VCPU:        &libvirtxml.DomainVCPU{Value: uint(m.vm.CPUs)},
		SysInfo:     []libvirtxml.DomainSysInfo{{SMBIOS: smbios(m.host)}},
		OS:          m.os(),
		Features:    &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}, APIC: &libvirtxml.DomainFeatureAPIC{}},
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
	addConsoles(d.Devices)
	d.Metadata = &libvirtxml.DomainMetadata{XML: mark{Lab: m.lab, Host: m.host.Name, Spec: spec(d)}.xml()}
	return d
}

// bootOrder returns the place of the first NIC and of the first disk in the boot order; 0 is "never".
//
// The network comes first, although a disk-first machine would need no help from us: an empty disk falls through to the
// network and an installed one boots. But then nothing could ever install it again, short of wiping the disk. With the
// network first, arming the host is enough, for a VM as for bare metal, and while it is not armed our script sends it to
// its disk.
//
// A machine made from an image has its system on disk already and never asks the network.
func (m *machine) bootOrder() (nic, disk uint) {
	if m.fromImage() {
		return 0, 1
	}
	return 1, 2
}

func (m *machine) domainType() string {
	if m.vm.Hypervisor.DomainType == "" {
		return "kvm"
	}
	return m.vm.Hypervisor.DomainType
}

// cpu returns what the guest sees as its CPU. The host's own is the default, because the default of QEMU lacks what
// today's systems are compiled for (x86-64-v2). Emulation can show neither the host's CPU nor its model; who asked for
// the best there is gets the best that the emulator has, so that one lab runs on both.
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

// os returns machine type and firmware. UEFI images are left to the hypervisor to find: where they lie differs from one
// distribution to the next.
func (m *machine) os() *libvirtxml.DomainOS {
	os := &libvirtxml.DomainOS{
		Type:   &libvirtxml.DomainOSType{Arch: "x86_64", Machine: m.vm.Machine, Type: "hvm"},
		SMBios: &libvirtxml.DomainSMBios{Mode: "sysinfo"},
	}
	if os.Type.Machine == "" {
		os.Type.Machine = "q35"
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

// smbios gives the machine a serial number that templates and iPXE's ${serial} can tell it by.
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
	nics := make([]libvirtxml.DomainInterface, len(m.host.MACs))
	for i, mac := range m.host.MACs {
		nics[i] = libvirtxml.DomainInterface{
			MAC:    &libvirtxml.DomainInterfaceMAC{Address: mac.String()},
			Source: source(m.attach),
			Model:  &libvirtxml.DomainInterfaceModel{Type: "virtio"},
		}
		if m.vm.Firmware == lab.FirmwareUEFISecure {
			// The ROM of the card is an unsigned iPXE. OVMF runs it, but it starts no kernel, and its PXE services of 2019
			// report a wrong file size to shim. The PXE client of the firmware works with Secure Boot.
			nics[i].ROM = &libvirtxml.DomainROM{Enabled: "no"}
		}
		if mtu := m.host.Network.MTU; mtu > 0 {
			// A bridge takes the smallest MTU of its ports, so one NIC with 1500 would lower that of the whole network.
			nics[i].MTU = &libvirtxml.DomainInterfaceMTU{Size: uint(mtu)}
		}
	}
	if order > 0 && len(nics) > 0 {
		nics[0].Boot = &libvirtxml.DomainDeviceBoot{Order: order}
	}
	return nics
}

func source(a lab.Attachment) *libvirtxml.DomainInterfaceSource {
	if a.LibvirtNetwork != "" {
		return &libvirtxml.DomainInterfaceSource{Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: a.LibvirtNetwork}}
	}
	return &libvirtxml.DomainInterfaceSource{Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: a.Bridge}}
}

// controllers returns the controllers that libvirt would not choose as we want: for scsi disks virtio-scsi, which every
// installer has a driver for, instead of an emulated LSI.
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

// addConsoles adds a serial console, which firmware, iPXE and installers write to, and a screen that only the hypervisor
// itself can reach (virt-manager and virt-viewer tunnel to it).
func addConsoles(l *libvirtxml.DomainDeviceList) {
	pty := func() *libvirtxml.DomainChardevSource {
		return &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}}
	}
	l.Serials = []libvirtxml.DomainSerial{{Source: pty(), Target: &libvirtxml.DomainSerialTarget{Port: new(uint)}}}
	l.Consoles = []libvirtxml.DomainConsole{{Source: pty(), Target: &libvirtxml.DomainConsoleTarget{Type: "serial", Port: new(uint)}}}
	l.Graphics = []libvirtxml.DomainGraphic{{VNC: &libvirtxml.DomainGraphicVNC{
		AutoPort:  "yes",
		Listeners: []libvirtxml.DomainGraphicListener{{Address: &libvirtxml.DomainGraphicListenerAddress{Address: "127.0.0.1"}}},
	}}}
	l.Videos = []libvirtxml.DomainVideo{{Model: libvirtxml.DomainVideoModel{Type: "vga"}}}
}

// markURI is the XML name space of the mark.
const markURI = "urn:bootlab:vm:1"

// A mark is what bootlab writes into a domain's metadata: whose it is, and a digest of what it was made from.
type mark struct {
	Lab  string `xml:"lab,attr"`
	Host string `xml:"host,attr"`
	Spec string `xml:"spec,attr"`
}

// xml returns the mark as an element. The prefix is what libvirt asks of metadata.
func (m mark) xml() string {
	b, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"bootlab:vm"`
		URI     string   `xml:"xmlns:bootlab,attr"`
		mark
	}{URI: markURI, mark: m})
	if err != nil {
		panic(fmt.Sprintf("virt: marshal a mark: %v", err)) // three strings always marshal
	}
	return string(b)
}

// parseMark reads the mark from a domain's metadata element, with or without its name space, which libvirt strips;
// anything else is the zero mark.
func parseMark(element string) mark {
	var m mark
	if err := xml.Unmarshal([]byte(element), &m); err != nil {
		return mark{}
	}
	return m
}

// spec returns a digest of the domain as compiled. libvirt adds devices and addresses to what it is given, so a domain
// that is there cannot be compared with one that should be; their specs can.
func spec(d *libvirtxml.Domain) string {
	s, err := d.Marshal()
	if err != nil {
		panic(fmt.Sprintf("virt: marshal a domain that we built: %v", err))
	}
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
