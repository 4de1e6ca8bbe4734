//go:build cgo && libvirt_dlopen

package virt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
)

// volumes is Hypervisor.Volumes.
func (c *libvirtConn) volumes(ids []VolumeID) ([]Volume, error) {
	pools := map[string]*libvirt.StoragePool{}
	defer func() {
		for _, p := range pools {
			_ = p.Free()
		}
	}()
	volumes := make([]Volume, len(ids))
	for i, id := range ids {
		volumes[i].VolumeID = id
		p := pools[id.Pool]
		if p == nil {
			var err error
			if p, err = c.pool(id.Pool); err != nil {
				if !c.alive() {
					return nil, err
				}
				volumes[i].Err = err.Error()
				continue
			}
			pools[id.Pool] = p
		}
		v, err := p.LookupStorageVolByName(id.Name)
		if code(err) == libvirt.ERR_NO_STORAGE_VOL {
			continue
		}
		if err != nil {
			return nil, plain(err)
		}
		if err := describeVolume(v, &volumes[i]); err != nil {
			return nil, plain(err)
		}
	}
	return volumes, nil
}

// volumeAt is Hypervisor.VolumeAt.
func (c *libvirtConn) volumeAt(path string) (Volume, error) {
	v, err := c.c.LookupStorageVolByPath(path)
	if code(err) == libvirt.ERR_NO_STORAGE_VOL {
		return Volume{}, nil
	}
	if err != nil {
		return Volume{}, plain(err)
	}
	var volume Volume
	p, err := v.LookupPoolByVolume()
	if err == nil {
		volume.Pool, err = p.GetName()
		_ = p.Free()
	}
	if err != nil {
		_ = v.Free()
		return Volume{}, plain(err)
	}
	return volume, plain(describeVolume(v, &volume))
}

// describeVolume fills in what libvirt knows of a volume, which it frees.
func describeVolume(v *libvirt.StorageVol, into *Volume) error {
	defer func() { _ = v.Free() }()
	text, err := v.GetXMLDesc(0)
	if err != nil {
		return err
	}
	var x libvirtxml.StorageVolume
	if err := x.Unmarshal(text); err != nil {
		return fmt.Errorf("read volume: %w", err)
	}
	into.Name, into.Block = x.Name, x.Type == "block"
	into.Capacity, into.Bytes = volumeSize(x.Capacity), volumeSize(x.Physical)
	if x.Target != nil {
		into.Path = x.Target.Path
		if x.Target.Format != nil {
			into.Format = x.Target.Format.Type
		}
	}
	if into.Block && into.Format != lab.DiskQCOW2 { // that of a partition is its type, and a logical volume has none
		into.Format = lab.DiskRaw
	}
	return nil
}

// volumeSize returns a size in bytes, which is the unit that libvirt writes.
func volumeSize(s *libvirtxml.StorageVolumeSize) uint64 {
	if s == nil {
		return 0
	}
	return s.Value
}

// grow is Hypervisor.Grow.
func (c *libvirtConn) grow(uuid, device string, id VolumeID, bytes uint64) error {
	d, err := c.c.LookupDomainByUUIDString(uuid)
	if err != nil && code(err) != libvirt.ERR_NO_DOMAIN { // without a domain, its disks were kept
		return plain(err)
	}
	if err == nil {
		defer func() { _ = d.Free() }()
		if active, err := d.IsActive(); err != nil {
			return plain(err)
		} else if active {
			return plain(d.BlockResize(device, bytes, libvirt.DOMAIN_BLOCK_RESIZE_BYTES))
		}
	}
	p, err := c.pool(id.Pool)
	if err != nil {
		return err
	}
	defer func() { _ = p.Free() }()
	v, err := p.LookupStorageVolByName(id.Name)
	if err != nil {
		return plain(err)
	}
	defer func() { _ = v.Free() }()
	return plain(v.Resize(bytes, 0))
}

// createVolume is Hypervisor.CreateVolume.
func (c *libvirtConn) createVolume(pool, xml string) (string, error) {
	return c.newVolume(pool, xml, func(*libvirt.StoragePool, *libvirt.StorageVol) error { return nil })
}

// uploadVolume is Hypervisor.UploadVolume. Without small the content comes from the pipe.
func (c *libvirtConn) uploadVolume(pool, xml string, small []byte, n uint64) (string, error) {
	var content io.Reader = bytes.NewReader(small)
	if small == nil {
		content = os.NewFile(fdContent, "content")
	}
	return c.newVolume(pool, xml, func(p *libvirt.StoragePool, v *libvirt.StorageVol) error {
		if err := c.upload(v, content, n); err != nil {
			return errors.Join(err, plain(v.Delete(0)))
		}
		return plain(p.Refresh(0)) // libvirt's data of the volume is of its creation, before the upload
	})
}

// newVolume creates a volume, calls fill with it and its pool, and returns its path.
func (c *libvirtConn) newVolume(pool, xml string, fill func(*libvirt.StoragePool, *libvirt.StorageVol) error) (string, error) {
	p, err := c.pool(pool)
	if err != nil {
		return "", err
	}
	defer func() { _ = p.Free() }()
	v, err := p.StorageVolCreateXML(xml, 0)
	if err != nil {
		return "", plain(err)
	}
	defer func() { _ = v.Free() }()
	if err := fill(p, v); err != nil {
		return "", err
	}
	path, err := v.GetPath()
	return path, plain(err)
}

func (c *libvirtConn) upload(v *libvirt.StorageVol, content io.Reader, n uint64) error {
	stream, err := c.c.NewStream(0)
	if err != nil {
		return plain(err)
	}
	defer func() { _ = stream.Free() }()
	if err := v.Upload(stream, 0, n, libvirt.STORAGE_VOL_UPLOAD_SPARSE_STREAM); err != nil {
		return plain(err)
	}
	if err := send(stream, content, n); err != nil {
		_ = stream.Abort()
		return plain(err)
	}
	return plain(stream.Finish())
}

// Uploads are sent in blocks. One of zeros becomes a hole in the volume's file, but not among the first bytes, where libvirt has
// written the head of an empty volume.
const (
	uploadBlock = 256 << 10
	uploadWhole = 4 << 20
)

// send sends n bytes of content through a stream.
func send(stream *libvirt.Stream, content io.Reader, n uint64) error {
	buf := make([]byte, uploadBlock)
	var zeros [uploadBlock]byte
	for sent := uint64(0); sent < n; {
		k, err := io.ReadFull(content, buf[:min(n-sent, uploadBlock)])
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("the content ended after %d of %d bytes", sent+uint64(k), n)
		case err != nil:
			return err
		}
		if sent >= uploadWhole && bytes.Equal(buf[:k], zeros[:k]) {
			err = stream.SendHole(int64(k), 0)
		} else {
			err = sendAll(stream, buf[:k])
		}
		if err != nil {
			return err
		}
		sent += uint64(k)
	}
	return nil
}

func sendAll(stream *libvirt.Stream, b []byte) error {
	for len(b) > 0 {
		k, err := stream.Send(b)
		if err != nil {
			return err
		}
		b = b[k:]
	}
	return nil
}

// deleteVolume is Hypervisor.DeleteVolume.
func (c *libvirtConn) deleteVolume(pool, name string) error {
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
