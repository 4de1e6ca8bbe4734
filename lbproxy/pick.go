package lbproxy

import (
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/prometheus/client_golang/prometheus"
)

// An endpointKey is the stable name of one backend of one balancer.
type endpointKey struct {
	balancer string
	addr     netip.AddrPort
}

// An endpointState is what is learned of one backend of one balancer. It survives reloads.
type endpointState struct {
	key     endpointKey
	active  atomic.Int64 // connections, in HTTP mode requests, open or being opened
	limit   atomic.Int64 // of active; 0: none
	queue   *queue       // of the balancer
	drained atomic.Bool
	pool    connPool // in HTTP mode
	metrics atomic.Pointer[memberMetrics]
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
	state     *frontendState
	endpoints []endpoint // one for each of Frontend.Backends
	missing   []Backend  // have no address at present
}

// An endpoint is one backend of a frontend.
type endpoint struct {
	*Backend
	state  *endpointState
	health *Health
}

// full reports whether the balancer has max_connections.
func (f *frontend) full() bool {
	return f.MaxConnections > 0 && f.state.active.Load() >= int64(f.MaxConnections)
}

// allowed reports whether the endpoint may get a new connection, if only as the last.
func (e *endpoint) allowed() bool { return !e.state.drained.Load() && !e.health.down.Load() }

// usable reports whether the endpoint may get a new connection at any time.
func (e *endpoint) usable() bool { return e.allowed() && !e.state.ejected.Load() }

// hasUsable reports whether there is an endpoint for a client that is neither down nor ejected.
func (f *frontend) hasUsable(client netip.Addr) bool {
	return slices.ContainsFunc(f.endpoints, func(e endpoint) bool { return e.usable() && !e.excludes(client) })
}

// pick chooses the endpoint for a client, none of those in tried: one that is up, else a backup that is up, else one that
// was ejected. It returns nil if none is left. The endpoint's active count includes the pick; the caller releases it.
func (f *frontend) pick(client netip.Addr, tried []*endpoint) *endpoint {
	e, _ := f.pickOrFull(client, tried)
	return e
}

// pickOrFull is pick that reports whether it found none because those with precedence have max_connections: no
// backup and no ejected backend takes their clients.
func (f *frontend) pickOrFull(client netip.Addr, tried []*endpoint) (e *endpoint, full bool) {
	for tier := range tiers {
		for {
			e, full = f.pickTier(client, tried, tier)
			if e == nil {
				break
			}
			if e.state.take() {
				return e, false
			}
		}
		if full {
			return nil, true
		}
	}
	return nil, false
}

func (f *frontend) pickTier(client netip.Addr, tried []*endpoint, tier int) (e *endpoint, full bool) {
	var stack [16]*endpoint
	candidates, weighted := stack[:0], false
	for i := range f.endpoints {
		e := &f.endpoints[i]
		switch {
		case !e.inTier(tier) || slices.Contains(tried, e) || e.excludes(client):
		case e.state.full():
			full = true
		default:
			candidates = append(candidates, e)
			weighted = weighted || e.weight() != candidates[0].weight()
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

// tiers is how many groups of endpoints pick goes through.
const tiers = 4

func (e *endpoint) inTier(tier int) bool {
	return e.allowed() && e.Backup == (tier%2 == 1) && e.state.ejected.Load() == (tier >= 2)
}

// excludes reports whether the endpoint is not for that client.
func (e *endpoint) excludes(client netip.Addr) bool {
	_, found := slices.BinarySearchFunc(e.NotFor, client, netip.Addr.Compare)
	return found
}

// next advances the balancer's round robin.
func (f *frontend) next() uint64 { return f.state.cursor.Add(1) - 1 }

// weight returns the endpoint's share of new connections, relative to the others.
func (e *endpoint) weight() int {
	if set := e.state.weight.Load(); set > 0 {
		return int(set)
	}
	return max(e.Weight, 1)
}

// weightedTurn returns endpoints in turn, each as often as its weight says. The golden ratio's multiples fill the range
// evenly (Weyl's sequence), so one counter is all that connections share, and a heavy endpoint gets no run of them.
func (f *frontend) weightedTurn(candidates []*endpoint) *endpoint {
	const golden = 0x9e3779b97f4a7c15
	total := 0
	for _, e := range candidates {
		total += e.weight()
	}
	at, _ := bits.Mul64(f.next()*golden, uint64(total))
	for _, e := range candidates {
		if at < uint64(e.weight()) {
			return e
		}
		at -= uint64(e.weight())
	}
	return candidates[0]
}

// leastConn returns the endpoint with the fewest connections for its weight; equals take turns.
func (f *frontend) leastConn(candidates []*endpoint) *endpoint {
	start := f.next()
	var best *endpoint
	for i := range candidates {
		e := candidates[(start+uint64(i))%uint64(len(candidates))]
		if best == nil || e.lessLoaded(best) {
			best = e
		}
	}
	return best
}

// lessLoaded reports whether another connection would load e less than other.
func (e *endpoint) lessLoaded(other *endpoint) bool {
	return (e.state.active.Load()+1)*int64(other.weight()) < (other.state.active.Load()+1)*int64(e.weight())
}

// weightedHash is sourceHash for endpoints of different weights (Schindelhauer and Schomaker 2005, logarithmic method): a
// change of one weight moves only as many clients as that wants.
func weightedHash(candidates []*endpoint, client netip.Addr) *endpoint {
	seed := hash(client)
	best, bestScore := candidates[0], -1.0
	for _, e := range candidates {
		u := (float64(mix(seed^bits.RotateLeft64(e.seed, 32))>>11) + 0.5) / (1 << 53)
		if score := float64(e.weight()) / -math.Log(u); score >= bestScore {
			best, bestScore = e, score
		}
	}
	return best
}

// sourceHash returns the endpoint with the highest rendezvous hash for the client: when an endpoint goes down, only its
// own clients move.
func sourceHash(candidates []*endpoint, client netip.Addr) *endpoint {
	seed := hash(client)
	best, bestScore := candidates[0], uint64(0)
	for _, e := range candidates {
		if score := mix(seed ^ bits.RotateLeft64(e.seed, 32)); score >= bestScore {
			best, bestScore = e, score
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

// hedgeDelay returns how long a connection to the endpoint may take before the next is tried in parallel: at least
// floor, and three times what connects take.
func (e *endpoint) hedgeDelay(floor time.Duration) time.Duration {
	return max(floor, 3*time.Duration(e.health.rtt.Load()))
}
