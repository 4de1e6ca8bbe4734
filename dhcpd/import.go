package dhcpd

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/lab"
)

// An Import is a lease of another server, and what became of it.
type Import struct {
	// Lease is Active, by this server's clock until Expiry; a zero Expiry is never: the machine does not renew.
	leases.Lease
	Skipped SkipReason // empty: imported
	Why     string     // it is skipped
	Ended   bool       // the import ended another lease, of this address or this machine
}

// A SkipReason is why a lease is not imported.
type SkipReason string

// The reasons to skip a lease.
const (
	SkipExpired  SkipReason = "expired"
	SkipOutside  SkipReason = "outside"  // of all networks in which this server gives addresses
	SkipNoPool   SkipReason = "no pool"  // of the machine has the address, and no reservation
	SkipReserved SkipReason = "reserved" // the address for another, or another address for the machine
	SkipDouble   SkipReason = "double"   // another lease of the import has the address or the machine, and ends later
	SkipLeased   SkipReason = "leased"   // already, to this machine or another
	SkipFailed   SkipReason = "failed"   // the store did not take it
)

// ImportMode says what an import may do.
type ImportMode struct {
	Replace bool // end leases that are in the way
	Check   bool // decide only
}

// Import takes over leases of another server, durably, and sets the outcome of each. A lease is skipped that this server would
// not renew: the table of pools and reservations decides, as for a DHCPREQUEST.
func (s *Server) Import(ctx context.Context, all []*Import, mode ImportMode) {
	im := importer{t: s.deps.Table(), book: s.deps.Book, now: s.deps.Now(), mode: mode}
	im.index()
	byEnd := slices.Clone(all)
	for _, l := range byEnd {
		im.normalize(l)
	}
	slices.SortStableFunc(byEnd, func(x, y *Import) int { return y.Expiry.Compare(x.Expiry) })
	var changes []*leases.Change
	var changed []*Import
	for _, l := range byEnd {
		c := im.decide(l)
		if l.Skipped == "" && !mode.Check {
			changes, changed = append(changes, c), append(changed, l)
		}
	}
	for len(changes) > 0 {
		n := min(commitBatch, len(changes))
		s.deps.Book.Commit(ctx, changes[:n])
		for i, c := range changes[:n] {
			if c.Err != nil {
				changed[i].Skipped, changed[i].Why = SkipFailed, c.Err.Error()
				continue
			}
			s.prober.Forget(c.Addr)
			if c.Removed.IsValid() {
				s.prober.Forget(c.Removed)
			}
		}
		changes, changed = changes[n:], changed[n:]
	}
}

// An importer decides about the leases of one import, with one table.
type importer struct {
	t    *Table
	book *leases.Book
	now  time.Time
	mode ImportMode

	holding  map[netip.Addr]leases.Lease // quarantined addresses
	taken    map[netip.Addr]lab.MAC      // by this import
	machines map[machineIn]netip.Addr    // likewise
}

// A machineIn is a machine in a network.
type machineIn struct {
	mac lab.MAC
	s   *scope
}

func (im *importer) index() {
	im.holding = map[netip.Addr]leases.Lease{}
	im.taken, im.machines = map[netip.Addr]lab.MAC{}, map[machineIn]netip.Addr{}
	for _, l := range im.book.All() {
		if (l.State == leases.Declined || l.State == leases.Conflict) && im.now.Before(l.Expiry) {
			im.holding[l.Addr] = l
		}
	}
}

// normalize gives a lease the form that this server's own have.
func (im *importer) normalize(l *Import) {
	l.Addr, l.State = l.Addr.Unmap(), leases.Active
	l.Hostname = wire.HostLabel(l.Hostname)
	if l.Expiry.IsZero() || l.Expiry.After(leases.Forever) {
		l.Expiry = leases.Forever
	}
	if l.Start.IsZero() || l.Start.After(im.now) {
		l.Start = im.now
	}
}

// decide returns the change that imports a lease, or sets why it is skipped.
func (im *importer) decide(l *Import) *leases.Change {
	skip := func(r SkipReason, format string, args ...any) *leases.Change {
		l.Skipped, l.Why = r, fmt.Sprintf(format, args...)
		return nil
	}
	sc := scopeOf(im.t.scopes, l.Addr)
	switch {
	case !im.now.Before(l.Expiry):
		return skip(SkipExpired, "it ended %s", l.Expiry.UTC().Format(time.RFC3339))
	case sc == nil:
		return skip(SkipOutside, "the address is in no network of the lab")
	case !sc.serves():
		return skip(SkipOutside, "bootlab gives no addresses in network %s", sc.network.Name)
	}
	if r, why := im.against(l, sc); r != "" {
		return skip(r, "%s", why)
	}
	if other, ok := im.taken[l.Addr]; ok {
		return skip(SkipDouble, "the file has a lease of this address for %s that ends later", other)
	}
	if other, ok := im.machines[machineIn{l.MAC, sc}]; ok {
		return skip(SkipDouble, "the file has a lease of %s for this machine that ends later", other)
	}
	if why := im.inTheWay(l, sc); why != "" {
		if l.Ended = true; !im.mode.Replace {
			l.Ended = false
			return skip(SkipLeased, "%s", why)
		}
	}
	im.taken[l.Addr], im.machines[machineIn{l.MAC, sc}] = l.MAC, l.Addr
	own := im.t.hosts[l.MAC]
	l.Unnamed = own != nil
	return &leases.Change{Lease: l.Lease, Subnet: sc.network.Subnet, Exists: true,
		Reserved: im.mode.Replace || own.reserved() && own.IP == l.Addr}
}

// against returns why this server would not renew a lease, by the lab.
func (im *importer) against(l *Import, sc *scope) (SkipReason, string) {
	own, other := im.t.hosts[l.MAC], im.t.reservedTo(l.Addr)
	switch {
	case own != nil && own.Ignored:
		return SkipReserved, "dhcp is off for " + own.Name
	case own.reserved() && own.IP == l.Addr:
		return "", ""
	case own.reserved() && own.scope == sc:
		return SkipReserved, fmt.Sprintf("%s is reserved for this machine, %s", own.IP, own.Name)
	case other != nil:
		return SkipReserved, "the address is reserved for " + other.Name
	case !im.t.poolMayGive(l.Addr):
		return SkipReserved, "the address is that of a host without a MAC, a router, a server or the appliance"
	}
	p := sc.poolHolding(l.Addr)
	switch {
	case p == nil:
		return SkipNoPool, "no pool of network " + sc.network.Name + " has the address"
	case !p.keeps(&wire.Packet{MAC: l.MAC, CIAddr: l.Addr}): // as when it renews
		return SkipNoPool, "pool " + p.Name + " is not for this MAC"
	}
	return "", ""
}

// inTheWay returns what has the address or the machine already, in the book.
func (im *importer) inTheWay(l *Import, sc *scope) string {
	if q, ok := im.holding[l.Addr]; ok && q.MAC != l.MAC {
		return "the address is in quarantine: another machine uses it"
	}
	if has, ok := im.book.ByAddr(l.Addr); ok {
		if has.MAC == l.MAC {
			return "the machine has this lease already"
		}
		return "the address is leased to " + has.MAC.String()
	}
	if has, ok := im.book.Bound(l.MAC, sc.network.Subnet); ok && has.Live(im.now) && has.Addr != l.Addr {
		return fmt.Sprintf("the machine has %s", has.Addr)
	}
	return ""
}
