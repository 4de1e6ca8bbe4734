package dhcpd

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/observe/event"
)

func (s *Server) discover(x *exchange) dropReason {
	s.record(x, event.Event{Kind: event.DHCPDiscover, Detail: x.asker()})
	switch {
	case x.res != nil:
		return s.offer(x, x.res.Host.IP)
	case x.pool == nil:
		return s.refuse(x, x.whyNobody)
	}
	if why := s.admit(x); why != dropNone {
		return why
	}
	return s.offerFromPool(x)
}

func (s *Server) offer(x *exchange, addr netip.Addr) dropReason {
	a := s.answer(x, wire.Offer, addr, s.leaseTime(x))
	s.send(x, a)
	s.record(x, event.Event{Kind: event.DHCPOffer, Addr: addr, Detail: x.told(a)})
	return dropNone
}

// offerFromPool finds an address for a machine without a reservation and offers it: at once where the machine has it
// already or the wire is known to be silent about it, else after a probe, or in a rush with an eye on it.
func (s *Server) offerFromPool(x *exchange) dropReason {
	mac := x.req.MAC
	addr, fresh, err := s.deps.Book.Offer(leases.Ask{
		MAC: mac, Subnet: x.scope.network.Subnet, Pool: x.pool.range_, Wish: x.req.Requested,
		InUse: func(a netip.Addr) bool { return s.prober.Known(a).Blocks(mac) },
	})
	switch {
	case err != nil:
		return s.refuse(x, func() string { return s.whyFull(x) })
	case !fresh || !s.unseen(x, addr):
		return s.offer(x, addr)
	case s.probes.take():
		s.probe(x, addr)
		return dropNone
	}
	s.glance(x, addr)
	return s.offer(x, addr)
}

// admit keeps newcomers within the bounds of their relay port, and of a pool that is no longer half empty.
func (s *Server) admit(x *exchange) dropReason {
	book, pool := s.deps.Book, x.pool.range_
	if book.Remembers(x.req.MAC, x.scope.network.Subnet) {
		return dropNone
	}
	if why := s.portFull(x); why != dropNone {
		return why
	}
	_, _, free := book.Usage(pool)
	if free == 0 || 2*free >= pool.Usable() { // if none is left the book says who has them
		return dropNone
	}
	if s.ration.allow(x.scope.network.Name, lineOf(&x.req)) {
		return dropNone
	}
	if s.quiet.first(event.DHCPLimited, x.req.MAC) {
		s.record(x, event.Event{Kind: event.DHCPLimited, Detail: x.asker(), Err: fmt.Sprintf(
			"%d of %d addresses of pool %s are left, and too many newcomers ask for them at once; it may ask again",
			free, pool.Usable(), x.pool.pool.Name)})
	}
	return dropLimited
}

// portFull refuses a newcomer whose relay port has as many addresses of the pool as the lab allows.
func (s *Server) portFull(x *exchange) dropReason {
	most := x.pool.pool.PerPort
	if most == 0 || len(x.req.CircuitID)+len(x.req.RemoteID) == 0 {
		return dropNone
	}
	line := lineOf(&x.req)
	have := s.deps.Book.Behind(x.pool.range_, line)
	if have < most {
		return dropNone
	}
	return s.refuse(x, func() string {
		return fmt.Sprintf("the machines behind relay port %s have %d addresses of pool %s, and it allows no more (per_port)", line, have, x.pool.pool.Name)
	})
}

// lineOf names the relay's port that a machine sits behind: circuit and remote id, as text where they are text; empty
// without a relay that tells.
func lineOf(r *wire.Packet) string {
	switch {
	case len(r.CircuitID)+len(r.RemoteID) == 0:
		return ""
	case len(r.RemoteID) == 0:
		return readable(r.CircuitID)
	}
	return readable(r.CircuitID) + " of " + readable(r.RemoteID)
}

func readable(b []byte) string {
	for _, c := range b {
		if c < ' ' || c > '~' {
			return fmt.Sprintf("hex:%x", b)
		}
	}
	return string(b)
}

// maxNamed is how many holders of a full pool are named.
const maxNamed = 6

// whyFull names those who hold a pool, since somebody has to decide who does without.
func (s *Server) whyFull(x *exchange) string {
	var b strings.Builder
	pool := x.pool.range_
	fmt.Fprintf(&b, "pool %s of network %s is full", x.pool.pool.Name, x.scope.network.Name)
	holders := s.deps.Book.Holders(pool, maxNamed)
	for i, l := range holders {
		if i == 0 {
			fmt.Fprintf(&b, ": its %d addresses are held by ", pool.Usable())
		} else {
			b.WriteString(", ")
		}
		writeHolder(&b, l, x.start)
	}
	if more := pool.Usable() - len(holders); more > 0 && len(holders) > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

func writeHolder(b *strings.Builder, l leases.Lease, now time.Time) {
	fmt.Fprintf(b, "%s (%s", l.MAC, l.Addr)
	if l.Hostname != "" {
		fmt.Fprintf(b, ", %s", l.Hostname)
	}
	fmt.Fprintf(b, ", %s for %s)", l.State, l.Expiry.Sub(now).Round(time.Second))
}
