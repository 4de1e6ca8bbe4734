package httpd

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	loginBurst = 10               // wrong tokens of one source until it has to wait
	loginEvery = 10 * time.Second // and then one in this time
	maxSources = 1024             // that are known; further ones share a limit
)

// A loginResult is what became of a token that was shown. It is a label of a metric.
type loginResult string

// The results of a login.
const (
	loginRight   loginResult = "right"
	loginWrong   loginResult = "wrong"
	loginLimited loginResult = "limited" // not looked at
)

// logins limits how many tokens a source may try. Sessions and the Unix socket are not affected.
type logins struct {
	now func() time.Time

	mu      sync.Mutex
	sources map[netip.Addr]*rate.Limiter
}

func newLogins(now func() time.Time) *logins {
	return &logins{now: now, sources: map[netip.Addr]*rate.Limiter{}}
}

// try looks at a token with right, unless its source has shown too many wrong ones.
func (l *logins) try(from netip.Addr, right func() bool) loginResult {
	if from.Is6() {
		if p, err := from.Prefix(64); err == nil { // a host has as many addresses as it likes
			from = p.Addr()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	limit := l.sources[from]
	if limit == nil {
		limit = rate.NewLimiter(rate.Every(loginEvery), loginBurst)
	}
	switch {
	case limit.TokensAt(now) < 1:
		return loginLimited
	case right():
		return loginRight
	}
	l.keepLocked(from, limit, now).AllowN(now, 1)
	return loginWrong
}

// keepLocked remembers the limit of a source that showed a wrong token. Where there are too many, those that have all their tries again are
// forgotten; else new ones share a limit.
func (l *logins) keepLocked(from netip.Addr, limit *rate.Limiter, now time.Time) *rate.Limiter {
	if l.sources[from] == nil && len(l.sources) >= maxSources {
		for a, other := range l.sources {
			if other.TokensAt(now) >= loginBurst {
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
