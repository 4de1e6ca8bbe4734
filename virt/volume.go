package virt

import (
	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
)

// pool returns the storage pool of the machine's volumes.
func (m *machine) pool() string {
	if m.vm.Hypervisor.Pool == "" {
		return "default"
	}
	return m.vm.Hypervisor.Pool
}

// disksOf returns the disks of the machine; with an image at least one.
func (m *machine) disksOf() []lab.Disk {
	if len(m.vm.Disks) == 0 && m.fromImage() {
		return []lab.Disk{{}}
	}
	return m.vm.Disks
}

// volumeName returns the name of a disk's volume: host and device, as virsh vol-list shows it.
func (m *machine) volumeName(disk int) string { return m.host.Name + "-" + m.targets[disk] + ".qcow2" }

// volume returns the volume of a disk: a qcow2 file that takes space only as it is written. With an image, the first disk is
// an overlay on it, here with the image's path in the files folder, and has its size unless the lab file sets one.
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

// setDiskPaths replaces pool and volume by the paths of the volumes. libvirt's AppArmor helper does not resolve pools, so
// a disk given as pool and volume cannot be opened on Debian and Ubuntu.
func setDiskPaths(d *libvirtxml.Domain, paths map[string]string) {
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
