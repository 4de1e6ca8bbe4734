package lbproxy

import (
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
	drained atomic.Bool
	pool    connPool // in HTTP mode
	metrics atomic.Pointer[memberMetrics]
	passive
	silence
}

// A frontendState is what is learned of one balancer. It survives reloads.
type frontendState struct {
	cursor  atomic.Uint64 // round robin
	active  atomic.Int64  // connections
	freed   chan struct{} // holds one value after a connection ended or the limit changed
	metrics frontendMetrics
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

// pick chooses the endpoint for a client, none of those in tried: one that is up, else a backup that is up, else one that
// was ejected. It returns nil if none is left. The endpoint's active count includes the pick; the caller gives it back.
func (f *frontend) pick(client netip.Addr, tried []*endpoint) *endpoint {
	for tier := range tiers {
		if e := f.pickTier(client, tried, tier); e != nil {
			e.state.active.Add(1)
			return e
		}
	}
	return nil
}

func (f *frontend) pickTier(client netip.Addr, tried []*endpoint, tier int) *endpoint {
	var stack [16]*endpoint
	candidates := stack[:0]
	for i := range f.endpoints {
		e := &f.endpoints[i]
		if e.inTier(tier) && !slices.Contains(tried, e) && !e.excludes(client) {
			candidates = append(candidates, e)
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
	return candidates[f.next()%uint64(len(candidates))]
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

// leastConn returns the endpoint with the fewest connections; equals take turns.
func (f *frontend) leastConn(candidates []*endpoint) *endpoint {
	start := f.next()
	var best *endpoint
	for i := range candidates {
		e := candidates[(start+uint64(i))%uint64(len(candidates))]
		if best == nil || e.state.active.Load() < best.state.active.Load() {
			best = e
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
