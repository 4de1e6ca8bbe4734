package daemon

import (
	"cmp"
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

// Leases implements httpd.Inventory. It goes through the whole book, and needs memory for the page only.
func (c *adminBackend) Leases(_ context.Context, q api.LeaseQuery) api.LeasePage {
	l, now := c.current.Load().Lab, c.clock.Wall(c.clock.Now())
	page := firstLeases{limit: q.Limit}
	var p api.LeasePage
	var a api.Lease // one for all: its address is passed on
	c.book.Walk(func(lease *leases.Lease) {
		c.onWall(lease)
		a = leaseOf(l, lease, now)
		if a.Holds() {
			p.Holding++
		}
		if q.After.IsValid() && a.IP.Compare(q.After) <= 0 || q.Keep != nil && !q.Keep(&a) {
			return
		}
		p.Matching++
		page.add(a)
	})
	p.Leases, p.Next = page.cut()
	return p
}

// perAddress is how many leases one address can have: what a machine has or had, a conflict, and an offer.
const perAddress = 3

// firstLeases keeps the leases with the lowest addresses of those that are added.
type firstLeases struct {
	limit int
	all   []api.Lease
	full  bool // as many were kept once: what comes behind the last of them is left out
	last  netip.Addr
}

// add keeps a lease, unless there are enough before it.
func (f *firstLeases) add(l api.Lease) {
	if f.limit <= 0 || f.full && l.IP.Compare(f.last) > 0 {
		return
	}
	f.all = append(f.all, l)
	if len(f.all) >= 2*(f.limit+perAddress) {
		f.sort()
		f.all = f.all[:min(len(f.all), f.limit+perAddress)]
		f.full, f.last = true, f.all[len(f.all)-1].IP
	}
}

func (f *firstLeases) sort() {
	order := func(x, y api.Lease) int {
		return cmp.Or(x.IP.Compare(y.IP), cmp.Compare(rank(x), rank(y)), x.MAC.Compare(y.MAC))
	}
	slices.SortFunc(f.all, order)
	f.all = slices.CompactFunc(f.all, func(x, y api.Lease) bool { return order(x, y) == 0 }) // one that moved meanwhile
}

// rank is the order of leases of one address.
func rank(l api.Lease) int {
	return slices.Index([]api.LeaseState{api.LeaseConflict, api.LeaseOffered}, l.State)
}

// cut returns the page, which ends with all leases of an address, and that address if leases follow.
func (f *firstLeases) cut() (page []api.Lease, next netip.Addr) {
	f.sort()
	end := min(f.limit, len(f.all))
	for end > 0 && end < len(f.all) && f.all[end].IP == f.all[end-1].IP {
		end++
	}
	if end > 0 && end < len(f.all) {
		next = f.all[end-1].IP
	}
	return f.all[:end], next
}

// leaseOf adds what the lab knows. An address that is reserved for the host is a reservation; any other belongs to the pool
// whose range holds it.
func leaseOf(l *lab.Lab, lease *leases.Lease, now time.Time) api.Lease {
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
func leaseState(lease *leases.Lease, now time.Time) api.LeaseState {
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
