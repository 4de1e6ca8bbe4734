package lbproxy

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// A traffic is what an backend has served. The zero value is ready; add and fail take no lock.
type traffic struct {
	total  atomic.Int64 // connections with the backend, in HTTP mode requests
	errors atomic.Int64 // failed connects; in HTTP mode also responses that are 5xx, missing or cut
	counts [latencyBuckets]atomic.Uint32

	mu           sync.Mutex
	older, newer [latencyBuckets]uint32 // counts at the last two rotations
}

// Latencies are counted in four buckets for each power of two of microseconds: an error of a quarter at most.
const (
	latencyBits    = 2
	latencyBuckets = 128 // up to some 70 minutes
	// latencyRotation is how often the latencies before are forgotten: quantiles are those of one to two rotations.
	latencyRotation = 10 * time.Second
)

func latencyBucket(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 0))
	if us < 1<<latencyBits {
		return int(us)
	}
	power := bits.Len64(us) - latencyBits - 1
	return min(power<<latencyBits+int(us>>power), latencyBuckets-1)
}

// latencyOf returns the middle of a bucket.
func latencyOf(bucket int) time.Duration {
	if bucket < 2<<latencyBits {
		return time.Duration(bucket) * time.Microsecond
	}
	power := bucket>>latencyBits - 1
	least := time.Duration(bucket-power<<latencyBits) << power
	return (least + 1<<power/2) * time.Microsecond
}

// add counts a connection or request, and how long its client waited for the backend.
func (t *traffic) add(latency time.Duration) {
	t.total.Add(1)
	t.counts[latencyBucket(latency)].Add(1)
}

// rotate forgets the latencies before the last rotation.
func (t *traffic) rotate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.older = t.newer
	for i := range t.counts {
		t.newer[i] = t.counts[i].Load()
	}
}

// quantiles returns the median and the 99th percentile of the recent latencies; 0: there are none.
func (t *traffic) quantiles() (p50, p99 time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var recent [latencyBuckets]uint32
	var total uint64
	for i := range recent {
		recent[i] = t.counts[i].Load() - t.older[i]
		total += uint64(recent[i])
	}
	at := func(permille uint64) time.Duration {
		var seen uint64
		for i, n := range recent {
			if seen += uint64(n); n > 0 && seen*1000 >= total*permille {
				return latencyOf(i)
			}
		}
		return 0
	}
	return at(500), at(990)
}

// rotateLatencies forgets old latencies of all backends.
func (s *Server) rotateLatencies() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range s.backendStates {
		state.traffic.rotate()
	}
}
