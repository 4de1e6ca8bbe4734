package dhcpd

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/host/link/links"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// forged returns why a DHCPRELEASE or DHCPDECLINE is not the machine's own, or "". A client sends its DHCPRELEASE from the address that it
// releases, not through a relay (RFC 2131 section 4.4.4). On a segment of ours, the sender of the frame has to be the client. In a network
// behind a relay nothing more is known: any message of it comes from the relay or a router.
func (s *Server) forged(x *exchange) (why string) {
	r, own := &x.req, segmentOf(x.scope.network)
	switch {
	case own == "" && r.GIAddr.IsValid():
		return ""
	case own != "" && r.GIAddr.IsValid():
		return "it came through a relay, but the machine is on interface " + own
	case r.Type == wire.Release && x.from.Addr() != r.CIAddr:
		return "it came from " + x.from.Addr().String()
	case own == "" || x.sock == nil:
		return ""
	case own != x.iface:
		return fmt.Sprintf("it came by interface %q, but the machine is on %s", x.iface, own)
	}
	switch sender, ok := x.sock.Sender(r.XID, r.MAC, x.from.Addr()); {
	case !ok:
		return "its sender was not seen"
	case sender != r.MAC:
		return sender.String() + " sent it"
	}
	return ""
}

// segmentOf returns the interface whose segment a network is, or "": its interface may only lead to a relay, and has no address in it then.
func segmentOf(n *lab.Network) string {
	prefixes, err := links.Prefixes(n.Interface)
	if err != nil || slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return n.Subnet.Contains(p.Addr()) }) {
		return n.Interface
	}
	return ""
}

// dropForged drops a DHCPRELEASE or DHCPDECLINE of a machine's address that is not the machine's own.
func (s *Server) dropForged(x *exchange, why string) dropReason {
	r := &x.req
	addr, name := r.CIAddr, "DHCPRELEASE"
	if r.Type == wire.Decline {
		addr, name = r.Requested, "DHCPDECLINE"
	}
	e := event.Event{
		Kind: event.AddressConflict, MAC: r.MAC, Detail: x.clientDetail(), Claimed: true, Reason: event.OtherMachine,
		Err: fmt.Sprintf("a %s of %s is ignored: %s", name, addr, why),
	}
	if from := x.from.Addr(); from != netip.IPv4Unspecified() {
		e.Addr = from
	}
	if x.host != nil {
		e.Host = x.host.Name
	}
	s.deps.Events.Record(e)
	return dropForged
}

// declineUnlessUsed probes the address of a machine that declines it. A machine that answers there uses it, so that the DHCPDECLINE was
// another's.
func (s *Server) declineUnlessUsed(x *exchange) dropReason {
	addr, out := x.req.Requested, segment.NewSender(1, s.sendFailed)
	s.prober.Forget(addr) // it was free before it was given
	x = x.keep(out)
	s.prober.Probe(x.path(), addr, x.req.MAC, func(r segment.Result) {
		defer s.contain()
		defer out.Flush()
		if r.Use == segment.InUse && r.MAC == x.req.MAC {
			s.dropped(s.dropForged(x, "the machine answers ARP there"))
			return
		}
		s.dropped(s.quarantineDeclined(x))
	})
	return dropNone
}
