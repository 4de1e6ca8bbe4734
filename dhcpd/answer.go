package dhcpd

import (
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/lab"
)

// answer fills the exchange's reply, an offer or acknowledgement, with everything this machine is told.
func (s *Server) answer(x *exchange, kind wire.MessageType, addr netip.Addr, lease time.Duration) *wire.Reply {
	a := &x.reply
	*a = wire.Reply{
		Req: &x.req, Type: kind, ServerID: x.server, YIAddr: addr, Lease: lease, Options: x.scope.options, Domain: x.t.domain,
	}
	var boot bootInfo
	switch {
	case x.res != nil:
		a.Options, a.Name, a.Domain = x.res.options, x.res.Host.Name, x.res.Host.Domain
		boot = s.bootOf(x, x.res.Host)
	case x.pool != nil:
		a.Options = x.pool.options
		x.member.tell(a, x.pool)
		switch {
		case !x.req.Booting():
		case x.pool.pool.Profile != nil:
			boot = s.bootOf(x, x.t.machineOf(x.req.MAC, addr))
		default:
			boot = s.bootOf(x, x.host())
		}
	}
	if fqdn, ok := x.req.FQDN(); ok {
		a.FQDN = x.fqdn(fqdn)
	}
	if x.req.Stage == wire.StageIPXE && s.deps.Circles.Unscripted(x.req.MAC) {
		boot = bootInfo{ipxe: noPXEDHCP}
	}
	boot.tell(a)
	return a
}

// fqdn is what the machine is called in our DNS: as the lab says, else as it calls itself, in our domain.
func (x *exchange) fqdn(said wire.FQDN) string {
	if h := x.host(); h != nil {
		return h.FQDN
	}
	if name := x.req.Hostname(); name != "" {
		return name + "." + x.t.domain
	}
	return said.String()
}

// tell puts into a reply what there is to boot.
func (b bootInfo) tell(a *wire.Reply) {
	a.BootFile, a.NextServer, a.VendorClass, a.VendorInfo, a.IPXE = b.file, b.next, b.vendor, b.pxe, b.ipxe
}

func (s *Server) send(x *exchange, a *wire.Reply) {
	frame := a.Append(x.in.out.Frame())
	x.in.out.Queue(x.in.sock, x.destination(a), frame)
	s.sent(a)
}

// sent counts a reply.
func (s *Server) sent(a *wire.Reply) {
	s.m.sent[typeIndex(a.Type)].Inc()
	if n := a.Omitted.Len(); n > 0 {
		s.m.truncated.Add(float64(n))
	}
}

// destination follows RFC 2131 section 4.1.
func (x *exchange) destination(a *wire.Reply) segment.Dest {
	r, in := &x.req, x.in
	d := segment.Dest{Source: x.home.Address, Port: in.port}
	if in.port == portPXE && in.from.Addr().IsValid() && !in.from.Addr().IsUnspecified() {
		d.To = in.from
		return d
	}
	switch {
	case r.GIAddr.IsValid():
		d.To = netip.AddrPortFrom(r.GIAddr, portServer)
		if r.RelayPort && in.from.IsValid() {
			d.To = netip.AddrPortFrom(r.GIAddr, in.from.Port())
		}
	case a.Type == wire.Nak:
		d.Broadcast()
	case r.CIAddr.IsValid():
		d.To = netip.AddrPortFrom(r.CIAddr, portClient)
	case r.Broadcast() || !a.YIAddr.IsValid():
		d.Broadcast()
	default: // the client has no address yet, so nobody could find it by ARP
		d.To, d.MAC = netip.AddrPortFrom(a.YIAddr, portClient), r.MAC
	}
	return d
}

// leaseTime is the lab's, but for newcomers to a pool that runs short.
func (s *Server) leaseTime(x *exchange) time.Duration {
	switch {
	case x.res != nil:
		return x.res.lease
	case x.pool == nil:
		return x.scope.lease
	case x.member != nil && x.member.host.Lease > 0:
		return x.member.host.Lease
	}
	_, _, free := s.deps.Book.Usage(x.pool.range_)
	if scarceShare*free >= x.pool.range_.Usable() {
		return x.pool.lease
	}
	if _, known := s.deps.Book.Bound(x.req.MAC, x.scope.network.Subnet); known {
		return x.pool.lease
	}
	return min(x.pool.lease, scarceLease)
}

// told is the stage and the boot file, if any: "os", "pxe boot/52-54-…/ipxe.efi".
func (x *exchange) told(a *wire.Reply) string {
	file := a.File()
	if file == "" {
		return string(x.req.Stage)
	}
	return string(x.req.Stage) + " " + file
}

// proxyMachine returns the machine, whose address another server chose.
func (x *exchange) proxyMachine() *lab.Host {
	switch {
	case x.res != nil:
		return x.res.Host
	case x.pool != nil && x.req.CIAddr.IsValid() && x.pool.range_.Contains(x.req.CIAddr):
		return x.t.machineOf(x.req.MAC, x.req.CIAddr)
	case x.pool != nil:
		return x.t.machineOf(x.req.MAC, x.pool.pool.Range.First)
	}
	return x.host()
}
