package lbproxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/host/socket/freebind"

	"golang.org/x/sys/unix"
)

// TCP keep-alive: after a minute without data the kernel sends six probes, ten seconds apart.
const (
	keepIdle     = 60 // seconds
	keepInterval = 10 // seconds
	keepCount    = 6
)

// ListenFree listens on a TCP address that no interface needs to have yet (IP_FREEBIND): the daemon may start before its
// network is up, and a virtual address may move. An unspecified address listens on IPv4 and IPv6.
func ListenFree(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	lc := net.ListenConfig{
		// Accepted sockets inherit keep-alive from the listening socket; set on each, it would cost four system calls.
		KeepAliveConfig: net.KeepAliveConfig{Enable: false},
		KeepAlive:       -1,
		Control: func(network, addr string, c syscall.RawConn) error {
			var err error
			if cerr := c.Control(func(fd uintptr) { err = keepAlive(int(fd)) }); cerr != nil {
				return cerr
			}
			return errors.Join(freebind.Control(network, addr, c), err)
		},
	}
	// Multipath TCP sockets support neither splice nor TCP_INFO.
	lc.SetMultipathTCP(false)
	return lc.Listen(ctx, "tcp", addr.String())
}

func keepAlive(fd int) error {
	return errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepIdle),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepInterval),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepCount),
	)
}

// A listenSocket is one listening socket.
type listenSocket struct {
	net.Listener
	raw       syscall.RawConn // nil: connections can only be accepted by package net
	watched   bool            // a loop reports new connections to readable
	readable  chan struct{}   // holds one value after connections have come
	heartbeat heartbeat       // before and after each connection is handed over: odd in between
	addr      netip.AddrPort
	closed    context.Context // ends when the socket is closed
	cancel    context.CancelFunc

	acceptNext func(fd uintptr) // sets accepted; made once, because each would be garbage. Of the goroutine that accepts.
	accepted   accepted
}

// accepted is what accept4(2) has returned.
type accepted struct {
	fd   int
	from netip.AddrPort
	err  error
}

func newSocket(l net.Listener, addr netip.AddrPort) *listenSocket {
	s := &listenSocket{Listener: l, addr: addr, readable: make(chan struct{}, 1)}
	s.closed, s.cancel = context.WithCancel(context.Background())
	s.acceptNext = func(fd uintptr) { s.accepted.fd, s.accepted.from, s.accepted.err = acceptSocket(int(fd)) }
	if c, ok := l.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			// Accepted sockets inherit it. Package net sets it on each.
			_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) })
			if err == nil {
				s.raw = raw
			}
		}
	}
	return s
}

// close stops accepting. Connections of the socket continue.
func (s *listenSocket) close() {
	s.cancel()
	_ = s.Listener.Close()
}

func (s *listenSocket) isClosed() bool { return s.closed.Err() != nil }

// accept accepts connections until the socket is closed. While a balancer that does not share its address has
// max_connections, new connections wait in the kernel's backlog instead of failing. handling is the context of the connections.
func (s *Server) accept(ctx, handling context.Context, sock *listenSocket) {
	var delay time.Duration
	for {
		if !s.awaitCapacity(sock) {
			return
		}
		c, err := s.acceptOne(sock, delay > 0)
		if err != nil && (errors.Is(err, net.ErrClosed) || sock.isClosed()) {
			return
		}
		if err != nil {
			// Out of descriptors or memory, which connections that end give back.
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			s.log.Warn("accept connection", keyAddr, sock.addr, keyErr, err)
			_ = pause.For(ctx, delay)
			continue
		}
		delay = 0
		if !s.awaitCapacity(sock) {
			abort(c.conn)
			return
		}
		if s.admit(c) != nil {
			abort(c.conn)
			return
		}
		s.handOver(handling, c)
	}
}

// handOver is accepted, which Alive asks for its end.
func (s *Server) handOver(handling context.Context, c *clientConn) {
	c.socket.heartbeat.Add(1)
	defer c.socket.heartbeat.Add(1)
	s.accepted(handling, c)
}

// acceptOne accepts a connection. After an error the listener itself does, which knows who is to learn of errors.
func (s *Server) acceptOne(sock *listenSocket, failed bool) (*clientConn, error) {
	if l := s.active.Load().listeners[sock.addr]; l != nil && l.isDirect() && sock.raw != nil && !failed {
		st, from, err := s.acceptStream(sock)
		if err == nil {
			return &clientConn{socket: sock, conn: st, src: from}, nil
		}
		if errors.Is(err, net.ErrClosed) || sock.isClosed() {
			return nil, err
		}
	}
	conn, err := sock.Accept()
	if err != nil {
		return nil, err
	}
	return &clientConn{socket: sock, conn: conn, src: addrPort(conn.RemoteAddr()), dst: addrPort(conn.LocalAddr())}, nil
}

// awaitCapacity waits while the balancer of a socket, which shares its address with none, has max_connections. It returns false
// once the socket is closed. After Accept it waits for what other sockets of the balancer have accepted meanwhile.
func (s *Server) awaitCapacity(sock *listenSocket) bool {
	waited := false
	for {
		l := s.active.Load().listeners[sock.addr]
		switch {
		case l == nil:
			return false
		case l.only == nil || !l.only.full():
			if waited {
				l.only.notifyOthers()
			}
			return true
		}
		waited = true
		select {
		case <-l.only.state.freed:
		case <-sock.closed.Done():
			return false
		}
	}
}

// notifyOthers passes a notification on to the other sockets of the balancer: it is received once.
func (f *frontend) notifyOthers() {
	if f != nil && f.Listen.Ports() > 1 {
		f.state.notify()
	}
}

// admit adds a connection to those of all balancers, of which its client may have as many as are left for others: one more evicts the
// longest-idle one of its own. A new client waits where all others have one, and later connections wait in the kernel's backlog. The error
// says that the socket was closed.
func (s *Server) admit(c *clientConn) (err error) {
	evict := func() {
		s.metrics.evicted.Inc()
		c.evict()
	}
	if c.limit = s.limit.Add(c.src.Addr(), evict); c.limit != nil {
		return s.awaitEvicted(c)
	}
	s.metrics.delayed.Inc()
	s.logLimit.Do(func() {
		s.log.Warn("connection limit reached: new connections wait until others end; LimitNOFILE of the service sets the limit",
			"limit", s.cfg.Connections, keyAddr, c.socket.addr)
	})
	if c.limit, err = s.limit.AddWait(c.socket.closed, c.src.Addr(), evict); err != nil {
		return err
	}
	return s.awaitEvicted(c)
}

// awaitEvicted waits while connections that have lost their places still have their descriptors, beyond those that may wait for a backend.
func (s *Server) awaitEvicted(c *clientConn) error {
	for s.before.Load()+s.during.Load() >= int64(s.cfg.Connections+s.cfg.Waiting) {
		if err := pause.For(c.socket.closed, evictedTick); err != nil {
			c.limit.Remove()
			return err
		}
	}
	return nil
}

// evictedTick is how often awaitEvicted looks.
const evictedTick = 2 * time.Millisecond
