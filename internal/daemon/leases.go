package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/bootlab/bootlab/dhcpd"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/leaseadmin"
)

// Leases implements httpd.Backend.
func (c *adminBackend) Leases(_ context.Context, q api.LeaseQuery) api.LeasePage {
	return leaseadmin.Page(c.current.Load().Lab, c.book, c.clock, q)
}

// Release implements httpd.Backend.
func (c *adminBackend) Release(ctx context.Context, addr netip.Addr) error {
	err := c.storing(ctx, func(ctx context.Context) error {
		_, err := c.servers.dhcp.Release(ctx, addr)
		return err
	})
	if errors.Is(err, dhcpd.ErrNoLease) {
		return &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("no lease of %s", addr), Hint: "bootlab leases lists all leases"}
	}
	return err
}

// Import implements httpd.Backend.
func (c *adminBackend) Import(ctx context.Context, all []api.Lease, o api.Overwrite, r api.Rehearse) (api.LeaseImport, error) {
	if r == api.CheckImport {
		return leaseadmin.Import(ctx, c.servers.dhcp, all, o, r)
	}
	return storingResult(ctx, c.Daemon, func(ctx context.Context) (api.LeaseImport, error) {
		done, err := leaseadmin.Import(ctx, c.servers.dhcp, all, o, r)
		if err == nil {
			c.log.Info("leases imported", "imported", done.Imported, "replaced", done.Replaced, "skipped", len(done.Skipped))
		}
		return done, err
	})
}

// Pools implements httpd.Backend.
func (c *adminBackend) Pools(context.Context) []api.Pool { return c.pools(c.current.Load().DHCP) }
