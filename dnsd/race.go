package dnsd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// errLoop is returned when there is no server that would not ask us.
var errLoop = errors.New("every server of the rule forwards to this appliance")

// The limits of what is known about another server.
const (
	minRaceDelay = 20 * time.Millisecond // before the next server is asked too, however fast the first one is
	firstRetry   = time.Second           // after a first failure; doubled with each further one
	maxRetry     = time.Minute
	remeasure    = 30 * time.Second // a server that is not the fastest is measured again after so long
	habitsKept   = time.Hour        // for which a server's lack of EDNS or of letter case is remembered
	maxServers   = 1024             // that something is known about: delegations can name any number
)

// A serverState is what is known about another server.
type serverState struct {
	rtt, spread time.Duration // smoothed, as in RFC 6298; 0: never measured
	measured    time.Time
	failures    int       // in a row
	retry       time.Time // when a failed server may be asked again beside a good one
	loops       time.Time // until when it is not asked, because it forwards to us
	plain       time.Time // until when it is asked without EDNS, because it does not know it
	sameCase    time.Time // until when it is asked in lower case, because it does not keep the case of letters

	replied time.Time // the last reply, whatever it was
	misses  int       // questions without a reply since
	lost    time.Time // when the first of them got none
	missed  error     // why the last got none
}

// usualLimit is how long an answer of the server usually takes at most.
func (s *serverState) usualLimit(try time.Duration) time.Duration {
	if s.rtt == 0 {
		return try / 4
	}
	return min(max(s.rtt+4*s.spread, minRaceDelay), try)
}

// A serverTable knows the servers that were asked. It is safe for concurrent use.
type serverTable struct {
	now func() time.Time

	mu      sync.Mutex
	servers map[upstream]*serverState
}

// get returns what is known about a server.
func (t *serverTable) get(addr upstream) serverState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return *t.stateLocked(addr)
}

func (t *serverTable) stateLocked(addr upstream) *serverState {
	s := t.servers[addr]
	if s == nil {
		if len(t.servers) >= maxServers {
			clear(t.servers)
		}
		s = &serverState{}
		t.servers[addr] = s
	}
	return s
}

// update changes what is known about a server.
func (t *serverTable) update(addr upstream, change func(*serverState, time.Time)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(t.stateLocked(addr), t.now())
}

// answered notes that a server answered after so long.
func (t *serverTable) answered(addr upstream, took time.Duration) {
	t.update(addr, func(s *serverState, now time.Time) {
		s.noteReply(nil, now)
		s.measured, s.failures = now, 0
		if s.rtt == 0 {
			s.rtt, s.spread = max(took, 1), took/2
			return
		}
		s.spread += ((took - s.rtt).Abs() - s.spread) / 4
		s.rtt = max(1, s.rtt+(took-s.rtt)/8)
	})
}

// overtaken notes that another server answered first, and this one not yet after so long.
func (t *serverTable) overtaken(addr upstream, waited time.Duration) {
	t.update(addr, func(s *serverState, now time.Time) {
		s.measured = now
		s.rtt = max(s.rtt, waited)
	})
}

func (t *serverTable) failed(addr upstream, err error) {
	t.update(addr, func(s *serverState, now time.Time) {
		s.noteReply(err, now)
		s.failures++
		s.retry = now.Add(min(maxRetry, firstRetry<<min(s.failures-1, 10)))
	})
}

// An order is the one in which the servers of a question are asked.
type order struct {
	servers []upstream
	atOnce  int  // so many are asked together
	down    bool // all of them failed of late
	loops   bool // all of them forward to us
}

// order puts the servers in order: the fastest first, those that failed of late last. Servers that were never or not lately
// measured, and failed ones that may be well again, are asked together with the fastest, so that no client waits for them.
func (t *serverTable) order(servers []upstream) order {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	var good, probes, rest, bad []upstream
	for _, addr := range servers {
		switch s := t.stateLocked(addr); {
		case now.Before(s.loops):
		case s.failures == 0 && s.rtt > 0:
			good = append(good, addr)
		case s.failures == 0:
			probes = append(probes, addr)
		case !now.Before(s.retry):
			s.retry = now.Add(min(maxRetry, firstRetry<<min(s.failures, 10))) // one question is enough
			probes = append(probes, addr)
		default:
			bad = append(bad, addr)
		}
	}
	slices.SortStableFunc(good, func(x, y upstream) int { return cmp.Compare(t.servers[x].rtt, t.servers[y].rtt) })
	for i, addr := range good {
		s := t.servers[addr]
		if i > 0 && now.Sub(s.measured) >= remeasure {
			s.measured = now
			probes = append(probes, addr)
		} else if i > 0 {
			rest = append(rest, addr)
		}
	}
	first := good[:min(1, len(good))]
	all := slices.Concat(first, probes, rest, bad)
	return order{servers: all, atOnce: max(1, len(first)+len(probes)), down: len(good)+len(probes) == 0, loops: len(all) == 0 && len(servers) > 0}
}

// A reply is what asking one server came to.
type serverReply struct {
	server upstream
	e      *cacheEntry
	err    error
}

// A race asks several servers for one answer.
type race struct {
	f       *forwarder
	q       upstreamQuery
	replies chan serverReply
	started map[upstream]time.Time // asked, and not answered yet
	failed  []failedServer
}

// A failedServer is a server that gave no answer, why, and how often it was asked.
type failedServer struct {
	why   string
	times int
}

// fail notes that a server gave no answer.
func (r *race) fail(server upstream, err error) {
	why := fmt.Sprintf("ask %s: %v", server, err)
	var errno syscall.Errno
	switch {
	case isTimeout(err):
		why = fmt.Sprintf("no answer from %s within %g s", server, r.f.try.Seconds())
	case errors.As(err, &errno):
		why = fmt.Sprintf("ask %s: %v", server, errno)
	}
	i := slices.IndexFunc(r.failed, func(f failedServer) bool { return f.why == why })
	if i < 0 {
		i, r.failed = len(r.failed), append(r.failed, failedServer{why: why})
	}
	r.failed[i].times++
}

// err is why no server had an answer, each reason once.
func (r *race) err() error {
	if len(r.failed) == 0 {
		return errNoAnswer
	}
	var all []string
	for _, f := range r.failed {
		switch f.times {
		case 1:
		case 2:
			f.why += " (asked twice)"
		default:
			f.why += fmt.Sprintf(" (asked %d times)", f.times)
		}
		all = append(all, f.why)
	}
	return errors.New(strings.Join(all, "; "))
}

// askServers returns the first answer of q's servers. The fastest is asked first, and the next one when an answer takes longer
// than it usually does. They are asked over and over as long as ctx lasts and one of them may only have lost a packet; once, if
// all of them failed of late.
func (f *forwarder) askServers(ctx context.Context, q upstreamQuery) (*cacheEntry, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends what still waits
	r := &race{f: f, q: q, replies: make(chan serverReply, 2*len(q.servers)+2), started: map[upstream]time.Time{}}
	for {
		l := f.servers.order(q.servers)
		if l.loops {
			return nil, errLoop
		}
		e, err := r.round(ctx, l)
		switch {
		case err == nil:
			return e, nil
		case ctx.Err() != nil, l.down, !errors.Is(err, context.DeadlineExceeded):
			return nil, r.err()
		}
	}
}

// round asks every server of an order once. The error is context.DeadlineExceeded if one of them did not answer in time.
func (r *race) round(ctx context.Context, l order) (*cacheEntry, error) {
	err := errNoAnswer
	next := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next < len(l.servers) || len(r.started) > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			n := 1
			if next == 0 {
				n = l.atOnce
			}
			wait := r.f.try
			for range min(n, len(l.servers)-next) {
				wait = min(wait, r.start(ctx, l.servers[next]))
				next++
			}
			timer.Reset(wait)
		case reply := <-r.replies:
			took := r.f.now().Sub(r.started[reply.server])
			delete(r.started, reply.server)
			if reply.err == nil {
				r.f.servers.answered(reply.server, took)
				r.f.metrics.upstreams.took.WithLabelValues(r.f.metrics.upstreams.label(&r.q, reply.server)).Observe(took.Seconds())
				r.overtaken()
				reply.e.server = reply.server
				return reply.e, nil
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			r.f.metrics.upstreams.failures.WithLabelValues(r.f.metrics.upstreams.label(&r.q, reply.server)).Inc()
			r.f.servers.failed(reply.server, reply.err)
			r.fail(reply.server, reply.err)
			if isTimeout(reply.err) {
				err = context.DeadlineExceeded
			}
			if next < len(l.servers) {
				timer.Reset(0)
			}
		}
	}
	return nil, err
}

// start asks one server and returns how long to wait before the next is asked too.
func (r *race) start(ctx context.Context, server upstream) time.Duration {
	if _, asked := r.started[server]; asked {
		return 0
	}
	r.started[server] = r.f.now()
	state := r.f.servers.get(server)
	go func() {
		var e *cacheEntry
		err := r.f.panics.Run(func() (err error) {
			e, err = r.f.exchange(ctx, r.q, server, &state)
			return err
		})
		r.replies <- serverReply{server, e, err}
	}()
	return state.usualLimit(r.f.try)
}

func (r *race) overtaken() {
	for server, at := range r.started {
		r.f.servers.overtaken(server, r.f.now().Sub(at))
	}
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}
