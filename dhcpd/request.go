package dhcpd

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// request tells the four meanings of DHCPREQUEST apart (RFC 2131 section 4.3.2).
func (s *Server) request(x *exchange) dropReason {
	r := &x.req
	switch {
	case r.ServerID.IsValid() && !s.isUs(x, r.ServerID):
		return s.foreign(x)
	case r.ServerID.IsValid(): // SELECTING
		addr := r.Requested
		if !addr.IsValid() {
			addr, _ = s.deps.Book.Held(r.MAC) // a client that names the server but not the address
		}
		if !addr.IsValid() {
			addr = r.CIAddr // renewing, with an option too many
		}
		return s.grant(x, addr, true)
	case r.CIAddr.IsValid(): // RENEWING, REBINDING
		return s.grant(x, r.CIAddr, s.deps.Book.Has(r.MAC, r.CIAddr))
	case r.Requested.IsValid(): // INIT-REBOOT
		return s.grant(x, r.Requested, s.deps.Book.Has(r.MAC, r.Requested))
	}
	return dropMalformed
}

func (s *Server) isUs(x *exchange, a netip.Addr) bool { return a == x.server || x.t.ownAddress(a) }

// grant leases addr to the machine, or refuses it. ours says that the client speaks of an address that we gave or
// offered; of somebody else's client without a place in the lab we say nothing (RFC 2131 section 4.3.2), unless it is in
// the wrong network, where no server could let it be.
func (s *Server) grant(x *exchange, addr netip.Addr, ours bool) dropReason {
	mac, book := x.req.MAC, s.deps.Book
	switch {
	case !x.scope.network.Subnet.Contains(addr):
		return s.nak(x, addr, "address is not of network "+x.scope.network.Name)
	case x.res != nil && addr != x.res.Host.IP:
		return s.nak(x, addr, "address reserved for this machine is "+x.res.Host.IP.String())
	case x.res == nil && x.pool == nil && !ours:
		return s.refuse(x, x.whyNobody)
	case x.res == nil && x.pool == nil:
		return s.nak(x, addr, x.whyNobody())
	case x.res == nil && !book.MayHave(mac, x.pool.range_, addr):
		return s.nak(x, addr, "address is not free for this machine")
	}
	want := s.leaseTime(x)
	left, ok := book.Renewal(mac, addr, want)
	if ok && s.sameName(x, addr) {
		book.Withdraw(mac)
		return s.ack(x, addr, left)
	}
	return s.enqueue(s.newJob(x, addr, leases.Active, want, jobGrant))
}

// sameName reports whether what the machine calls itself is in the book: the name comes with the operating system, after
// firmware and iPXE have had the address for a while. A host of the lab has its name from there.
func (s *Server) sameName(x *exchange, addr netip.Addr) bool {
	if x.host() != nil {
		return true
	}
	name := x.req.Hostname()
	return name == "" || s.deps.Book.Named(addr, name)
}

func (s *Server) ack(x *exchange, addr netip.Addr, lease time.Duration) dropReason {
	a := s.answer(x, wire.Ack, addr, lease)
	s.send(x, a)
	s.acked(x, a)
	return dropNone
}

func (s *Server) acked(x *exchange, a *wire.Reply) {
	s.record(x, event.Event{Kind: event.DHCPAck, Addr: a.YIAddr, Detail: x.told(a), Dur: s.deps.Now().Sub(x.start)})
	s.watchCircle(x, a)
}

// watchCircle finds machines that never come further than iPXE. Their operating system's first word ends the suspicion.
func (s *Server) watchCircle(x *exchange, a *wire.Reply) {
	switch {
	case x.req.Stage == wire.StageOS:
		s.deps.Circles.Release(x.req.MAC)
	case x.req.Stage == wire.StageIPXE && a.BootFile != "" && s.deps.Circles.Leased(x.req.MAC, x.req.XID):
		s.record(x, event.Event{Kind: event.DHCPLoop, Addr: a.YIAddr, Detail: x.told(a), Err: fmt.Sprintf(
			"%d times within %s, and its script is not fetched; no boot file for %s: look whether this iPXE can do HTTP and reaches the appliance",
			bootloop.MaxLeases, bootloop.Window, bootloop.Hold)})
	}
}

func (s *Server) nak(x *exchange, addr netip.Addr, message string) dropReason {
	s.deps.Book.Withdraw(x.req.MAC)
	x.reply = wire.Reply{Req: &x.req, Type: wire.Nak, ServerID: x.server, Message: message}
	s.send(x, &x.reply)
	if x.res != nil || s.quiet.first(event.DHCPNak, x.req.MAC) { // made-up machines would fill the log
		s.record(x, event.Event{Kind: event.DHCPNak, Addr: addr, Err: message})
	}
	return dropNone
}

// granted answers once the lease is durable, or stays silent. Only one who lost the address to another machine is told.
func (s *Server) granted(j *job, err error) dropReason {
	x := &j.in.x
	switch {
	case err == nil:
		j.in.out.Queue(j.in.sock, x.destination(&x.reply), j.frame)
		s.sent(&x.reply)
		s.acked(x, &x.reply)
		return dropNone
	case errors.Is(err, leases.ErrTaken):
		return s.nak(x, j.change.Addr, "address was leased to another machine")
	}
	return dropCommit
}

// inform tells a machine that has its address from elsewhere everything but an address (RFC 2131 section 4.3.5).
func (s *Server) inform(x *exchange) dropReason {
	s.send(x, s.answer(x, wire.Ack, netip.Addr{}, 0))
	return dropNone
}

func (s *Server) release(x *exchange) dropReason {
	r := &x.req
	if (r.ServerID.IsValid() && !s.isUs(x, r.ServerID)) || !s.deps.Book.Has(r.MAC, r.CIAddr) {
		return dropNotOurs
	}
	return s.enqueue(s.newJob(x, r.CIAddr, leases.Released, 0, jobRelease))
}

// foreign: the client takes another server's offer. Ours is free again, and people should know that there are two.
func (s *Server) foreign(x *exchange) dropReason {
	s.deps.Book.Withdraw(x.req.MAC)
	if s.quiet.first(event.DHCPOtherServerChosen, x.req.MAC) {
		s.record(x, event.Event{Kind: event.DHCPOtherServerChosen, Addr: x.req.Requested, Detail: x.req.ServerID.String()})
	}
	return dropNotOurs
}
