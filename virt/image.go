package virt

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"path"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/content/iso"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Document is a file that a machine's system reads when it starts first.
type Document = iso.File

// Files provides the disk images and config documents of one lab.
type Files interface {
	// Image returns the image of a host's profile: a name that identifies it, and what opens it.
	Image(host string) (name string, open func() (fs.File, error), err error)
	// Documents returns what the system of a host reads when it starts first: its config document, or the files of its cloud-init
	// seed; none if its profile has no config.
	Documents(host string) ([]Document, error)
}

// An Unpacker opens images that may be compressed.
type Unpacker interface {
	// Open opens the image that open opens; of one that is compressed, an unpacked copy. The caller closes it.
	Open(ctx context.Context, name string, open func() (fs.File, error)) (fs.File, error)
}

// ignitionEntry is where Ignition finds its config on QEMU, in fw_cfg.
const ignitionEntry = "opt/com.coreos/config"

// fromImage reports whether the first disk is made from an image.
func (m *machine) fromImage() bool { return m.host.Profile != nil && m.host.Profile.MakesDisk() }

// An image is the content of a base volume.
type image struct {
	name    string // of the base volume
	format  string // qcow2 or raw
	content io.Reader
	bytes   uint64 // of the content
	virtual uint64 // size of the disk
}

// readImage reads the header of an image. The volume's name changes with the file, because existing overlays need the old
// base volume.
func readImage(f fs.File) (*image, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	head := make([]byte, 32)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	head = head[:n]
	size := uint64(info.Size())
	i := &image{format: "raw", bytes: size, virtual: size, content: io.MultiReader(bytes.NewReader(head), f)}
	switch {
	case bytes.HasPrefix(head, []byte("QFI\xfb")) && n == 32:
		i.format, i.virtual = "qcow2", binary.BigEndian.Uint64(head[24:])
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")), bytes.HasPrefix(head, []byte("\x1f\x8b")), bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")):
		return nil, fmt.Errorf("image %s is compressed, and neither with gzip nor with xz: unpack it", info.Name())
	case size == 0:
		return nil, fmt.Errorf("image %s is empty", info.Name())
	}
	sum := fnv.New32a()
	fmt.Fprintf(sum, "%d %d", size, info.ModTime().UnixNano())
	stem := strings.TrimSuffix(path.Base(info.Name()), path.Ext(info.Name()))
	i.name = "bootlab-base-" + stem + "-" + hex.EncodeToString(sum.Sum(nil)) + "." + i.format
	return i, nil
}

// volume returns the base volume of an image. It is created as qcow2 whatever the image's format: a qcow2 volume starts
// small, so its length says whether the upload is complete.
func (i *image) volume() *libvirtxml.StorageVolume {
	return &libvirtxml.StorageVolume{
		Name:     i.name,
		Capacity: &libvirtxml.StorageVolumeSize{Value: i.virtual, Unit: "bytes"},
		Target:   &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: "qcow2"}},
	}
}

// ensure uploads the image to the pool unless it is there completely, and returns the path of the volume. The mark of an image
// is created before the upload, so that an interrupted one is repeated.
func (i *image) ensure(ctx context.Context, hv Hypervisor, pool string) (string, error) {
	id, mark := VolumeID{pool, i.name}, VolumeID{pool, i.name + ".bootlab"}
	v, err := lookVolume(ctx, hv, id)
	if err != nil {
		return "", err
	}
	if v.Path != "" {
		if v.Bytes == i.bytes {
			return v.Path, nil
		}
		// An earlier upload was interrupted, unless the volume is not ours.
		if _, err := marked(ctx, hv, id, mark, "by bootlab"); err != nil {
			return "", err
		}
		if err := hv.DeleteVolume(ctx, pool, i.name); err != nil {
			return "", err
		}
	}
	if err := createMark(ctx, hv, mark); err != nil {
		return "", err
	}
	return upload(ctx, hv, pool, i.volume(), i.content, i.bytes)
}

func upload(ctx context.Context, hv Hypervisor, pool string, v *libvirtxml.StorageVolume, content io.Reader, n uint64) (string, error) {
	xml, err := v.Marshal()
	if err != nil {
		return "", err
	}
	file, err := hv.UploadVolume(ctx, pool, xml, &ctxReader{ctx, content}, n)
	if err != nil {
		return "", fmt.Errorf("upload volume %s: %w", v.Name, err)
	}
	return file, nil
}

// A ctxReader fails once its context has ended; libvirt's transfer takes no context.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader. It does not interrupt a Read in progress.
func (u *ctxReader) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// ignitionVolume returns the name of the volume that holds the host's Ignition config.
func (m *machine) ignitionVolume() string { return m.host.Name + ".ign" }

// seedVolume returns the name of the volume that holds the host's cloud-init seed.
func (m *machine) seedVolume() string { return m.host.Name + "-seed.iso" }

// seedLabel is the label by which cloud-init's NoCloud source finds its seed.
const seedLabel = "cidata"

// hasSeed reports whether the machine has a CD drive with a cloud-init seed.
func (m *machine) hasSeed() bool {
	return m.fromImage() && m.host.Profile.OS == lab.OSCloudInit && m.host.Profile.Config != ""
}

// isConfig reports whether a volume holds documents of the machine, which bootlab renders again where they are needed.
func (m *machine) isConfig(name string) bool {
	return name == m.ignitionVolume() || name == m.seedVolume()
}

// openImage opens the image of a machine, unpacked. The caller closes it.
func (s *Server) openImage(ctx context.Context, m *machine) (fs.File, error) {
	name, open, err := m.table.Files.Image(m.host.Name)
	switch {
	case err != nil:
		return nil, err
	case s.deps.Unpacker == nil:
		return open()
	}
	return s.deps.Unpacker.Open(ctx, name, open)
}

// prepare uploads the image and the config document of a machine to its pool. It returns the base volume, adds the document
// to the domain, and returns the names of the volumes that are this machine's alone.
func (s *Server) prepare(ctx context.Context, hv Hypervisor, m *machine, d *libvirtxml.Domain) (base *libvirtxml.StorageVolumeBackingStore, created []VolumeID, err error) {
	if m.table.Files == nil {
		return nil, nil, fmt.Errorf("profile %s makes machines from an image, but there is no source of images (virt.Table.Files)", m.host.Profile.Name)
	}
	documents, err := m.table.Files.Documents(m.host.Name)
	if err != nil {
		return nil, nil, fmt.Errorf("config document: %w", err)
	}
	f, err := s.openImage(ctx, m)
	if err != nil {
		return nil, nil, fmt.Errorf("image: %w", err)
	}
	defer func() { _ = f.Close() }()
	i, err := readImage(f)
	if err != nil {
		return nil, nil, err
	}
	if len(m.vm.Disks) > 0 && m.vm.Disks[0].Size != 0 && uint64(m.vm.Disks[0].Size) < i.virtual {
		return nil, nil, fmt.Errorf("the first disk has %d bytes and the image needs %d: make it larger", m.vm.Disks[0].Size, i.virtual)
	}
	file, err := s.upload(ctx, hv, m, i)
	if err != nil {
		return nil, nil, err
	}
	base = &libvirtxml.StorageVolumeBackingStore{Path: file, Format: &libvirtxml.StorageVolumeTargetFormat{Type: i.format}}
	if len(documents) == 0 {
		return base, nil, nil
	}
	id, content := m.inPool(m.ignitionVolume()), documents[0].Body
	if m.hasSeed() {
		id = m.inPool(m.seedVolume())
		if content, err = iso.Image(seedLabel, documents); err != nil {
			return nil, nil, fmt.Errorf("cloud-init seed: %w", err)
		}
	}
	if file, err = uploadConfig(ctx, hv, m, id, content); err != nil {
		return nil, nil, err
	}
	if m.hasSeed() {
		d.Devices.Disks[len(m.disksOf())].Source = &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: file}}
	} else {
		d.SysInfo = append(d.SysInfo, libvirtxml.DomainSysInfo{FWCfg: &libvirtxml.DomainSysInfoFWCfg{
			Entry: []libvirtxml.DomainSysInfoEntry{{Name: ignitionEntry, File: file}},
		}})
	}
	return base, []VolumeID{id}, nil
}

// upload uploads the image to the pool of the first disk unless it is there. Where another machine needs the same image there, one
// uploads and the other waits.
func (s *Server) upload(ctx context.Context, hv Hypervisor, m *machine, i *image) (string, error) {
	pool := m.volumeID(0).Pool
	key := m.vm.Hypervisor.URI + "\x00" + pool + "\x00" + i.name
	ended := make(chan struct{})
	for {
		s.mu.Lock()
		other := s.uploading[key]
		if other == nil {
			s.uploading[key] = ended
		}
		s.mu.Unlock()
		if other == nil {
			break
		}
		select {
		case <-other:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	defer func() {
		s.mu.Lock()
		delete(s.uploading, key)
		s.mu.Unlock()
		close(ended)
	}()
	return i.ensure(ctx, hv, pool)
}

// uploadConfig uploads documents of the machine, readable only by root and the emulator.
func uploadConfig(ctx context.Context, hv Hypervisor, m *machine, id VolumeID, config []byte) (string, error) {
	if _, err := m.findVolume(ctx, hv, id); err != nil {
		return "", err
	}
	if err := hv.DeleteVolume(ctx, id.Pool, id.Name); err != nil {
		return "", err
	}
	n := uint64(len(config))
	var file string
	err := m.marking(ctx, hv, id, func() (err error) {
		file, err = upload(ctx, hv, id.Pool, &libvirtxml.StorageVolume{
			Name:     id.Name,
			Capacity: &libvirtxml.StorageVolumeSize{Value: n, Unit: "bytes"},
			Target: &libvirtxml.StorageVolumeTarget{
				Format:      &libvirtxml.StorageVolumeTargetFormat{Type: "raw"},
				Permissions: &libvirtxml.StorageVolumeTargetPermissions{Mode: "0600"},
			},
		}, bytes.NewReader(config), n)
		return err
	})
	return file, err
}
