package logins

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/bootlab/bootlab/internal/host/client/clientaddr"
)

// Every is the time between two tries of a source that has used up its first ones.
const Every = 10 * time.Second

const (
	burst      = 10   // wrong tries of one source until it has to wait
	maxSources = 1024 // that are known; further ones share a limit
)

// A Result is what became of a try. It is a label of metrics.
type Result string

// The results.
const (
	Accepted Result = "accepted"
	Rejected Result = "rejected"
	Limited  Result = "limited" // not looked at
)

// A Limiter limits the tries of each source. It is safe for concurrent use.
type Limiter struct {
	now func() time.Time

	mu      sync.Mutex
	sources map[netip.Addr]*rate.Limiter
}

// New returns a Limiter. now is its clock.
func New(now func() time.Time) *Limiter {
	return &Limiter{now: now, sources: map[netip.Addr]*rate.Limiter{}}
}

// Try looks at a password or token with right, unless its source has shown too many wrong ones.
func (l *Limiter) Try(from netip.Addr, right func() bool) Result {
	from = clientaddr.Of(from)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	limit := l.sources[from]
	if limit == nil {
		limit = rate.NewLimiter(rate.Every(Every), burst)
	}
	switch {
	case limit.TokensAt(now) < 1:
		return Limited
	case right():
		return Accepted
	}
	l.keepLocked(from, limit, now).AllowN(now, 1)
	return Rejected
}

// keepLocked remembers the limit of a source that showed a wrong token. Where there are too many, those that have all their tries again are
// forgotten; else new ones share a limit.
func (l *Limiter) keepLocked(from netip.Addr, limit *rate.Limiter, now time.Time) *rate.Limiter {
	if l.sources[from] == nil && len(l.sources) >= maxSources {
		for a, other := range l.sources {
			if other.TokensAt(now) >= burst {
				delete(l.sources, a)
			}
		}
		if len(l.sources) >= maxSources {
			from = netip.Addr{}
			if shared := l.sources[from]; shared != nil {
				return shared
			}
		}
	}
	l.sources[from] = limit
	return limit
}
