package daemon

import (
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// addresses maps MACs to addresses and back, for all servers. A lease goes before a reservation.
type addresses struct{ d *Daemon }

// AddrOf returns the address leased to mac, else the one reserved for it.
func (w addresses) AddrOf(mac lab.MAC) (netip.Addr, bool) {
	if l, ok := w.d.book.ByMAC(mac); ok {
		return l.Addr, true
	}
	if h := w.d.current.Load().Lab.HostByMAC(mac); h != nil && h.AddrOf(mac).IsValid() {
		return h.AddrOf(mac), true
	}
	return netip.Addr{}, false
}

// MACOf returns the NIC that has an address. If a host has several, only a lease says which.
func (w addresses) MACOf(addr netip.Addr) (lab.MAC, bool) {
	addr = addr.Unmap()
	if l, ok := w.d.book.ByAddr(addr); ok {
		return l.MAC, true
	}
	if h := w.d.current.Load().Lab.HostByIP(addr); h != nil && len(h.MACs) > 0 {
		for _, n := range h.NICs {
			if addr == n.IP || addr == n.IP6 {
				return n.MAC, true
			}
		}
		return h.MACs[0], true
	}
	return lab.MAC{}, false
}

// leased are the addresses of leases alone: the boot service takes reservations from the table of its request.
type leased struct{ book *leases.Book }

// AddrOf implements boot.Leases.
func (l leased) AddrOf(mac lab.MAC) (netip.Addr, bool) {
	lease, ok := l.book.ByMAC(mac)
	return lease.Addr, ok
}

// identify adds the MAC and the host of an event that lacks them, and whether another machine may have asked in that machine's name: of what
// anybody can send, a refused or broken off request by TFTP is the machine's own only while its firmware or boot loader is at work.
func (d *Daemon) identify(e *event.Event) {
	e.Addr = e.Addr.Unmap()
	if e.MAC.IsZero() && e.Host == "" && e.Addr.IsValid() {
		e.MAC, _ = addresses{d}.MACOf(e.Addr)
	}
	if !e.MAC.IsZero() && e.Addr.IsValid() && e.Kind.FromAddress() && !e.Claimed {
		d.boot.MarkClaimed(e)
	}
	d.addHost(e)
	if e.Unproven && !e.Claimed && !d.mayLoad(e) {
		e.Claimed, e.Reason = true, event.Unacknowledged
	}
}

// mayLoad reports whether the machine of e may load by TFTP now. One whose DHCP messages are not seen here may, until it has a script.
func (d *Daemon) mayLoad(e *event.Event) bool {
	if d.timeline.Loading(e.Host, e.MAC, time.Now()) {
		return true
	}
	h := d.current.Load().Lab.HostByMAC(e.MAC)
	if h == nil || h.Network == nil || h.Network.DHCP != lab.DHCPOff {
		return false
	}
	last, ok := d.timeline.Last(h.Name)
	return !ok || last.Stage == "" || last.Stage == event.StageVM || last.Stage == event.StageFirmware
}

// addHost adds the host of an event that lacks it.
func (d *Daemon) addHost(e *event.Event) {
	if e.Host != "" || e.MAC.IsZero() && !e.Addr.IsValid() {
		return
	}
	addr := e.Addr
	if !addr.IsValid() || e.Kind.Refusal() { // anybody can name an address of a pool: a machine of the pool holds one
		addr, _ = addresses{d}.AddrOf(e.MAC)
	}
	if h := d.current.Load().Lab.MachineOf(e.MAC, addr); h != nil {
		e.Host = h.Name
	}
}

// leaseNames are the host names of DHCP clients without a reservation, for dnsd. A host of the lab keeps its own names.
type leaseNames struct{ d *Daemon }

// NameOf returns the name that the client at an address has by its host name, or the full one of a host that has its address from a pool.
func (g leaseNames) NameOf(addr netip.Addr) (string, bool) {
	l, ok := g.d.book.ByAddr(addr)
	if !ok {
		return "", false
	}
	switch h := g.d.current.Load().Lab.HostByMAC(l.MAC); {
	case h == nil:
		return l.Hostname, l.Hostname != "" && !l.Unnamed
	case !h.IP.IsValid():
		return h.FQDN + ".", true
	}
	return "", false
}

// AddrOfNIC returns the address that is leased to mac.
func (g leaseNames) AddrOfNIC(mac lab.MAC) (netip.Addr, bool) {
	l, ok := g.d.book.ByMAC(mac)
	return l.Addr, ok
}

// AddrOf returns the address of the client that has a name by its host name, unless it is a host of the lab.
func (g leaseNames) AddrOf(name string) (netip.Addr, bool) {
	l, ok := g.d.book.ByHostname(name)
	if !ok || g.d.current.Load().Lab.HostByMAC(l.MAC) != nil {
		return netip.Addr{}, false
	}
	return l.Addr, true
}
