package virt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/observe/event"
)

// Create creates the volumes and the domain of a host. An existing domain that differs from the lab file is redefined if it
// is off; existing volumes are never changed. A domain or volume that bootlab did not create is an error.
func (s *Server) Create(ctx context.Context, host string) error {
	return s.run(ctx, host, s.defining("create", s.create))
}

// CreateAndStart creates the machine of a host, as Create does, and starts it. If anything between fails or is interrupted, Plan shows that
// the machine was not started, and Apply starts it.
func (s *Server) CreateAndStart(ctx context.Context, host string) error {
	err := s.run(ctx, host, s.defining("create", func(ctx context.Context, hv Hypervisor, m *machine) (Domain, bool, error) {
		s.wantStart(ctx, m)
		old, changed, err := s.create(ctx, hv, m)
		if err != nil {
			s.startFailed(ctx, m, err)
		}
		return old, changed, err
	}))
	if err != nil {
		return err
	}
	return s.Start(ctx, host)
}

// defining returns an operation whose do defines a domain, and returns the one before; its zero value: there was none.
func (s *Server) defining(name string, do func(context.Context, Hypervisor, *machine) (before Domain, changed bool, err error)) operation {
	var before Domain
	return operation{
		name: name, kind: event.VMCreated, redefined: func() bool { return before.UUID != "" }, places: true, timeout: s.createTime,
		do: func(ctx context.Context, hv Hypervisor, m *machine) (changed bool, err error) {
			before, changed, err = do(ctx, hv, m)
			return changed, err
		},
	}
}

func (s *Server) createTime(m *machine) time.Duration {
	if m.fromImage() {
		return s.cfg.UploadWait
	}
	return s.cfg.Timeout
}

func (s *Server) create(ctx context.Context, hv Hypervisor, m *machine) (old Domain, changed bool, err error) {
	if err := s.alone(ctx, m); err != nil {
		return old, false, err
	}
	old, err = find(ctx, hv, m)
	if err != nil && !errors.Is(err, ErrAbsent) {
		return old, false, err
	}
	d := m.domain()
	same := old.markNow().isOf(m.mark())
	switch {
	case same && old.Autostart == m.vm.Autostart:
		return old, false, nil
	case same && old.markNow() == m.mark():
		return old, true, hv.SetAutostart(ctx, m.uuid, m.vm.Autostart)
	case !same && old.UUID != "" && old.State.active():
		return old, false, errors.New("it is running and the lab file has changed: stop it, then create it again, or bootlab vm apply")
	}
	return old, true, s.createMissing(ctx, hv, m, d, old)
}

// createMissing creates what is missing of a machine, whose domain is old, the zero value if there is none. If an error occurs it deletes
// what it created and no domain uses.
func (s *Server) createMissing(ctx context.Context, hv Hypervisor, m *machine, d *libvirtxml.Domain, old Domain) error {
	if err := fits(ctx, hv, m); err != nil {
		return err
	}
	if err := s.ensureNetworks(ctx, hv, m); err != nil {
		return err
	}
	have, err := definitionOf(ctx, hv, old)
	if err != nil {
		return err
	}
	var base *libvirtxml.StorageVolumeBackingStore
	var made []VolumeID
	if m.fromImage() {
		if base, made, err = s.prepare(ctx, hv, m, d); err != nil {
			return err
		}
	}
	volumes, created, err := createVolumes(ctx, hv, m, have, base)
	if err == nil {
		setDiskPaths(d, volumes)
		err = redefine(ctx, hv, m, d)
	}
	if err != nil {
		return errors.Join(err, m.deleteUnused(ctx, hv, append(made, created...)))
	}
	return nil
}

// deleteUnused deletes those of the machine's volumes that its domain does not use: a step after its definition may have failed, or one
// before it, with the old definition still there. If the hypervisor does not say what the domain uses, the volumes stay: the next create
// takes them by their marks, and a delete with disks deletes them.
func (m *machine) deleteUnused(ctx context.Context, hv Hypervisor, volumes []VolumeID) error {
	dom, err := find(ctx, hv, m)
	if errors.Is(err, ErrAbsent) {
		return m.deleteVolumes(ctx, hv, volumes)
	}
	if err != nil {
		return nil // the error that led here says why
	}
	used, err := ownVolumes(ctx, hv, m, dom)
	if err != nil {
		return nil
	}
	return m.deleteVolumes(ctx, hv, slices.DeleteFunc(volumes, func(id VolumeID) bool { return slices.Contains(used, id) }))
}

// definitionOf returns the definition of a domain for its next start; nil for the zero value.
func definitionOf(ctx context.Context, hv Hypervisor, dom Domain) (*libvirtxml.Domain, error) {
	if dom.UUID == "" {
		return nil, nil
	}
	xml, err := hv.XML(ctx, dom.UUID)
	if err != nil {
		return nil, err
	}
	return parseDomain(xml)
}

func parseDomain(xml string) (*libvirtxml.Domain, error) {
	d := new(libvirtxml.Domain)
	if err := d.Unmarshal(xml); err != nil {
		return nil, fmt.Errorf("read domain: %w", err)
	}
	return d, nil
}

// fits returns an error if the hypervisor has less memory than the machine is to have. libvirt defines such a machine, and its
// emulator fails when it starts. More machines than fit at the same time are no error: they need not run at the same time.
func fits(ctx context.Context, hv Hypervisor, m *machine) error {
	node, err := hv.Node(ctx)
	if err != nil {
		return err
	}
	return m.fitsIn(node.Memory)
}

// fitsIn is fits for a size of memory in bytes; 0: not known.
func (m *machine) fitsIn(has uint64) error {
	if has > 0 && uint64(m.vm.Memory) > has {
		return fmt.Errorf("it wants %d MiB of memory, and hypervisor %s has %d MiB in all: make it smaller, or choose another hypervisor",
			m.vm.Memory>>20, m.vm.Hypervisor.Name, has>>20)
	}
	return nil
}

// define defines the domain with the changes of the lab file.
func define(ctx context.Context, hv Hypervisor, m *machine, d *libvirtxml.Domain) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	xml, err := m.text(d)
	if err != nil {
		return err
	}
	if err := hv.Define(ctx, xml); err != nil {
		return err
	}
	return hv.SetAutostart(ctx, m.uuid, m.vm.Autostart)
}

// find returns the domain of a machine, ErrAbsent, or an error if another domain has its name or UUID.
func find(ctx context.Context, hv Hypervisor, m *machine) (Domain, error) {
	domains, err := hv.Find(ctx, m.uuid, m.host.Name)
	if err != nil {
		return Domain{}, fmt.Errorf("list domains: %w", err)
	}
	for _, d := range domains {
		k := parseMetadata(d.Metadata)
		ours := k.Lab == m.table.lab && k.Host == m.host.Name
		switch {
		case ours && d.UUID == m.uuid:
			return d, nil
		case d.UUID == m.uuid, d.Name == m.host.Name:
			return Domain{}, fmt.Errorf("domain %q (UUID %s) exists and was not created from lab %q: "+
				"rename it, undefine it, or rename the host", d.Name, d.UUID, m.table.lab)
		}
	}
	return Domain{}, ErrAbsent
}

// Start powers a machine on. If it runs, Start does nothing.
func (s *Server) Start(ctx context.Context, host string) error {
	return s.run(ctx, host, operation{name: "start", kind: event.VMStarted, do: s.start})
}

func (s *Server) start(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
	if err := s.alone(ctx, m); err != nil {
		return false, err
	}
	d, err := find(ctx, hv, m)
	if err != nil {
		return false, err
	}
	if d.State.active() {
		s.noteStart(ctx, m.host.Name, PendingStart{})
		return false, nil
	}
	s.consoles.prepare(m.vm.Hypervisor)
	return true, s.powerOn(ctx, hv, m)
}

// StopMode says how a machine is stopped.
type StopMode int

// The ways to stop a machine.
const (
	StopShutdown  StopMode = iota // ACPI shutdown request; an error if the machine is not off in time
	StopThenForce                 // ACPI shutdown request; forced off if the machine is not off in time
	StopForce                     // force off
	StopRequest                   // ACPI shutdown request; Stop returns when it was sent
)

// Stop powers a machine off. If it is off, Stop does nothing. Firmware, boot loaders and most installers ignore a shutdown
// request; wait is how long Stop waits for the machine to be off, 0: Config.ShutdownWait. If ctx ends while it waits, the machine is not
// forced off, and Stop returns an error with context.Canceled.
func (s *Server) Stop(ctx context.Context, host string, mode StopMode, wait time.Duration) error {
	waits := ctx
	ctx = context.WithoutCancel(ctx) // a call that ends half way ends the connection
	if wait == 0 {
		wait = s.cfg.ShutdownWait
	}
	m, err := s.placedMachine(ctx, host)
	if err != nil {
		return fmt.Errorf("stop VM %s: %w", host, err)
	}
	return s.runOn(ctx, m, m.vm.Hypervisor, operation{
		name: "stop", kind: event.VMStopped,
		timeout: func(*machine) time.Duration { return s.cfg.Timeout + wait },
		do: func(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
			d, err := find(ctx, hv, m)
			if err == nil {
				s.noteStart(ctx, m.host.Name, PendingStart{}) // it is to be off
			}
			switch {
			case err != nil:
				return false, err
			case !d.State.active():
				return false, nil
			case mode == StopForce:
				return true, forceOff(ctx, hv, m)
			case mode == StopRequest:
				return false, hv.Shutdown(ctx, m.uuid) // it is not off yet
			}
			err = shutdown(ctx, waits, hv, m, wait)
			if err != nil && mode == StopThenForce && waits.Err() == nil && ctx.Err() == nil {
				err = forceOff(ctx, hv, m)
			}
			return true, err
		},
	})
}

// forceOff forces the machine off. A machine that went off by itself meanwhile is no error.
func forceOff(ctx context.Context, hv Hypervisor, m *machine) error {
	err := hv.Destroy(ctx, m.uuid)
	if err != nil {
		if d, lookup := find(ctx, hv, m); lookup == nil && !d.State.active() {
			return nil
		}
	}
	return err
}

// shutdown sends a shutdown request and waits until the machine is off, or waits ends.
func shutdown(ctx, waits context.Context, hv Hypervisor, m *machine, wait time.Duration) error {
	if err := hv.Shutdown(ctx, m.uuid); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		d, err := find(ctx, hv, m)
		if err != nil || !d.State.active() {
			return err
		}
		select {
		case <-tick.C:
		case <-waits.Done():
			return fmt.Errorf("it was asked to shut down, and nobody waits for it any more: %w", waits.Err())
		case <-ctx.Done():
			return fmt.Errorf("its system did not shut down within %s: force it off", wait)
		}
	}
}

// Restart forces the machine off and powers it on: a cold boot, which begins with the network.
func (s *Server) Restart(ctx context.Context, host string) error {
	return s.run(ctx, host, operation{
		name: "restart", kind: event.VMStarted,
		do: func(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
			d, err := find(ctx, hv, m)
			if err != nil {
				return false, err
			}
			if !d.State.active() {
				return s.start(ctx, hv, m)
			}
			s.wantStart(ctx, m)
			if err := forceOff(ctx, hv, m); err != nil {
				s.noteStart(ctx, m.host.Name, PendingStart{})
				return false, err
			}
			return true, s.powerOn(ctx, hv, m)
		},
	})
}
