package dhcpd

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

const (
	// probeBurst and probeRate are how many clients wait for their probe, so that a rack that is switched on is not slowed down. Free addresses are probed ahead all the time:
	// on a quiet network no client waits, and no address is given without a probe.
	probeBurst = 8
	probeRate  = 2 // a second
	// maxTries is how many addresses are probed for one DHCPDISCOVER before the client has to send another.
	maxTries = 4

	// conflictTime is how long an address that another machine uses is not given to any client; hearing that machine again
	// extends it.
	conflictTime = 10 * time.Minute

	probeAheadEvery = 5 * time.Second
	// How many free addresses are probed ahead: in a network on the segment, and by ping past a relay.
	probedAhead      = 1024
	probedAheadRelay = 256
)

// needsProbe reports whether nothing is known of an address that should be probed before it is offered.
func (s *Server) needsProbe(x *exchange, addr netip.Addr) bool {
	return x.sock != nil && x.scope.network.Probe && s.prober.Known(addr).Use == segment.Unknown
}

// probeThenOffer probes an address and then offers it, or another one if it is in use. The exchange goes on with the
// snapshot that it began with, on a goroutine of the prober or of the receive loop.
func (s *Server) probeThenOffer(x *exchange, addr netip.Addr) {
	out := segment.NewSender(1, s.sendFailed)
	x = x.keep(out)
	s.prober.Probe(x.path(), addr, x.req.MAC, func(r segment.Result) {
		defer s.contain()
		defer out.Flush()
		if !r.Blocks(x.req.MAC) {
			s.dropped(s.offer(x, addr))
			return
		}
		s.deps.Book.Withdraw(x.req.MAC)
		s.poolConflict(x.pool, r)
		if x.tries++; x.tries < maxTries {
			s.dropped(s.offerFromPool(x))
		}
	})
}

// probeAsync probes an address that is offered at the same time. Clients collect offers for a second or more before they
// request one: a machine that uses the address has answered by then, and the offer is withdrawn.
func (s *Server) probeAsync(x *exchange, addr netip.Addr) {
	mac := x.req.MAC
	s.probeForConflict(x, addr, func() { s.deps.Book.Withdraw(mac) })
}

// probeDeclined finds the machine that uses an address which a client declined. The address is then not given to any other
// client, however many the client has declined.
func (s *Server) probeDeclined(x *exchange, addr netip.Addr) {
	if !x.mayProbe() {
		return
	}
	s.prober.Forget(addr) // it was free before it was given
	s.probeForConflict(x, addr, func() {})
}

// probeDeclinedThenOffer probes the address that was declined longest ago, for a client that gets no other one: the decliner may
// be made up. It is offered if nobody answers there. False: there is none to probe.
func (s *Server) probeDeclinedThenOffer(x *exchange) bool {
	if !x.mayProbe() || x.tries >= maxTries {
		return false
	}
	declined := s.deps.Book.Declined(x.pool.addrs, 1)
	if len(declined) == 0 {
		return false
	}
	out := segment.NewSender(1, s.sendFailed)
	x = x.keep(out)
	x.tries++
	s.probeAgain(x.path(), declined[0], func(r segment.Result) {
		defer s.contain()
		defer out.Flush()
		switch r.Use {
		case segment.Free:
			s.deps.Book.EndDeclined(r.Addr)
		case segment.InUse:
			s.poolConflict(x.pool, r)
		default:
			x.tries = maxTries // too many probes at a time, or frames were lost
		}
		s.dropped(s.offerFromPool(x))
	})
	return true
}

// probeClaimedThenOffer probes an address that a machine only claims, by ARP that anybody can send, for a client that gets no other one. It is
// offered if nobody answers there. False: there is none to probe.
func (s *Server) probeClaimedThenOffer(x *exchange) bool {
	if !x.mayProbe() || x.tries >= maxTries {
		return false
	}
	mac := x.req.MAC
	addr, _, err := s.deps.Book.Offer(leases.Request{
		MAC: mac, Subnet: x.scope.network.Subnet, Pool: x.pool.addrs, Requested: x.req.Requested,
		InUse: func(a netip.Addr) bool { r := s.prober.Known(a); return r.Answered && r.Blocks(mac) },
	})
	if err != nil {
		return false
	}
	out := segment.NewSender(1, s.sendFailed)
	x = x.keep(out)
	x.tries++
	s.prober.Probe(x.path(), addr, mac, func(r segment.Result) {
		defer s.contain()
		defer out.Flush()
		if r.Use == segment.Free || r.Use == segment.InUse && !r.Blocks(mac) {
			s.dropped(s.offer(x, addr))
			return
		}
		s.deps.Book.Withdraw(mac)
		if s.poolConflict(x.pool, r); !r.Answered {
			x.tries = maxTries // too many probes at a time, or frames were lost
		}
		s.dropped(s.offerFromPool(x))
	})
	return true
}

// probeAgain probes an address that may have been found free before it was given.
func (s *Server) probeAgain(path segment.Path, a netip.Addr, done func(segment.Result)) {
	if s.prober.Known(a).Use == segment.Free {
		s.prober.Forget(a)
	}
	s.prober.Probe(path, a, lab.MAC{}, done)
}

// mayProbe reports whether the client has an address of a pool that is probed.
func (x *exchange) mayProbe() bool { return x.sock != nil && x.pool != nil && x.scope.network.Probe }

// probeForConflict probes an address and, if another machine than the client uses it, calls inUse and records the conflict.
// It does nothing past a relay: an ICMP reply has no MAC, and might be the client's own.
func (s *Server) probeForConflict(x *exchange, addr netip.Addr, inUse func()) {
	if x.relayed() {
		return
	}
	p, mac := x.pool, x.req.MAC
	s.prober.Probe(x.path(), addr, mac, func(r segment.Result) {
		if r.Blocks(mac) {
			defer s.contain()
			inUse()
			s.poolConflict(p, r)
		}
	})
}

// path is where the addresses of a client's network are probed.
func (x *exchange) path() segment.Path {
	return segment.Path{Interface: x.sock.Interface(), Relay: x.relayed()}
}

// relayed reports whether the client is not on the segment where its packet came in: a relay sent it, or, where the client renews, a router.
func (x *exchange) relayed() bool {
	return x.req.GIAddr.IsValid() || x.scope.network.Relayed() || x.scope.network.Interface != x.iface
}

// poolConflict takes an address of a pool that a machine uses without a lease out of use, and records it. A claim is not enough.
func (s *Server) poolConflict(p *pool, r segment.Result) {
	if !r.Answered {
		return
	}
	s.deps.Book.Conflict(r.Addr, r.MAC, s.deps.Now().Add(conflictTime))
	if !s.poolConflicts.isNew(r) {
		return
	}
	who := "a machine past the relay"
	if !r.MAC.IsZero() {
		who = r.MAC.String()
	}
	s.deps.Events.Record(event.Event{Kind: event.DHCPPoolConflict, MAC: r.MAC, Addr: r.Addr, Network: p.Network.Name, Detail: "pool " + p.Name, Err: fmt.Sprintf(
		"%s uses %s without a lease; the address is not given to any client for now", who, r.Addr)})
}

// claimsIgnored reports a machine that claims addresses by ARP and answers at none.
func (s *Server) claimsIgnored(mac lab.MAC) {
	s.deps.Events.Record(event.Event{Kind: event.DHCPFlood, MAC: mac, Detail: "ARP of " + mac.String(), Err: fmt.Sprintf(
		"%s announces addresses of pools by ARP and answers no ARP request for them: for %s they keep no address from clients", mac, conflictTime)})
}

const (
	conflictEventEvery = time.Hour
	maxConflicts       = 4096
)

// poolConflicts are the conflicts that were recorded.
type poolConflicts struct {
	mu       sync.Mutex
	recorded map[netip.Addr]segment.Result
}

// isNew reports whether this conflict was not recorded within the last hour.
func (c *poolConflicts) isNew(r segment.Result) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was, ok := c.recorded[r.Addr]; ok && was.MAC == r.MAC && r.At.Sub(was.At) < conflictEventEvery {
		return false
	}
	if c.recorded == nil || len(c.recorded) >= maxConflicts {
		c.recorded = map[netip.Addr]segment.Result{}
	}
	c.recorded[r.Addr] = r
	return true
}

// probeAheadLoop gives the prober, every few seconds, the addresses that pools are likely to give next.
func (s *Server) probeAheadLoop(ctx context.Context) {
	for {
		for path, addrs := range s.nextAddresses(s.deps.Table()) {
			s.prober.ProbeAhead(path, addrs)
		}
		s.recheckAddressConflicts(s.deps.Table())
		if pause.For(ctx, probeAheadEvery) != nil {
			return
		}
	}
}

// nextAddresses returns the free addresses of each segment. A network behind relays is probed by ping, which the kernel routes, whatever
// interface that goes through.
func (s *Server) nextAddresses(t *Table) map[segment.Path][]netip.Addr {
	all := map[segment.Path][]netip.Addr{}
	served := ""
	if names := t.Interfaces(); len(names) > 0 {
		served = names[0]
	}
	for _, sc := range t.scopes {
		n := sc.network
		path, most := segment.Path{Interface: n.Interface}, probedAhead
		if n.Relayed() {
			path.Relay, most = true, probedAheadRelay
		}
		if n.Interface == "" {
			path.Interface = served
		}
		if _, ok := all[path]; !ok {
			all[path] = nil // replaces what was probed there before
		}
		if !sc.serves() || !n.Probe {
			continue
		}
		for _, p := range sc.pools {
			free := s.deps.Book.FreeAddrs(p.addrs, most-len(all[path]))
			if len(free) == 0 && s.useOf(sc, p).Free == 0 {
				s.endDeclined(fullPool{p, path})
			}
			s.recordConflicts(p, free)
			all[path] = append(all[path], free...)
		}
	}
	return all
}

// recordConflicts records machines that were found at free addresses.
func (s *Server) recordConflicts(p *pool, free []netip.Addr) {
	for _, a := range free {
		r := s.prober.Known(a)
		if !r.Answered {
			continue
		}
		if last, ok := s.deps.Book.Bound(r.MAC, p.Network.Subnet); ok && last.Addr == a {
			// Its last holder still uses it: no new client gets it, and it may renew.
			s.deps.Book.Conflict(a, r.MAC, s.deps.Now().Add(conflictTime))
			continue
		}
		s.poolConflict(p, r)
	}
}

// otherServer reports another DHCP server, where this one gives the addresses. With dhcp: proxy another one is expected.
func (s *Server) rogueReplied(r segment.ServerReply) {
	if !s.deps.Table().givesOn(r.Interface) {
		return
	}
	s.m.rogue.Add(float64(1 + r.Suppressed))
	server := r.ServerID
	if !server.IsValid() {
		server = r.SourceIP
	}
	s.rogues.note(rogueKey{r.Interface, server, r.SourceMAC}, struct{}{}, s.deps.Now())
	e := event.Event{
		Kind: event.DHCPRogue, MAC: r.ClientMAC, Addr: server, Detail: fmt.Sprintf("%s (%s) on %s", server, r.SourceMAC, r.Interface),
		Err: fmt.Sprintf("another DHCP server sent %s", r.Kind),
	}
	if r.YIAddr.IsValid() {
		e.Err += " of " + r.YIAddr.String()
	}
	s.deps.Events.Record(e)
}
