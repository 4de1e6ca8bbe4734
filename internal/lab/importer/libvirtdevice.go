package importer

import (
	"fmt"
	"slices"
)

// deviceIgnored are devices that every machine of bootlab has, that libvirt adds by itself, or that have no content.
const deviceIgnored = "emulator serial console rng memballoon input audio"

// devices adds the devices of a domain. What has no equivalent is a note.
func (g *domainHost) devices() {
	video := 0
	for _, devices := range g.root.all("devices") {
		for _, e := range devices.children {
			switch e.name {
			case "disk":
				g.disk(e)
			case "interface":
				g.nic(e)
			case "controller":
				if model := e.attrs["model"]; e.attrs["type"] == "scsi" && model != "virtio-scsi" && model != "" {
					g.note(e.at, "scsi disks are on virtio-scsi here: the system inside needs its driver")
				}
			case "tpm":
				g.tpm(e)
			case "graphics":
				if e.attrs["type"] != "vnc" {
					g.note(e.at, "a machine has VNC here")
				}
			case "video":
				video++
				g.video(e, video)
			default:
				if !listed(deviceIgnored, e.name) {
					g.leaveOutElement(e)
				}
			}
		}
		if video == 0 && len(devices.all("graphics")) == 0 {
			g.vm.set("video", devices.at, "none")
		}
	}
}

func (g *domainHost) nic(e *element) {
	n := &domainNIC{at: e.at, mac: e.attr("mac", "address")}
	if model := e.attr("model", "type"); model != "virtio" {
		n.model = model
	}
	_, _ = fmt.Sscan(e.attr("boot", "order"), &n.order) // without a number it is not in the order
	if n.network = g.attach(e); n.network == nil {
		return
	}
	if n.mac == "" {
		g.note(e.at, "it has no MAC address: it is left out")
		return
	}
	g.nics = append(g.nics, n)
	for _, c := range e.children {
		if !listed("mac source model target boot alias address virtualport vlan rom", c.name) {
			g.leaveOutElement(c)
		}
	}
}

func (g *domainHost) tpm(e *element) {
	for _, b := range e.all("backend") {
		if v := b.attrs["version"]; b.attrs["type"] == "emulator" && (v == "2.0" || v == "") {
			g.vm.set("tpm", e.at, "true")
			g.note(e.at, "the new machine has a new TPM: keys that the old one sealed are not in it")
			return
		}
	}
	g.note(e.at, "a TPM is an emulated TPM 2.0 here: it is left out")
}

func (g *domainHost) video(e *element, count int) {
	for _, m := range e.all("model") {
		switch model := m.attrs["type"]; {
		case count > 1:
			g.note(e.at, "a machine has one video card: it is left out")
		case model == "vga" && !g.arm:
		case slices.Contains([]string{"virtio", "none"}, model), model == "qxl" && !g.arm:
			g.vm.set("video", m.at, model)
		default:
			g.note(m.at, "video model %s is not possible: it is the default here", clip(model))
		}
	}
}

func (g *domainHost) disk(e *element) {
	switch device := e.attrs["device"]; {
	case device == "cdrom" && len(e.all("source")) == 0:
		return // an empty drive; bootlab adds one where a medium is inserted
	case device == "cdrom" || device == "floppy":
		g.note(e.at, "a %s is left out; a virtual CD is inserted by Redfish", device)
		return
	case device == "lun":
		g.note(e.at, "a SCSI device of the hypervisor is left out")
		return
	}
	source, id := "", ""
	for _, s := range e.all("source") {
		source = s.attrs["file"] + s.attrs["dev"]
		if id = source; source == "" && s.attrs["volume"] != "" {
			id = s.attrs["pool"] + "/" + s.attrs["volume"]
			source = "volume " + s.attrs["volume"] + " in pool " + s.attrs["pool"]
		}
	}
	v, known := g.in.Volumes[id]
	switch {
	case id == "":
		g.note(e.at, "a disk of type %s is no volume of a storage pool: it is left out", e.attrs["type"])
	case v.Err != "":
		g.note(e.at, "%s is left out: %s", source, v.Err)
	case !known || v.Missing:
		g.note(e.at, "%s is in no active storage pool, and is left out: make a pool of its folder (virsh pool-create-as), and import again", source)
	case g.taken[v.Pool+"/"+v.Name] != "":
		g.note(e.at, "volume %s is a disk of %s too, and is left out: a volume is of one machine", v.Name, g.taken[v.Pool+"/"+v.Name])
	default:
		g.taken[v.Pool+"/"+v.Name] = g.at.file
		g.addDisk(e, v)
	}
}

// addDisk adds a disk that is a volume.
func (g *domainHost) addDisk(e *element, v Volume) {
	disk := &mapping{}
	format := e.attr("driver", "type")
	if format == "" {
		format = "raw" // libvirt's default
	}
	if format == "qcow2" || format == "raw" {
		disk.need("volume", e.at, v.Name)
		if v.Pool != "default" {
			disk.need("pool", e.at, v.Pool)
		}
		if format != "qcow2" {
			disk.set("format", e.at, format)
		}
		if (v.Format == "qcow2" || v.Format == "raw") && v.Format != format {
			g.note(e.at, "libvirt says that volume %s is %s, and the domain that it is %s: vm plan will say so", v.Name, v.Format, format)
		}
	} else {
		disk.need("size", e.at, v.Size.String())
		g.note(e.at, "volume %s is %s: the machine gets a new, empty disk of its size, since disks are qcow2 or raw", v.Name, clip(format))
	}
	bus := e.attr("target", "bus")
	if bus == "ide" && g.q35 {
		bus = "sata"
	}
	switch {
	case slices.Contains([]string{"scsi", "sata", "ide", "usb"}, bus):
		disk.set("bus", e.at, bus)
	case bus != "virtio":
		g.note(e.at, "bus %q is not possible: it is virtio here", clip(bus))
	}
	if cache := e.attr("driver", "cache"); cache != "" && cache != "default" {
		disk.set("cache", e.at, cache)
	}
	for _, c := range e.children {
		if !listed("driver source target boot alias address backingStore", c.name) {
			g.leaveOutElement(c)
		}
	}
	g.vm.appendMap("disks", e.at, disk)
}
