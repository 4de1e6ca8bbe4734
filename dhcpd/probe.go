package dhcpd

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"bootlab/dhcpd/segment"
	"bootlab/internal/event"
)

const (
	// maxProbes is how many offers may wait for a probe at a time, and probeBurst and probeRate how many newcomers are
	// made to wait: a rack that is switched on is not slowed down. The survey ahead goes on all the time, so that in quiet
	// times nobody waits and nothing is given away unseen.
	maxProbes  = 16
	probeBurst = 8
	probeRate  = 2 // a second
	// maxTries is how many addresses are tried for one question before the machine has to ask again.
	maxTries = 4

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

// offerFromPool finds an address for a machine without a reservation and offers it: at once where the machine has it
// already or the wire is known to be silent about it, else after a probe.
func (s *Server) offerFromPool(x *exchange, out outbox) dropReason {
	mac := x.req.mac
	held := s.deps.Book.holds(mac, x.scope.network.Subnet)
	addr, ok := s.deps.Book.offer(mac, x.t, x.scope, x.pool, x.req.requested, func(a netip.Addr) bool {
		return s.prober.Known(a).Blocks(mac)
	})
	switch {
	case !ok:
		return s.refuse(x, func() string { return s.whyFull(x) })
	case held || !s.mustProbe(x, addr):
		return s.offer(x, addr, out)
	}
	s.prober.Probe(x.path(), addr, mac, func(r segment.Result) { s.probed(x, addr, r) })
	return dropNone
}

func (s *Server) mustProbe(x *exchange, addr netip.Addr) bool {
	return x.sock != nil && x.scope.network.Probe && s.prober.Known(addr).State == segment.Unknown && s.probes.take()
}

// path is the way to the machines of the exchange's network.
func (x *exchange) path() segment.Path {
	return segment.Path{Interface: x.sock.Interface(), Relay: x.req.giaddr.IsValid()}
}

// probed goes on with an offer after its probe. It runs on a goroutine of the prober's, or of the packet loop's.
func (s *Server) probed(x *exchange, addr netip.Addr, r segment.Result) {
	defer s.contain()
	if !r.Blocks(x.req.mac) {
		s.offer(x, addr, direct{s})
		return
	}
	s.deps.Book.withdraw(x.req.mac)
	s.conflict(x.pool, r)
	if x.tries++; x.tries >= maxTries {
		return
	}
	if why := s.offerFromPool(x, direct{s}); why != dropNone {
		s.m.dropped[why].Inc()
	}
}

// conflict tells of somebody who uses an address of a pool, once in a while for each.
func (s *Server) conflict(p *Pool, r segment.Result) {
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
		if !sleep(ctx, surveyEvery) {
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
		if last, ok := s.deps.Book.anyByAddr(a); ok && last.MAC == r.MAC {
			continue // its last holder lingers
		}
		s.conflict(p, r)
	}
}

// candidates returns the free addresses of each segment. A network behind relays is looked at through all interfaces that
// are served, since nobody says by which one its relay is reached.
func (s *Server) candidates(t *Table) map[segment.Path][]netip.Addr {
	all := map[segment.Path][]netip.Addr{}
	for _, sc := range t.scopes {
		n := sc.network
		path, most := segment.Path{Interface: n.Interface}, surveyed
		if n.Interface == "" {
			path.Relay, most = true, surveyedRelay
			if served := t.Interfaces(); len(served) > 0 {
				path.Interface = served[0]
			}
		}
		if _, ok := all[path]; !ok {
			all[path] = nil // what was surveyed before is over
		}
		if !t.serves(sc) || !n.Probe {
			continue
		}
		for _, p := range sc.pools {
			free := s.deps.Book.freeAddrs(t, p, most-len(all[path]))
			s.tellSquatters(p, free)
			all[path] = append(all[path], free...)
		}
	}
	return all
}
