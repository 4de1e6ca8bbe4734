package virt

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// Disks says what Delete does with the disks of a machine.
type Disks int

// What Delete does with disks.
const (
	KeepDisks Disks = iota // Create uses them again
	DeleteDisks
)

// Delete forces a machine off and deletes its domain, firmware variables and config document, and its disks if asked to; with
// DeleteDisks, also disks that an earlier Delete kept. A host that was removed from the lab file can be deleted as long as its
// hypervisor is in the file. Disks that bootlab did not create are kept.
func (s *Server) Delete(ctx context.Context, host string, disks Disks) error {
	t := s.deps.Table()
	op := operation{name: "delete", kind: event.VMDeleted, do: func(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
		changed, err := remove(ctx, hv, m, disks)
		if errors.Is(err, ErrAbsent) && s.placements.of(host).State == StateAbsent && (disks == DeleteDisks || len(m.targets) == 0) {
			err = nil // only its place was kept
		}
		if errors.Is(err, ErrAbsent) {
			err = errNothingToDelete
		}
		if err == nil {
			s.noteStart(ctx, host, PendingStart{})
			err = s.forgetNextBoot(ctx, hv, m)
		}
		return changed, err
	}}
	if t.byHost[host] != nil {
		m, err := s.placedMachine(ctx, host)
		if errors.Is(err, ErrAbsent) {
			err = errNothingToDelete
		}
		if err != nil {
			return fmt.Errorf("delete VM %s: %w", host, err)
		}
		if err := s.runOn(ctx, m, m.vm.Hypervisor, op); err != nil {
			return err
		}
		if disks == DeleteDisks || len(m.targets) == 0 {
			return s.unplace(ctx, host)
		}
		return nil // its disks are there: so is the next machine
	}
	// Its UUID and metadata follow from lab and host name alone.
	orphan := &machine{table: t, host: &lab.Host{Name: host}, uuid: domainUUID(t.lab, host)}
	hv, err := s.locate(ctx, t, orphan)
	if err != nil {
		return fmt.Errorf("delete VM %s: %w", host, err)
	}
	orphan.vm = &lab.VM{Hypervisor: hv}
	return s.runOn(ctx, orphan, hv, op)
}

// where returns the machine as it is on the hypervisor that has it, which may differ from the lab file's.
func (s *Server) where(t *Table, m *machine) *machine {
	p := s.placements.of(m.host.Name)
	i := slices.IndexFunc(t.hypervisors, func(h *lab.Hypervisor) bool { return h.URI == p.URI })
	if i < 0 || p.State == StateAbsent || m.vm.Hypervisor == t.hypervisors[i] {
		return m
	}
	return m.on(t.hypervisors[i])
}

// locate returns the hypervisor that has the machine.
func (s *Server) locate(ctx context.Context, t *Table, m *machine) (*lab.Hypervisor, error) {
	var errs []error
	for _, hv := range t.hypervisors {
		err := s.connections.use(hv, func(h Hypervisor) error {
			_, err := find(ctx, h, m)
			return err
		})
		if err == nil {
			return hv, nil
		}
		if !errors.Is(err, ErrAbsent) {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return nil, fmt.Errorf("host %q is no virtual machine of the lab, and no hypervisor has a VM of this name", m.host.Name)
}

func remove(ctx context.Context, hv Hypervisor, m *machine, disks Disks) (bool, error) {
	d, err := find(ctx, hv, m)
	if errors.Is(err, ErrAbsent) && disks == DeleteDisks {
		return removeKept(ctx, hv, m)
	}
	if err != nil {
		return false, err
	}
	volumes, err := ownVolumes(ctx, hv, m, d)
	if err != nil {
		return false, err
	}
	if disks == KeepDisks {
		volumes = slices.DeleteFunc(volumes, func(id VolumeID) bool { return !m.isConfig(id.Name) })
	}
	if d.State.active() {
		if err := forceOff(ctx, hv, m); err != nil {
			return false, err
		}
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := hv.Undefine(ctx, d.UUID); err != nil {
		return false, err
	}
	return true, m.deleteVolumes(ctx, hv, volumes)
}

// removeKept deletes the volumes that are left of a machine without its domain: disks that were kept, and what a create made that
// did not come to its end. ErrAbsent: there are none.
func removeKept(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
	var ids []VolumeID
	if m.targets != nil { // an orphan has none
		ids = m.volumeIDs()
	}
	pools, err := hv.Pools(ctx)
	if err != nil {
		return false, err
	}
	// A machine without a document needs no such pool, and there may be none.
	if slices.ContainsFunc(pools, func(p Pool) bool { return p.Name == m.pool() }) {
		ids = append(ids, m.inPool(m.ignitionVolume()), m.inPool(m.seedVolume()))
	}
	var kept []VolumeID
	for _, id := range ids {
		mark, err := lookVolume(ctx, hv, m.markOf(id))
		switch {
		case err != nil:
			return false, err
		case mark.Path != "": // also without its volume
			kept = append(kept, id)
		}
	}
	if len(kept) == 0 {
		return false, ErrAbsent
	}
	return true, m.deleteVolumes(ctx, hv, kept)
}

// ownVolumes returns the volumes that Create made for an existing domain, which may differ from the lab file: files that are named
// as a disk or the config document of this host, in pools where they carry its mark.
func ownVolumes(ctx context.Context, hv Hypervisor, m *machine, dom Domain) ([]VolumeID, error) {
	d, err := definitionOf(ctx, hv, dom)
	if err != nil {
		return nil, err
	}
	var own []VolumeID
	for _, file := range ownFiles(d, m) {
		v, err := hv.VolumeAt(ctx, file)
		if err != nil {
			return nil, err
		}
		if v.Path == "" {
			continue
		}
		_, err = m.findVolume(ctx, hv, v.VolumeID)
		var foreign *foreignVolume
		switch {
		case err == nil:
			own = append(own, v.VolumeID)
		case !errors.As(err, &foreign):
			return nil, err
		}
	}
	return own, nil
}

// ownFiles returns the files of a domain that have a name that Create gives for this host.
func ownFiles(d *libvirtxml.Domain, m *machine) (files []string) {
	for _, info := range d.SysInfo {
		if info.FWCfg == nil {
			continue
		}
		for _, entry := range info.FWCfg.Entry {
			if path.Base(entry.File) == m.ignitionVolume() {
				files = append(files, entry.File)
			}
		}
	}
	if d.Devices == nil {
		return files
	}
	for _, disk := range d.Devices.Disks {
		if disk.Source == nil || disk.Source.File == nil || disk.Target == nil {
			continue
		}
		if file := disk.Source.File.File; isDiskName(file, m.host.Name, disk.Target.Dev) || path.Base(file) == m.seedVolume() {
			files = append(files, file)
		}
	}
	return files
}
