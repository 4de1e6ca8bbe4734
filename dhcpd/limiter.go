package dhcpd

import (
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

const (
	quietFor = time.Minute
	maxQuiet = 4096 // machines remembered; a flood of made-up addresses starts afresh
	// toldBurst and toldRate bound how many machines are told of by name: a rack at once, and then one a second. The
	// counters have them all.
	toldBurst = 64
	toldRate  = 1
)

// A limiter lets one event of a kind through for a machine in a minute: who gets no address asks every few seconds. Of a
// flood of machines it lets a few through.
type limiter struct {
	now func() time.Time

	mu   sync.Mutex
	last map[limited]time.Time
	told map[event.Kind]*bucket
}

type limited struct {
	kind event.Kind
	mac  lab.MAC
}

func newLimiter(now func() time.Time) *limiter {
	return &limiter{now: now, last: map[limited]time.Time{}, told: map[event.Kind]*bucket{}}
}

// first reports whether this is the first in the last minute, and not one of too many machines.
func (l *limiter) first(k event.Kind, m lab.MAC) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, now := limited{k, m}, l.now()
	if at, ok := l.last[key]; ok && now.Sub(at) < quietFor {
		return false
	}
	if !l.roomLocked(k, now) {
		return false
	}
	if len(l.last) >= maxQuiet {
		clear(l.last)
	}
	l.last[key] = now
	return true
}

func (l *limiter) roomLocked(k event.Kind, now time.Time) bool {
	b := l.told[k]
	if b == nil {
		b = &bucket{tokens: toldBurst}
		l.told[k] = b
	}
	return b.take(now, toldBurst, toldRate)
}
