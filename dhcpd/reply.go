package dhcpd

import (
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/lab"
)

// An address pool with less than this part free gives new clients short leases, so that addresses of machines that
// disappear are soon free again.
const (
	scarceShare = 5 // a fifth
	scarceLease = 10 * time.Minute
)

// makeReply fills the exchange's reply, a DHCPOFFER or DHCPACK, with everything that this machine gets.
func (s *Server) makeReply(x *exchange, kind wire.MessageType, addr netip.Addr, lease time.Duration) *wire.Reply {
	a := &x.reply
	*a = wire.Reply{
		Req: &x.req, Type: kind, ServerID: x.serverID, YIAddr: addr, Lease: lease, Options: x.options(), Domain: x.t.domain,
	}
	if x.host != nil {
		a.Name, a.Domain = x.host.Name, x.host.Domain
	}
	if _, ok := x.req.FQDN(); ok {
		a.FQDN = s.nameInDNS(x, addr)
	}
	var boot bootInfo
	if x.req.Booting() {
		boot = s.bootInfo(x, x.machine(addr))
	}
	boot.addTo(a)
	return a
}

// options returns the options of the machine's host, pool or network.
func (x *exchange) options() *wire.Options {
	switch {
	case x.host.reserved():
		return x.host.options
	case x.pool == nil:
		return x.scope.options
	case x.host != nil && x.host.poolOptions != nil:
		return x.host.poolOptions[x.pool]
	}
	return x.pool.options
}

// machine returns the host whose profile the machine boots, or nil: that of the lab file, in whatever network it is, or else the one that a
// pool with a profile makes up for addr.
func (x *exchange) machine(addr netip.Addr) *lab.Host {
	if h := x.t.hosts[x.req.MAC]; h != nil { // as its NIC sees it: a further one boots nothing, in a pool with a profile too
		return h.Host
	}
	if x.pool == nil || x.pool.Profile == nil {
		return nil
	}
	return x.t.machineOf(x.req.MAC, addr)
}

// nameInDNS returns the name that leads to the machine once it has a lease of addr: the host's of the lab file, else the client's own,
// unless the lab or another client has it. Without addr, in the answer to a DHCPINFORM, it is that of the lease that it has.
func (s *Server) nameInDNS(x *exchange, addr netip.Addr) string {
	if x.host != nil {
		return x.host.FQDN
	}
	hostname := ""
	if addr.IsValid() {
		hostname = x.req.Hostname()
	}
	return x.t.nameOf(s.deps.Book.NameOf(x.req.MAC, x.scope.network.Subnet, hostname))
}

// leaseTime is the host's, the pool's or the network's; clients of a pool that runs short get less until they were seen.
func (s *Server) leaseTime(x *exchange) time.Duration {
	switch {
	case x.host != nil && x.host.Lease > 0:
		return x.host.Lease
	case x.pool == nil:
		return x.scope.network.Lease
	}
	_, _, free := s.deps.Book.Usage(x.pool.addrs)
	if scarceShare*free >= x.pool.addrs.Usable() {
		return x.pool.Lease
	}
	if s.deps.Book.IsVerified(x.req.MAC, x.scope.network.Subnet) {
		return x.pool.Lease
	}
	return min(x.pool.Lease, scarceLease)
}

func (s *Server) send(x *exchange, a *wire.Reply) {
	s.sendFrame(x, a, a.Append(x.out.Frame()))
}

// sendFrame queues a reply that is written already, and counts it.
func (s *Server) sendFrame(x *exchange, a *wire.Reply, frame []byte) {
	x.out.Queue(x.sock, x.destination(a), frame)
	s.m.sent[typeIndex(a.Type)].Inc()
	if n := a.Omitted.Len(); n > 0 {
		s.m.omitted.Add(float64(n))
	}
}

// destination follows RFC 2131 section 4.1.
func (x *exchange) destination(a *wire.Reply) segment.Dest {
	r := &x.req
	d := segment.Dest{Source: x.scope.network.Address, Port: x.port}
	if x.toSource() {
		d.To = x.from
		return d
	}
	switch {
	case r.GIAddr.IsValid():
		d.To = netip.AddrPortFrom(r.GIAddr, portServer)
		if x.local.IsValid() {
			d.Source = x.local // some relays, and firewalls before them, take a reply only from where they sent the request
		}
		if r.RelayPort && x.from.IsValid() {
			d.To = netip.AddrPortFrom(r.GIAddr, x.from.Port())
		}
	case a.Type == wire.Nak:
		d.Broadcast()
	case r.CIAddr.IsValid():
		d.To = netip.AddrPortFrom(r.CIAddr, portClient)
	case r.Broadcast() || !a.YIAddr.IsValid():
		d.Broadcast()
	default: // the client has no address yet, so ARP cannot find it
		d.To, d.MAC = netip.AddrPortFrom(a.YIAddr, portClient), r.MAC
	}
	return d
}

// toSource reports whether the reply goes to where the request came from, as that of the PXE boot server does.
func (x *exchange) toSource() bool {
	return x.port == portPXE && x.from.Addr().IsValid() && !x.from.Addr().IsUnspecified()
}

// mayReply reports whether a reply may be sent to the unicast address that the packet names: its source, its relay or the client's own. A
// forged one can be the broadcast address of a network, where firmware of all machines would receive the reply.
func (x *exchange) mayReply() bool {
	to := x.req.CIAddr
	switch {
	case x.toSource():
		to = x.from.Addr()
	case x.req.GIAddr.IsValid():
		to = x.req.GIAddr
	}
	return !to.IsValid() || x.t.mayReply(to)
}

// replyDetail is the client and its boot file, if any: "os", "pxe boot/52-54-…/ipxe.efi".
func (x *exchange) replyDetail(a *wire.Reply) string {
	file := a.File()
	if file == "" {
		return string(x.req.Client)
	}
	return string(x.req.Client) + " " + file
}
