package dnsd

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// followedQueries is how many queries may wait for one reader of the query log: one that is slower is dropped.
const followedQueries = 256

// A LoggedQuery is a query that was answered.
type LoggedQuery struct {
	At       time.Time
	From     netip.Addr
	Question string // name and type
	Code     string // such as NOERROR
	Source   string // where the answer comes from, as in the metrics: static, derived, lease, forward, local, none
	Records  int    // in the answer section
}

// A queryLog passes queries on to those who ask for them. Nobody asks most of the time, and nothing is kept. It is safe for concurrent use.
type queryLog struct {
	readers atomic.Int32

	mu   sync.Mutex
	subs map[*querySub]bool
}

type querySub struct {
	wants func(netip.Addr) bool
	out   chan LoggedQuery
}

// FollowQueries returns the queries of the clients that wants accepts, from now on. The channel is closed when ctx ends, or when its
// reader is too slow. wants is called by the goroutines that answer, so it must not wait.
func (s *Server) FollowQueries(ctx context.Context, wants func(netip.Addr) bool) <-chan LoggedQuery {
	l := &s.queries
	sub := &querySub{wants: wants, out: make(chan LoggedQuery, followedQueries)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subs == nil {
		l.subs = map[*querySub]bool{}
	}
	l.subs[sub] = true
	l.readers.Add(1)
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.dropLocked(sub)
	})
	return sub.out
}

func (l *queryLog) dropLocked(sub *querySub) {
	if l.subs[sub] {
		delete(l.subs, sub)
		l.readers.Add(-1)
		close(sub.out)
	}
}

// record passes a finished request on.
func (l *queryLog) record(r *request, now time.Time) {
	if r.trace != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	q := LoggedQuery{At: now, From: r.from, Question: nameText(r.q.name.bytes()) + " " + dns.Type(r.q.qtype).String(),
		Code: dns.RcodeToString[int(r.code)], Source: kindNames[r.kind], Records: int(r.w.count[answers])}
	for sub := range l.subs {
		if !sub.wants(r.from) {
			continue
		}
		select {
		case sub.out <- q:
		default:
			l.dropLocked(sub)
		}
	}
}
