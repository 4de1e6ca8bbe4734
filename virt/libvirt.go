//go:build cgo && libvirt_dlopen

package virt

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"libvirt.org/go/libvirt"
)

// A libvirtDriver connects with libvirt's C library, which is loaded at the first call.
type libvirtDriver struct {
	mu      sync.Mutex
	started bool // the library is loaded and its event loop runs

	stopping atomic.Bool
	loop     sync.WaitGroup
}

func newLibvirt() Driver { return &libvirtDriver{} }

// libvirt sends a keep-alive after keepAliveSeconds without a message. keepAliveCount unanswered ones close the connection
// and fail its calls.
const (
	keepAliveSeconds = 5
	keepAliveCount   = 4
)

// Dial implements Driver.
func (d *libvirtDriver) Dial(uri string) (Hypervisor, error) {
	if err := d.start(); err != nil {
		return nil, err
	}
	c, err := libvirt.NewConnect(uri)
	if err != nil {
		return nil, plain(err)
	}
	// Drivers inside the library (test:///) have no connection, and return an error.
	_ = c.SetKeepAlive(keepAliveSeconds, keepAliveCount)
	return &libvirtConn{c: c}, nil
}

// start loads the library and runs its event loop, which sends the keep-alives.
func (d *libvirtDriver) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.started {
		return nil
	}
	if err := openLibrary(); err != nil {
		return err
	}
	if err := libvirt.EventRegisterDefaultImpl(); err != nil {
		return plain(err)
	}
	resolveSymbols()
	d.started = true
	d.loop.Go(func() {
		for !d.stopping.Load() {
			if err := libvirt.EventRunDefaultImpl(); err != nil {
				return
			}
		}
	})
	return nil
}

// resolveSymbols calls every function that a connection uses once, without a connection. The binding looks a function up at
// its first call, without a lock: two concurrent first calls would be a data race.
func resolveSymbols() {
	if c, err := libvirt.NewConnect("test:///default"); err == nil {
		_, _ = c.Close()
	}
	var (
		c libvirt.Connect
		d libvirt.Domain
		p libvirt.StoragePool
		v libvirt.StorageVol
		s libvirt.Stream
	)
	_ = c.SetKeepAlive(keepAliveSeconds, keepAliveCount)
	_, _ = c.IsAlive()
	_, _ = c.ListAllDomains(0)
	_, _ = c.ListAllStoragePools(0)
	_, _ = c.LookupDomainByUUIDString(domainUUID("", ""))
	_, _ = c.LookupStoragePoolByName("")
	_, _ = c.DomainDefineXML("")
	_, _ = d.GetName()
	_, _ = d.GetUUIDString()
	_, _, _ = d.GetState()
	_, _ = d.GetMetadata(libvirt.DOMAIN_METADATA_ELEMENT, "", 0)
	_, _ = d.GetXMLDesc(0)
	_ = d.Create()
	_ = d.Shutdown()
	_ = d.Destroy()
	_ = d.UndefineFlags(0)
	_, _ = p.GetName()
	_, _ = p.StorageVolCreateXML("", 0)
	_, _ = p.LookupStorageVolByName("")
	_ = p.Refresh(0)
	_, _ = v.GetPath()
	_, _ = v.GetInfoFlags(0)
	_ = v.Upload(&s, 0, 0, 0)
	_ = v.Delete(0)
	_, _ = c.NewStream(0)
	_ = s.SendAll(func(*libvirt.Stream, int) ([]byte, error) { return nil, nil })
	_, _, _ = s.Finish(), s.Abort(), s.Free()
	_, _, _ = d.Free(), p.Free(), v.Free()
}

// Close implements Driver. A timer wakes the event loop, which then ends.
func (d *libvirtDriver) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.started {
		return
	}
	d.stopping.Store(true)
	if timer, err := libvirt.EventAddTimeout(0, func(int) {}); err == nil {
		d.loop.Wait()
		_ = libvirt.EventRemoveTimeout(timer)
	}
}

// A libvirtConn implements Hypervisor with libvirt.
type libvirtConn struct{ c *libvirt.Connect }

// Alive implements Hypervisor.
func (c *libvirtConn) Alive() bool {
	alive, err := c.c.IsAlive()
	return err == nil && alive
}

// Close implements Hypervisor.
func (c *libvirtConn) Close() { _, _ = c.c.Close() }

// Domains implements Hypervisor.
func (c *libvirtConn) Domains() ([]Domain, error) {
	list, err := c.c.ListAllDomains(0)
	if err != nil {
		return nil, plain(err)
	}
	domains := make([]Domain, 0, len(list))
	for i := range list {
		d, err := describe(&list[i])
		_ = list[i].Free()
		switch {
		case code(err) == libvirt.ERR_NO_DOMAIN: // undefined since the list was made
		case err != nil:
			return nil, plain(err)
		default:
			domains = append(domains, d)
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
	return Domain{Name: name, UUID: uuid, State: stateOf(state), Metadata: element}, nil
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

// XML implements Hypervisor.
func (c *libvirtConn) XML(uuid string) (xml string, err error) {
	err = c.with(uuid, func(d *libvirt.Domain) error {
		xml, err = d.GetXMLDesc(libvirt.DOMAIN_XML_INACTIVE)
		return err
	})
	return xml, err
}

// Define implements Hypervisor.
func (c *libvirtConn) Define(xml string) error {
	d, err := c.c.DomainDefineXML(xml)
	if err != nil {
		return plain(err)
	}
	return d.Free()
}

// Start implements Hypervisor.
func (c *libvirtConn) Start(uuid string) error { return c.with(uuid, (*libvirt.Domain).Create) }

// Shutdown implements Hypervisor.
func (c *libvirtConn) Shutdown(uuid string) error { return c.with(uuid, (*libvirt.Domain).Shutdown) }

// Destroy implements Hypervisor.
func (c *libvirtConn) Destroy(uuid string) error { return c.with(uuid, (*libvirt.Domain).Destroy) }

// Undefine implements Hypervisor. Not every driver and version supports every flag.
func (c *libvirtConn) Undefine(uuid string) error {
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

// VolumePath implements Hypervisor.
func (c *libvirtConn) VolumePath(pool, name string) (string, error) {
	p, err := c.pool(pool)
	if err != nil {
		return "", err
	}
	defer func() { _ = p.Free() }()
	v, err := p.LookupStorageVolByName(name)
	if code(err) == libvirt.ERR_NO_STORAGE_VOL {
		return "", nil
	}
	if err != nil {
		return "", plain(err)
	}
	return pathOf(v)
}

// VolumeBytes implements Hypervisor.
func (c *libvirtConn) VolumeBytes(pool, name string) (uint64, error) {
	p, err := c.pool(pool)
	if err != nil {
		return 0, err
	}
	defer func() { _ = p.Free() }()
	v, err := p.LookupStorageVolByName(name)
	if err != nil {
		return 0, plain(err)
	}
	defer func() { _ = v.Free() }()
	info, err := v.GetInfoFlags(libvirt.STORAGE_VOL_GET_PHYSICAL)
	if err != nil {
		return 0, plain(err)
	}
	return info.Allocation, nil // with this flag Allocation is the length of the file
}

// CreateVolume implements Hypervisor.
func (c *libvirtConn) CreateVolume(pool, xml string) (string, error) {
	p, err := c.pool(pool)
	if err != nil {
		return "", err
	}
	defer func() { _ = p.Free() }()
	v, err := p.StorageVolCreateXML(xml, 0)
	if err != nil {
		return "", plain(err)
	}
	return pathOf(v)
}

func pathOf(v *libvirt.StorageVol) (string, error) {
	defer func() { _ = v.Free() }()
	path, err := v.GetPath()
	return path, plain(err)
}

// UploadVolume implements Hypervisor.
func (c *libvirtConn) UploadVolume(pool, xml string, content io.Reader, n uint64) (string, error) {
	p, err := c.pool(pool)
	if err != nil {
		return "", err
	}
	defer func() { _ = p.Free() }()
	v, err := p.StorageVolCreateXML(xml, 0)
	if err != nil {
		return "", plain(err)
	}
	if err := c.upload(v, content, n); err != nil {
		err = errors.Join(err, plain(v.Delete(0)))
		_ = v.Free()
		return "", err
	}
	// libvirt's data of the volume is of its creation, before the upload.
	if err := p.Refresh(0); err != nil {
		_ = v.Free()
		return "", plain(err)
	}
	return pathOf(v)
}

func (c *libvirtConn) upload(v *libvirt.StorageVol, content io.Reader, n uint64) error {
	stream, err := c.c.NewStream(0)
	if err != nil {
		return plain(err)
	}
	defer func() { _ = stream.Free() }()
	if err := v.Upload(stream, 0, n, 0); err != nil {
		return plain(err)
	}
	var failed error // of content; libvirt replaces it with its own
	buf := make([]byte, 256<<10)
	err = stream.SendAll(func(_ *libvirt.Stream, most int) ([]byte, error) {
		k, err := content.Read(buf[:min(most, len(buf))])
		if k == 0 && err != nil && !errors.Is(err, io.EOF) {
			failed = err
			return nil, err
		}
		return buf[:k], nil
	})
	if err != nil {
		_ = stream.Abort()
		return errors.Join(failed, plain(err))
	}
	return plain(stream.Finish())
}

// DeleteVolume implements Hypervisor.
func (c *libvirtConn) DeleteVolume(pool, name string) error {
	p, err := c.pool(pool)
	if err != nil {
		return err
	}
	defer func() { _ = p.Free() }()
	v, err := p.LookupStorageVolByName(name)
	if code(err) == libvirt.ERR_NO_STORAGE_VOL {
		return nil
	}
	if err != nil {
		return plain(err)
	}
	defer func() { _ = v.Free() }()
	return plain(v.Delete(0))
}

// pool returns the storage pool of that name. If there is none, the error lists the others.
func (c *libvirtConn) pool(name string) (*libvirt.StoragePool, error) {
	p, err := c.c.LookupStoragePoolByName(name)
	if err == nil {
		return p, nil
	}
	if code(err) != libvirt.ERR_NO_STORAGE_POOL {
		return nil, plain(err)
	}
	pools, err := c.c.ListAllStoragePools(0)
	if err != nil {
		return nil, plain(err)
	}
	var names []string
	for i := range pools {
		if n, err := pools[i].GetName(); err == nil {
			names = append(names, n)
		}
		_ = pools[i].Free()
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no storage pool %q, and no other: create one "+
			"(virsh pool-create-as %s dir --target /var/lib/libvirt/images)", name, name)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("no storage pool %q: want one of %s", name, strings.Join(names, ", "))
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
