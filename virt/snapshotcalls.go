//go:build cgo && libvirt_dlopen

package virt

import "libvirt.org/go/libvirt"

// snapshots is Hypervisor.Snapshots.
func (c *libvirtConn) snapshots(uuid string) (all []Snapshot, err error) {
	err = c.with(uuid, func(d *libvirt.Domain) error {
		list, err := d.ListAllSnapshots(0)
		if err != nil {
			return err
		}
		for i := range list {
			text, failed := list[i].GetXMLDesc(0)
			current, _ := list[i].IsCurrent(0)
			_ = list[i].Free()
			if failed != nil {
				err = failed // deleted since, or the connection broke
				continue
			}
			s, failed := parseSnapshot(text)
			if failed != nil {
				err = failed
			}
			s.Current = current
			all = append(all, s)
		}
		return err
	})
	return all, err
}

// snapshot is Hypervisor.CreateSnapshot.
func (c *libvirtConn) snapshot(uuid, xml string) error {
	return c.with(uuid, func(d *libvirt.Domain) error {
		s, err := d.CreateSnapshotXML(xml, 0)
		if err != nil {
			return err
		}
		return s.Free()
	})
}

// revert is Hypervisor.Revert.
func (c *libvirtConn) revert(uuid, name string) error {
	return c.withSnapshot(uuid, name, func(s *libvirt.DomainSnapshot) error { return s.RevertToSnapshot(0) })
}

// deleteSnapshot is Hypervisor.DeleteSnapshot.
func (c *libvirtConn) deleteSnapshot(uuid, name string) error {
	return c.withSnapshot(uuid, name, func(s *libvirt.DomainSnapshot) error { return s.Delete(0) })
}

func (c *libvirtConn) withSnapshot(uuid, name string, fn func(*libvirt.DomainSnapshot) error) error {
	return c.with(uuid, func(d *libvirt.Domain) error {
		s, err := d.SnapshotLookupByName(name, 0)
		if err != nil {
			return err
		}
		defer func() { _ = s.Free() }()
		return fn(s)
	})
}
