package lbproxy

import (
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/lab"
)

// A backendKey is the stable name of one backend of one balancer.
type backendKey struct {
	balancer string
	addr     netip.AddrPort
}

// A backendState is what is learned of one backend of one balancer. It survives reloads.
type backendState struct {
	key     backendKey
	active  atomic.Int64 // connections, in HTTP mode requests, open or being opened
	limit   atomic.Int64 // of active; 0: none
	queue   *queue       // of the balancer
	drained drained
	pool    connPool // in HTTP mode
	metrics atomic.Pointer[httpMetrics]
	tcp     atomic.Pointer[tcpMetrics] // nil: not of mode tcp
	label   string                     // of the metrics; guarded by Server.mu
	weight  atomic.Int32               // that an admin has set; 0: that of the lab file
	traffic traffic
	passive
	silence
}

// A frontendState is what is learned of one balancer. It survives reloads.
type frontendState struct {
	cursor  atomic.Uint64 // round robin
	active  atomic.Int64  // connections
	freed   chan struct{} // holds one value after a connection ended or the limit changed
	metrics frontendMetrics
	queue   queue
	classes [6]atomic.Pointer[prometheus.Counter] // requests by class of status
}

// add counts a new connection. remove counts it out.
func (s *frontendState) add() {
	s.active.Add(1)
	s.metrics.connections.Inc()
	s.metrics.active.Inc()
}

func (s *frontendState) remove() {
	s.active.Add(-1)
	s.metrics.active.Dec()
	s.notify()
}

func (s *frontendState) notify() {
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// request counts a request in HTTP mode.
func (s *frontendState) request(m *metrics, name string, class int) {
	counter := s.classes[class].Load()
	if counter == nil {
		c := m.requests.WithLabelValues(name, statusClasses[class])
		counter = &c
		s.classes[class].Store(counter)
	}
	(*counter).Inc()
}

// A frontend is a Frontend of the active table together with what was learned. It is immutable.
type frontend struct {
	*Frontend
	state    *frontendState
	backends []backend // one for each of Frontend.Backends
	missing  []Backend // have no address at present
}

// A backend is one backend of a frontend.
type backend struct {
	*Backend
	state  *backendState
	health *checkedHealth
}

// full reports whether the balancer has max_connections.
func (f *frontend) full() bool {
	return f.MaxConnections > 0 && f.state.active.Load() >= int64(f.MaxConnections)
}

// allowed reports whether the backend may get a new connection, if only as the last.
func (b *backend) allowed() bool { return !b.state.drained.is() && !b.health.down.Load() }

// usable reports whether the backend may get a new connection at any time.
func (b *backend) usable() bool { return b.allowed() && !b.state.ejected.Load() }

// hasUsable reports whether there is a backend for a client that is neither down nor ejected.
func (f *frontend) hasUsable(client netip.Addr) bool {
	return slices.ContainsFunc(f.backends, func(b backend) bool { return b.usable() && !b.excludes(client) })
}

// pick chooses the backend for a client, none of those in tried: one that is up, else a backup that is up, else one that
// was ejected. It returns nil if none is left. The backend's active count includes the pick; the caller releases it.
func (f *frontend) pick(client netip.Addr, tried []*backend) *backend {
	b, _ := f.pickOrFull(client, tried)
	return b
}

// pickOrFull is pick that reports whether it found none because those with precedence have max_connections: no
// backup and no ejected backend takes their clients.
func (f *frontend) pickOrFull(client netip.Addr, tried []*backend) (b *backend, full bool) {
	for tier := range tiers {
		for {
			b, full = f.pickTier(client, tried, tier)
			if b == nil {
				break
			}
			if b.state.take() {
				return b, false
			}
		}
		if full {
			return nil, true
		}
	}
	return nil, false
}

func (f *frontend) pickTier(client netip.Addr, tried []*backend, tier int) (b *backend, full bool) {
	var stack [16]*backend
	candidates, weighted := stack[:0], false
	for i := range f.backends {
		b := &f.backends[i]
		switch {
		case !b.inTier(tier) || slices.Contains(tried, b) || b.excludes(client):
		case b.state.full():
			full = true
		default:
			candidates = append(candidates, b)
			weighted = weighted || b.weight() != candidates[0].weight()
		}
	}
	if len(candidates) == 0 {
		return nil, full
	}
	switch {
	case f.Balance == lab.LeastConn:
		return f.leastConn(candidates), false
	case f.Balance == lab.SourceHash && weighted:
		return weightedHash(candidates, client), false
	case f.Balance == lab.SourceHash:
		return sourceHash(candidates, client), false
	case weighted:
		return f.weightedTurn(candidates), false
	}
	return candidates[f.next()%uint64(len(candidates))], false
}

// tiers is how many groups of backends pick goes through.
const tiers = 4

func (b *backend) inTier(tier int) bool {
	return b.allowed() && b.Backup == (tier%2 == 1) && b.state.ejected.Load() == (tier >= 2)
}

// excludes reports whether the backend is not for that client.
func (b *backend) excludes(client netip.Addr) bool {
	_, found := slices.BinarySearchFunc(b.NotFor, client, netip.Addr.Compare)
	return found
}

// next advances the balancer's round robin.
func (f *frontend) next() uint64 { return f.state.cursor.Add(1) - 1 }

// weight returns the backend's share of new connections, relative to the others.
func (b *backend) weight() int {
	if set := b.state.weight.Load(); set > 0 {
		return int(set)
	}
	return max(b.Weight, 1)
}

// weightedTurn returns backends in turn, each as often as its weight says. The golden ratio's multiples fill the range
// evenly (Weyl's sequence), so one counter is all that connections share, and a heavy backend gets no run of them.
func (f *frontend) weightedTurn(candidates []*backend) *backend {
	const golden = 0x9e3779b97f4a7c15
	total := 0
	for _, b := range candidates {
		total += b.weight()
	}
	at, _ := bits.Mul64(f.next()*golden, uint64(total))
	for _, b := range candidates {
		if at < uint64(b.weight()) {
			return b
		}
		at -= uint64(b.weight())
	}
	return candidates[0]
}

// leastConn returns the backend with the fewest connections for its weight; equals take turns.
func (f *frontend) leastConn(candidates []*backend) *backend {
	start := f.next()
	var best *backend
	for i := range candidates {
		b := candidates[(start+uint64(i))%uint64(len(candidates))]
		if best == nil || b.lessLoaded(best) {
			best = b
		}
	}
	return best
}

// lessLoaded reports whether another connection would load b less than other.
func (b *backend) lessLoaded(other *backend) bool {
	return (b.state.active.Load()+1)*int64(other.weight()) < (other.state.active.Load()+1)*int64(b.weight())
}

// weightedHash is sourceHash for backends of different weights (Schindelhauer and Schomaker 2005, logarithmic method): a
// change of one weight moves only as many clients as that wants.
func weightedHash(candidates []*backend, client netip.Addr) *backend {
	seed := hash(client)
	best, bestScore := candidates[0], -1.0
	for _, b := range candidates {
		u := (float64(mix(seed^bits.RotateLeft64(b.seed, 32))>>11) + 0.5) / (1 << 53)
		if score := float64(b.weight()) / -math.Log(u); score >= bestScore {
			best, bestScore = b, score
		}
	}
	return best
}

// sourceHash returns the backend with the highest rendezvous hash for the client: when a backend goes down, only its
// own clients move.
func sourceHash(candidates []*backend, client netip.Addr) *backend {
	seed := hash(client)
	best, bestScore := candidates[0], uint64(0)
	for _, b := range candidates {
		if score := mix(seed ^ bits.RotateLeft64(b.seed, 32)); score >= bestScore {
			best, bestScore = b, score
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

// hedgeDelay returns how long a connection to the backend may take before the next is tried in parallel: at least
// floor, and three times what connects take.
func (b *backend) hedgeDelay(floor time.Duration) time.Duration {
	return max(floor, 3*time.Duration(b.health.rtt.Load()))
}
