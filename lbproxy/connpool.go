package lbproxy

import (
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A connPool holds the connections to one backend of one balancer. The zero value is empty and ready.
type connPool struct {
	mu     sync.Mutex
	idle   []*backendConn // the last used is the last
	live   map[*backendConn]struct{}
	closed bool

	sockets map[net.Conn]struct{}     // HTTP/2 connections
	streams map[*http2Upload]struct{} // requests on them without a response
}

// An http2Socket is the socket of an HTTP/2 connection to a backend.
type http2Socket struct {
	net.Conn
	pool   *connPool
	closed func() // called once
}

// Close implements net.Conn.
func (c *http2Socket) Close() error {
	c.pool.mu.Lock()
	delete(c.pool.sockets, c.Conn)
	c.pool.mu.Unlock()
	err := c.Conn.Close()
	c.closed()
	return err
}

// addSocket returns the socket of a new HTTP/2 connection, which the pool knows until it is closed. Then closed is called.
func (p *connPool) addSocket(c net.Conn, closed func()) net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sockets == nil {
		p.sockets = make(map[net.Conn]struct{})
	}
	p.sockets[c] = struct{}{}
	return &http2Socket{c, p, sync.OnceFunc(closed)}
}

// ask notes a request on an HTTP/2 connection that waits for its response.
func (p *connPool) ask(u *http2Upload) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams == nil {
		p.streams = make(map[*http2Upload]struct{})
	}
	u.since.Store(int64(time.Since(epoch)))
	p.streams[u] = struct{}{}
}

// withdraw ends ask.
func (p *connPool) withdraw(u *http2Upload) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.streams, u)
}

// loseHTTP2Locked gives up requests without a response. It returns the connections to close.
func (p *connPool) loseHTTP2Locked(what loss) (gone []net.Conn) {
	for u := range p.streams {
		if what >= loseUnanswered || what == loseRepeatable && u.repeatable {
			u.lost.Store(true)
			u.giveUp()
		}
	}
	if what == loseAll {
		gone = slices.Collect(maps.Keys(p.sockets))
	}
	return gone
}

// stalledHTTP2 returns HTTP/2 connections from which nothing has come for that long, if a request waits as long. Others may be sent on
// them meanwhile.
func (p *connPool) stalledHTTP2(silence time.Duration) (out []net.Conn) {
	p.mu.Lock()
	waits := false
	for u := range p.streams {
		waits = waits || u.waited() >= silence
	}
	for c := range p.sockets {
		if waits && len(out) < waitingSample {
			out = append(out, c)
		}
	}
	p.mu.Unlock()
	return slices.DeleteFunc(out, func(c net.Conn) bool {
		info, ok := tcpInfo(c)
		return !ok || info.Bytes_acked <= 1 || time.Duration(info.Last_data_recv)*time.Millisecond < silence
	})
}

// freshFor is how long a connection is trusted for a request that cannot be sent again: less than any server keeps an idle one.
const freshFor = 10 * time.Millisecond

// get returns an idle connection, or nil. For a request that cannot be sent again it is one that the same client has just used: the
// backend may be closing any other.
func (p *connPool) get(user netip.AddrPort, repeatable bool) *backendConn {
	for {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 || !repeatable && (p.idle[n-1].user != user || time.Since(p.idle[n-1].idle) > freshFor) {
			p.mu.Unlock()
			return nil
		}
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.live[c] = struct{}{}
		p.mu.Unlock()
		if c.quiet() {
			c.reused = true
			return c
		}
		c.close()
	}
}

// add adds a new connection, which is in use.
func (p *connPool) add(c *backendConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live == nil {
		p.live = make(map[*backendConn]struct{})
	}
	p.live[c] = struct{}{}
}

// put gives a connection back whose response was read to its end.
func (p *connPool) put(c *backendConn) {
	p.mu.Lock()
	keep := !p.closed && len(p.idle) < backendMaxIdle && !c.lost.Load() && !c.deadline.expired()
	if keep {
		delete(p.live, c)
		c.idle = time.Now()
		c.answered.Store(false)
		c.deadline.clear()
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		c.close()
	}
}

func (p *connPool) forget(c *backendConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, c)
}

// expire closes the connections that are idle since before a time.
func (p *connPool) expire(before time.Time) {
	p.mu.Lock()
	n := 0
	for n < len(p.idle) && p.idle[n].idle.Before(before) {
		n++
	}
	old := append([]*backendConn(nil), p.idle[:n]...)
	p.idle = append(p.idle[:0], p.idle[n:]...)
	p.mu.Unlock()
	for _, c := range old {
		c.close()
	}
}

// closeOldest closes the connection that is idle for longest. It returns false if none is idle.
func (p *connPool) closeOldest() bool {
	p.mu.Lock()
	if len(p.idle) == 0 {
		p.mu.Unlock()
		return false
	}
	c := p.idle[0]
	p.idle = slices.Delete(p.idle, 0, 1)
	p.mu.Unlock()
	c.close()
	return true
}

// A loss is what a backend in HTTP mode loses when it fails, each with what comes before.
type loss int

const (
	loseIdle       loss = iota // idle connections
	loseRepeatable             // requests without a byte of a response that may be sent again
	loseUnanswered             // all requests without a byte of a response: they are sent again or answered
	loseAll
)

// lose closes connections of a backend that has failed.
func (p *connPool) lose(what loss) {
	p.mu.Lock()
	gone := p.idle
	p.idle = nil
	for c := range p.live {
		if what >= loseUnanswered {
			c.lost.Store(true) // its connection is not kept
		}
		if what == loseAll || !c.answered.Load() && (what == loseUnanswered || what == loseRepeatable && c.repeatable.Load()) {
			gone = append(gone, c)
		}
	}
	sockets := p.loseHTTP2Locked(what)
	p.mu.Unlock()
	for _, c := range sockets {
		abort(c)
	}
	for _, c := range gone {
		c.had.Store(c.delivered())
		c.lost.Store(true)
		c.close()
	}
}

// waitingSample is how many connections waiting looks at.
const waitingSample = 64

// waiting returns connections with a request that was sent that long ago, and no byte of a response. It looks at a few only.
func (p *connPool) waiting(silence time.Duration) []net.Conn {
	p.mu.Lock()
	conns := p.unansweredLocked()
	p.mu.Unlock()
	return append(waitedOn(conns, silence, math.MaxInt64), p.stalledHTTP2(silence)...)
}

// waitedFor returns how many requests have waited that long for a byte of a response, and no longer than most. It looks at a few only.
func (p *connPool) waitedFor(d, most time.Duration) (n int) {
	p.mu.Lock()
	conns := p.unansweredLocked()
	for u := range p.streams {
		if waited := u.waited(); waited >= d && waited <= most {
			n++
		}
	}
	p.mu.Unlock()
	return n + len(waitedOn(conns, d, most))
}

// unansweredLocked returns a few connections in HTTP/1.1 with a request, and no byte of its response.
func (p *connPool) unansweredLocked() (conns []*backendConn) {
	for c := range p.live {
		if len(conns) < waitingSample && !c.answered.Load() {
			conns = append(conns, c)
		}
	}
	return conns
}

// waitedOn returns the sockets of those on which a request was sent that long ago, at least and at most, and nothing since. While a client
// leaves its body unfinished the backend waits for it, unless the backend's kernel does not take what has come.
func waitedOn(conns []*backendConn, d, most time.Duration) (out []net.Conn) {
	for _, c := range conns {
		info, ok := tcpInfo(c.socket)
		switch idle := idleFor(&info); {
		case !ok, info.Bytes_acked <= 1, idle < d, idle > most: // the kernel counts the SYN
		case c.awaitsClient.Load() && info.Unacked == 0 && info.Notsent_bytes == 0:
		default:
			out = append(out, c.socket)
		}
	}
	return out
}

// used reports whether the pool ever had a connection.
func (p *connPool) used() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live != nil || p.sockets != nil
}

// conns returns the connections that have a request.
func (p *connPool) conns() (out []net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.live {
		out = append(out, c.socket)
	}
	return slices.AppendSeq(out, maps.Keys(p.sockets))
}

// end closes the pool of a backend that left the lab. Requests in progress finish.
func (p *connPool) end() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.expire(time.Now().Add(time.Hour))
}
