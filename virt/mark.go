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

// markOf returns the name of the mark of a volume of the machine.
func (m *machine) markOf(volume string) string { return volume + ".bootlab-" + m.uuid }

// findVolume returns the path of a volume of the machine, "" if there is none. It is an error if the volume has no mark.
func (m *machine) findVolume(ctx context.Context, hv Hypervisor, name string) (file string, err error) {
	return marked(ctx, hv, m.pool(), name, m.markOf(name), "by bootlab for host "+m.host.Name)
}

// marked returns the path of a volume, "" if there is none, and a *foreignVolume if it has no mark.
func marked(ctx context.Context, hv Hypervisor, pool, name, mark, by string) (file string, err error) {
	file, err = hv.VolumePath(ctx, pool, name)
	if err != nil || file == "" {
		return "", err
	}
	has, err := hv.VolumePath(ctx, pool, mark)
	if err != nil {
		return "", err
	}
	if has == "" {
		return "", &foreignVolume{pool: pool, name: name, by: by, file: file}
	}
	return file, nil
}

// A foreignVolume is the error for a volume without our mark.
type foreignVolume struct{ pool, name, by, file string }

// Error implements error.
func (f *foreignVolume) Error() string {
	return fmt.Sprintf("volume %s exists in pool %s and was not created %s: move it away, or delete it (virsh vol-delete --pool %s %s)",
		f.name, f.pool, f.by, f.pool, f.name)
}

// createMark creates a mark.
func createMark(ctx context.Context, hv Hypervisor, pool, mark string) error {
	if file, err := hv.VolumePath(ctx, pool, mark); err != nil || file != "" {
		return err // left by a volume that was deleted by hand
	}
	_, err := createVolume(ctx, hv, pool, &libvirtxml.StorageVolume{
		Name:     mark,
		Capacity: &libvirtxml.StorageVolumeSize{Value: 0},
		Target:   &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: "raw"}},
	})
	return err
}

// marking creates the mark of a volume that does not exist, and then the volume with create. If that fails, it deletes the mark.
func (m *machine) marking(ctx context.Context, hv Hypervisor, name string, create func() error) error {
	mark := m.markOf(name)
	if err := createMark(ctx, hv, m.pool(), mark); err != nil {
		return err
	}
	if err := create(); err != nil {
		return errors.Join(err, hv.DeleteVolume(ctx, m.pool(), mark))
	}
	return nil
}

// deleteVolumes deletes volumes of the machine with their marks. Their marks were checked.
func (m *machine) deleteVolumes(ctx context.Context, hv Hypervisor, names []string) error {
	var errs []error
	for _, name := range names {
		for _, v := range []string{name, m.markOf(name)} {
			if err := hv.DeleteVolume(ctx, m.pool(), v); err != nil {
				errs = append(errs, fmt.Errorf("delete volume %s: %w", v, err))
				break
			}
		}
	}
	return errors.Join(errs...)
}
