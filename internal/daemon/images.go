package daemon

import (
	"context"
	"io/fs"

	"github.com/bootlab/bootlab/internal/lab"
)

// images opens the disk images and config documents of virtual machines, for virt.
type images struct{ d *Daemon }

// Image opens the image of a host's profile.
func (i images) Image(_ context.Context, h *lab.Host) (fs.File, error) {
	s := i.d.current.Load()
	name, err := s.Boot.Image(h.Name)
	if err != nil {
		return nil, err
	}
	return s.TFTP.Files().Open(name)
}

// Config returns the config document of a host, which its hypervisor hands over.
func (i images) Config(_ context.Context, h *lab.Host) ([]byte, error) {
	return i.d.current.Load().Boot.ImageConfig(h.Name)
}
