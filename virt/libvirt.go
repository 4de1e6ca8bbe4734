//go:build cgo && libvirt_dlopen

package virt

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirt"
)

// libvirt sends a keep-alive after keepAliveSeconds without a message. keepAliveCount unanswered ones close the connection
// and fail its calls.
const (
	keepAliveSeconds = 5
	keepAliveCount   = 4
)

// A libvirtConn is a connection to a hypervisor with libvirt's library, in a process that makes one call at a time.
type libvirtConn struct {
	c        *libvirt.Connect
	consoles *consoleStreams // nil: the process is not for consoles
}

// methods are what a process does for the daemon, by the names that its errors have.
func (c *libvirtConn) methods() map[string]any {
	return map[string]any{
		"domains": c.domains, "find": c.find, "xml": c.xml, "define": c.define, "undefine": c.undefine, "set autostart": c.setAutostart,
		"start": c.start, "start with": c.startWith, "set boot order": c.setBootOrder, "shutdown": c.shutdown, "destroy": c.destroy,
		"node": c.node, "pools": c.pools, "capabilities": c.capabilities, "list interfaces": c.interfaces,
		"networks": c.networks, "define network": c.defineNetwork, "delete network": c.deleteNetwork,
		"list volumes": c.volumes, "find volume": c.volumeAt, "resize volume": c.grow,
		"create volume": c.createVolume, "upload volume": c.uploadVolume, "delete volume": c.deleteVolume,
		"list snapshots": c.snapshots, "create snapshot": c.snapshot, "revert to snapshot": c.revert, "delete snapshot": c.deleteSnapshot,
		"open console": c.openConsole, "type on console": c.typeConsole, "close console": c.closeConsole,
	}
}

// dial connects to a hypervisor, and runs libvirt's event loop, which sends the keep-alives, until the process ends.
func dial(uri string) (*libvirtConn, error) {
	silenceLibvirt()
	if err := libvirt.EventRegisterDefaultImpl(); err != nil {
		if _, err := libvirt.GetVersion(); err != nil {
			return nil, fmt.Errorf("no libvirt library on this machine: install libvirt0 (Debian) or libvirt-libs (Fedora) (%w)", plain(err))
		}
		return nil, plain(err)
	}
	c, err := libvirt.NewConnect(uri)
	if err != nil {
		return nil, plain(err)
	}
	// Drivers inside the library (test:///) have no connection, and return an error.
	_ = c.SetKeepAlive(keepAliveSeconds, keepAliveCount)
	go func() {
		for libvirt.EventRunDefaultImpl() == nil {
		}
	}()
	return &libvirtConn{c: c}, nil
}

// watch writes the UUIDs of domains that are defined, started, stopped or undefined to a pipe, one in a line. It does not wait for
// the reader: if the pipe is full, what is in it leads to a refresh anyway. A driver without events leaves changes to refreshes.
func (c *libvirtConn) watch(pipe int) {
	if err := unix.SetNonblock(pipe, true); err != nil {
		return
	}
	_, _ = c.c.DomainEventLifecycleRegister(nil, func(_ *libvirt.Connect, d *libvirt.Domain, _ *libvirt.DomainEventLifecycle) {
		if uuid, err := d.GetUUIDString(); err == nil {
			_, _ = unix.Write(pipe, []byte(uuid+"\n"))
		}
	})
}

// alive reports whether the connection is not known to be broken.
func (c *libvirtConn) alive() bool {
	alive, err := c.c.IsAlive()
	return err == nil && alive
}

// domains is Hypervisor.Domains.
func (c *libvirtConn) domains() ([]Domain, error) {
	list, err := c.c.ListAllDomains(0)
	if err != nil {
		return nil, plain(err)
	}
	return describeAll(list, describe, (*libvirt.Domain).Free, libvirt.ERR_NO_DOMAIN)
}

// describeAll describes what is in a list, and frees it. gone is the error of what was undefined since the list was made.
func describeAll[L, T any](list []L, describe func(*L) (T, error), free func(*L) error, gone libvirt.ErrorNumber) ([]T, error) {
	all := make([]T, 0, len(list))
	var failed error
	for i := range list {
		v, err := describe(&list[i])
		_ = free(&list[i])
		switch {
		case code(err) == gone:
		case err != nil:
			failed = plain(err)
		default:
			all = append(all, v)
		}
	}
	return all, failed
}

// find is Hypervisor.Find.
func (c *libvirtConn) find(uuid, name string) (domains []Domain, err error) {
	for _, look := range []func() (*libvirt.Domain, error){
		func() (*libvirt.Domain, error) { return c.c.LookupDomainByUUIDString(uuid) },
		func() (*libvirt.Domain, error) { return c.c.LookupDomainByName(name) },
	} {
		d, err := look()
		if err == nil {
			var found Domain
			if found, err = describe(d); err == nil && (len(domains) == 0 || domains[0].UUID != found.UUID) {
				domains = append(domains, found)
			}
			_ = d.Free()
		}
		if err != nil && code(err) != libvirt.ERR_NO_DOMAIN {
			return nil, plain(err)
		}
	}
	return domains, nil
}

func describe(d *libvirt.Domain) (Domain, error) {
	name, err := d.GetName()
	if err != nil {
		return Domain{}, err
	}
	uuid, err := d.GetUUIDString()
	if err != nil {
		return Domain{}, err
	}
	state, _, err := d.GetState()
	if err != nil {
		return Domain{}, err
	}
	element, err := d.GetMetadata(libvirt.DOMAIN_METADATA_ELEMENT, metadataURI, libvirt.DOMAIN_AFFECT_CURRENT)
	if err != nil {
		element = "" // no metadata: not ours
	}
	dom := Domain{Name: name, UUID: uuid, State: stateOf(state), Metadata: element}
	if id, err := d.GetID(); err == nil && dom.State.active() { // off has none
		dom.Run = int(id)
	}
	if element != "" {
		dom.Autostart, _ = d.GetAutostart() // a domain without a definition for its next start has none
	}
	if element != "" && dom.State.active() {
		if next, err := d.GetMetadata(libvirt.DOMAIN_METADATA_ELEMENT, metadataURI, libvirt.DOMAIN_AFFECT_CONFIG); err == nil && next != element {
			dom.Next = next
		}
	}
	text, err := d.GetXMLDesc(0)
	if err != nil {
		return Domain{}, err
	}
	dom.MACs, dom.Ports, dom.Memory, err = hardwareOf(text)
	return dom, err
}

func stateOf(s libvirt.DomainState) State {
	switch s {
	case libvirt.DOMAIN_RUNNING, libvirt.DOMAIN_BLOCKED:
		return StateRunning
	case libvirt.DOMAIN_PAUSED, libvirt.DOMAIN_PMSUSPENDED:
		return StatePaused
	case libvirt.DOMAIN_SHUTDOWN:
		return StateStopping
	case libvirt.DOMAIN_SHUTOFF:
		return StateOff
	case libvirt.DOMAIN_CRASHED:
		return StateCrashed
	default:
		return StateUnknown
	}
}

// xml is Hypervisor.XML.
func (c *libvirtConn) xml(uuid string) (xml string, err error) {
	err = c.with(uuid, func(d *libvirt.Domain) error {
		xml, err = d.GetXMLDesc(libvirt.DOMAIN_XML_INACTIVE)
		return err
	})
	return xml, err
}

// define is Hypervisor.Define.
func (c *libvirtConn) define(xml string) error {
	d, err := c.c.DomainDefineXML(xml)
	if err != nil {
		return plain(err)
	}
	return d.Free()
}

// setAutostart is Hypervisor.SetAutostart.
func (c *libvirtConn) setAutostart(uuid string, on bool) error {
	return c.with(uuid, func(d *libvirt.Domain) error {
		err := d.SetAutostart(on)
		if !on && code(err) == libvirt.ERR_NO_SUPPORT { // a driver that starts none
			return nil
		}
		if err != nil {
			return err
		}
		if is, err := d.GetAutostart(); err == nil && is != on { // libvirt 9.0 returns no error when it cannot make the link
			return errors.New("set autostart: libvirt reported success and did not do it: its log on the hypervisor says why")
		}
		return nil
	})
}

// start is Hypervisor.Start.
func (c *libvirtConn) start(uuid string) error { return c.with(uuid, (*libvirt.Domain).Create) }

// startWith is Hypervisor.StartWith.
func (c *libvirtConn) startWith(xml string) error {
	d, err := c.c.DomainCreateXML(xml, 0)
	if err != nil {
		return plain(err)
	}
	return d.Free()
}

// setBootOrder is Hypervisor.SetBootOrder. libvirt cannot change the order of a running machine; its emulator can.
func (c *libvirtConn) setBootOrder(uuid string, order map[string]uint) error {
	return c.with(uuid, func(d *libvirt.Domain) error {
		xml, err := d.GetXMLDesc(0)
		if err != nil {
			return err
		}
		commands, err := bootOrderCommands(xml, order)
		if err != nil {
			return err
		}
		for _, command := range commands {
			result, err := d.QemuMonitorCommand(command, libvirt.DOMAIN_QEMU_MONITOR_COMMAND_DEFAULT)
			if err != nil {
				return err
			}
			if err := monitorError(result); err != nil {
				return err
			}
		}
		return nil
	})
}

// shutdown is Hypervisor.Shutdown.
func (c *libvirtConn) shutdown(uuid string) error { return c.with(uuid, (*libvirt.Domain).Shutdown) }

// destroy is Hypervisor.Destroy.
func (c *libvirtConn) destroy(uuid string) error { return c.with(uuid, (*libvirt.Domain).Destroy) }

// undefine is Hypervisor.Undefine. Not every driver and version supports every flag.
func (c *libvirtConn) undefine(uuid string) error {
	const basic = libvirt.DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
	const full = basic | libvirt.DOMAIN_UNDEFINE_NVRAM | libvirt.DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
	return c.with(uuid, func(d *libvirt.Domain) error {
		err := d.UndefineFlags(full)
		if code(err) == libvirt.ERR_INVALID_ARG {
			err = d.UndefineFlags(basic)
		}
		return err
	})
}

// with looks a domain up and calls fn with it.
func (c *libvirtConn) with(uuid string, fn func(*libvirt.Domain) error) error {
	d, err := c.c.LookupDomainByUUIDString(uuid)
	if err != nil {
		return plain(err)
	}
	defer func() { _ = d.Free() }()
	return plain(fn(d))
}

// code returns libvirt's error number.
func code(err error) libvirt.ErrorNumber {
	var e libvirt.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return libvirt.ERR_OK
}

// plain returns an error with libvirt's message only, as virsh prints it.
func plain(err error) error {
	var e libvirt.Error
	if errors.As(err, &e) {
		return errors.New(e.Message)
	}
	return err
}

// node is Hypervisor.Node.
func (c *libvirtConn) node() (Node, error) {
	info, err := c.c.GetNodeInfo()
	if err != nil {
		return Node{}, plain(err)
	}
	n := Node{CPUs: int(info.Cpus), Memory: info.Memory << 10}
	if stats, err := c.c.GetMemoryStats(libvirt.NODE_MEMORY_STATS_ALL_CELLS, 0); err == nil { // not every driver has it
		n.Free = (stats.Free + stats.Buffers + stats.Cached) << 10
	} else if free, err := c.c.GetFreeMemory(); err == nil {
		n.Free = free
	}
	return n, nil
}

// pools is Hypervisor.Pools.
func (c *libvirtConn) pools() ([]Pool, error) {
	list, err := c.c.ListAllStoragePools(0)
	if err != nil {
		return nil, plain(err)
	}
	return describeAll(list, describePool, (*libvirt.StoragePool).Free, libvirt.ERR_NO_STORAGE_POOL)
}

func describePool(p *libvirt.StoragePool) (Pool, error) {
	name, err := p.GetName()
	if err != nil {
		return Pool{}, err
	}
	info, err := p.GetInfo()
	if err != nil {
		return Pool{}, err
	}
	return Pool{Name: name, Active: info.State == libvirt.STORAGE_POOL_RUNNING, Capacity: info.Capacity, Free: info.Available}, nil
}

// capabilities is Hypervisor.Capabilities.
func (c *libvirtConn) capabilities(arch, machine, domainType string) (string, error) {
	text, err := c.c.GetDomainCapabilities("", arch, machine, domainType, 0)
	if code(err) == libvirt.ERR_NO_SUPPORT {
		return "", nil
	}
	return text, plain(err)
}

// interfaces is Hypervisor.Interfaces.
func (c *libvirtConn) interfaces() ([]string, error) {
	list, err := c.c.ListAllInterfaces(0)
	if err != nil {
		return nil, plain(err)
	}
	var names []string
	for i := range list {
		if name, err := list[i].GetName(); err == nil {
			names = append(names, name)
		}
		_ = list[i].Free()
	}
	return names, nil
}

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
