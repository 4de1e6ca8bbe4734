package dhcpd

import (
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A bucket is a token bucket.
type bucket struct {
	tokens float64
	at     time.Time
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
