package dhcpd

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// How many machines there are limits nothing: a rack is as large as its pool. Made-up machines are recognized by what they
// do not do.
//
// Those that never request what they are offered keep no address from others: see leases.Offer. Those that do request it
// fill the pool with leases. Once a pool is full, and not before, the server looks for leases whose machines were never seen
// at their addresses and do not answer ARP. If there are many, it ends them, and for a while a new client gets an address at
// its second DISCOVER only, which every real client sends and a made-up machine does not.
//
// On a segment a machine is seen by its ARP, in frames of its own: whatever boots resolves an address first. Messages of DHCP
// show nothing, as anybody can repeat them. Behind a relay there is no ARP, and a machine that does not answer a ping may still
// exist: there it counts as seen once it sends another message some time after it got its lease. Where no machine answers a
// ping that is known to exist, no lease is ended; else only some at a time, the youngest first, which are those of the flood.
const (
	// silentAge is how old a lease must be: a system probes for an address for up to seven seconds before it uses it
	// (RFC 5227 section 2.1.1), and answers no ARP in that time.
	silentAge = 10 * time.Second
	// seenAgain is how long after its lease another message of a machine behind a relay shows that it exists. What is repeated sooner may
	// be a copy.
	seenAgain = 5 * time.Second
	// An address is silent if it answers none of silentRounds probes, of two frames each, silentPause apart.
	silentRounds = 2
	silentPause  = time.Second
	// recheckAfter is how long what a probe has found of an address in use is taken for true where an answer is wanted now.
	recheckAfter = 5 * time.Second
	// silentEvidence silent addresses, of a small pool a part, are a flood.
	silentEvidence = 16
	silentShare    = 4
	// maxSilent bounds how many leases are ended at a time, maxSilentRelay behind a relay, silentProbes how many are probed at a
	// time: some of segment.MaxProbes stay for clients.
	maxSilent      = 256
	maxSilentRelay = 64
	silentProbes   = segment.MaxProbes * 3 / 4
	// Of machines that are known to exist, so many show whether pings are answered behind a relay, if there are minKnown: of fewer
	// all may be off.
	maxKnown = 16
	minKnown = 4

	// floodLasts is how long new clients have to ask twice after the last evidence. Their second DISCOVER counts from
	// askAgain on: a copy of the first one, as of a switch with a loop, does not.
	floodLasts = time.Minute
	askAgain   = 500 * time.Millisecond
	// maxAsked bounds the memory of one generation of clients that have asked once.
	maxAsked = 1 << 16
)

// floods knows which pools are full of machines that do not exist, and who asked while they are. It is safe for concurrent
// use.
type floods struct {
	now  func() time.Time
	full chan fullPool
	last atomic.Int64 // when the last flood ends, in Unix nanoseconds

	mu         sync.Mutex
	texts      map[floodedPool]fullText
	until      map[floodedPool]time.Time
	asked, old map[lab.MAC]int64 // when a client asked first, in Unix nanoseconds; old ones are forgotten next
	rotated    time.Time
}

type floodedPool struct{ network, pool string }

// A fullText says why a pool has no address, as of a time.
type fullText struct {
	text string
	at   time.Time
}

// A fullPool had no address for a new client.
type fullPool struct {
	*pool
	path segment.Path
}

func newFloods(now func() time.Time) *floods {
	return &floods{
		now: now, full: make(chan fullPool, 16), texts: map[floodedPool]fullText{}, until: map[floodedPool]time.Time{}, asked: map[lab.MAC]int64{}, old: map[lab.MAC]int64{},
	}
}

// on reports whether new clients of a pool have to ask twice.
func (f *floods) on(p *lab.Pool) bool {
	now := f.now()
	if now.UnixNano() >= f.last.Load() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return now.Before(f.until[floodedPool{p.Network.Name, p.Name}])
}

// begin notes a flood, or that it goes on. It reports whether it is new.
func (f *floods) begin(p *lab.Pool) bool {
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	key := floodedPool{p.Network.Name, p.Name}
	isNew := !now.Before(f.until[key])
	f.until[key] = now.Add(floodLasts)
	f.last.Store(f.until[key].UnixNano())
	return isNew
}

// seenAgain notes that a machine behind a relay has sent another message.
func (s *Server) seenAgain(x *exchange) {
	if x.scope.network.Relayed() {
		s.deps.Book.AskedAgain(x.req.MAC, x.scope.network.Subnet, seenAgain)
	}
}

// askedBefore reports whether a client asked before, while its pool was full or flooded, and remembers that it asks.
func (f *floods) askedBefore(m lab.MAC) bool {
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked) >= maxAsked || now.Sub(f.rotated) >= floodLasts {
		f.asked, f.old, f.rotated = f.old, f.asked, now
		clear(f.asked)
	}
	first, ok := f.asked[m]
	if !ok {
		first, ok = f.old[m]
	}
	if !ok {
		f.asked[m] = now.UnixNano()
	}
	return ok && now.UnixNano()-first >= int64(askAgain)
}

// noticeFull has the leases of a pool looked at that has no address for a new client.
func (s *Server) noticeFull(x *exchange) {
	if x.sock == nil || !x.scope.network.Probe {
		return
	}
	s.floods.askedBefore(x.req.MAC)
	select {
	case s.floods.full <- fullPool{x.pool, x.path()}:
	default: // others are looked at, and the client asks again
	}
}

// silentLoop looks for leases of machines that do not exist in pools that are full.
func (s *Server) silentLoop(ctx context.Context) {
	looked := map[floodedPool]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-s.floods.full:
			key := floodedPool{f.Network.Name, f.Name}
			if now := s.deps.Now(); now.Sub(looked[key]) >= silentPause {
				s.endConflicts(f)
				s.endSilent(ctx, f)
				looked[key] = s.deps.Now()
			}
		}
	}
}

// endDeclined ends the quarantine of addresses of a full pool that were declined, but at which nobody answers. Many are a flood.
func (s *Server) endDeclined(f fullPool) {
	declined := s.deps.Book.Declined(f.addrs, silentProbes)
	unused := s.silent(f.path, declined)
	for _, a := range unused {
		s.deps.Book.EndDeclined(a)
	}
	for _, a := range declined {
		if r := s.prober.Known(a); r.Use == segment.InUse {
			s.poolConflict(f.pool, r)
		}
	}
	if len(unused) < f.evidence() || !s.floods.begin(f.Pool) {
		return
	}
	s.deps.Events.Record(event.Event{Kind: event.DHCPFlood, Network: f.Network.Name, Detail: "pool " + f.Name, Err: fmt.Sprintf(
		"the pool is full, and %d of its addresses were declined though no machine answers %s there: they are given again; until %s passes without more "+
			"of them, a new machine gets an address at its second DHCPDISCOVER", len(unused), probeName(f.path), floodLasts)})
}

// endConflicts ends the conflicts of a full pool at whose addresses nobody answers any more, and reports a machine that answers at many.
func (s *Server) endConflicts(f fullPool) {
	conflicts := s.deps.Book.Conflicts(f.addrs, s.deps.Now().Add(-recheckAfter), silentProbes)
	addrs, by := make([]netip.Addr, len(conflicts)), map[lab.MAC]int{}
	for i, c := range conflicts {
		addrs[i] = c.Addr
		s.prober.Forget(c.Addr)
	}
	for _, a := range s.silent(f.path, addrs) {
		s.deps.Book.EndConflict(a)
	}
	for _, a := range addrs {
		if r := s.prober.Known(a); r.Use == segment.InUse {
			s.poolConflict(f.pool, r)
			by[r.MAC]++
		}
	}
	for mac, n := range by {
		if n >= silentEvidence && !mac.IsZero() && s.manyAddresses.note(mac, struct{}{}, s.deps.Now()) {
			s.deps.Events.Record(event.Event{Kind: event.DHCPFlood, MAC: mac, Network: f.Network.Name, Detail: "pool " + f.Name, Err: fmt.Sprintf(
				"the pool is full, and %s answers ARP at %d of its addresses or more, without a lease: switch it off, or take its addresses out of the pool", mac, n)})
		}
	}
}

// evidence is how many silent addresses are a flood.
func (f *fullPool) evidence() int { return max(1, min(silentEvidence, f.addrs.Usable()/silentShare)) }

// endSilent ends the leases of a full pool whose machines do not exist.
func (s *Server) endSilent(ctx context.Context, f fullPool) {
	most := maxSilent
	if f.path.Relay {
		most = maxSilentRelay
	}
	found := s.deps.Book.Unverified(f.addrs, s.deps.Now().Add(-silentAge), most)
	for i := range silentRounds {
		if i > 0 && pause.For(ctx, silentPause) != nil {
			return
		}
		if found = s.silent(f.path, found); len(found) < f.evidence() {
			return
		}
	}
	what := "they are not ended, since no machine answers a ping behind this relay"
	if !f.path.Relay || s.answersPings(f) {
		ended, err := s.deps.Book.EndSilent(ctx, found)
		if err != nil {
			s.log.Warn("end leases of machines that do not answer", keyNetwork, f.Network.Name, keyErr, err)
		}
		what = fmt.Sprintf("%d were ended", ended)
	}
	if s.floods.begin(f.Pool) {
		s.deps.Events.Record(event.Event{Kind: event.DHCPFlood, Network: f.Network.Name, Detail: "pool " + f.Name, Err: fmt.Sprintf(
			"the pool is full, and the machines of at least %d of its leases were never seen at their addresses and do not answer %s: %s; until %s passes without more of them, "+
				"a new machine gets an address at its second DHCPDISCOVER", len(found), probeName(f.path), what, floodLasts)})
	}
}

// answersPings reports whether silence behind a relay means anything: not if pings are dropped on the way, or by all machines.
func (s *Server) answersPings(f fullPool) bool {
	known := s.deps.Book.Verified(f.addrs, maxKnown)
	return len(known) < minKnown || len(s.silent(f.path, known)) < len(known)
}

func probeName(p segment.Path) string {
	if p.Relay {
		return "a ping"
	}
	return "ARP"
}

// silent probes addresses and returns those that do not answer. What could not be probed is not among them.
func (s *Server) silent(path segment.Path, addrs []netip.Addr) (silent []netip.Addr) {
	for batch := range slices.Chunk(addrs, silentProbes) {
		results := make(chan segment.Result, len(batch))
		for _, a := range batch {
			s.probeAgain(path, a, func(r segment.Result) { results <- r })
		}
		for range batch {
			if r := <-results; r.Use == segment.Free {
				silent = append(silent, r.Addr)
			}
		}
	}
	return silent
}
