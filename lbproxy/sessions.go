package lbproxy

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"

	"golang.org/x/sys/unix"
)

// A session is a connection under way. What the kernel knows of its sockets (TCP_INFO) tells whether it is idle and how
// much it has moved, so that nothing stands between the two sockets while bytes flow.
type session struct {
	client  net.Conn
	backend net.Conn // nil in HTTP mode, where backends are the transport's
	born    time.Time
	from    netip.Addr // the client, as a believed peer names it

	// Guarded by sessions.mu.
	pool    *pool         // nil: not known yet
	idle    time.Duration // 0: not known yet
	swept   bool          // lived to see a sweep
	in, out int64         // bytes counted by sweeps
}

// sessions holds every connection under way. The zero sessions is empty and ready.
type sessions struct {
	mu   sync.Mutex
	open map[*session]struct{}
}

func (t *sessions) add(ses *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[*session]struct{})
	}
	t.open[ses] = struct{}{}
}

// settle tells whose a session is that was added without.
func (t *sessions) settle(ses *session, f *front) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ses.pool, ses.idle = f.pool, f.Timeouts.Idle
}

// end takes a session out and counts the bytes that sweeps have not.
func (t *sessions) end(ses *session, in, out int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, ses)
	ses.countLocked(in, out)
}

// countLocked adds what in and out are beyond what was counted. The kernel counts a byte or so more, for FIN.
func (ses *session) countLocked(in, out int64) {
	if ses.pool == nil {
		return
	}
	if in > ses.in {
		ses.pool.m.in.Add(float64(in - ses.in))
		ses.in = in
	}
	if out > ses.out {
		ses.pool.m.out.Add(float64(out - ses.out))
		ses.out = out
	}
}

// abort breaks every session. Who carries it sees the error and ends it.
func (t *sessions) abort() {
	for _, ses := range t.all() {
		ses.abort()
	}
}

func (ses *session) abort() {
	abort(ses.client)
	if ses.backend != nil {
		abort(ses.backend)
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

// sweep looks at the long connections again and again until ctx ends.
func (s *Server) sweep(ctx context.Context) {
	for pause.For(ctx, s.cfg.Sweep) == nil {
		now := time.Now()
		for _, ses := range s.sessions.all() {
			if now.Sub(ses.born) >= s.cfg.Sweep {
				s.sessions.look(ses, now)
			}
		}
	}
}

// look counts what one session has moved since the last look, and breaks it when it was idle for too long or when its
// client or backend no longer acknowledges anything.
func (t *sessions) look(ses *session, now time.Time) {
	client, known := tcpInfo(ses.client)
	if !known {
		return
	}
	backend, both := tcpInfo(ses.backend)
	quiet := min(now.Sub(ses.born), quietFor(client))
	lost := unheard(client)
	if both {
		quiet = min(quiet, quietFor(backend))
		lost = lost || unheard(backend)
	}
	t.mu.Lock()
	first := !ses.swept
	ses.swept = true
	if _, open := t.open[ses]; open && both {
		ses.countLocked(int64(client.Bytes_received), int64(client.Bytes_acked))
	}
	idle := ses.idle
	t.mu.Unlock()
	if first && both {
		control(ses.backend, func(fd int) { _ = keepAlive(fd) })
	}
	if lost || idle > 0 && quiet >= idle {
		ses.abort()
	}
}

// quietFor returns how long a socket has neither sent nor received a byte.
func quietFor(i *unix.TCPInfo) time.Duration {
	return time.Duration(min(i.Last_data_sent, i.Last_data_recv)) * time.Millisecond
}

// How a peer is known to be gone without waiting for the kernel's quarter of an hour: bytes were sent again and again,
// and for this long nothing came back. A peer that only reads slowly still acknowledges probes of its window.
const (
	unheardFor     = 30 * time.Second
	unheardRetries = 3
)

func unheard(i *unix.TCPInfo) bool {
	return i.Unacked > 0 && i.Retransmits >= unheardRetries &&
		time.Duration(i.Last_ack_recv)*time.Millisecond >= unheardFor
}

// tcpInfo returns what the kernel knows of a TCP connection; false: it is not one, or closed.
func tcpInfo(c net.Conn) (info *unix.TCPInfo, ok bool) {
	var err error
	called := control(c, func(fd int) { info, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO) })
	return info, called && err == nil
}

// dead reports whether the kernel has given a connection up, as after a reset.
func dead(c net.Conn) bool {
	const tcpClose = 7 // TCP_CLOSE of <netinet/tcp.h>
	info, ok := tcpInfo(c)
	return ok && info.State == tcpClose
}

// control calls f with the descriptor of a TCP connection; false: it is not one, or closed.
func control(c net.Conn, f func(fd int)) bool {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return false
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) }) == nil
}
