package lbproxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"

	"golang.org/x/sys/unix"
)

// How the kernel finds out that the other side of a quiet connection is gone: after a minute of silence six probes, ten
// seconds apart.
const (
	keepIdle     = 60 // seconds
	keepInterval = 10 // seconds
	keepCount    = 6
)

// ListenFree listens on a TCP address. The address need not be on an interface yet (IP_FREEBIND), so that the daemon
// starts before its network is up and an address may come and go. An unspecified address listens on both families.
func ListenFree(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	lc := net.ListenConfig{
		// Accepted sockets inherit these from the listener; set one by one they would cost four calls a connection.
		KeepAliveConfig: net.KeepAliveConfig{Enable: false},
		KeepAlive:       -1,
		Control: func(network, _ string, c syscall.RawConn) error {
			var err error
			if cerr := c.Control(func(fd uintptr) { err = listenOptions(int(fd), network) }); cerr != nil {
				return cerr
			}
			return err
		},
	}
	// Multipath TCP sockets can be neither spliced nor asked for TCP_INFO.
	lc.SetMultipathTCP(false)
	return lc.Listen(ctx, "tcp", addr.String())
}

func listenOptions(fd int, network string) error {
	free := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
	if network == "tcp6" {
		free = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1)
	}
	return errors.Join(free, keepAlive(fd))
}

func keepAlive(fd int) error {
	return errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepIdle),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepInterval),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepCount),
	)
}

// A listener is one open listen address. gone is closed when it is retired.
type listener struct {
	net.Listener
	addr netip.AddrPort
	gone chan struct{}
	once sync.Once
}

// retire stops accepting. Connections of the listener go on.
func (l *listener) retire() {
	l.once.Do(func() {
		close(l.gone)
		_ = l.Listener.Close()
	})
}

// retired reports whether the listener stopped accepting.
func (l *listener) retired() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// accept takes connections until the listener is retired. A balancer that has its address to itself and is full leaves
// new connections in the kernel's backlog, so that clients wait instead of failing.
func (s *Server) accept(ctx context.Context, l *listener) {
	var rest time.Duration
	for {
		p := s.live.Load().sites[l.addr]
		if p == nil {
			return
		}
		if p.solo != nil && p.solo.full() {
			if !l.waitFreed(p.solo.pool) {
				return
			}
			continue
		}
		conn, err := l.Accept()
		if err != nil && (isClosed(err) || l.retired()) {
			return
		}
		if err != nil {
			// Out of descriptors or memory: what is open goes on, and closing frees some.
			rest = min(max(2*rest, 5*time.Millisecond), time.Second)
			s.log.Warn("accept connection", keyAddr, l.addr, keyErr, err)
			_ = pause.For(ctx, rest)
			continue
		}
		rest = 0
		if !s.admit(ctx, l) {
			abort(conn)
			return
		}
		s.take(ctx, l, conn)
	}
}

// waitFreed waits until a connection of the pool ends or the limit changes; false: the listener was retired.
func (l *listener) waitFreed(p *pool) bool {
	select {
	case <-p.freed:
		return true
	case <-l.gone:
		return false
	}
}
