package virt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"

	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
)

// A VolumeID names a volume of a hypervisor.
type VolumeID struct{ Pool, Name string }

// A Volume is what a hypervisor knows of a volume.
type Volume struct {
	VolumeID
	Path     string `json:",omitempty"` // empty: there is none
	Format   string `json:",omitempty"` // qcow2, raw …
	Block    bool   `json:",omitempty"` // a block device, as of LVM
	Capacity uint64 `json:",omitempty"` // size of the disk, in bytes
	Bytes    uint64 `json:",omitempty"` // length of the file
	Err      string `json:",omitempty"` // why nothing is known of it, such as a pool that does not exist
}

// pool returns the storage pool of the hypervisor.
func (m *machine) pool() string { return cmp.Or(m.vm.Hypervisor.Pool, "default") }

// inPool returns a volume of the machine that is no disk.
func (m *machine) inPool(name string) VolumeID { return VolumeID{m.pool(), name} }

// disksOf returns the disks of the machine; with an image at least one.
func (m *machine) disksOf() []lab.Disk {
	if len(m.vm.Disks) == 0 && m.fromImage() {
		return []lab.Disk{{}}
	}
	return m.vm.Disks
}

// formatOf returns the format of a disk.
func formatOf(d lab.Disk) string { return cmp.Or(d.Format, lab.DiskQCOW2) }

// volumeID returns the volume of a disk: one that the lab file names, or ours, with host and device, as virsh vol-list shows it.
func (m *machine) volumeID(disk int) VolumeID {
	d := m.disksOf()[disk]
	return VolumeID{cmp.Or(d.Pool, m.pool()), cmp.Or(d.Volume, diskName(m.host.Name, m.targets[disk], formatOf(d)))}
}

func diskName(host, device, format string) string { return host + "-" + device + "." + format }

// isDiskName reports whether a file has the name that a disk of ours would have.
func isDiskName(file, host, device string) bool {
	name := path.Base(file)
	return name == diskName(host, device, lab.DiskQCOW2) || name == diskName(host, device, lab.DiskRaw)
}

// volume returns the volume that is created for a disk: a file that takes space only as it is written. With an image, the first
// disk is an overlay on it, here with the image's path in the files folder, and has its size unless the lab file sets one.
func (m *machine) volume(disk int) *libvirtxml.StorageVolume {
	d := m.disksOf()[disk]
	v := &libvirtxml.StorageVolume{
		Name:       m.volumeID(disk).Name,
		Allocation: &libvirtxml.StorageVolumeSize{Value: 0},
		Target:     &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: formatOf(d)}},
	}
	if formatOf(d) == lab.DiskQCOW2 {
		v.Target.Features = []libvirtxml.StorageVolumeTargetFeature{{LazyRefcounts: &struct{}{}}}
		v.Target.Compat = "1.1"
	}
	if d.Size > 0 {
		v.Capacity = &libvirtxml.StorageVolumeSize{Value: uint64(d.Size), Unit: "bytes"}
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
		id := m.volumeID(i)
		disks[i] = libvirtxml.DomainDisk{
			Device: "disk",
			Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: formatOf(d), Cache: d.Cache, Discard: "unmap"},
			Source: &libvirtxml.DomainDiskSource{Volume: &libvirtxml.DomainDiskSourceVolume{Pool: id.Pool, Volume: id.Name}},
			Target: &libvirtxml.DomainDiskTarget{Dev: m.targets[i], Bus: busOf(d)},
		}
	}
	if order > 0 && len(disks) > 0 {
		disks[0].Boot = &libvirtxml.DomainDeviceBoot{Order: order}
	}
	return disks
}

// setDiskPaths replaces pool and volume by the paths of the volumes that exist. libvirt's AppArmor helper does not resolve pools, so
// a disk given as pool and volume cannot be opened on Debian and Ubuntu.
func setDiskPaths(d *libvirtxml.Domain, volumes []Volume) {
	for i, v := range volumes {
		src := d.Devices.Disks[i].Source
		switch {
		case v.Path == "":
		case v.Block:
			*src = libvirtxml.DomainDiskSource{Block: &libvirtxml.DomainDiskSourceBlock{Dev: v.Path}}
		default:
			*src = libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: v.Path}}
		}
	}
}

// lookVolume returns a volume, one without a path if there is none.
func lookVolume(ctx context.Context, hv Hypervisor, id VolumeID) (Volume, error) {
	volumes, err := hv.Volumes(ctx, []VolumeID{id})
	if err != nil {
		return Volume{}, err
	}
	if volumes[0].Err != "" {
		return Volume{}, errors.New(volumes[0].Err)
	}
	return volumes[0], nil
}

// volumeIDs returns the volumes of the disks.
func (m *machine) volumeIDs() []VolumeID {
	ids := make([]VolumeID, len(m.disksOf()))
	for i := range ids {
		ids[i] = m.volumeID(i)
	}
	return ids
}

// allVolumeIDs returns the volumes of the disks, and after them that of the documents, if there are any.
func (m *machine) allVolumeIDs() []VolumeID {
	ids := m.volumeIDs()
	switch {
	case m.hasSeed():
		ids = append(ids, m.inPool(m.seedVolume()))
	case m.fromImage() && m.host.Profile.Config != "":
		ids = append(ids, m.inPool(m.ignitionVolume()))
	}
	return ids
}

// gone says which volumes of a definition do not exist any more, so that the machine cannot start; volumes are those of allVolumeIDs.
func (m *machine) gone(have *libvirtxml.Domain, volumes []Volume) (lines []string) {
	named := map[string]bool{}
	for _, file := range ownFiles(have, m) {
		named[path.Base(file)] = true
	}
	for i, v := range volumes {
		switch {
		case v.Path != "" || v.Err != "" || !named[v.Name]:
		case m.isConfig(v.Name):
			lines = append(lines, fmt.Sprintf("volume %s in pool %s, its config document, is gone: apply renders it again", v.Name, v.Pool))
		case m.disksOf()[i].Volume == "":
			lines = append(lines, fmt.Sprintf("disk %s: volume %s in pool %s is gone: apply creates it again, empty or from its image", m.targets[i], v.Name, v.Pool))
		}
	}
	return lines
}

// A diskChange is what differs between a disk and its volume.
type diskChange struct {
	text string
	err  bool // the lab file must change, or the volume by hand: nothing is done to the machine before
}

// diskChange compares a disk with its volume, which may not exist yet; the zero value: they agree, or the volume will be created so.
func (m *machine) diskChange(disk int, v Volume) diskChange {
	d, dev := m.disksOf()[disk], "disk "+m.targets[disk]
	is, should := v.Capacity, uint64(d.Size)
	switch {
	case v.Err != "":
		return diskChange{dev + ": " + v.Err, true}
	case v.Path == "" && d.Volume != "":
		return diskChange{fmt.Sprintf("%s: pool %s has no volume %s: create it (virsh vol-create-as %[2]s %[3]s 20GiB --format %[4]s), or, if its file is there, "+
			"virsh pool-refresh %[2]s", dev, v.Pool, v.Name, formatOf(d)), true}
	case v.Path == "":
		return diskChange{}
	case d.Volume != "" && !isFormat(v.Format, formatOf(d)):
		return diskChange{fmt.Sprintf("%s: volume %s in pool %s has format %s, lab file: %s: write format: %[4]s", dev, v.Name, v.Pool, v.Format, formatOf(d)), true}
	case should == 0 || is == should:
		return diskChange{}
	case is > should:
		return diskChange{fmt.Sprintf("%s: %s, lab file: %s: a disk is never made smaller, because its end may hold data: write size: %[2]s, or delete the "+
			"machine with its disks (bootlab vm delete --disks %[4]s)", dev, lab.Size(is), d.Size, m.host.Name), true}
	}
	return diskChange{fmt.Sprintf("%s: %s, lab file: %s: apply makes it larger", dev, lab.Size(is), d.Size), false}
}

// diskChanges returns what differs between the disks and their volumes, the first ones of volumes.
func (m *machine) diskChanges(volumes []Volume) (lines []string) {
	for i := range m.disksOf() {
		if c := m.diskChange(i, volumes[i]); c.text != "" {
			lines = append(lines, c.text)
		}
	}
	return lines
}

// isFormat reports whether a hypervisor's name of a format is that of the lab file. libvirt looks into raw volumes.
func isFormat(has, want string) bool {
	return has == want || want == lab.DiskRaw && has != lab.DiskQCOW2
}

// checkDisks returns an error if the disks cannot become what the lab file says. have is the domain's definition; nil: none yet.
func (m *machine) checkDisks(ctx context.Context, hv Hypervisor, have *libvirtxml.Domain, volumes []Volume) error {
	var errs []error
	for i, v := range volumes {
		if c := m.diskChange(i, v); c.err {
			errs = append(errs, errors.New(c.text))
			continue
		}
		old := fileOf(have, m.targets[i])
		if old == "" || old == v.Path || !isDiskName(old, m.host.Name, m.targets[i]) {
			continue
		}
		was, err := hv.VolumeAt(ctx, old)
		if err != nil {
			return err
		}
		if was.Path != "" {
			errs = append(errs, fmt.Errorf("disk %s is volume %s in pool %s, lab file: %s in pool %s: bootlab neither moves nor converts disks: write it as it was, "+
				"or delete the machine (bootlab vm delete %s), which keeps this disk, and create it with a new one", m.targets[i], was.Name, was.Pool, v.Name, v.Pool, m.host.Name))
		}
	}
	return errors.Join(errs...)
}

// fileOf returns the file of a disk in a definition, or "".
func fileOf(d *libvirtxml.Domain, device string) string {
	if d == nil || d.Devices == nil {
		return ""
	}
	for _, disk := range d.Devices.Disks {
		if disk.Target != nil && disk.Target.Dev == device && disk.Source != nil && disk.Source.File != nil {
			return disk.Source.File.File
		}
	}
	return ""
}

// growDisks makes the volumes that are smaller than in the lab file larger, also while the machine runs. It reports whether any was.
func (m *machine) growDisks(ctx context.Context, hv Hypervisor, volumes []Volume) (grown bool, err error) {
	for i, v := range volumes {
		size := uint64(m.disksOf()[i].Size)
		if v.Path == "" || m.disksOf()[i].Volume != "" || v.Capacity >= size {
			continue
		}
		if _, err := m.findVolume(ctx, hv, v.VolumeID); err != nil { // not ours
			return grown, err
		}
		if err := hv.Grow(ctx, m.uuid, m.targets[i], v.VolumeID, size); err != nil {
			return grown, fmt.Errorf("make disk %s larger: %w", m.targets[i], err)
		}
		grown = true
	}
	return grown, nil
}

// createVolumes creates and marks the missing volumes, and makes larger those that have become larger in the lab file. It returns all
// volumes, in the order of the disks, and those it created. A volume without our mark is an error, unless the lab file names it. have
// is the domain's definition; nil: none yet.
func createVolumes(ctx context.Context, hv Hypervisor, m *machine, have *libvirtxml.Domain, base *libvirtxml.StorageVolumeBackingStore) (
	volumes []Volume, made []VolumeID, err error,
) {
	if volumes, err = hv.Volumes(ctx, m.volumeIDs()); err != nil {
		return nil, nil, err
	}
	for i, v := range volumes {
		if m.disksOf()[i].Volume == "" && v.Path != "" {
			if _, err := m.findVolume(ctx, hv, v.VolumeID); err != nil {
				return nil, nil, err
			}
		}
	}
	if err := m.checkDisks(ctx, hv, have, volumes); err != nil {
		return nil, nil, err
	}
	for i := range volumes {
		if err := ctx.Err(); err != nil {
			return nil, made, err
		}
		if volumes[i].Path != "" {
			continue
		}
		v := m.volume(i)
		if v.BackingStore != nil {
			v.BackingStore = base
		}
		id := volumes[i].VolumeID
		err = m.marking(ctx, hv, id, func() error { volumes[i].Path, err = createVolume(ctx, hv, id.Pool, v); return err })
		if err != nil {
			return nil, made, err
		}
		volumes[i].Capacity = uint64(m.disksOf()[i].Size)
		made = append(made, id)
	}
	_, err = m.growDisks(ctx, hv, volumes)
	return volumes, made, err
}

func createVolume(ctx context.Context, hv Hypervisor, pool string, v *libvirtxml.StorageVolume) (string, error) {
	xml, err := v.Marshal()
	if err != nil {
		return "", err
	}
	file, err := hv.CreateVolume(ctx, pool, xml)
	if err != nil {
		return "", fmt.Errorf("create volume %s: %w", v.Name, err)
	}
	return file, nil
}
