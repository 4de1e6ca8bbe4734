package dhcpd

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// request handles a DHCPREQUEST: to select an offer, after a reboot (INIT-REBOOT), to renew or to rebind (RFC 2131 section 4.3.2).
func (s *Server) request(x *exchange) dropReason {
	r := &x.req
	switch {
	case r.ServerID.IsValid() && !x.isOurs(r.ServerID):
		return s.rogueChosen(x)
	case r.ServerID.IsValid(): // SELECTING
		addr := r.Requested
		if !addr.IsValid() {
			addr, _ = s.deps.Book.OfferTo(r.MAC) // a client that names the server but not the address
		}
		if !addr.IsValid() {
			return s.grant(x, r.CIAddr, leases.Renewing) // with an option too many
		}
		return s.grant(x, addr, leases.Selecting)
	case r.CIAddr.IsValid(): // RENEWING, REBINDING
		return s.grant(x, r.CIAddr, leases.Renewing)
	case r.Requested.IsValid(): // INIT-REBOOT
		return s.grant(x, r.Requested, leases.InitReboot)
	}
	return dropMalformed
}

// isOurs reports whether a server identifier is this server's.
func (x *exchange) isOurs(id netip.Addr) bool { return id == x.serverID || x.t.ownAddress(id) }

// rogueChosen handles a client that selects the offer of a rogue server. Ours is free again, and an admin should know that
// there are two servers.
func (s *Server) rogueChosen(x *exchange) dropReason {
	s.deps.Book.Withdraw(x.req.MAC)
	s.record(x, event.Event{Kind: event.DHCPRogueServerChosen, Addr: x.req.Requested, Detail: x.req.ServerID.String()})
	return dropNotOurs
}

// grant leases addr to the machine, or refuses it. The address is ours if the client names this server, or has a lease of it.
// A client without host or pool that asks for another server's address gets no answer (RFC 2131 section 4.3.2), unless the
// address is of another network, where no server could grant it.
func (s *Server) grant(x *exchange, addr netip.Addr, state leases.ClientState) dropReason {
	s.seenAgain(x)
	mac, book := x.req.MAC, s.deps.Book
	var pool *leases.Pool // that must be able to give the address
	if x.pool != nil && !x.host.reserved() {
		pool = x.pool.addrs
	}
	found := book.Decide(mac, pool, addr, state)
	switch {
	case !x.scope.network.Subnet.Contains(addr):
		return s.nak(x, addr, event.OtherSubnet, "address is not of network "+x.scope.network.Name)
	case x.host.reserved():
		if addr != x.host.IP {
			return s.nak(x, addr, event.OtherReservation, "address reserved for this machine is "+x.host.IP.String())
		}
	case pool == nil && !x.req.ServerID.IsValid() && !found.Leased:
		return s.refuseNoAddress(x)
	case pool == nil:
		reason, why := x.noAddress()
		return s.nak(x, addr, reason, why)
	case found.Other.IsValid():
		return s.nak(x, addr, event.OtherLease, "address leased to this machine is "+found.Other.String())
	case found.Unknown && state != leases.Selecting:
		return s.grantIfUsed(x, addr)
	case found.Unknown && s.remembersOffers():
		return s.nak(x, addr, event.NotOffered, "address was not offered to this machine")
	case found.Unknown && s.asksOnceInFlood(x):
		book.Withdraw(mac)
		return dropLimited
	case !found.Free:
		return s.nak(x, addr, event.AddressNotFree, "address is not free for this machine")
	}
	lease := s.leaseTime(x)
	if s.releases.has(mac) { // what it has now is about to end: the new lease is one to store, after that
		return s.commit(x, addr, leases.Active, lease, 0)
	}
	left, ok := found.Renewal(lease)
	if ok && s.sameName(x, addr) {
		book.Withdraw(mac)
		s.ack(x, s.makeReply(x, wire.Ack, addr, left), nil)
		return dropNone
	}
	return s.commit(x, addr, leases.Active, lease, x.unstoredLease(found, lease))
}

// remembersOffers reports whether every offer that a client may request was made by this process: they are lost in a restart.
func (s *Server) remembersOffers() bool { return s.deps.Now().Sub(s.started) >= leases.OfferHold }

// grantIfUsed leases an address to a machine that says that it has it, and of which the book knows nothing: if it renews, and a probe finds
// it there. So the machines of a book that was lost keep their addresses. All others get no reply (RFC 2131 section 4.3.2): they may be
// another server's, or made up. What exists sends a DHCPDISCOVER next.
func (s *Server) grantIfUsed(x *exchange, addr netip.Addr) dropReason {
	if !x.req.CIAddr.IsValid() || !x.mayProbe() {
		return dropNotOurs
	}
	path := x.path()
	out := segment.NewSender(1, s.sendFailed)
	x = x.keep(out)
	s.probeAgain(path, addr, func(r segment.Result) {
		defer s.contain()
		defer out.Flush()
		if r.Use == segment.InUse && (r.MAC == x.req.MAC || path.Relay) {
			s.dropped(s.grant(x, addr, leases.Selecting)) // as if it had been offered the address
			return
		}
		s.dropped(dropNotOurs)
	})
	return dropNone
}

// unstoredLease returns the lease time that a machine may be given whether or not the disk takes the new one: all of it for a
// reservation, which the lab file fixes; for a renewal, what is left of the lease on disk. 0: it has to wait for the disk.
func (x *exchange) unstoredLease(found leases.Decision, lease time.Duration) time.Duration {
	if x.host.reserved() {
		return lease
	}
	if left := min(found.Left(), lease); left >= minUnstored {
		return left
	}
	return 0
}

// sameName reports whether the client's host name is stored with its lease: the operating system sends one, after firmware
// and iPXE have had the address for a while. A host of the lab has its name from there.
func (s *Server) sameName(x *exchange, addr netip.Addr) bool {
	if x.host != nil {
		return true
	}
	name := x.req.Hostname()
	return name == "" || s.deps.Book.Named(addr, name)
}

// ack sends a DHCPACK. frame is the message where it is written already, else nil.
func (s *Server) ack(x *exchange, a *wire.Reply, frame []byte) {
	if frame == nil {
		frame = a.Append(x.out.Frame())
	}
	s.sendFrame(x, a, frame)
	s.record(x, event.Event{Kind: event.DHCPAck, Addr: a.YIAddr, Detail: x.replyDetail(a), Dur: s.deps.Now().Sub(x.start)})
	s.recordAddressConflict(x.t, a.YIAddr)
	s.watchBootLoop(x, a)
}

// watchBootLoop finds machines that never get further than iPXE. The first packet of an operating system ends a loop.
func (s *Server) watchBootLoop(x *exchange, a *wire.Reply) {
	switch {
	case x.req.Client == wire.ClientOS:
		s.deps.Loops.Release(x.req.MAC)
	case x.req.Client == wire.ClientIPXE && a.BootFile != "":
		gets := map[bootloop.Remedy]string{
			bootloop.Program: "it gets the boot program for %s, by TFTP: this iPXE may lack HTTP",
			bootloop.NoFile:  "no boot file for %s: check that it reaches the appliance by HTTP",
		}[s.deps.Loops.BootFileSent(x.req.MAC, x.req.XID)]
		if gets == "" {
			return
		}
		s.record(x, event.Event{Kind: event.DHCPLoop, Addr: a.YIAddr, Detail: x.replyDetail(a), Err: fmt.Sprintf(
			"%d times within %s, and its script was not fetched; "+gets, bootloop.MaxLeases, bootloop.Window, bootloop.RemedyTime)})
	}
}

func (s *Server) nak(x *exchange, addr netip.Addr, reason event.Reason, message string) dropReason {
	s.deps.Book.Withdraw(x.req.MAC)
	x.reply = wire.Reply{Req: &x.req, Type: wire.Nak, ServerID: x.serverID, Message: message}
	s.send(x, &x.reply)
	s.record(x, event.Event{Kind: event.DHCPNak, Addr: addr, Err: message, Reason: reason})
	return dropNone
}

// inform answers a DHCPINFORM: the options, without an address, for a client that has its address from elsewhere (RFC 2131 section 4.3.5).
func (s *Server) inform(x *exchange) dropReason {
	s.send(x, s.makeReply(x, wire.Ack, netip.Addr{}, 0))
	return dropNone
}

func (s *Server) release(x *exchange) dropReason {
	r := &x.req
	if (r.ServerID.IsValid() && !x.isOurs(r.ServerID)) || !s.deps.Book.Has(r.MAC, r.CIAddr) {
		return dropNotOurs
	}
	if why := s.forged(x); why != "" {
		return s.dropForged(x, why)
	}
	return s.commit(x, r.CIAddr, leases.Released, 0, 0)
}
