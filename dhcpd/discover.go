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
	s.record(x, event.Event{Kind: event.DHCPDiscover, Detail: x.clientDetail()})
	s.seenAgain(x)
	switch {
	case x.host.reserved():
		return s.offer(x, x.host.IP)
	case x.pool == nil:
		return s.refuseNoAddress(x)
	}
	if why := s.admit(x); why != dropNone {
		return why
	}
	return s.offerFromPool(x)
}

func (s *Server) offer(x *exchange, addr netip.Addr) dropReason {
	a := s.makeReply(x, wire.Offer, addr, s.leaseTime(x))
	s.send(x, a)
	s.record(x, event.Event{Kind: event.DHCPOffer, Addr: addr, Detail: x.replyDetail(a)})
	return dropNone
}

// offerFromPool finds an address for a machine without a reservation and offers it: at once if the machine has it already or
// a probe has found it free, else after a probe. Under load it offers at once and probes at the same time.
func (s *Server) offerFromPool(x *exchange) dropReason {
	mac := x.req.MAC
	addr, fresh, err := s.deps.Book.Offer(leases.Request{
		MAC: mac, Subnet: x.scope.network.Subnet, Pool: x.pool.addrs, Requested: x.req.Requested,
		InUse: func(a netip.Addr) bool { return x.scope.network.Probe && s.prober.Known(a).Blocks(mac) },
	})
	switch {
	case err != nil && (s.probeClaimedThenOffer(x) || s.probeDeclinedThenOffer(x)):
		return dropNone
	case err != nil:
		s.noticeFull(x)
		return s.refuse(x, event.PoolFull, s.poolFull(x))
	case !fresh || !s.needsProbe(x, addr):
		return s.offer(x, addr)
	case s.probes.AllowN(s.deps.Now(), 1):
		s.probeThenOffer(x, addr)
		return dropNone
	}
	s.unprobed.Add(1)
	s.probeAsync(x, addr)
	return s.offer(x, addr)
}

// admit keeps new clients within the limit of their relay port. While a pool is full of machines that do not exist, a new
// client has to ask twice.
func (s *Server) admit(x *exchange) dropReason {
	book, addrs := s.deps.Book, x.pool.addrs
	if book.Remembers(x.req.MAC, x.scope.network.Subnet) {
		return dropNone
	}
	port := relayPort(&x.req)
	if most := x.pool.PerPort; most > 0 && port != "" {
		if have := book.LiveOnRelayPort(addrs, port); have >= most {
			return s.refuse(x, event.PortLimit, fmt.Sprintf("the machines behind relay port %s have %d addresses of pool %s, the limit of a port (per_port)", port, have, x.pool.Name))
		}
	}
	if s.asksOnceInFlood(x) {
		return dropLimited
	}
	return dropNone
}

// asksOnceInFlood reports whether a new client of a pool that is full of machines that do not exist has to ask again.
func (s *Server) asksOnceInFlood(x *exchange) bool {
	return s.floods.on(x.pool.Pool) && !s.floods.askedBefore(x.req.MAC)
}

// relayPort names the port of a relay that a machine is connected to: circuit and remote id (RFC 3046), as text where they
// are text; empty without a relay that sends them.
func relayPort(r *wire.Packet) string {
	switch {
	case len(r.CircuitID)+len(r.RemoteID) == 0:
		return ""
	case len(r.RemoteID) == 0:
		return printable(r.CircuitID)
	}
	return printable(r.CircuitID) + " of " + printable(r.RemoteID)
}

// relayPortOf returns the relay port to store with the machine's lease: that of the lease for a packet that passed no relay.
func (s *Server) relayPortOf(x *exchange) string {
	if passedNoRelay(&x.req) {
		l, _ := s.deps.Book.Bound(x.req.MAC, x.scope.network.Subnet)
		return l.RelayPort
	}
	return relayPort(&x.req)
}

func printable(b []byte) string {
	for _, c := range b {
		if c < ' ' || c > '~' {
			return fmt.Sprintf("hex:%x", b)
		}
	}
	return string(b)
}

// maxHolders is how many holders of a full pool are named.
const maxHolders = 6

// fullTextAge is how old the text of a full pool may be. A machine that asks every few seconds is refused for the same reason each
// time, and a flood does not pay for the text.
const fullTextAge = 5 * time.Second

// poolFull says who holds a pool.
func (s *Server) poolFull(x *exchange) string {
	key := floodedPool{x.scope.network.Name, x.pool.Name}
	s.floods.mu.Lock()
	last := s.floods.texts[key]
	s.floods.mu.Unlock()
	if age := x.start.Sub(last.at); last.text != "" && age >= 0 && age < fullTextAge {
		return last.text
	}
	text := s.holdersText(x)
	s.floods.mu.Lock()
	defer s.floods.mu.Unlock()
	s.floods.texts[key] = fullText{text, x.start}
	return text
}

// holdersText names the machines that hold a pool, for the admin who decides which of them need no address.
func (s *Server) holdersText(x *exchange) string {
	var b strings.Builder
	use := s.useOf(x.scope, x.pool)
	fmt.Fprintf(&b, "pool %s of network %s is full: of its %d addresses %d are leased", x.pool.Name, x.scope.network.Name, use.Usable, use.Leased)
	for _, other := range []struct {
		n    int
		what string
	}{{use.Offered, "offered"}, {use.Quarantined, "in quarantine"}, {use.Free, "about to be probed, or in use without a lease"}} {
		if other.n > 0 {
			fmt.Fprintf(&b, ", %d %s", other.n, other.what)
		}
	}
	holders := s.deps.Book.Holders(x.pool.addrs, maxHolders)
	for i, l := range holders {
		if i == 0 {
			b.WriteString("; held by ")
		} else {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%s", l.MAC, l.Addr)
		if l.Hostname != "" {
			fmt.Fprintf(&b, ", %s", l.Hostname)
		}
		fmt.Fprintf(&b, ", %s until %s)", l.State, l.Expiry.Format(time.DateTime)) // the same text until then: it is counted in one summary
	}
	if more := use.Leased + use.Quarantined - len(holders); more > 0 && len(holders) > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}
