package daemon

import (
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// nicAddrs maps hosts to addresses, by a reservation before a lease, and addresses to MACs, by a lease before a reservation: the address is
// that of whom it was given to, until that machine is given another.
type nicAddrs struct {
	book *leases.Book
	lab  *lab.Lab
}

func (d *Daemon) nicAddrs(l *lab.Lab) nicAddrs { return nicAddrs{d.book, l} }

// ByLease returns the machine with a MAC: a host, or one of the pool that holds its lease; nil: none.
func (w nicAddrs) ByLease(mac lab.MAC) *lab.Host {
	l, _ := w.book.ByMAC(mac)
	return w.lab.MachineOf(mac, l.Addr)
}

// OfHost returns the address of a host, as one of its NICs sees it: its reserved one, else the one leased to the first of its MACs that has a lease.
func (w nicAddrs) OfHost(h *lab.Host) (netip.Addr, bool) {
	if h.IP.IsValid() {
		return h.IP, true
	}
	return w.leased(h.MACs)
}

// leased returns the address of the first of some MACs that has a lease.
func (w nicAddrs) leased(macs []lab.MAC) (netip.Addr, bool) {
	for _, mac := range macs {
		if l, ok := w.book.ByMAC(mac); ok {
			return l.Addr, true
		}
	}
	return netip.Addr{}, false
}

// HostOf returns the machine of the lab that has an address, as MACOf says; nil: none.
func (w nicAddrs) HostOf(addr netip.Addr) *lab.Host {
	if mac, ok := w.MACOf(addr); ok {
		return w.ByLease(mac)
	}
	return w.lab.HostByIP(addr.Unmap())
}

// MACOf returns the NIC that has an address. If a host has several, only a lease says which.
func (w nicAddrs) MACOf(addr netip.Addr) (lab.MAC, bool) {
	addr = addr.Unmap()
	if l, ok := w.book.ByAddr(addr); ok {
		return l.MAC, true
	}
	if h := w.lab.HostByIP(addr); h != nil && len(h.MACs) > 0 {
		for _, n := range h.NICs {
			if addr == n.IP || addr == n.IP6 {
				return n.MAC, true
			}
		}
		return h.MACs[0], true
	}
	return lab.MAC{}, false
}

// nicsByAddr maps addresses to MACs, by the lab of each request.
type nicsByAddr struct{ book *leases.Book }

// MACOf is that of nicAddrs.
func (n nicsByAddr) MACOf(l *lab.Lab, addr netip.Addr) (lab.MAC, bool) {
	return nicAddrs{n.book, l}.MACOf(addr)
}

// leased are the addresses of leases: the boot service takes reservations from the table of its request.
type leased struct{ book *leases.Book }

// AddrOf implements boot.Leases.
func (l leased) AddrOf(mac lab.MAC) (netip.Addr, bool) {
	lease, ok := l.book.ByMAC(mac)
	return lease.Addr, ok
}

// identify adds the generation of the lab, the MAC and the host of an event that lacks them, and whether another machine may have asked in that machine's name: of what
// anybody can send, a refused or broken off request by TFTP is the machine's own only while its firmware or boot loader is at work.
//
// A MAC gets the name that the lab in force has for it, as timelines do, though the request may have begun before a reload. Who serves a request that may last
// finds the MAC itself, by the lab of the request: an address may be another machine's since.
func (d *Daemon) identify(e event.Event) event.Event {
	s := d.current.Load()
	e.Gen, e.Addr = s.Gen, e.Addr.Unmap()
	if e.MAC.IsZero() && e.Host == "" && e.Addr.IsValid() {
		e.MAC, _ = d.nicAddrs(s.Lab).MACOf(e.Addr)
	}
	if !e.MAC.IsZero() && e.Addr.IsValid() && e.Kind.FromAddress() && !e.Claimed {
		d.boot.MarkClaimed(s.Boot, &e)
	}
	d.addHost(s.Lab, &e)
	if e.Unverified && !e.Claimed && !d.mayLoad(s.Lab, &e) {
		e.Claimed, e.Reason = true, event.Unacknowledged
	}
	return e
}

// mayLoad reports whether the machine of e may load by TFTP now. One whose DHCP messages are not seen here may, until it has a script.
func (d *Daemon) mayLoad(l *lab.Lab, e *event.Event) bool {
	if d.timeline.Loading(*e, time.Now()) {
		return true
	}
	h := l.HostByMAC(e.MAC)
	if h == nil || h.Network == nil || h.Network.Answers(h) {
		return false
	}
	last, ok := d.timeline.Last(h.Name)
	return !ok || last.Stage == "" || last.Stage == event.StageMachine || last.Stage == event.StageFirmware
}

// addHost adds the host of an event that lacks it.
func (d *Daemon) addHost(l *lab.Lab, e *event.Event) {
	if e.Host != "" || e.MAC.IsZero() && !e.Addr.IsValid() {
		return
	}
	h := l.MachineOf(e.MAC, e.Addr)
	if !e.Addr.IsValid() || e.Kind.Refusal() { // anybody can name an address of a pool: a machine of the pool holds one
		h = d.nicAddrs(l).ByLease(e.MAC)
	}
	if h != nil {
		e.Host = h.Name
	}
}

// leaseNames are the lease book for dnsd.
type leaseNames struct{ d *Daemon }

// ByAddr implements dnsd.Leases.
func (n leaseNames) ByAddr(addr netip.Addr) (dnsd.Lease, bool) { return forDNS(n.d.book.ByAddr(addr)) }

// ByName implements dnsd.Leases.
func (n leaseNames) ByName(label string) (dnsd.Lease, bool) {
	return forDNS(n.d.book.ByHostname(label))
}

// ByMAC implements dnsd.Leases.
func (n leaseNames) ByMAC(mac lab.MAC) (dnsd.Lease, bool) { return forDNS(n.d.book.ByMAC(mac)) }

func forDNS(l leases.Lease, ok bool) (dnsd.Lease, bool) {
	if l.Unnamed {
		l.Hostname = ""
	}
	return dnsd.Lease{Addr: l.Addr, MAC: l.MAC, Hostname: l.Hostname}, ok
}
