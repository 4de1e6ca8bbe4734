package dhcpd

import (
	"strings"
	"sync"
	"time"
)

// A pool that is half empty gives to everyone at any speed: a rack that is switched on at once must not wait. The other
// half is rationed, so that somebody who makes up hardware addresses cannot take all of it before people notice. Who had
// an address before is no newcomer and is never rationed, nor is a reservation.
const (
	// A segment without relay information: many machines, of which nothing tells which are real.
	segmentBurst = 64
	segmentRate  = 10 // a second
	// One port of one relay (option 82): a machine or two, rarely a small switch.
	portBurst = 16
	portRate  = 0.2

	// maxBuckets bounds the memory. Relays have a few thousand ports; an attacker who forges option 82 makes up more, and
	// shares what is left.
	maxBuckets = 4096

	// A pool of which less than this part is free gives newcomers short leases, so that what was taken in vain soon comes
	// back.
	scarceShare = 5 // a fifth
	scarceLease = 10 * time.Minute
)

// A ration limits how fast newcomers get addresses out of a pool that is no longer half empty. It is safe for concurrent
// use.
type ration struct {
	now func() time.Time

	mu      sync.Mutex
	buckets map[bucketKey]*bucket
}

// A bucketKey is where newcomers come from: the network, and the relay's port, empty on the segment itself.
type bucketKey struct{ network, port string }

// A bucket fills with time and is emptied by newcomers.
type bucket struct {
	tokens float64
	at     time.Time
}

func newRation(now func() time.Time) *ration {
	return &ration{now: now, buckets: map[bucketKey]*bucket{}}
}

// allow reports whether a newcomer from that network and relay port may have an address of a pool that runs short.
func (r *ration) allow(network, port string) bool {
	burst, rate := float64(segmentBurst), float64(segmentRate)
	if port != "" {
		burst, rate = portBurst, portRate
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bucketLocked(bucketKey{network, port}, burst).take(r.now(), burst, rate)
}

// bucketLocked finds the bucket of a key; when there are too many, those that are full again are forgotten, and if that
// makes no room all new keys share one.
func (r *ration) bucketLocked(key bucketKey, burst float64) *bucket {
	if b := r.buckets[key]; b != nil {
		return b
	}
	if len(r.buckets) >= maxBuckets {
		r.sweepLocked()
	}
	if len(r.buckets) >= maxBuckets {
		key = bucketKey{}
		if b := r.buckets[key]; b != nil {
			return b
		}
	}
	key.port = strings.Clone(key.port) // it may be part of a packet
	b := &bucket{tokens: burst, at: r.now()}
	r.buckets[key] = b
	return b
}

// sweepLocked forgets the buckets that have filled up since: they say nothing that a new one would not say.
func (r *ration) sweepLocked() {
	now := r.now()
	for key, b := range r.buckets {
		if now.Sub(b.at).Seconds()*portRate >= portBurst {
			delete(r.buckets, key)
		}
	}
}

func (b *bucket) take(now time.Time, burst, rate float64) bool {
	if since := now.Sub(b.at).Seconds(); since > 0 {
		b.tokens = min(burst, b.tokens+since*rate)
		b.at = now
	}
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
