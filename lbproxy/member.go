package lbproxy

import (
	"math/bits"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A memberKey is the stable name of a member.
type memberKey struct {
	balancer string
	addr     netip.AddrPort
}

// A member is what is learned of one backend of one balancer. It outlives tables.
type member struct {
	key     memberKey
	active  atomic.Int64 // connections, in HTTP mode requests, under way or being made
	drained atomic.Bool
}

// A pool is what is learned of one balancer. It outlives tables.
type pool struct {
	name   string
	cursor atomic.Uint64 // round robin
	active atomic.Int64  // connections
	freed  chan struct{} // a connection ended; who waits below the limit looks again
	m      poolMetrics
}

// enter counts a connection in. leave counts it out.
func (p *pool) enter() {
	p.active.Add(1)
	p.m.connections.Inc()
	p.m.active.Inc()
}

func (p *pool) leave() {
	p.active.Add(-1)
	p.m.active.Dec()
	p.poke()
}

func (p *pool) poke() {
	select {
	case p.freed <- struct{}{}:
	default:
	}
}

// A front is a Frontend of the table in force together with what was learned. It is immutable.
type front struct {
	*Frontend
	pool  *pool
	seats []seat // one per Frontend.Backends
}

// A seat is one backend in a front.
type seat struct {
	*Backend
	member *member
	health *Health
}

// full reports whether the balancer may not take another connection.
func (f *front) full() bool {
	return f.MaxConnections > 0 && f.pool.active.Load() >= int64(f.MaxConnections)
}

// open reports whether the seat may get a new connection.
func (s *seat) open() bool { return !s.member.drained.Load() && s.health.usable() }

// tried remembers the seats that one connection has tried.
type tried []*seat

// pick chooses the seat for a client, none twice: among the members that are up, then among the backups that are, then,
// where nothing checks them, among those that refused connections a while ago. It returns nil where none is left. The
// seat's active count includes the pick; who picked gives it back.
func (f *front) pick(client netip.Addr, done tried) *seat {
	for tier := range 3 {
		if s := f.pickTier(client, done, tier); s != nil {
			s.member.active.Add(1)
			return s
		}
	}
	return nil
}

func (f *front) pickTier(client netip.Addr, done tried, tier int) *seat {
	var stack [16]*seat
	candidates := stack[:0]
	for i := range f.seats {
		s := &f.seats[i]
		if s.inTier(tier) && !slices.Contains(done, s) {
			candidates = append(candidates, s)
		}
	}
	if len(candidates) == 0 {
		return nil
	}
	switch f.Balance {
	case lab.LeastConn:
		return f.leastConn(candidates)
	case lab.SourceHash:
		return sourceHash(candidates, client)
	}
	return candidates[f.turn()%uint64(len(candidates))]
}

func (s *seat) inTier(tier int) bool {
	switch tier {
	case 0:
		return s.open() && !s.Backup
	case 1:
		return s.open() && s.Backup
	}
	return s.Check() == lab.CheckNone && !s.member.drained.Load()
}

// Check returns the kind of check that the seat's health comes from.
func (s *seat) Check() lab.CheckKind { return s.health.key.check.Kind }

// turn returns the next turn of the balancer's round.
func (f *front) turn() uint64 { return f.pool.cursor.Add(1) - 1 }

// leastConn returns the seat with the fewest connections, in turn among equals.
func (f *front) leastConn(candidates []*seat) *seat {
	start := f.turn()
	var best *seat
	for i := range candidates {
		s := candidates[(start+uint64(i))%uint64(len(candidates))]
		if best == nil || s.member.active.Load() < best.member.active.Load() {
			best = s
		}
	}
	return best
}

// sourceHash returns the seat that wins the client's rendezvous: the loss of a seat moves only the clients it had.
func sourceHash(candidates []*seat, client netip.Addr) *seat {
	seed := hash(client)
	best, bestScore := candidates[0], uint64(0)
	for _, s := range candidates {
		if score := mix(seed ^ bits.RotateLeft64(s.seed, 32)); score >= bestScore {
			best, bestScore = s, score
		}
	}
	return best
}

// mix spreads every bit of x over the whole word (the finaliser of splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// patience returns how long a connection to the seat may take before another is tried beside it: no less than floor,
// and three times what the last one took.
func (s *seat) patience(floor time.Duration) time.Duration {
	return max(floor, 3*time.Duration(s.health.rtt.Load()))
}
