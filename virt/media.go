package virt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/observe/event"
)

// mediaVolume returns the name of the volume that holds the host's virtual medium.
func (m *machine) mediaVolume() string { return m.host.Name + "-cd.iso" }

// InsertMedia puts an ISO image of n bytes into the CD drive that a machine has from its next start on, in place of the one that
// is there. A machine that runs sees no change. The image is a volume of the machine until EjectMedia or Delete.
func (s *Server) InsertMedia(ctx context.Context, host, url string, content io.Reader, n uint64) error {
	return s.run(ctx, host, operation{
		name: "insert media", kind: event.VMMediaInserted,
		timeout: func(*machine) time.Duration { return s.cfg.UploadWait },
		do: func(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
			if _, err := find(ctx, hv, m); err != nil {
				return false, err
			}
			if err := s.removeMedia(ctx, hv, m); err != nil {
				return false, err
			}
			name := m.mediaVolume()
			err := m.marking(ctx, hv, m.inPool(name), func() error {
				_, err := upload(ctx, hv, m.pool(), &libvirtxml.StorageVolume{
					Name:     name,
					Capacity: &libvirtxml.StorageVolumeSize{Value: n, Unit: "bytes"},
					Target:   &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: "raw"}},
				}, content, n)
				return err
			})
			if err != nil {
				return false, err
			}
			return true, s.changeNextBoot(ctx, host, func(next *NextBoot) { next.Media = Media{URL: url, Volume: name, Bytes: n, At: s.deps.Now()} })
		},
	})
}

// EjectMedia removes the virtual medium of a machine, and its volume. A machine that runs keeps it until it is off. Without a
// medium EjectMedia does nothing.
func (s *Server) EjectMedia(ctx context.Context, host string) error {
	return s.run(ctx, host, operation{
		name: "eject media", kind: event.VMMediaEjected,
		do: func(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
			if s.nextBoots.of(host).Media == (Media{}) {
				return false, nil
			}
			return true, s.removeMedia(ctx, hv, m)
		},
	})
}

// removeMedia deletes the volume of the virtual medium, and what refers to it first.
func (s *Server) removeMedia(ctx context.Context, hv Hypervisor, m *machine) error {
	if err := s.changeNextBoot(ctx, m.host.Name, func(next *NextBoot) { next.Media = Media{} }); err != nil {
		return err
	}
	id := m.inPool(m.mediaVolume())
	if _, err := m.findVolume(ctx, hv, id); err != nil {
		return err
	}
	return m.deleteVolumes(ctx, hv, []VolumeID{id})
}

// forgetNextBoot removes what changed the next start of a machine that is deleted, with its virtual medium.
func (s *Server) forgetNextBoot(ctx context.Context, hv Hypervisor, m *machine) error {
	var err error
	if s.nextBoots.of(m.host.Name).Media.Volume != "" {
		err = s.removeMedia(ctx, hv, m)
	}
	if err != nil {
		err = fmt.Errorf("delete the virtual medium: %w", err)
	}
	return errors.Join(err, s.changeNextBoot(ctx, m.host.Name, func(next *NextBoot) { *next = NextBoot{} }))
}
