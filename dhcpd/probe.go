package dhcpd

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/observe/event"
)

const (
	// maxProbes is how many addresses are asked for at a time, and probeBurst and probeRate how many newcomers are made to
	// wait for it: a rack that is switched on is not slowed down, and a flood is not asked for. The survey ahead goes on all
	// the time, so that in quiet times nobody waits and nothing is given away unseen.
	maxProbes  = 64
	probeBurst = 8
	probeRate  = 2 // a second
	// maxTries is how many addresses are tried for one question before the machine has to ask again.
	maxTries = 4

	// conflictFor is how long an address that somebody uses is given to nobody else; while he is heard of, it goes on.
	conflictFor = 10 * time.Minute

	surveyEvery = 5 * time.Second
	// surveyed is how many free addresses of a network are looked at ahead: on the segment, and by ping past a relay.
	surveyed      = 1024
	surveyedRelay = 256
)

// A probeBudget limits how many newcomers wait for a probe.
type probeBudget struct {
	now     func() time.Time
	skipped atomic.Uint64

	mu sync.Mutex
	b  bucket
}

func newProbeBudget(now func() time.Time) *probeBudget {
	return &probeBudget{now: now, b: bucket{tokens: probeBurst}}
}

func (p *probeBudget) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.b.take(p.now(), probeBurst, probeRate) {
		return true
	}
	p.skipped.Add(1)
	return false
}

// unseen reports whether nothing is known of an address that should be asked for.
func (s *Server) unseen(x *exchange, addr netip.Addr) bool {
	return x.in.sock != nil && x.scope.network.Probe && s.prober.Known(addr).State == segment.Unknown
}

// probe asks for an address before it is offered, and goes on with the offer when the answer is there.
func (s *Server) probe(x *exchange, addr netip.Addr) {
	in, tries := x.in.keep(direct{s}), x.tries
	s.prober.Probe(x.path(), addr, x.req.MAC, func(r segment.Result) { s.probed(in, addr, r, tries) })
}

// glance asks for an address that is offered meanwhile. Machines collect offers for a second or more before they come for
// one: who uses the address has answered by then, and the offer is taken back. Past a relay nobody says who he is, and it
// might be the machine itself that answers.
func (s *Server) glance(x *exchange, addr netip.Addr) {
	pool, mac := x.pool, x.req.MAC
	if x.path().Relay {
		return
	}
	s.prober.Probe(x.path(), addr, mac, func(r segment.Result) {
		if r.Blocks(mac) {
			defer s.contain()
			s.deps.Book.Withdraw(mac)
			s.conflict(pool, r)
		}
	})
}

// path is where the addresses of a client are asked for.
func (x *exchange) path() segment.Path {
	return segment.Path{Interface: x.in.sock.Interface(), Relay: x.req.GIAddr.IsValid()}
}

// probed goes on with an offer after its probe. It runs on a goroutine of the prober's, or of the packet loop's.
func (s *Server) probed(in *inbound, addr netip.Addr, r segment.Result, tries int) {
	defer s.contain()
	x, why := s.open(in)
	if why == dropNone {
		why = s.place(x)
	}
	switch {
	case why != dropNone: // the lab has changed meanwhile
	case !r.Blocks(x.req.MAC):
		why = s.offer(x, addr)
	case x.pool != nil:
		s.deps.Book.Withdraw(x.req.MAC)
		s.conflict(x.pool, r)
		if x.tries = tries + 1; x.tries < maxTries {
			why = s.offerFromPool(x)
		}
	}
	if why != dropNone {
		s.m.dropped[why].Inc()
	}
}

// conflict tells of somebody who uses an address of a pool, once in a while for each.
func (s *Server) conflict(p *Pool, r segment.Result) {
	s.deps.Book.Conflict(r.Addr, r.MAC, s.deps.Now().Add(conflictFor))
	if !s.squatters.first(r) {
		return
	}
	who := "somebody past the relay"
	if !r.MAC.IsZero() {
		who = r.MAC.String()
	}
	s.deps.Events.Record(event.Event{Kind: event.DHCPConflict, MAC: r.MAC, Addr: r.Addr, Detail: "pool " + p.pool.Name, Err: fmt.Sprintf(
		"%s uses %s and did not get it here; it is given to nobody for now", who, r.Addr)})
}

// squatters are the conflicts that were told.
type squatters struct {
	mu   sync.Mutex
	told map[netip.Addr]segment.Result
}

const (
	squatterAgain = time.Hour
	maxSquatters  = 4096
)

// first reports whether this was not told within the last hour.
func (q *squatters) first(r segment.Result) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if was, ok := q.told[r.Addr]; ok && was.MAC == r.MAC && r.At.Sub(was.At) < squatterAgain {
		return false
	}
	if q.told == nil || len(q.told) >= maxSquatters {
		q.told = map[netip.Addr]segment.Result{}
	}
	q.told[r.Addr] = r
	return true
}

// direct sends one reply at once.
type direct struct{ s *Server }

// Frame implements outbox.
func (direct) Frame() []byte {
	return make([]byte, segment.FrameHeadroom, segment.FrameHeadroom+maxDatagram)
}

// Queue implements outbox.
func (d direct) Queue(sock *segment.Socket, to segment.Dest, frame []byte) {
	if err := sock.Send(to, frame); err != nil {
		d.s.sendFailed(sock, to, frame[segment.FrameHeadroom:], err)
	}
}

// surveyLoop tells the prober, now and then, what pools are likely to give next.
func (s *Server) surveyLoop(ctx context.Context) {
	for {
		t := s.deps.Table()
		for path, addrs := range s.candidates(t) {
			s.prober.Survey(path, addrs)
		}
		if pause.For(ctx, surveyEvery) != nil {
			return
		}
	}
}

// tellSquatters tells who was found on addresses that nobody got here.
func (s *Server) tellSquatters(p *Pool, free []netip.Addr) {
	for _, a := range free {
		r := s.prober.Known(a)
		if r.State != segment.InUse {
			continue
		}
		n := p.pool.Network
		if last, ok := s.deps.Book.Bound(r.MAC, n.Subnet); ok && last.Addr == a {
			continue // its last holder lingers
		}
		s.conflict(p, r)
	}
}

// candidates returns the free addresses of each segment. A network in which the appliance has no address is behind relays:
// it is asked by ping, which the kernel routes, whatever interface that goes through.
func (s *Server) candidates(t *Table) map[segment.Path][]netip.Addr {
	all := map[segment.Path][]netip.Addr{}
	served := ""
	if names := t.Interfaces(); len(names) > 0 {
		served = names[0]
	}
	for _, sc := range t.scopes {
		n := sc.network
		path, most := segment.Path{Interface: n.Interface}, surveyed
		if !n.Address.IsValid() {
			path.Relay, most = true, surveyedRelay
		}
		if n.Interface == "" {
			path.Interface = served
		}
		if _, ok := all[path]; !ok {
			all[path] = nil // what was surveyed before is over
		}
		if !t.serves(sc) || !n.Probe {
			continue
		}
		for _, p := range sc.pools {
			free := s.deps.Book.FreeAddrs(p.range_, most-len(all[path]))
			s.tellSquatters(p, free)
			all[path] = append(all[path], free...)
		}
	}
	return all
}
