package virt

import (
	"context"
	"errors"
	"fmt"

	"libvirt.org/go/libvirtxml"
)

// A volume has no metadata in libvirt, so an empty volume beside it, its mark, says that bootlab created it: NAME.bootlab-UUID
// with the UUID of the machine. A volume without its mark is never written, adopted or deleted. The mark is created before
// its volume, and deleted after it: whenever the daemon ends in between, the volume is known as ours.

// markOf returns the mark of a volume of the machine.
func (m *machine) markOf(v VolumeID) VolumeID {
	return VolumeID{v.Pool, v.Name + ".bootlab-" + m.uuid}
}

// findVolume returns a volume of the machine, one without a path if there is none. It is an error if the volume has no mark.
func (m *machine) findVolume(ctx context.Context, hv Hypervisor, id VolumeID) (Volume, error) {
	return marked(ctx, hv, id, m.markOf(id), "by bootlab for host "+m.host.Name)
}

// marked returns a volume, one without a path if there is none, and a *foreignVolume if it has no mark.
func marked(ctx context.Context, hv Hypervisor, id, mark VolumeID, by string) (Volume, error) {
	v, err := lookVolume(ctx, hv, id)
	if err != nil || v.Path == "" {
		return v, err
	}
	has, err := lookVolume(ctx, hv, mark)
	if err != nil {
		return Volume{}, err
	}
	if has.Path == "" {
		return Volume{}, &foreignVolume{id, by}
	}
	return v, nil
}

// A foreignVolume is the error for a volume without our mark.
type foreignVolume struct {
	VolumeID
	by string
}

// Error implements error.
func (f *foreignVolume) Error() string {
	return fmt.Sprintf("volume %s exists in pool %s and was not created %s: move it away, or delete it (virsh vol-delete --pool %s %s)",
		f.Name, f.Pool, f.by, f.Pool, f.Name)
}

// createMark creates a mark.
func createMark(ctx context.Context, hv Hypervisor, mark VolumeID) error {
	if v, err := lookVolume(ctx, hv, mark); err != nil || v.Path != "" {
		return err // left by a volume that was deleted by hand
	}
	_, err := createVolume(ctx, hv, mark.Pool, &libvirtxml.StorageVolume{
		Name:     mark.Name,
		Capacity: &libvirtxml.StorageVolumeSize{Value: 0},
		Target:   &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: "raw"}},
	})
	return err
}

// marking creates the mark of a volume that does not exist, and then the volume with create. If that fails, it deletes the mark.
func (m *machine) marking(ctx context.Context, hv Hypervisor, id VolumeID, create func() error) error {
	mark := m.markOf(id)
	if err := createMark(ctx, hv, mark); err != nil {
		return err
	}
	if err := create(); err != nil {
		return errors.Join(err, hv.DeleteVolume(ctx, mark.Pool, mark.Name))
	}
	return nil
}

// deleteVolumes deletes volumes of the machine with their marks. Their marks were checked.
func (m *machine) deleteVolumes(ctx context.Context, hv Hypervisor, ids []VolumeID) error {
	var errs []error
	for _, id := range ids {
		for _, v := range []VolumeID{id, m.markOf(id)} {
			if err := hv.DeleteVolume(ctx, v.Pool, v.Name); err != nil {
				errs = append(errs, fmt.Errorf("delete volume %s: %w", v.Name, err))
				break
			}
		}
	}
	return errors.Join(errs...)
}
