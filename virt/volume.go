package virt

import (
	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
)

// pool returns the storage pool that the machine's volumes are in.
func (m *machine) pool() string {
	if m.vm.Hypervisor.Pool == "" {
		return "default"
	}
	return m.vm.Hypervisor.Pool
}

// disksOf returns the disks of the machine. One that is made from an image has the image's disk at least.
func (m *machine) disksOf() []lab.Disk {
	if len(m.vm.Disks) == 0 && m.fromImage() {
		return []lab.Disk{{}}
	}
	return m.vm.Disks
}

// volumeName returns the name of the volume behind a disk. Beside the host it names the device, so that it can be told
// what it is by looking at the pool.
func (m *machine) volumeName(disk int) string { return m.host.Name + "-" + m.targets[disk] + ".qcow2" }

// volume returns the volume behind a disk: a qcow2 file that takes space only as it is written. That of a machine
// made from an image lies over the image, here by its path below the lab's files, and is as large as the image unless
// the lab file says.
func (m *machine) volume(disk int) *libvirtxml.StorageVolume {
	v := &libvirtxml.StorageVolume{
		Name:       m.volumeName(disk),
		Allocation: &libvirtxml.StorageVolumeSize{Value: 0},
		Target: &libvirtxml.StorageVolumeTarget{
			Format:   &libvirtxml.StorageVolumeTargetFormat{Type: "qcow2"},
			Features: []libvirtxml.StorageVolumeTargetFeature{{LazyRefcounts: &struct{}{}}},
			Compat:   "1.1",
		},
	}
	if size := m.disksOf()[disk].Size; size > 0 {
		v.Capacity = &libvirtxml.StorageVolumeSize{Value: uint64(size), Unit: "bytes"}
	}
	if disk == 0 && m.fromImage() {
		v.BackingStore = &libvirtxml.StorageVolumeBackingStore{Path: "/" + m.host.Profile.Image}
	}
	return v
}

// disks returns the disks, named by pool and volume; order is the place of the first in the boot order.
func (m *machine) disks(order uint) []libvirtxml.DomainDisk {
	disks := make([]libvirtxml.DomainDisk, len(m.disksOf()))
	for i, d := range m.disksOf() {
		disks[i] = libvirtxml.DomainDisk{
			Device: "disk",
			Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "qcow2", Cache: d.Cache, Discard: "unmap"},
			Source: &libvirtxml.DomainDiskSource{Volume: &libvirtxml.DomainDiskSourceVolume{
				Pool: m.pool(), Volume: m.volumeName(i),
			}},
			Target: &libvirtxml.DomainDiskTarget{Dev: m.targets[i], Bus: busOf(d)},
		}
	}
	if order > 0 && len(disks) > 0 {
		disks[0].Boot = &libvirtxml.DomainDeviceBoot{Order: order}
	}
	return disks
}

// placeDisks replaces pool and volume by the paths of the volumes. AppArmor's helper for libvirt does not follow a pool,
// so a disk that is named by one cannot be opened on Debian and Ubuntu.
func placeDisks(d *libvirtxml.Domain, paths map[string]string) {
	for i := range d.Devices.Disks {
		src := d.Devices.Disks[i].Source
		if src.Volume == nil {
			continue
		}
		if path := paths[src.Volume.Volume]; path != "" {
			*src = libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: path}}
		}
	}
}
