package lbproxy

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A room holds the connections of all balancers, Config.Connections at most: without a bound a flood of them takes every
// descriptor of the process, and with them DHCP, TFTP, DNS and HTTP. It is safe for concurrent use.
type room struct {
	most int

	mu    sync.Mutex
	n     int
	freed chan struct{} // closed when the next connection ends; nil: nobody waits
	told  time.Time     // when it was full and somebody was told last
}

// enter counts a connection in. Without room it returns what to wait for instead.
func (r *room) enter() (freed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n < r.most {
		r.n++
		return nil
	}
	if r.freed == nil {
		r.freed = make(chan struct{})
	}
	return r.freed
}

// leave counts a connection out.
func (r *room) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n--
	if r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}

// toldEvery is how often people are told that there is no room.
const toldEvery = time.Minute

// news reports whether it is time to tell that there is no room.
func (r *room) news(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.told.IsZero() && now.Sub(r.told) < toldEvery {
		return false
	}
	r.told = now
	return true
}

// roomEvery is how long a connection waits for room before another is asked to make some.
const roomEvery = time.Second

// admit waits until there is room for one more connection; false: the listener was retired. Newcomers behind it wait in the
// kernel's backlog. A client that has more than half of all connections makes room for them.
func (s *Server) admit(ctx context.Context, l *listener) bool {
	for first := true; ; first = false {
		freed := s.room.enter()
		if freed == nil {
			return true
		}
		if first {
			s.metrics.waits.Inc()
		}
		if s.room.news(s.deps.Now()) {
			s.log.Warn("no room for more connections: newcomers wait until others end; the process's limit of open files says how many there may be",
				"most", s.room.most, keyAddr, l.addr)
		}
		if ses := s.sessions.quietestOfMost(s.room.most); ses != nil {
			s.metrics.cut.Inc()
			ses.abort()
		}
		if !l.await(ctx, freed) {
			return false
		}
	}
}

// await waits for room, or for the time to make some; false: the listener was retired.
func (l *listener) await(ctx context.Context, freed <-chan struct{}) bool {
	again := time.NewTimer(roomEvery)
	defer again.Stop()
	select {
	case <-freed:
	case <-again.C:
	case <-l.gone:
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// maxLooks is how many sessions are looked at for who has most of them. They are picked by lot: in a flood that is as good
// as all, and to look at all would be what a flood wants.
const maxLooks = 64

// quietestOfMost returns the session on which no byte moved for longest, of the client that has more than half of as many as
// there may be; nil: nobody has.
func (t *sessions) quietestOfMost(most int) (quietest *session) {
	of := t.ofMost(min(most, maxLooks))
	longest := time.Duration(-1)
	for _, ses := range of {
		if info, ok := tcpInfo(ses.client); ok && quietFor(info) > longest {
			quietest, longest = ses, quietFor(info)
		}
	}
	return quietest
}

// ofMost looks at some sessions and returns those of the client that has more than half of them; nil: nobody has.
func (t *sessions) ofMost(looks int) []*session {
	by := map[netip.Addr][]*session{}
	looked, most := 0, netip.Addr{}
	t.mu.Lock()
	defer t.mu.Unlock()
	for ses := range t.open { // begins somewhere else each time
		if looked == looks {
			break
		}
		looked++
		from := ses.from
		if by[from] = append(by[from], ses); len(by[from]) > len(by[most]) {
			most = from
		}
	}
	if 2*len(by[most]) <= looks {
		return nil
	}
	return by[most]
}

const (
	// descriptors is how many files a connection of TCP mode keeps open: two sockets, and a pipe for each direction, through
	// which the kernel moves the bytes. One of HTTP mode has the sockets alone.
	descriptors = 6
	// share is the part of the process's descriptors that balancers may take: a third.
	share = 3
)

// maxConnections is how many connections the limit of open files allows.
func maxConnections() int {
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) != nil {
		return 1024
	}
	return int(min(max(files.Cur/share/descriptors, 1), 1<<20))
}
