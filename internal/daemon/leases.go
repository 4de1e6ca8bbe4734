package daemon

import (
	"context"
	"encoding/binary"
	"net/http"
	"net/netip"
	"time"

	"bootlab/dhcpd"
	"bootlab/internal/api"
	"bootlab/internal/lab"
)

// Leases implements httpd.Inventory.
func (c *counter) Leases(context.Context) []api.Lease {
	l, now := c.current.Load().Lab, time.Now()
	var out []api.Lease
	for _, lease := range c.book.All() {
		out = append(out, leaseOf(l, lease, now))
	}
	return out
}

// leaseOf tells a lease with what the lab knows of it. A reservation is an address that a host of the lab has for its own;
// any other comes from the pool that holds it, whatever led its machine there.
func leaseOf(l *lab.Lab, lease dhcpd.Lease, now time.Time) api.Lease {
	a := api.Lease{IP: lease.Addr, MAC: lease.MAC, Name: lease.Hostname, State: leaseState(lease, now), Since: lease.Start, Expires: lease.Expiry}
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

// leaseState is what a lease is at now: one whose time is over is expired, and so is an address that was set aside long
// enough.
func leaseState(lease dhcpd.Lease, now time.Time) api.LeaseState {
	if lease.State != dhcpd.Released && !now.Before(lease.Expiry) {
		return api.LeaseExpired
	}
	return api.LeaseState(lease.State)
}

// Release implements httpd.Leaser.
func (c *counter) Release(context.Context, netip.Addr) error {
	return &api.Error{Status: http.StatusNotImplemented, Message: "this daemon cannot give leases back by hand yet", Hint: "the lease ends by itself; bootlab leases shows when"}
}

// Pools implements httpd.Leaser.
func (c *counter) Pools(context.Context) []api.Pool {
	l, now := c.current.Load().Lab, time.Now()
	held := map[*lab.Pool]int{}
	for _, lease := range c.book.All() {
		if p := l.PoolAt(lease.Addr); p != nil && l.HostByIP(lease.Addr) == nil && leaseOf(l, lease, now).Holds() {
			held[p]++
		}
	}
	reserved := map[*lab.Pool]int{}
	for _, h := range l.Hosts {
		if p := l.PoolAt(h.IP); p != nil {
			reserved[p]++
		}
	}
	var out []api.Pool
	for _, n := range l.Networks {
		for _, p := range n.Pools {
			size := int(number(p.Range.Last)-number(p.Range.First)) + 1 - reserved[p]
			out = append(out, api.Pool{Network: n.Name, Name: p.Name, Range: p.Range.String(), Size: size, Free: size - held[p]})
		}
	}
	return out
}

func number(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}
