package lbproxy

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/freshfile"
	"github.com/bootlab/bootlab/internal/host/regular"
	"github.com/bootlab/bootlab/internal/lab"
)

const (
	// Keep-alive of backend connections, below the five seconds of the servers with the shortest timeout: a request must
	// not be sent on a connection that its server is just closing.
	backendIdle    = 4 * time.Second
	backendMaxIdle = 256 // connections to one backend
	backendBuffer  = 4 << 10
	// userTimeout is how long a backend may leave sent data unacknowledged (TCP_USER_TIMEOUT). The kernel's own limit is
	// 15 minutes.
	userTimeout = 15 * time.Second
)

// A backendConn is a connection to a backend in HTTP mode. One request at a time has it.
type backendConn struct {
	net.Conn
	socket   net.Conn // Conn, or what its TLS is on
	in       *bufio.Reader
	deadline deadline
	proxy    *httpProxy
	pool     *connPool
	reused   bool
	lost     atomic.Bool    // the backend went down
	had      atomic.Bool    // it had the whole request when it was lost
	answered atomic.Bool    // a byte of the response to the current request has come
	idle     time.Time      // since when it is in the pool
	user     netip.AddrPort // the client whose request it carried last
	raw      syscall.RawConn
	look     func(fd uintptr) bool // peekSocket; nil: not used yet
	looked   syscall.Errno
	peeked   byte
	closed   atomic.Bool

	repeatable   atomic.Bool // the current request may be sent again
	awaitsClient atomic.Bool // the next part of its body is still to come from the client
}

// close closes the connection. It may be called more than once, and while another goroutine uses the connection.
func (c *backendConn) close() {
	if c.closed.Swap(true) {
		return
	}
	c.proxy.deadlines.remove(&c.deadline)
	c.pool.forget(c)
	_ = c.Close()
}

// abort resets the connection.
func (c *backendConn) abort() {
	if t, ok := c.socket.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.close()
}

// quiet reports whether an idle connection is still open and its backend has sent nothing that was not asked for.
func (c *backendConn) quiet() bool {
	if c.in.Buffered() > 0 {
		return false
	}
	if c.Conn != c.socket { // tls.Conn may hold data that the kernel no longer has
		_ = c.SetReadDeadline(time.Unix(1, 0))
		_, err := c.in.Peek(1)
		_ = c.SetReadDeadline(time.Time{})
		return errors.Is(err, os.ErrDeadlineExceeded)
	}
	if c.raw == nil {
		return true
	}
	if c.look == nil {
		c.look = c.peekSocket
	}
	return c.raw.Read(c.look) == nil && c.looked == unix.EAGAIN
}

// peekSocket sets looked to the result of looking for a byte. It allocates nothing, unlike unix.Recvfrom, and never blocks: no
// other goroutine needs this one's thread.
func (c *backendConn) peekSocket(fd uintptr) bool {
	_, _, c.looked = unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&c.peeked)), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
	return true
}

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
	pool *connPool
}

// Close implements net.Conn.
func (c *http2Socket) Close() error {
	c.pool.mu.Lock()
	delete(c.pool.sockets, c.Conn)
	c.pool.mu.Unlock()
	return c.Conn.Close()
}

// addSocket returns the socket of a new HTTP/2 connection, which the pool knows until it is closed.
func (p *connPool) addSocket(c net.Conn) net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sockets == nil {
		p.sockets = make(map[net.Conn]struct{})
	}
	p.sockets[c] = struct{}{}
	return &http2Socket{c, p}
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

// delivered reports whether the backend's kernel has acknowledged all that was sent.
func (c *backendConn) delivered() bool {
	info, ok := tcpInfo(c.socket)
	acked := info.Bytes_acked - min(info.Bytes_acked, 1) // the kernel counts the SYN
	return c.had.Load() || ok && info.Notsent_bytes == 0 && acked >= info.Bytes_sent-info.Bytes_retrans
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

// setBackendOptions lets the kernel notice that a backend is gone.
func setBackendOptions(conn net.Conn, unacked time.Duration) {
	control(conn, func(fd int) {
		_ = keepAlive(fd)
		setUserTimeout(fd, unacked)
	})
}

func setUserTimeout(fd int, limit time.Duration) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
}

// newBackendConn makes a connection to a backend one that requests are sent on: it sends the PROXY header that the balancer wants.
func (x *exchange) newBackendConn(conn net.Conn, b *backend) (*backendConn, error) {
	setBackendOptions(conn, x.proxy.s.cfg.Unacked)
	if version := x.frontend.SendProxy; version != 0 {
		if err := writeProxyHeader(conn, version, x.src, x.dst); err != nil {
			_ = conn.Close()
			return nil, &dialError{balancer: x.frontend.Name, err: err}
		}
	}
	conn, err := x.proxy.secure(x.proxy.ctx, conn, x.frontend, b)
	if err != nil {
		return nil, &dialError{balancer: x.frontend.Name, err: err}
	}
	c := &backendConn{Conn: conn, socket: socketOf(conn), in: bufio.NewReaderSize(conn, backendBuffer), proxy: x.proxy, pool: &b.state.pool}
	c.deadline.conn, c.deadline.write = conn, true
	if t, ok := c.socket.(*net.TCPConn); ok {
		c.raw, _ = t.SyscallConn()
	}
	c.pool.add(c)
	x.proxy.deadlines.add(&c.deadline)
	return c, nil
}

// A dialError is of connecting to a backend: nothing of the request was sent.
type dialError struct {
	balancer string
	err      error
}

// Error implements error.
func (e *dialError) Error() string {
	return fmt.Sprintf("connect to a backend of %s: %v", e.balancer, e.err)
}

// Unwrap returns the cause.
func (e *dialError) Unwrap() error { return e.err }

func isDial(err error) bool { return errors.As(err, new(*dialError)) }

// backendTLS are the TLS configurations for connections to backends, without a server name.
type backendTLS = freshfile.Cache[backendTLSKey, *tls.Config]

type backendTLSKey struct {
	lab.BackendTLS
	protocol lab.BackendProtocol
}

// files returns the CA file, if there is one.
func (k backendTLSKey) files() []string {
	if k.CAFile == "" {
		return nil
	}
	return []string{k.CAFile}
}

func newBackendTLS(key backendTLSKey) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: key.Unverified, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
	c.NextProtos = []string{"http/1.1"}
	if key.protocol == lab.BackendH2 {
		c.NextProtos = []string{"h2"}
	}
	if key.CAFile == "" {
		return c, nil
	}
	var err error
	if c.RootCAs, err = regular.Authorities(key.CAFile); err != nil {
		return nil, &faultError{faultFile, fmt.Errorf("read backend_tls.ca_file: %w", err)}
	}
	return c, nil
}

// secure starts TLS on a new connection to a backend, if its balancer wants that. On an error it closes the connection.
func (p *httpProxy) secure(ctx context.Context, conn net.Conn, f *frontend, b *backend) (net.Conn, error) {
	if !f.BackendTLS.On {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.Timeouts.Connect)
	defer cancel()
	secure, err := p.handshake(ctx, conn, backendTLSKey{f.BackendTLS, f.Protocol}, b.ServerName)
	if err != nil {
		_ = conn.Close()
		p.s.connectFailed(b, err)
		return nil, fmt.Errorf("TLS with backend %s: %w", b.Addr, err)
	}
	p.s.reached(b)
	return secure, nil
}

// handshake is the TLS handshake with a backend, for requests and for checks. name is that of its certificate, where the balancer says none.
func (p *httpProxy) handshake(ctx context.Context, conn net.Conn, key backendTLSKey, name string) (*tls.Conn, error) {
	shared, err := p.backendTLS.Get(key)
	if err != nil {
		return nil, err
	}
	config := shared.Clone()
	config.ServerName = cmp.Or(key.Name, name)
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if key.protocol == lab.BackendH2 && secure.ConnectionState().NegotiatedProtocol != "h2" {
		return nil, errors.New("it does not speak HTTP/2 (ALPN)")
	}
	return secure, nil
}

// socketOf returns what TLS is spoken on; of a connection without TLS itself.
func socketOf(conn net.Conn) net.Conn {
	if secure, ok := conn.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return conn
}
