package dhcpd

import (
	"strings"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// While half of a pool is free there is no rate limit: a rack that is switched on must not wait. The other half is rate
// limited, so that a client with made-up MACs cannot take all of it before an admin notices. A machine that had an address
// before is not a new client and is never limited, nor is one with a reservation.
const (
	// A segment without relay information: many machines, and no way to know which are real.
	segmentBurst = 64
	segmentRate  = 10 // a second
	// One port of one relay (option 82): a machine or two, rarely a small switch.
	portBurst = 16
	portRate  = 0.2

	// maxBuckets bounds the memory. Relays have a few thousand ports; an attacker who forges option 82 makes up more, and
	// those share one bucket.
	maxBuckets = 4096
)

// A newClientLimiter limits how fast new clients get addresses of a pool that is less than half free. It is safe for
// concurrent use.
type newClientLimiter struct {
	now func() time.Time

	mu      sync.Mutex
	buckets map[bucketKey]*bucket
}

// A bucketKey says where new clients come from: the network, and the relay's port, empty on the segment itself.
type bucketKey struct{ network, relayPort string }

// A bucket is a token bucket.
type bucket struct {
	tokens float64
	at     time.Time
}

func newNewClientLimiter(now func() time.Time) *newClientLimiter {
	return &newClientLimiter{now: now, buckets: map[bucketKey]*bucket{}}
}

// allow reports whether a new client from that network and relay port may have an address.
func (l *newClientLimiter) allow(network, relayPort string) bool {
	burst, rate := float64(segmentBurst), float64(segmentRate)
	if relayPort != "" {
		burst, rate = portBurst, portRate
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bucketLocked(bucketKey{network, relayPort}, burst).take(l.now(), burst, rate)
}

// bucketLocked finds the bucket of a key. When there are too many, those that are full again are deleted; if that is not
// enough, all new keys share one.
func (l *newClientLimiter) bucketLocked(key bucketKey, burst float64) *bucket {
	if b := l.buckets[key]; b != nil {
		return b
	}
	now := l.now()
	if len(l.buckets) >= maxBuckets {
		for k, b := range l.buckets {
			if now.Sub(b.at).Seconds()*portRate >= portBurst {
				delete(l.buckets, k)
			}
		}
	}
	if len(l.buckets) >= maxBuckets {
		key = bucketKey{}
		if b := l.buckets[key]; b != nil {
			return b
		}
	}
	key.relayPort = strings.Clone(key.relayPort) // it may be part of a packet
	b := &bucket{tokens: burst, at: now}
	l.buckets[key] = b
	return b
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

const (
	eventInterval = time.Minute
	maxRecentMACs = 4096 // remembered; a flood of made-up MACs starts afresh
	eventBurst    = 64   // machines of one kind of event at once: a rack
	eventRate     = 1    // and then a second; the counters have all of them
)

// An eventLimiter allows one event of a kind for each machine in a minute, since a machine that gets no address asks every
// few seconds, and of a flood of machines only a few.
type eventLimiter struct {
	now func() time.Time

	mu      sync.Mutex
	last    map[limitedEvent]time.Time
	buckets map[event.Kind]*bucket
}

type limitedEvent struct {
	kind event.Kind
	mac  lab.MAC
}

func newEventLimiter(now func() time.Time) *eventLimiter {
	return &eventLimiter{now: now, last: map[limitedEvent]time.Time{}, buckets: map[event.Kind]*bucket{}}
}

// allow reports whether an event of that kind is to be recorded for the machine.
func (l *eventLimiter) allow(k event.Kind, m lab.MAC) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, now := limitedEvent{k, m}, l.now()
	if at, ok := l.last[key]; ok && now.Sub(at) < eventInterval {
		return false
	}
	b := l.buckets[k]
	if b == nil {
		b = &bucket{tokens: eventBurst}
		l.buckets[k] = b
	}
	if !b.take(now, eventBurst, eventRate) {
		return false
	}
	if len(l.last) >= maxRecentMACs {
		clear(l.last)
	}
	l.last[key] = now
	return true
}
