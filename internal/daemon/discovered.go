package daemon

import (
	"context"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/adoption"
	"github.com/bootlab/bootlab/internal/lab"
)

// unknown returns where machines that are not in the lab are known from.
func (d *Daemon) unknown() adoption.Machines {
	return adoption.Machines{
		Lab:  func() *lab.Lab { return d.current.Load().Lab },
		Book: d.book, Clock: d.clock, Timeline: d.timeline, Reports: d.discovered,
	}
}

// Discovered implements httpd.Backend.
func (c *adminBackend) Discovered(context.Context) []api.DiscoveredMachine {
	return c.unknown().Unknown()
}

// Adoption implements httpd.Backend.
func (c *adminBackend) Adoption(_ context.Context, mac lab.MAC) (api.Adoption, error) {
	return c.unknown().Adoption(mac)
}
