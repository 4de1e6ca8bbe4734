package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
	"github.com/bootlab/bootlab/internal/lab"
)

// A clientConn is one accepted connection.
type clientConn struct {
	socket *listenSocket
	src    netip.AddrPort // the client; behind a trusted proxy, the client that its PROXY header names
	dst    netip.AddrPort // what the client connected to
	prefix []byte         // bytes that were read to route the connection
	limit  *connlimit.Conn
	start  time.Time // of its way to a backend in mode tcp

	mu      sync.Mutex // held to change conn, and by those who do not own the connection
	conn    net.Conn
	evicted bool

	open atomic.Pointer[atomic.Int64] // Server.before or during, which counts the connection; nil: released
}

// release gives back the connection's slot under the connection limit, once it is closed.
func (c *clientConn) release() {
	c.limit.Remove()
	if open := c.open.Swap(nil); open != nil {
		open.Add(-1)
	}
}

// evict resets the connection, whose owner sees that.
func (c *clientConn) evict() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evicted = true
	reset(c.conn)
}

// wasEvicted reports whether the connection limit has closed the connection.
func (c *clientConn) wasEvicted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.evicted
}

func (c *clientConn) replace(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	if c.evicted {
		reset(c.conn)
	}
}

// stream takes the connection from package net.
func (c *clientConn) stream() (*stream, error) {
	st, err := streamOf(c.conn)
	if err == nil {
		c.replace(st)
	}
	return st, err
}

// netConn gives the connection to package net.
func (c *clientConn) netConn() error {
	st, ok := c.conn.(*stream)
	if !ok {
		return nil
	}
	conn, err := st.netConn()
	if err == nil {
		c.dst = addrPort(conn.LocalAddr())
		c.replace(conn)
	}
	return err
}

// accepted hands a new connection to its balancer. It does not block.
func (s *Server) accepted(ctx context.Context, c *clientConn) {
	open := &s.before
	if s.draining.Load() {
		open = &s.during
	}
	open.Add(1)
	c.open.Store(open)
	l := s.active.Load().listeners[c.socket.addr]
	switch {
	case l == nil:
		abort(c.conn)
		c.release()
	case l.isDirect():
		l.only.state.add()
		s.guard(c, func() {
			if !s.connectDirect(ctx, l.only, c) {
				s.work(func() { s.guard(c, func() { s.proxyTCP(ctx, l.only, c) }) })
			}
		})
	case c.netConn() != nil: // the table has changed since it was accepted
		abort(c.conn)
		c.release()
	case l.isHTTP() && !l.trusts(c.src.Addr()):
		if l.only != nil {
			l.only.state.add()
		}
		s.http.serveConn(l, l.only, c)
	default:
		s.work(func() { s.guard(c, func() { s.route(ctx, l, c) }) })
	}
}

// guard runs a handler. A panic ends its connection and nothing else.
func (s *Server) guard(c *clientConn, handle func()) {
	defer func() {
		if r := recover(); r != nil {
			abort(c.conn)
			c.release()
			s.reject("", rejectPanic, c.src, nil)
			s.panics.Note(r)
		}
	}()
	handle()
}

// route reads the first bytes of a connection and hands it to the balancer that they ask for.
func (s *Server) route(ctx context.Context, l *activeListener, c *clientConn) {
	c.start = time.Now()
	f, why, err := s.match(ctx, l, c)
	if f == nil && why == "" {
		s.http.serveConn(l, nil, c)
		return
	}
	if f != nil && f != l.only && f.full() {
		why, err = rejectLimit, fmt.Errorf("balancer %s has max_connections (%d)", f.Name, f.MaxConnections)
	}
	if why != "" {
		if f != nil {
			s.rejectTCP(f, why, c, err)
		} else {
			s.reject("", why, c.src, err)
		}
		abort(c.conn)
		c.release()
		return
	}
	f.state.add()
	if f.Mode == lab.ModeHTTP {
		s.http.serveConn(l, f, c)
		return
	}
	s.proxyTCP(ctx, f, c)
}

// match reads the PROXY header of a trusted peer and finds the balancer of a connection. Neither a balancer nor a reason
// means that every balancer of the address is HTTP: each request is routed by itself.
func (s *Server) match(ctx context.Context, l *activeListener, c *clientConn) (*frontend, reason, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(s.cfg.Peek))
	var evicted atomic.Bool
	slot := s.pending.Add(c.src.Addr(), func() {
		evicted.Store(true)
		_ = c.conn.SetReadDeadline(time.Unix(1, 0))
	})
	if slot == nil {
		return nil, rejectPending, s.errPending()
	}
	defer slot.Remove()
	f, why, err := s.matchFirstBytes(ctx, l, c)
	if evicted.Load() && err != nil {
		return nil, rejectPending, s.errPending()
	}
	return f, why, err
}

func (s *Server) errPending() error {
	return fmt.Errorf("%d connections wait for their first bytes", s.cfg.Pending)
}

// matchFirstBytes is match without the limit of those that wait. The read deadline is set.
func (s *Server) matchFirstBytes(ctx context.Context, l *activeListener, c *clientConn) (*frontend, reason, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	defer func() { _ = c.conn.SetReadDeadline(time.Time{}) }()
	peek := newPeeker(c.conn)
	defer func() { c.prefix = peek.close() }()
	if l.trusts(c.src.Addr()) {
		src, dst, err := peek.proxyHeader()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, rejectTimeout, err
		case err != nil:
			return nil, rejectHeader, err
		case src.IsValid():
			c.src, c.dst = src, dst
		}
	}
	if l.only != nil || l.isHTTP() {
		return l.only, "", nil
	}
	hello, err := peek.clientHello()
	if err != nil && !errors.Is(err, errUnknownProtocol) {
		return nil, rejectTimeout, err
	}
	if why := l.reasonWithoutSNI(hello, err); why != "" {
		s.metrics.withoutSNI.WithLabelValues(why).Inc()
	}
	f := l.byName(hello.name)
	if f == nil {
		return nil, rejectNoMatch, fmt.Errorf("no balancer of this address matches the name %q", hello.name)
	}
	return l.frontend(f), "", nil
}

// reasonWithoutSNI returns why the server name of a connection is not known; empty: it is. err is of clientHello. Browsers send an extension
// for ECH to every server, so it means nothing if a balancer matches the outer name.
func (l *listener) reasonWithoutSNI(hello clientHello, err error) string {
	switch {
	case errors.Is(err, errHelloTooLong):
		return "too_long"
	case err != nil:
		return "no_tls"
	case hello.encrypted && l.names.find(hello.name, nil) == nil:
		return "ech"
	case hello.name == "":
		return "no_name"
	}
	return ""
}

// hungUp reports whether a client that waits has closed its connection. One that has sent something and closes its sending side may wait for
// an answer, unless it speaks TLS, which has no such state.
func (c *clientConn) hungUp() bool {
	first := c.prefix
	switch ended, open := c.sendingEnded(); {
	case !open:
		return true
	case !ended:
		return false
	}
	if len(first) == 0 {
		first = peekByte(c.conn)
	}
	return len(first) == 0 || first[0] == recordHandshake
}

// sendingEnded reports whether the client has closed its sending side, and whether the connection is still open for the other direction.
func (c *clientConn) sendingEnded() (ended, open bool) {
	switch c.conn.(type) {
	case *stream, *net.TCPConn:
	default:
		return false, true
	}
	info, ok := tcpInfo(c.conn)
	return info.State == unix.BPF_TCP_CLOSE_WAIT, ok && info.State != unix.BPF_TCP_CLOSE
}

// peekByte returns the first byte that has come and was not read; nothing: there is none.
func peekByte(conn net.Conn) []byte {
	b := make([]byte, 1)
	n := 0
	control(conn, func(fd int) { n, _, _ = unix.Recvfrom(fd, b, unix.MSG_PEEK|unix.MSG_DONTWAIT) })
	return b[:max(n, 0)]
}

// addrPort returns the address of a TCP connection, an IPv4 one as such.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return unmap(t.AddrPort())
}

// unmap returns an IPv4 address as such, though its socket has both families.
func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// abort closes a connection with a reset, so that the other side does not take it for a regular end.
func abort(c net.Conn) {
	switch t := c.(type) {
	case *stream:
		t.abort()
		return
	case *net.TCPConn:
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// reset is abort for those who do not own a connection.
func reset(c net.Conn) {
	if st, ok := c.(*stream); ok {
		st.reset()
		return
	}
	abort(c)
}
