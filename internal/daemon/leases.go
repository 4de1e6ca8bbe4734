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
func (b *adminBackend) Leases(_ context.Context, q api.LeaseQuery) api.LeasePage {
	return leaseadmin.Page(b.current.Load().Lab, b.book, b.clock, q)
}

// Release implements httpd.Backend.
func (b *adminBackend) Release(ctx context.Context, addr netip.Addr) error {
	err := b.storing(ctx, func(ctx context.Context) error {
		_, err := b.servers.dhcp.Release(ctx, addr)
		return err
	})
	if errors.Is(err, dhcpd.ErrNoLease) {
		return &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("no lease of %s", addr), Hint: "bootlab leases lists all leases"}
	}
	return err
}

// Import implements httpd.Backend.
func (b *adminBackend) Import(ctx context.Context, all []api.Lease, o api.Overwrite, r api.Rehearse) (api.LeaseImport, error) {
	if r == api.CheckImport {
		return leaseadmin.Import(ctx, b.servers.dhcp, all, o, r)
	}
	return storingResult(ctx, b.Daemon, func(ctx context.Context) (api.LeaseImport, error) {
		done, err := leaseadmin.Import(ctx, b.servers.dhcp, all, o, r)
		if err == nil {
			b.log.Info("leases imported", "imported", done.Imported, "replaced", done.Replaced, "skipped", len(done.Skipped))
		}
		return done, err
	})
}

// Pools implements httpd.Backend.
func (b *adminBackend) Pools(context.Context) []api.Pool { return b.pools(b.current.Load().DHCP) }
