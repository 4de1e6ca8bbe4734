package lbproxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pires/go-proxyproto"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/connlimit"
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

// Limits of what a client may send before its balancer is known.
const (
	maxPeek    = 16 << 10 // first bytes
	maxProxyV1 = 107      // PROXY header version 1; go-proxyproto bounds version 2 at 4 KiB
)

// errUnknownProtocol says that the first bytes are no TLS ClientHello.
var errUnknownProtocol = errors.New("no TLS ClientHello")

// errHelloTooLong is errUnknownProtocol for what looks like a ClientHello of more than maxPeek bytes.
var errHelloTooLong = fmt.Errorf("%w: longer than %d bytes", errUnknownProtocol, maxPeek)

// recordHandshake is the first byte of TLS (RFC 8446 section 5.1).
const recordHandshake = 22

// A peeker reads the first bytes of a connection, and keeps those after the PROXY header for the backend. The caller sets
// the read deadline of the connection.
type peeker struct{ *bufio.Reader }

var peekers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, maxPeek) }}

func newPeeker(conn net.Conn) peeker {
	r := peekers.Get().(*bufio.Reader)
	r.Reset(conn)
	return peeker{r}
}

// close returns the bytes that were read and not consumed. The peeker is used no more.
func (p peeker) close() []byte {
	b := bytes.Clone(p.buffered())
	p.Reset(nil)
	peekers.Put(p.Reader)
	return b
}

// buffered returns what was read and not consumed.
func (p peeker) buffered() []byte {
	b, _ := p.Peek(p.Buffered())
	return b
}

// more waits for at least one more byte. At maxPeek the error is bufio.ErrBufferFull.
func (p peeker) more() error {
	_, err := p.Peek(p.Buffered() + 1)
	return err
}

// proxyHeader consumes the PROXY header that the connection starts with and returns its addresses. They are invalid if
// there is no header, for connections of the proxy itself (LOCAL, UNKNOWN), and for other families than TCP over IP.
func (p peeker) proxyHeader() (src, dst netip.AddrPort, err error) {
	// go-proxyproto refuses a version 1 header in several segments, so its end is awaited here.
	v1 := []byte("PROXY ")
	for err == nil && !bytes.Contains(p.buffered(), []byte("\n")) && p.Buffered() < maxProxyV1 {
		if b := p.buffered(); !bytes.HasPrefix(b, v1[:min(len(b), len(v1))]) {
			break
		}
		err = p.more()
	}
	if p.Buffered() == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return src, dst, nil // the peer waits for the server to speak first
	}
	h, err := proxyproto.Read(p.Reader)
	if errors.Is(err, proxyproto.ErrNoProxyProtocol) {
		return src, dst, nil
	}
	if err != nil || h.Command.IsLocal() {
		return src, dst, err
	}
	if from, to, ok := h.TCPAddrs(); ok {
		src, dst = addrPort(from), addrPort(to)
	}
	return src, dst, nil
}

// A clientHello is what a TLS ClientHello says about where its connection belongs.
type clientHello struct {
	name      string // canonical server name, of ECH the outer; empty: none
	encrypted bool   // it has the extension encrypted_client_hello (RFC 9849), whose inner name only its server can read
}

// extensionECH is the number of the extension encrypted_client_hello.
const extensionECH = 0xfe0d

// clientHello returns the TLS ClientHello that the connection starts with. crypto/tls parses it: its handshake gets the bytes, and ends
// once it has the hello. errUnknownProtocol means that it is no hello, or too long; another error, that the client sent too little.
func (p peeker) clientHello() (clientHello, error) {
	if err := p.more(); p.Buffered() == 0 {
		return clientHello{}, err
	}
	if p.buffered()[0] != recordHandshake {
		return clientHello{}, errUnknownProtocol
	}
	c := &helloConn{peeker: p}
	err := tls.Server(c, helloConfig).Handshake()
	switch {
	case errors.Is(err, errHelloRead):
		return c.hello, nil
	case errors.Is(c.err, bufio.ErrBufferFull):
		return clientHello{}, errHelloTooLong
	case c.err != nil:
		return clientHello{}, c.err
	}
	return clientHello{}, errUnknownProtocol
}

// errHelloRead ends a handshake whose ClientHello was read.
var errHelloRead = errors.New("client hello read")

var helloConfig = &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
	h.Conn.(*helloConn).hello = clientHello{canonical(h.ServerName), slices.Contains(h.Extensions, extensionECH)}
	return nil, errHelloRead
}}

// A helloConn lets crypto/tls read the bytes of a peeker, which keeps them. Nothing is written.
type helloConn struct {
	net.Conn // nil: crypto/tls needs no other method up to the ClientHello
	peeker   peeker
	read     int // bytes read by crypto/tls
	hello    clientHello
	err      error // that ended reading
}

// Read implements net.Conn.
func (c *helloConn) Read(b []byte) (int, error) {
	if c.read == c.peeker.Buffered() {
		if c.err = c.peeker.more(); c.err != nil {
			return 0, c.err
		}
	}
	n := copy(b, c.peeker.buffered()[c.read:])
	c.read += n
	return n, nil
}

// Write implements net.Conn. It drops the alert that ends the handshake.
func (c *helloConn) Write(b []byte) (int, error) { return len(b), nil }

// writeProxyHeader sends a PROXY header of that version, 1 or 2. Invalid addresses make it UNKNOWN or LOCAL.
func writeProxyHeader(w io.Writer, version int, src, dst netip.AddrPort) error {
	_, err := proxyproto.HeaderProxyFromAddrs(byte(version), net.TCPAddrFromAddrPort(src), net.TCPAddrFromAddrPort(dst)).WriteTo(w)
	return err
}
