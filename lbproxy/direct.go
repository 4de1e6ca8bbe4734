package lbproxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Most connections in mode tcp need neither their first bytes nor more than one dial. Those are accepted and connected here,
// and their loop does the rest. The others have a goroutine until they are connected (proxyTCP).

// acceptStream accepts a connection without package net, whose listeners cannot be waited for in another way than by Accept.
func (s *Server) acceptStream(sock *listenSocket) (st *stream, from netip.AddrPort, err error) {
	if err := s.watch(sock); err != nil {
		return nil, from, err
	}
	for {
		fd := -1
		closed := sock.raw.Control(func(listener uintptr) { fd, from, err = acceptSocket(int(listener)) })
		switch {
		case closed != nil:
			return nil, from, closed
		case err == nil:
			return &stream{fd: fd}, from, nil
		case err == unix.EAGAIN:
			select {
			case <-sock.readable:
			case <-sock.closed.Done():
				return nil, from, net.ErrClosed
			}
		case err != unix.EINTR && err != unix.ECONNABORTED:
			return nil, from, os.NewSyscallError("accept4", err)
		}
	}
}

// watch lets a loop report new connections of a listening socket.
func (s *Server) watch(sock *listenSocket) error {
	if sock.watched {
		return nil
	}
	l, err := s.loops.get()
	if err != nil {
		return err
	}
	closed := sock.raw.Control(func(fd uintptr) { err = l.add(&stream{fd: int(fd), notify: sock.readable}) })
	sock.watched = closed == nil && err == nil
	return errors.Join(closed, err)
}

// A directConnect is a connect that a loop waits for.
type directConnect struct {
	start time.Time
	late  *time.Timer
	again func(error) // connects as proxyTCP does, after that error
}

// connectDirect begins to connect a client. It returns false if that is for proxyTCP.
func (s *Server) connectDirect(ctx context.Context, f *frontend, c *clientConn) bool {
	client, ok := c.conn.(*stream)
	if !ok || !s.dialsDirect || f.SendProxy != 0 {
		return false
	}
	b := f.pick(c.src.Addr(), nil)
	if b == nil {
		return false
	}
	c.start = time.Now()
	connect := &directConnect{start: c.start}
	connect.again = func(err error) {
		s.work(func() {
			s.guard(c, func() {
				s.proxy(f, c, func() (net.Conn, *backend, error) {
					return s.connectAfter(ctx, f, b, dialing{client: c.src.Addr(), port: c.socket.addr.Port()}, connect.start, err)
				})
			})
		})
	}
	to := b.at(c.socket.addr.Port())
	backend, err := connectStream(to)
	if err != nil {
		connect.again(err)
		return true
	}
	r, err := s.newRelay(f, b, c, client, backend)
	if err != nil {
		_ = backend.Close()
		connect.again(err)
		return true
	}
	r.connect, r.up.delays = connect, true
	connect.late = time.AfterFunc(min(b.hedgeDelay(s.cfg.Hedge), f.Timeouts.Connect), func() {
		if r.phase.CompareAndSwap(connecting, over) {
			r.connectAgain(dialFailure(to, os.ErrDeadlineExceeded))
		}
	})
	r.begin()
	return true
}

// done ends the connect. It returns false if there is another one.
func (d *directConnect) done(r *relay, events uint32) bool {
	d.late.Stop()
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		if err := r.down.src.connectError(); err != nil {
			r.connectAgain(dialFailure(r.backend.at(r.client.socket.addr.Port()), err))
			return false
		}
	}
	r.connected = time.Now()
	took := r.connected.Sub(d.start)
	r.s.dialed(r.backend, took)
	r.backend.state.traffic.add(took)
	return true
}

// connectAgain ends the relay, and its client gets another one. Only the owner may call it.
func (r *relay) connectAgain(err error) {
	s := r.s
	r.phase.Store(over)
	r.left.Store(0)
	_ = r.down.src.Close()
	s.sessions.end(&r.session, 0, 0)
	r.connect.again(err)
	s.relays.Add(-1)
	s.conns.Done()
}
