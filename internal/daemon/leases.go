package daemon

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/dhcpd"
	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/api/leasefile"
	"github.com/bootlab/bootlab/internal/lab"
)

// Leases implements httpd.Backend. It goes through the whole book, and needs memory for the page only.
func (c *adminBackend) Leases(_ context.Context, q api.LeaseQuery) api.LeasePage {
	l, now := c.current.Load().Lab, c.clock.Wall(c.clock.Now())
	page := firstLeases{limit: q.Limit}
	var p api.LeasePage
	var a api.Lease // one for all: its address is passed on
	c.book.Walk(func(lease *leases.Lease) {
		c.clock.OnWall(lease)
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
	for i := range p.Leases {
		if have, ok := c.book.ByAddr(p.Leases[i].IP); ok && have.MAC == p.Leases[i].MAC {
			p.Leases[i].ClientID = leasefile.ClientID(have.ClientID)
		}
	}
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
	a.Never = a.State == api.LeaseActive && a.Expires.IsZero()
	h := l.HostByMAC(lease.MAC)
	if h != nil {
		a.Host = h.Name
	}
	a.NameTaken = lease.Unnamed && h == nil && a.State == api.LeaseActive
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
	if lease.State != leases.Released && !lease.Expiry.IsZero() && !now.Before(lease.Expiry) {
		return api.LeaseExpired
	}
	return api.LeaseState(lease.State.String())
}

// Release implements httpd.Backend.
func (c *adminBackend) Release(ctx context.Context, addr netip.Addr) error {
	_, err := c.servers.dhcp.Release(ctx, addr)
	if errors.Is(err, dhcpd.ErrNoLease) {
		return &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("no lease of %s", addr), Hint: "bootlab leases lists all leases"}
	}
	return err
}

// refusals are the reasons of dhcpd in the words of the API.
var refusals = map[dhcpd.Refusal]api.SkipKind{
	dhcpd.RefusedExpired: api.SkipExpired, dhcpd.RefusedOutside: api.SkipOutside, dhcpd.RefusedNoPool: api.SkipNoPool, dhcpd.RefusedReserved: api.SkipReserved,
	dhcpd.RefusedDouble: api.SkipDouble, dhcpd.RefusedLeased: api.SkipLeased, dhcpd.RefusedFailed: api.SkipFailed,
}

// Import implements httpd.Backend.
func (c *adminBackend) Import(ctx context.Context, all []api.Lease, o api.Overwrite, r api.Rehearse) (api.LeaseImport, error) {
	done := api.LeaseImport{Skipped: []api.SkippedLease{}, Checked: r == api.CheckImport}
	var imports []*dhcpd.Import
	for _, l := range all {
		skipped := api.SkippedLease{IP: l.IP, MAC: l.MAC, Name: l.Name}
		id, err := hex.DecodeString(strings.ReplaceAll(l.ClientID, ":", ""))
		switch {
		case !l.IP.Unmap().Is4() || l.MAC.IsZero() || l.MAC[0]&1 != 0:
			skipped.Kind, skipped.Reason = api.SkipNoEthernet, "not an IPv4 address and the MAC of a machine"
		case l.Status() != api.LeaseActive && l.Status() != api.LeaseExpired:
			skipped.Kind, skipped.Reason = api.SkipNotActive, "its state is "+string(l.Status())
		case l.Status() == api.LeaseExpired:
			skipped.Kind, skipped.Reason = api.SkipExpired, "its state is expired"
		case err != nil:
			return done, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("client id %.60q of %s is not hexadecimal", l.ClientID, l.IP)}
		case l.Never != l.Expires.IsZero():
			return done, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("the lease of %s has no expires and no \"never\": true, or both", l.IP), Hint: "want one of them"}
		default:
			imports = append(imports, &dhcpd.Import{Lease: leases.Lease{Addr: l.IP, MAC: l.MAC, Start: l.Since, Expiry: l.Expires, Hostname: l.Name, ClientID: id, Vendor: l.VendorClass, RelayPort: l.RelayPort}})
			continue
		}
		done.Skipped = append(done.Skipped, skipped)
	}
	c.servers.dhcp.Import(ctx, imports, dhcpd.ImportMode{Replace: o == api.ReplaceLeases, Check: r == api.CheckImport})
	for _, l := range imports {
		switch {
		case l.Refused != "":
			done.Skipped = append(done.Skipped, api.SkippedLease{IP: l.Addr, MAC: l.MAC, Name: l.Hostname, Kind: refusals[l.Refused], Reason: l.Why})
			continue
		case l.Ended:
			done.Replaced++
		}
		done.Imported++
	}
	debug.FreeOSMemory() // garbage of the import
	slices.SortStableFunc(done.Skipped, func(x, y api.SkippedLease) int { return x.IP.Compare(y.IP) })
	if !done.Checked {
		c.log.Info("leases imported", "imported", done.Imported, "replaced", done.Replaced, "skipped", len(done.Skipped))
	}
	return done, nil
}

// Pools implements httpd.Backend.
func (c *adminBackend) Pools(context.Context) []api.Pool { return c.pools() }
