package virt

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// Create makes the volumes and the domain of a host. What is there already stays: a domain that differs from the lab file
// is redefined if it is off, volumes are never touched. It refuses to take over a domain or a volume that it did not make.
func (s *Server) Create(ctx context.Context, host string) error {
	return s.run(ctx, host, operation{name: "create", kind: event.VMCreated, do: s.create, timeout: s.createTime})
}

func (s *Server) createTime(m *machine) time.Duration {
	if m.fromImage() {
		return s.cfg.UploadWait
	}
	return s.cfg.Timeout
}

func (s *Server) create(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
	old, err := find(hv, m)
	if err != nil && !errors.Is(err, ErrAbsent) {
		return false, err
	}
	d := m.domain()
	want := parseMark(d.Metadata.XML)
	switch {
	case parseMark(old.Mark) == want:
		return false, nil
	case old.UUID != "" && old.State.active():
		return false, errors.New("it is running and the lab file has changed: stop it, then create it again")
	}
	return true, s.make(ctx, hv, m, d, old.UUID != "")
}

// make makes what is missing of a machine, and takes it back if not all of it can be made. known says that its domain is
// there, in an older form.
func (s *Server) make(ctx context.Context, hv Hypervisor, m *machine, d *libvirtxml.Domain, known bool) error {
	var base *libvirtxml.StorageVolumeBackingStore
	var made []string
	var err error
	if m.fromImage() {
		if base, made, err = s.prepare(ctx, hv, m, d); err != nil {
			return err
		}
	}
	paths, volumes, err := createVolumes(ctx, hv, m, base, known)
	if err == nil {
		placeDisks(d, paths)
		err = define(ctx, hv, d)
	}
	if err != nil {
		return errors.Join(err, deleteVolumes(hv, m.pool(), append(made, volumes...)))
	}
	return nil
}

func define(ctx context.Context, hv Hypervisor, d *libvirtxml.Domain) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	xml, err := d.Marshal()
	if err != nil {
		return err
	}
	return hv.Define(xml)
}

// createVolumes makes the volumes that are missing. It returns the paths of all, and the names of those that it made.
// A volume that is there although its machine is not is somebody's data.
func createVolumes(ctx context.Context, hv Hypervisor, m *machine, base *libvirtxml.StorageVolumeBackingStore, known bool) (
	paths map[string]string, made []string, err error,
) {
	pool := m.pool()
	paths = map[string]string{}
	for i := range m.disksOf() {
		if err := ctx.Err(); err != nil {
			return nil, made, err
		}
		name := m.volumeName(i)
		file, err := hv.VolumePath(pool, name)
		switch {
		case err != nil:
			return nil, made, err
		case file != "" && !known:
			return nil, made, fmt.Errorf("volume %s is in pool %s already and belongs to no VM of this lab: "+
				"move it away, or delete it (virsh vol-delete --pool %s %s)", name, pool, pool, name)
		case file == "":
			v := m.volume(i)
			if v.BackingStore != nil {
				v.BackingStore = base
			}
			if file, err = createVolume(hv, pool, v); err != nil {
				return nil, made, err
			}
			made = append(made, name)
		}
		paths[name] = file
	}
	return paths, made, nil
}

func createVolume(hv Hypervisor, pool string, v *libvirtxml.StorageVolume) (string, error) {
	xml, err := v.Marshal()
	if err != nil {
		return "", err
	}
	file, err := hv.CreateVolume(pool, xml)
	if err != nil {
		return "", fmt.Errorf("create volume %s: %w", v.Name, err)
	}
	return file, nil
}

func deleteVolumes(hv Hypervisor, pool string, names []string) error {
	var errs []error
	for _, name := range names {
		if err := hv.DeleteVolume(pool, name); err != nil {
			errs = append(errs, fmt.Errorf("delete volume %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// find returns the domain of a machine, or ErrAbsent, or an error that says who is in its place.
func find(hv Hypervisor, m *machine) (Domain, error) {
	domains, err := hv.Domains()
	if err != nil {
		return Domain{}, fmt.Errorf("list domains: %w", err)
	}
	for _, d := range domains {
		k := parseMark(d.Mark)
		ours := k.Lab == m.lab && k.Host == m.host.Name
		switch {
		case ours && d.UUID == m.uuid:
			return d, nil
		case d.UUID == m.uuid, d.Name == m.host.Name:
			return Domain{}, fmt.Errorf("a domain %q (UUID %s) is there that was not made from lab %q: "+
				"rename it, undefine it, or rename the host", d.Name, d.UUID, m.lab)
		}
	}
	return Domain{}, ErrAbsent
}

// Start powers a machine on. One that runs already is left alone.
func (s *Server) Start(ctx context.Context, host string) error {
	return s.run(ctx, host, operation{name: "start", kind: event.VMStarted, do: start})
}

func start(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
	d, err := find(hv, m)
	if err != nil {
		return false, err
	}
	if d.State.active() {
		return false, nil
	}
	return true, hv.Start(d.UUID)
}

// StopMode says how a machine is stopped.
type StopMode int

// The ways to stop a machine.
const (
	StopAsk   StopMode = iota // ask the guest by ACPI and wait until it is off
	StopForce                 // pull the plug
)

// Stop powers a machine off. One that is off already is left alone. A guest that is asked may not listen: firmware, a boot
// loader and most installers do not; the error then says so.
func (s *Server) Stop(ctx context.Context, host string, mode StopMode) error {
	return s.run(ctx, host, operation{
		name: "stop", kind: event.VMStopped,
		timeout: func(*machine) time.Duration { return s.cfg.Timeout + s.cfg.ShutdownWait },
		do: func(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
			d, err := find(hv, m)
			switch {
			case err != nil:
				return false, err
			case !d.State.active():
				return false, nil
			case mode == StopForce:
				return true, hv.Destroy(d.UUID)
			}
			return true, s.ask(ctx, hv, m)
		},
	})
}

// ask asks the guest to power off and waits until it is.
func (s *Server) ask(ctx context.Context, hv Hypervisor, m *machine) error {
	if err := hv.Shutdown(m.uuid); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ShutdownWait)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		d, err := find(hv, m)
		if err != nil || !d.State.active() {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the guest was asked to power off and has not within %s: force it", s.cfg.ShutdownWait)
		}
	}
}

// Restart pulls the plug and powers the machine on again: a cold boot, so that it asks the network what to boot.
func (s *Server) Restart(ctx context.Context, host string) error {
	return s.run(ctx, host, operation{
		name: "restart", kind: event.VMStarted,
		do: func(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
			d, err := find(hv, m)
			if err != nil {
				return false, err
			}
			if d.State.active() {
				if err := hv.Destroy(d.UUID); err != nil {
					return false, err
				}
			}
			return true, hv.Start(d.UUID)
		},
	})
}

// Delete stops a machine and takes its domain, firmware variables and volumes away. A host that is gone from the lab file
// can still be deleted as long as its hypervisor is there. Disks that were attached by hand are kept.
func (s *Server) Delete(ctx context.Context, host string) error {
	t := s.deps.Table()
	op := operation{name: "delete", kind: event.VMDeleted, do: remove}
	if m := t.byHost[host]; m != nil {
		return s.runOn(ctx, m, m.vm.Hypervisor, op)
	}
	// Whatever its vm said is lost with the host; its UUID and its mark are not.
	gone := &machine{lab: t.lab, host: &lab.Host{Name: host}, uuid: domainUUID(t.lab, host)}
	hv, err := s.locate(ctx, t, gone)
	if err != nil {
		return fmt.Errorf("delete VM %s: %w", host, err)
	}
	gone.vm = &lab.VM{Hypervisor: hv}
	return s.runOn(ctx, gone, hv, op)
}

// locate returns the hypervisor that has the machine.
func (s *Server) locate(ctx context.Context, t *Table, m *machine) (*lab.Hypervisor, error) {
	var errs []error
	for _, hv := range t.hypervisors {
		err := s.links.do(ctx, hv, func(_ context.Context, h Hypervisor) error {
			_, err := find(h, m)
			return err
		})
		if err == nil {
			return hv, nil
		}
		if !errors.Is(err, ErrAbsent) {
			errs = append(errs, err)
		}
	}
	return nil, errors.Join(append(errs, fmt.Errorf("host %q is not in the lab and no hypervisor has a VM of it", m.host.Name))...)
}

func remove(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
	d, err := find(hv, m)
	if err != nil {
		return false, err
	}
	volumes, err := ownVolumes(hv, m)
	if err != nil {
		return false, err
	}
	if d.State.active() {
		if err := hv.Destroy(d.UUID); err != nil {
			return false, err
		}
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := hv.Undefine(d.UUID); err != nil {
		return false, err
	}
	return true, deleteVolumes(hv, m.pool(), volumes)
}

// ownVolumes returns the names of the volumes that Create made for the domain that is there, which need not be the one of
// today's lab file: a file in our pool whose name is that of a disk, or of the config document, of this host.
func ownVolumes(hv Hypervisor, m *machine) ([]string, error) {
	xml, err := hv.XML(m.uuid)
	if err != nil {
		return nil, err
	}
	var d libvirtxml.Domain
	if err := d.Unmarshal(xml); err != nil {
		return nil, fmt.Errorf("read domain: %w", err)
	}
	var names []string
	for _, file := range ownFiles(&d, m) {
		name := path.Base(file)
		have, err := hv.VolumePath(m.pool(), name)
		if err != nil {
			return nil, err
		}
		if have == file {
			names = append(names, name)
		}
	}
	return names, nil
}

// ownFiles returns the files of a domain that are named as those of this host.
func ownFiles(d *libvirtxml.Domain, m *machine) (files []string) {
	for _, info := range d.SysInfo {
		if info.FWCfg == nil {
			continue
		}
		for _, entry := range info.FWCfg.Entry {
			if path.Base(entry.File) == m.configVolume() {
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
		if file := disk.Source.File.File; path.Base(file) == m.host.Name+"-"+disk.Target.Dev+".qcow2" {
			files = append(files, file)
		}
	}
	return files
}
