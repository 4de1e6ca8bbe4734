package virt

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
)

// differences returns in which of what bootlab sets a definition differs from the one of the lab file: "memory: 8 GiB, lab file: 4 GiB".
// What libvirt adds by itself, such as addresses and controllers, is no difference.
func differences(want, have *libvirtxml.Domain) (lines []string) {
	compare := func(what, is, should string) {
		if is != should {
			lines = append(lines, difference(what, is, should))
		}
	}
	compare("domain type", have.Type, want.Type)
	// What a machine starts with may be less than its maximum: virsh setmem and setvcpus leave that as it is.
	if is, should := memoryText(have.Memory), memoryText(want.Memory); is != should {
		compare("memory", is, should)
	} else {
		compare("current memory", currentMemoryText(have), currentMemoryText(want))
	}
	if is, should := cpusText(have.VCPU), cpusText(want.VCPU); is != should {
		compare("cpus", is, should)
	} else {
		compare("current cpus", currentCPUsText(have.VCPU), currentCPUsText(want.VCPU))
	}
	compare("cpu", cpuText(have.CPU), cpuText(want.CPU))
	compare("firmware", string(firmwareOf(have)), string(firmwareOf(want)))
	if is, should := machineType(have), machineType(want); !strings.HasPrefix(is, "pc-"+should+"-") && !strings.HasPrefix(is, should+"-") && !(should == "pc" && strings.HasPrefix(is, "pc-i440fx-")) {
		compare("machine", is, should) // libvirt writes pc-q35-7.2 for q35
	}
	compare("serial", serialOf(have), serialOf(want))
	compare("clock", clockText(have), clockText(want))
	compare("arch", archOf(have), archOf(want))
	compare("tpm", tpmText(have), tpmText(want))
	compare("video", videoText(have), videoText(want))
	compare("hugepages", hugePagesText(have), hugePagesText(want))
	compare("shared memory", sharedText(have), sharedText(want))
	lines = append(lines, otherFiles(want, have)...)
	models, wanted := controllersOf(have), controllersOf(want)
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		compare("controller "+name, models[name], wanted[name])
	}
	is, should := parts(have), parts(want)
	all := maps.Clone(is)
	maps.Copy(all, should)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch {
		case should[name] == "":
			lines = append(lines, fmt.Sprintf("%s (%s) is not in the lab file", name, is[name]))
		case is[name] == "":
			lines = append(lines, fmt.Sprintf("%s (%s) is missing", name, should[name]))
		default:
			compare(name, is[name], should[name])
		}
	}
	return lines
}

func difference(what, is, should string) string {
	return fmt.Sprintf("%s: %s, lab file: %s", what, cmp.Or(is, "none"), cmp.Or(should, "none"))
}

func memoryText(m *libvirtxml.DomainMemory) string {
	if m == nil {
		return ""
	}
	kib := uint64(m.Value) // KiB is libvirt's own unit
	switch m.Unit {
	case "b", "bytes":
		kib /= 1 << 10
	case "M", "MiB":
		kib <<= 10
	case "G", "GiB":
		kib <<= 20
	}
	if kib%(1<<20) == 0 {
		return fmt.Sprintf("%d GiB", kib>>20)
	}
	return fmt.Sprintf("%d MiB", kib>>10)
}

// currentMemoryText returns the memory that a machine starts with.
func currentMemoryText(d *libvirtxml.Domain) string {
	if c := d.CurrentMemory; c != nil {
		return memoryText(&libvirtxml.DomainMemory{Value: c.Value, Unit: c.Unit})
	}
	return memoryText(d.Memory)
}

func cpusText(v *libvirtxml.DomainVCPU) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v.Value)
}

// currentCPUsText returns the vCPUs that a machine starts with.
func currentCPUsText(v *libvirtxml.DomainVCPU) string {
	if v == nil || v.Current == 0 {
		return cpusText(v)
	}
	return fmt.Sprint(v.Current)
}

func cpuText(c *libvirtxml.DomainCPU) string {
	switch {
	case c == nil:
		return ""
	case c.Model != nil && c.Mode == "custom":
		return c.Model.Value
	}
	return c.Mode
}

func machineType(d *libvirtxml.Domain) string {
	if d.OS == nil || d.OS.Type == nil {
		return ""
	}
	return d.OS.Type.Machine
}

// firmwareOf returns the firmware of a definition.
func firmwareOf(d *libvirtxml.Domain) lab.Firmware {
	os := d.OS
	if os == nil || os.Firmware != "efi" && (os.Loader == nil || os.Loader.Type != "pflash") {
		return lab.FirmwareBIOS
	}
	loader, features := "", map[string]string{}
	if os.Loader != nil {
		loader = os.Loader.Secure
	}
	if os.FirmwareInfo != nil {
		for _, f := range os.FirmwareInfo.Features {
			features[f.Name] = f.Enabled
		}
	}
	return lab.UEFIOf(loader, features["secure-boot"], features["enrolled-keys"])
}

func clockText(d *libvirtxml.Domain) string {
	if d.Clock == nil {
		return "utc"
	}
	return d.Clock.Offset
}

// controllersOf returns the models of the controllers, by type and index.
func controllersOf(d *libvirtxml.Domain) map[string]string {
	models := map[string]string{}
	if d.Devices == nil {
		return models
	}
	for _, c := range d.Devices.Controllers {
		if c.Index != nil {
			models[fmt.Sprintf("%s %d", c.Type, *c.Index)] = c.Model
		}
	}
	return models
}

func serialOf(d *libvirtxml.Domain) string {
	for _, info := range d.SysInfo {
		if info.SMBIOS == nil || info.SMBIOS.System == nil {
			continue
		}
		for _, e := range info.SMBIOS.System.Entry {
			if e.Name == "serial" {
				return e.Value
			}
		}
	}
	return ""
}

// parts returns the disks, by device, and the interfaces, by MAC, with what matters of each.
func parts(d *libvirtxml.Domain) map[string]string {
	all := map[string]string{}
	if d.Devices == nil {
		return all
	}
	for _, disk := range d.Devices.Disks {
		if disk.Target != nil {
			all["disk "+disk.Target.Dev] = diskText(disk)
		}
	}
	for _, nic := range d.Devices.Interfaces {
		if nic.MAC != nil {
			all["interface "+strings.ToLower(nic.MAC.Address)] = nicText(nic)
		}
	}
	for i := range d.Devices.Hostdevs {
		all[fmt.Sprintf("host device %d", i)] = "passed through"
	}
	return all
}

// otherFiles returns the disks that have a file of the right name in another folder, as of another pool.
func otherFiles(want, have *libvirtxml.Domain) (lines []string) {
	for _, disk := range want.Devices.Disks {
		should, is := fileOf(want, disk.Target.Dev), fileOf(have, disk.Target.Dev)
		if should != "" && is != "" && is != should && path.Base(is) == path.Base(should) {
			lines = append(lines, fmt.Sprintf("disk %s: %s, lab file: %s", disk.Target.Dev, is, should))
		}
	}
	return lines
}

func diskText(d libvirtxml.DomainDisk) string {
	text := []string{d.Target.Bus, d.Device}
	switch src := d.Source; {
	case src == nil:
		text = append(text, "empty")
	case src.Volume != nil:
		text = append(text, src.Volume.Volume)
	case src.File != nil:
		text = append(text, path.Base(src.File.File))
	case src.Block != nil:
		text = append(text, path.Base(src.Block.Dev))
	default:
		text = append(text, "another kind of source")
	}
	if d.Driver != nil && d.Driver.Type == lab.DiskRaw {
		text = append(text, lab.DiskRaw)
	}
	if d.Driver != nil && d.Driver.Cache != "" && d.Driver.Cache != "default" {
		text = append(text, "cache "+d.Driver.Cache)
	}
	return strings.Join(append(text, orderText(d.Boot)...), " ")
}

func nicText(n libvirtxml.DomainInterface) string {
	var text []string
	switch src := n.Source; {
	case src == nil:
		text = append(text, "not attached")
	case src.Bridge != nil:
		text = append(text, "bridge "+src.Bridge.Bridge)
	case src.Network != nil:
		text = append(text, strings.TrimSpace("network "+src.Network.Network+" "+src.Network.PortGroup))
	case src.Direct != nil:
		text = append(text, "macvtap on "+src.Direct.Dev)
	default:
		text = append(text, "attached in another way")
	}
	if p := n.VirtualPort; p != nil && p.Params != nil && p.Params.OpenVSwitch != nil {
		text = append(text, "Open vSwitch")
	} else if p != nil {
		text = append(text, "another virtual port")
	}
	if n.Model != nil {
		text = append(text, n.Model.Type)
	}
	if n.MTU != nil {
		text = append(text, fmt.Sprintf("MTU %d", n.MTU.Size))
	}
	switch rom := n.ROM; {
	case rom != nil && rom.Enabled == "no":
		text = append(text, "without ROM")
	case rom != nil && rom.File != nil:
		text = append(text, "ROM "+*rom.File)
	}
	if n.VLan != nil {
		for _, tag := range n.VLan.Tags {
			text = append(text, fmt.Sprintf("VLAN %d", tag.ID))
		}
	}
	return strings.Join(append(text, orderText(n.Boot)...), " ")
}

func orderText(b *libvirtxml.DomainDeviceBoot) []string {
	if b == nil {
		return nil
	}
	return []string{fmt.Sprintf("boot order %d", b.Order)}
}

func archOf(d *libvirtxml.Domain) string {
	if d.OS == nil || d.OS.Type == nil {
		return ""
	}
	return d.OS.Type.Arch
}

func tpmText(d *libvirtxml.Domain) string {
	if d.Devices == nil || len(d.Devices.TPMs) == 0 {
		return ""
	}
	return d.Devices.TPMs[0].Model
}

// videoText returns the video model. libvirt writes none where the definition has none.
func videoText(d *libvirtxml.Domain) string {
	if d.Devices == nil || len(d.Devices.Videos) == 0 {
		return "none"
	}
	return d.Devices.Videos[0].Model.Type
}

func hugePagesText(d *libvirtxml.Domain) string {
	if d.MemoryBacking == nil || d.MemoryBacking.MemoryHugePages == nil {
		return ""
	}
	var sizes []string
	for _, h := range d.MemoryBacking.MemoryHugePages.Hugepages {
		sizes = append(sizes, fmt.Sprint(h.Size, " ", h.Unit))
	}
	return "pages of " + strings.Join(sizes, ", ")
}

func sharedText(d *libvirtxml.Domain) string {
	b := d.MemoryBacking
	return yesNo(b != nil && b.MemoryAccess != nil && b.MemoryAccess.Mode == "shared")
}
