package daemon

import (
	"context"
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/lbproxy"
)

// What names follow is looked at so often. A change of leases moves the serial of a zone, so it waits longer; health is to be answered soon.
const (
	healthLook = 500 * time.Millisecond
	leasesLook = 30 * time.Second
)

// dnsTable returns a table with what the daemon knows of backends and leases now, and its serials. The caller holds reloads.running, or is
// the only one.
func (d *Daemon) dnsTable(l *lab.Lab, t *dnsd.Table) *dnsd.Table {
	if t.Learns() {
		t = t.WithLearned(dnsd.Learned{Usable: d.usableBackends(l), Leases: leaseNames{d}, Leased: d.leasedAddrs})
	}
	return d.serials.Assign(t)
}

// leasedAddrs calls yield for every address that the lease book has, more than once for some.
func (d *Daemon) leasedAddrs(yield func(netip.Addr) bool) {
	more := true
	d.book.Walk(func(l *leases.Lease) {
		if more {
			more = yield(l.Addr)
		}
	})
}

// usableBackends returns a function that reports whether a backend of a balancer takes connections, for the names that follow it. The node of
// a single-node cluster does not before its bootstrap machine was removed from the balancers.
func (d *Daemon) usableBackends(l *lab.Lab) func(balancer string, backend netip.Addr) bool {
	usable := usableBackends(d.lb.Status())
	nodes := map[string]netip.Addr{} // that do not serve yet, by the balancer of their API
	for _, c := range l.Clusters {
		if c.SingleNode() && d.clusters.record(c.Name).Removed.IsZero() {
			nodes[c.BalancerOf(lab.ServiceAPI)] = c.Address
		}
	}
	return func(balancer string, backend netip.Addr) bool {
		node, waits := nodes[balancer]
		return usable(balancer, backend) && !(waits && node == backend)
	}
}

// usableBackends returns a function that reports whether a backend of a balancer takes connections, on whatever port.
func usableBackends(states []lbproxy.BalancerStatus) func(balancer string, backend netip.Addr) bool {
	type backend struct {
		balancer string
		addr     netip.Addr
	}
	usable := map[backend]bool{}
	for _, b := range states {
		for _, m := range b.Backends {
			k := backend{b.Name, m.Addr.Addr()}
			usable[k] = usable[k] || m.TakesConnections
		}
	}
	return func(balancer string, addr netip.Addr) bool {
		ok, known := usable[backend{balancer, addr}]
		return ok || !known // the balancer is not in use yet
	}
}

// followNames answers names that follow backends as these come and go, and keeps the names of DHCP clients in transfers up to date, until
// ctx ends.
func (d *Daemon) followNames(ctx context.Context) error {
	health, leases := time.NewTicker(healthLook), time.NewTicker(leasesLook)
	defer health.Stop()
	defer leases.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-health.C:
			d.followBackends()
		case <-leases.C:
			d.followLeases()
		}
	}
}

func (d *Daemon) followBackends() {
	if !d.current.Load().DNS.Follows() {
		return
	}
	d.reloads.running.Lock()
	defer d.reloads.running.Unlock()
	snap := *d.current.Load()
	usable := d.usableBackends(snap.Lab)
	if !snap.DNS.HealthChanged(usable) {
		return
	}
	snap.UseDNS(d.serials.Assign(snap.DNS.WithLearned(dnsd.Learned{Usable: usable})))
	d.current.Store(&snap)
}

func (d *Daemon) followLeases() {
	if !d.current.Load().DNS.TransfersLeases() {
		return
	}
	d.reloads.running.Lock()
	defer d.reloads.running.Unlock()
	snap := *d.current.Load()
	next := snap.DNS.WithLearned(dnsd.Learned{Usable: d.usableBackends(snap.Lab), Leases: leaseNames{d}, Leased: d.leasedAddrs})
	if next.SameLeases(snap.DNS) {
		return
	}
	snap.UseDNS(d.serials.Assign(next))
	d.current.Store(&snap)
}
