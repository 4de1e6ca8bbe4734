package virt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/beevik/etree"
	"libvirt.org/go/libvirtxml"
)

// A BootDevice is what the firmware of a machine tries first.
type BootDevice string

// The boot devices. BootDefault is the order of the lab file.
const (
	BootDefault BootDevice = ""
	BootNetwork BootDevice = "network"
	BootDisk    BootDevice = "disk"
	BootCD      BootDevice = "cd"
)

// A NextBoot changes how a machine starts. The zero value changes nothing. It says nothing about installations: a boot script
// still sends a machine that is not armed to its disk.
type NextBoot struct {
	Device BootDevice `json:"device,omitempty"`
	Always bool       `json:"always,omitempty"` // at every start; else at the next one, and its reboots have the order of the lab file
	Media  Media      `json:"media,omitzero"`
}

// Media is an ISO image in the CD drive of a machine, from its next start on.
type Media struct {
	URL    string    `json:"url"` // where it is from, without credentials
	Volume string    `json:"volume"`
	Bytes  uint64    `json:"bytes"`
	At     time.Time `json:"at"` // when it was inserted
}

// changeNextBoot stores what fn makes of a host's NextBoot.
func (s *Server) changeNextBoot(ctx context.Context, host string, fn func(*NextBoot)) error {
	if err := s.nextBoots.change(ctx, host, fn); err != nil {
		return fmt.Errorf("store the next boot of %s: %w", host, err)
	}
	return nil
}

// NextBoot returns what changes the next start of a host's machine.
func (s *Server) NextBoot(host string) NextBoot { return s.nextBoots.of(host) }

// BootStarts says at which starts a machine boots from a device.
type BootStarts bool

const (
	NextStart BootStarts = false
	EachStart BootStarts = true
)

// SetBoot sets what a machine boots from at its next start, or at each; BootDefault: as the lab file says. A machine that runs
// goes on, and its own reboots are no start. It is an error if the machine has no such device.
func (s *Server) SetBoot(ctx context.Context, host string, device BootDevice, starts BootStarts) error {
	m, err := s.placedMachine(ctx, host)
	if err != nil {
		return err
	}
	if s.refreshSoon(ctx, s.table(), aloneAge); s.isAbsent(m) {
		return ErrAbsent
	}
	switch {
	case device == BootNetwork && len(m.host.MACs) == 0:
		return fmt.Errorf("VM %s has no NIC to boot from", host)
	case device == BootDisk && len(m.disksOf()) == 0:
		return fmt.Errorf("VM %s has no disk to boot from", host)
	}
	return s.changeNextBoot(ctx, host, func(n *NextBoot) { n.Device, n.Always = device, starts == EachStart && device != BootDefault })
}

// powerOn starts a machine that is off, and the networks that it needs.
func (s *Server) powerOn(ctx context.Context, hv Hypervisor, m *machine) error {
	return s.starting(ctx, hv, m, func(ctx context.Context, hv Hypervisor, m *machine) error {
		if err := s.ensureNetworks(ctx, hv, m); err != nil {
			return err
		}
		return s.boot(ctx, hv, m)
	})
}

// boot starts a machine that is off, as its NextBoot says. The definition stays as it is: a start with another is one of the
// hypervisor's own operations.
func (s *Server) boot(ctx context.Context, hv Hypervisor, m *machine) error {
	next := s.nextBoots.of(m.host.Name)
	if next == (NextBoot{}) {
		return hv.Start(ctx, m.uuid)
	}
	xml, err := hv.XML(ctx, m.uuid)
	if err != nil {
		return err
	}
	d, err := parseDomain(xml)
	if err != nil {
		return err
	}
	order, err := prepareBoot(ctx, hv, m, d, next)
	if err != nil {
		return err
	}
	if xml, err = withBootDevices(xml, d); err != nil {
		return err
	}
	if err := hv.StartWith(ctx, xml); err != nil {
		return err
	}
	if next.Device == BootDefault || next.Always {
		return nil
	}
	// The emulator reads the order again at each reset.
	if err := hv.SetBootOrder(ctx, m.uuid, order); err != nil && !errors.As(err, new(unreachable)) {
		s.deps.Log.Warn("the boot device of one boot stays first until the machine is off", "host", m.host.Name, "device", string(next.Device), "err", err)
	}
	return s.changeNextBoot(context.WithoutCancel(ctx), m.host.Name, func(n *NextBoot) { n.Device, n.Always = BootDefault, false })
}

// withBootDevices returns text, the XML that d was read from, with the boot order of d and the CD drives that were added to it. All
// else stays as it is: vm.xml may have elements that libvirtxml does not know.
func withBootDevices(text string, d *libvirtxml.Domain) (string, error) {
	doc := etree.NewDocument()
	if err := doc.ReadFromString(text); err != nil {
		return "", fmt.Errorf("read domain: %w", err)
	}
	all := doc.FindElement("/domain/devices")
	if all == nil {
		return "", errors.New("its definition has no devices")
	}
	there := map[string]*etree.Element{} // by the key of a bootDevice
	for _, nic := range all.FindElements("interface/mac") {
		there[strings.ToLower(nic.SelectAttrValue("address", ""))] = nic.Parent()
	}
	for _, target := range all.FindElements("disk/target") {
		there[target.SelectAttrValue("dev", "")] = target.Parent()
	}
	for _, b := range bootable(d) {
		switch e := there[b.key]; {
		case e == nil:
			if err := addDisk(all, d, b.key); err != nil {
				return "", err
			}
		case *b.boot != nil:
			boot := e.SelectElement("boot")
			if boot == nil {
				boot = e.CreateElement("boot")
			}
			boot.CreateAttr("order", fmt.Sprint((*b.boot).Order))
		}
	}
	return doc.WriteToString()
}

// addDisk adds a disk of a definition to its devices.
func addDisk(devices *etree.Element, d *libvirtxml.Domain, dev string) error {
	i := slices.IndexFunc(d.Devices.Disks, func(disk libvirtxml.DomainDisk) bool { return disk.Target != nil && disk.Target.Dev == dev })
	if i < 0 {
		return fmt.Errorf("its definition has no disk %s", dev)
	}
	text, err := d.Devices.Disks[i].Marshal()
	if err != nil {
		return err
	}
	disk := etree.NewDocument()
	if err := disk.ReadFromString(text); err != nil {
		return err
	}
	devices.AddChild(disk.Root())
	return nil
}

// prepareBoot changes a definition for one start, and returns the boot order that it had, by MAC or device of a disk; 0: none.
func prepareBoot(ctx context.Context, hv Hypervisor, m *machine, d *libvirtxml.Domain, next NextBoot) (map[string]uint, error) {
	if d.Devices == nil {
		return nil, errors.New("its definition has no devices")
	}
	if next.Media.Volume != "" {
		v, err := m.findVolume(ctx, hv, m.inPool(next.Media.Volume))
		if err == nil && v.Path == "" {
			err = fmt.Errorf("volume %s is gone: insert the medium again, or eject it", next.Media.Volume)
		}
		if err != nil {
			return nil, fmt.Errorf("virtual medium %s: %w", next.Media.URL, err)
		}
		addCD(d, libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: v.Path}})
	}
	devices := slices.DeleteFunc(bootable(d), func(b bootDevice) bool { // a seed has no system
		return b.kind == BootCD && path.Base(fileOf(d, b.key)) == m.seedVolume()
	})
	order := map[string]uint{}
	for _, b := range devices {
		order[b.key] = 0
		if *b.boot != nil {
			order[b.key] = (*b.boot).Order
		}
	}
	if next.Device == BootDefault {
		return order, nil
	}
	first := slices.IndexFunc(devices, func(b bootDevice) bool { return b.kind == next.Device })
	if first < 0 {
		return nil, fmt.Errorf("it is to boot from its %s, and has none%s", next.Device,
			map[bool]string{true: ": insert a medium, or set another boot device"}[next.Device == BootCD])
	}
	for _, b := range devices {
		if *b.boot != nil {
			(*b.boot).Order++
		}
	}
	*devices[first].boot = &libvirtxml.DomainDeviceBoot{Order: 1}
	return order, nil
}

// A bootDevice is a device of a definition that firmware can boot from.
type bootDevice struct {
	kind BootDevice
	key  string                        // MAC, or device of a disk
	boot **libvirtxml.DomainDeviceBoot // its place in the boot order
}

// bootable returns the devices of a definition that firmware can boot from: NICs, disks, CD drives, in their own order.
func bootable(d *libvirtxml.Domain) (devices []bootDevice) {
	for i := range d.Devices.Interfaces {
		if nic := &d.Devices.Interfaces[i]; nic.MAC != nil {
			devices = append(devices, bootDevice{BootNetwork, strings.ToLower(nic.MAC.Address), &nic.Boot})
		}
	}
	for i := range d.Devices.Disks {
		disk := &d.Devices.Disks[i]
		kind := BootDisk
		if disk.Device == "cdrom" {
			kind = BootCD
		}
		if disk.Target != nil && (disk.Device == "" || disk.Device == "disk" || kind == BootCD) {
			devices = append(devices, bootDevice{kind, disk.Target.Dev, &disk.Boot})
		}
	}
	return devices
}

// addCD adds a CD drive with a medium to a definition.
func addCD(d *libvirtxml.Domain, medium libvirtxml.DomainDiskSource) {
	bus, prefix := "sata", "sd"
	if d.OS != nil && d.OS.Type != nil && (strings.HasPrefix(d.OS.Type.Machine, "pc-i440fx") || d.OS.Type.Machine == "pc") {
		bus, prefix = "ide", "hd"
	}
	used := map[string]bool{}
	for _, disk := range d.Devices.Disks {
		if disk.Target != nil {
			used[disk.Target.Dev] = true
		}
	}
	dev := prefix + "a"
	for c := 'a'; c <= 'z' && used[dev]; c++ {
		dev = prefix + string(c)
	}
	d.Devices.Disks = append(d.Devices.Disks, libvirtxml.DomainDisk{
		Device:   "cdrom",
		Driver:   &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "raw"},
		Source:   &medium,
		Target:   &libvirtxml.DomainDiskTarget{Dev: dev, Bus: bus},
		ReadOnly: &libvirtxml.DomainDiskReadOnly{},
	})
}

// bootOrderCommands returns the commands of QEMU's monitor (QMP) that set the boot order of a running machine, whose definition is
// xml. No two devices may have one place at any time, so all places are emptied first.
func bootOrderCommands(xml string, order map[string]uint) (commands []string, err error) {
	d, err := parseDomain(xml)
	if err != nil {
		return nil, err
	}
	aliases := map[string]string{}
	if d.Devices != nil {
		for _, nic := range d.Devices.Interfaces {
			if nic.MAC != nil && nic.Alias != nil {
				aliases[strings.ToLower(nic.MAC.Address)] = nic.Alias.Name
			}
		}
		for _, disk := range d.Devices.Disks {
			if disk.Target != nil && disk.Alias != nil {
				aliases[disk.Target.Dev] = disk.Alias.Name
			}
		}
	}
	set := func(key string, place int) {
		commands = append(commands, fmt.Sprintf(`{"execute": "qom-set", "arguments": {"path": "/machine/peripheral/%s", "property": "bootindex", "value": %d}}`, aliases[key], place))
	}
	keys := slices.Sorted(maps.Keys(order))
	for _, key := range keys {
		if aliases[key] == "" {
			return nil, fmt.Errorf("the running machine has no device %s", key)
		}
		set(key, -1)
	}
	for _, key := range keys {
		if order[key] > 0 {
			set(key, int(order[key]))
		}
	}
	return commands, nil
}

// monitorError returns the error in a result of QEMU's monitor.
func monitorError(result string) error {
	var r struct {
		Error *struct {
			Desc string `json:"desc"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(result), &r); err != nil {
		return fmt.Errorf("read the answer of QEMU's monitor: %w", err)
	}
	if r.Error != nil {
		return fmt.Errorf("QEMU's monitor: %s", r.Error.Desc)
	}
	return nil
}
