package leaseadmin

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/api/leasefile"
	"github.com/bootlab/bootlab/internal/lab"
)

// Page returns a page of the leases of a book whose times are those of clock. It goes through the whole book, and needs memory for the page
// only.
func Page(l *lab.Lab, book *leases.Book, clock *leases.Clock, q api.LeaseQuery) api.LeasePage {
	now, notPooled := clock.Wall(clock.Now()), l.NotPooled()
	page := firstLeases{limit: q.Limit}
	var p api.LeasePage
	var a api.Lease // one for all: its address is passed on
	book.Walk(func(lease *leases.Lease) {
		clock.OnWall(lease)
		a = Lease(l, notPooled, lease, now)
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
		if have, ok := book.ByAddr(p.Leases[i].IP); ok && have.MAC == p.Leases[i].MAC {
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

// Lease returns a lease with what the lab knows, its state at now. Its address is of the pool whose range holds it, unless it is one of notPooled,
// which those of lab.Lab.NotPooled are: as for the numbers of the pool.
func Lease(l *lab.Lab, notPooled map[netip.Addr]struct{}, lease *leases.Lease, now time.Time) api.Lease {
	a := api.Lease{IP: lease.Addr, MAC: lease.MAC, Name: lease.Hostname, State: leaseState(lease, now), Since: lease.Start, Expires: lease.Expiry, VendorClass: lease.Vendor, RelayPort: lease.RelayPort}
	a.Never = a.State == api.LeaseActive && a.Expires.IsZero()
	h := l.HostByMAC(lease.MAC)
	if h != nil {
		a.Host, a.Reserved = h.Name, h.Has(lease.Addr)
	}
	a.NameConflict = lease.Unnamed && h == nil && a.State == api.LeaseActive
	if n := l.NetworkOf(lease.Addr); n != nil {
		a.Network = n.Name
		if p := n.PoolHolding(lease.Addr); p != nil {
			if _, not := notPooled[lease.Addr]; !not {
				a.Pool = p.Name
			}
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
