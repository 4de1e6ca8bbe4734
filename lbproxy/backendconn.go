package lbproxy

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/file/freshfile"
	"github.com/bootlab/bootlab/internal/host/file/regular"
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
	c.proxy.closed()
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

// delivered reports whether the backend's kernel has acknowledged all that was sent.
func (c *backendConn) delivered() bool {
	info, ok := tcpInfo(c.socket)
	acked := info.Bytes_acked - min(info.Bytes_acked, 1) // the kernel counts the SYN
	return c.had.Load() || ok && info.Notsent_bytes == 0 && acked >= info.Bytes_sent-info.Bytes_retrans
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
	conn, err := x.proxy.secure(x.context(), conn, x.frontend, b)
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
	limit, cancel := context.WithTimeout(ctx, f.Timeouts.Connect)
	defer cancel()
	secure, err := p.handshake(limit, conn, backendTLSKey{f.BackendTLS, f.Protocol}, b.ServerName)
	if err != nil {
		_ = conn.Close()
		if ctx.Err() == nil {
			p.s.connectFailed(b, err)
		}
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
