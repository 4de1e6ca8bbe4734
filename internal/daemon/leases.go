package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/bootlab/bootlab/dhcpd"
	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

// Leases implements httpd.Inventory.
func (c *adminBackend) Leases(context.Context) []api.Lease {
	l, now := c.current.Load().Lab, time.Now()
	var out []api.Lease
	for _, lease := range c.book.All() {
		out = append(out, leaseOf(l, lease, now))
	}
	for _, offer := range c.book.Offers() {
		if have, ok := c.book.ByAddr(offer.Addr); !ok || have.MAC != offer.MAC { // not a client that renews
			out = append(out, leaseOf(l, offer, now))
		}
	}
	slices.SortStableFunc(out, func(x, y api.Lease) int { return x.IP.Compare(y.IP) })
	return out
}

// leaseOf adds what the lab knows. An address that is reserved for the host is a reservation; any other belongs to the pool
// whose range holds it.
func leaseOf(l *lab.Lab, lease leases.Lease, now time.Time) api.Lease {
	a := api.Lease{IP: lease.Addr, MAC: lease.MAC, Name: lease.Hostname, State: leaseState(lease, now), Since: lease.Start, Expires: lease.Expiry, VendorClass: lease.Vendor, RelayPort: lease.RelayPort}
	h := l.HostByMAC(lease.MAC)
	if h != nil {
		a.Host = h.Name
	}
	if n := l.NetworkOf(lease.Addr); n != nil {
		a.Network = n.Name
		if p := n.PoolHolding(lease.Addr); p != nil && (h == nil || h.IP != lease.Addr) {
			a.Pool = p.Name
		}
	}
	return a
}

// leaseState is the state at now. A lease and a quarantine are expired when their time is over.
func leaseState(lease leases.Lease, now time.Time) api.LeaseState {
	if lease.State != leases.Released && !now.Before(lease.Expiry) {
		return api.LeaseExpired
	}
	return api.LeaseState(lease.State.String())
}

// Release implements httpd.Leaser.
func (c *adminBackend) Release(ctx context.Context, addr netip.Addr) error {
	_, err := c.servers.dhcp.Release(ctx, addr)
	if errors.Is(err, dhcpd.ErrNoLease) {
		return &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("no lease of %s", addr), Hint: "bootlab leases lists all leases"}
	}
	return err
}

// Pools implements httpd.Leaser.
func (c *adminBackend) Pools(context.Context) []api.Pool {
	var out []api.Pool
	for _, p := range c.servers.dhcp.Pools() {
		out = append(out, api.Pool{Network: p.Network, Name: p.Name, Range: p.Range, Size: p.Usable, Free: p.Free})
	}
	return out
}
