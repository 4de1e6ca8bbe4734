package lbproxy

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
	"github.com/bootlab/bootlab/internal/host/pause"
)

// A session is a client connection and its backend connection. The kernel's TCP_INFO says whether it is idle and how many
// bytes it moved, so nothing of ours stands between the two sockets.
type session struct {
	client  net.Conn
	backend net.Conn      // nil in HTTP mode
	relay   *relay        // nil in HTTP mode
	to      *backendState // whose connection backend is; nil in HTTP mode
	limit   *connlimit.Conn
	start   time.Time

	turn    atomic.Uint32 // how often the other side has begun to send; odd: the client was last. Of the relay's owner; others read it
	watched atomic.Bool   // answerWatch has it

	// Of answerWatch only.
	asked    time.Time // the client's turn was seen
	asking   uint32    // that turn
	answered bool      // a first response came
	decided  time.Time

	current atomic.Pointer[backendConn] // in HTTP mode, of the request in progress; nil: none

	// Guarded by sessions.mu.
	frontend *frontendState // nil: not known yet
	idle     time.Duration  // timeouts.idle; 0: not known yet
	seen     bool           // by a sweep
	in, out  int64          // bytes counted so far
}

// sessions holds every open session. The zero value is empty and ready.
type sessions struct {
	mu    sync.Mutex
	open  map[*session]struct{}
	fresh []*session // in TCP mode, with a turn that answerWatch has not seen
}

func (t *sessions) add(ses *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[*session]struct{})
	}
	t.open[ses] = struct{}{}
}

// watch lets answerWatch look at a session.
func (t *sessions) watch(ses *session) {
	if ses.watched.Swap(true) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fresh = append(t.fresh, ses)
}

// takeFresh returns the sessions that answerWatch is to look at since the last call.
func (t *sessions) takeFresh() []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := t.fresh
	t.fresh = nil
	return fresh
}

// assign sets the frontend of a session that was added without one.
func (t *sessions) assign(ses *session, f *frontend) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ses.frontend, ses.idle = f.state, f.Timeouts.Idle
}

// end removes a session and counts the bytes that no sweep has counted.
func (t *sessions) end(ses *session, in, out int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, ses)
	ses.countLocked(in, out)
}

// countLocked adds to the metrics what in and out exceed what was counted. The kernel counts the FIN as a byte.
func (ses *session) countLocked(in, out int64) {
	if ses.frontend == nil {
		return
	}
	if in > ses.in {
		ses.frontend.metrics.in.Add(float64(in - ses.in))
		ses.in = in
	}
	if out > ses.out {
		ses.frontend.metrics.out.Add(float64(out - ses.out))
		ses.out = out
	}
}

// abort resets every session. Their goroutines see the error and end.
func (t *sessions) abort() {
	for _, ses := range t.all() {
		ses.abort(endShutdown)
	}
}

// abortOf resets the sessions of one backend of a balancer in TCP mode.
func (t *sessions) abortOf(to *backendState) {
	for _, ses := range t.all() {
		if ses.to == to {
			ses.abort(endBackendDown)
		}
	}
}

// abort resets both sides. why is for the access log of mode tcp.
func (ses *session) abort(why *ending) {
	if ses.relay != nil {
		ses.relay.abort(why)
		return
	}
	abort(ses.client)
	if current := ses.current.Load(); current != nil {
		current.abort()
	}
}

func (t *sessions) all() []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*session, 0, len(t.open))
	for ses := range t.open {
		out = append(out, ses)
	}
	return out
}

// sweep inspects the sessions older than Config.Sweep, every Config.Sweep until ctx ends.
func (s *Server) sweep(ctx context.Context) {
	tick := min(s.cfg.Sweep, time.Second)
	defer s.sweeps.Store(0)
	for swept, rotated := time.Now(), time.Now(); pause.For(ctx, tick) == nil; {
		s.sweeps.Add(1)
		now := time.Now()
		if now.Sub(rotated) >= latencyRotation {
			s.rotateLatencies()
			rotated = now
		}
		if now.Sub(swept) < s.cfg.Sweep {
			continue
		}
		swept = now
		for _, ses := range s.sessions.all() {
			if now.Sub(ses.start) >= s.cfg.Sweep {
				s.inspect(ses, now)
			}
		}
	}
}

// inspect counts the bytes of a session, and aborts it if it was idle for too long or a side is unresponsive.
func (s *Server) inspect(ses *session, now time.Time) {
	client, ok := tcpInfo(ses.client)
	if !ok {
		return
	}
	backend, both := tcpInfo(ses.backend)
	if idleFor(&client) < s.cfg.Sweep {
		ses.limit.Touch() // the connection limit evicts the longest-idle one first
	}
	idle, lost := min(now.Sub(ses.start), idleFor(&client)), false
	if both {
		idle = min(idle, idleFor(&backend))
		lost = unresponsive(&backend)
	}
	s.sessions.mu.Lock()
	first, limit := !ses.seen, ses.idle
	ses.seen = true
	if _, open := s.sessions.open[ses]; open && both {
		ses.countLocked(int64(client.Bytes_received), int64(client.Bytes_acked))
	}
	s.sessions.mu.Unlock()
	if first && both {
		control(ses.backend, func(fd int) { _ = keepAlive(fd) })
	}
	const tcpClose = 7 // TCP_CLOSE of <netinet/tcp.h>: after a reset
	switch {
	case client.State == tcpClose:
		ses.abort(endClient)
	case unresponsive(&client):
		ses.abort(endClientLost)
	case lost:
		ses.abort(endServerLost)
	case limit > 0 && idle >= limit:
		ses.abort(endIdle)
	}
}

// idleFor returns how long a socket has neither sent nor received a byte.
func idleFor(i *unix.TCPInfo) time.Duration {
	return time.Duration(min(i.Last_data_sent, i.Last_data_recv)) * time.Millisecond
}

// A peer is unresponsive after several retransmissions and this long without any packet from it; the kernel itself gives
// up after 15 minutes. A peer that only reads slowly still acknowledges window probes. TCP_USER_TIMEOUT would end its
// connection, too (seen with Linux 6.18), and connections whose first keep-alive probe is lost.
const (
	unresponsiveAfter   = 30 * time.Second
	unresponsiveRetries = 3
)

func unresponsive(i *unix.TCPInfo) bool {
	return i.Unacked > 0 && i.Retransmits >= unresponsiveRetries &&
		time.Duration(i.Last_ack_recv)*time.Millisecond >= unresponsiveAfter
}

// An infoReader reads TCP_INFO without garbage: a sweep reads it of every socket.
type infoReader struct {
	info unix.TCPInfo
	err  error
	read func(fd uintptr)
}

var infoReaders = sync.Pool{New: func() any {
	r := new(infoReader)
	r.read = func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		r.info, r.err = *info, err
	}
	return r
}}

// tcpInfo returns the kernel's TCP_INFO; false: c is no TCP connection, or closed.
func tcpInfo(c net.Conn) (info unix.TCPInfo, ok bool) {
	r := infoReaders.Get().(*infoReader)
	defer infoReaders.Put(r)
	switch c := c.(type) {
	case *stream:
		ok = c.control(r.read)
	case *net.TCPConn:
		raw, err := c.SyscallConn()
		ok = err == nil && raw.Control(r.read) == nil
	}
	return r.info, ok && r.err == nil
}

// isClosed reports whether the kernel has closed a connection, as after a reset.
func isClosed(c net.Conn) bool {
	const tcpClose = 7 // TCP_CLOSE of <netinet/tcp.h>
	info, ok := tcpInfo(c)
	return ok && info.State == tcpClose
}

// control calls f with the file descriptor of a TCP connection; false: c is none, or closed.
func control(c net.Conn, f func(fd int)) bool {
	switch c := c.(type) {
	case *stream:
		return c.control(func(fd uintptr) { f(int(fd)) })
	case *net.TCPConn:
		raw, err := c.SyscallConn()
		return err == nil && raw.Control(func(fd uintptr) { f(int(fd)) }) == nil
	}
	return false
}
