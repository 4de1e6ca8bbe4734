package dhcpd

import (
	"sync"
	"time"

	"bootlab/internal/event"
	"bootlab/internal/lab"
)

const (
	quietFor = time.Minute
	maxQuiet = 4096 // machines remembered; a flood of made-up addresses starts afresh
)

// A limiter lets one event of a kind through for a machine in a minute: who gets no address asks every few seconds.
type limiter struct {
	now func() time.Time

	mu   sync.Mutex
	last map[limited]time.Time
}

type limited struct {
	kind event.Kind
	mac  lab.MAC
}

func newLimiter(now func() time.Time) *limiter {
	return &limiter{now: now, last: map[limited]time.Time{}}
}

// first reports whether this is the first in the last minute.
func (l *limiter) first(k event.Kind, m lab.MAC) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, now := limited{k, m}, l.now()
	if at, ok := l.last[key]; ok && now.Sub(at) < quietFor {
		return false
	}
	if len(l.last) >= maxQuiet {
		clear(l.last)
	}
	l.last[key] = now
	return true
}
