package lbproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// errNoBackend says that no backend may get the connection.
var errNoBackend = errors.New("every backend is down or drained")

// dialTCP is the default Deps.Dial. Keep-alive is turned on later, for long connections.
func dialTCP(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1}
	d.SetMultipathTCP(false)
	// Not Dialer.DialTCP: it binds its zero local address before it connects (Go 1.26). A bound port is taken for every
	// destination; a port that connect chooses is taken for one.
	return d.DialContext(ctx, "tcp", addr.String())
}

// errWaiting says that too many clients wait for a backend already.
var errWaiting = errors.New("too many clients wait for a backend")

const (
	maxDials = 4 // of one client at one time
	// After a round in which every backend refused, the next begins after pauseFirst, then after up to pauseMost.
	pauseFirst = 50 * time.Millisecond
	pauseMost  = 200 * time.Millisecond
)

// connect connects a client to a backend of f. If the first refuses, the next is tried at once; if it does not answer
// within its hedgeDelay, the next is tried in parallel and the first to answer is used. Once all were tried, they are
// tried again, until one answers or timeouts.connect ends. The caller gives the backend's active count back.
func (s *Server) connect(ctx context.Context, f *frontend, c *clientConn) (net.Conn, *backend, error) {
	client := c.src.Addr()
	b, err := s.choose(ctx, f, client, c.hungUp)
	if err != nil {
		return nil, nil, err
	}
	return s.connectFrom(ctx, f, b, dialing{client: client, port: c.socket.addr.Port()})
}

// dialing is whom a backend is dialed for.
type dialing struct {
	client netip.Addr
	port   uint16     // to which the client has connected; 0: every backend has a port
	failed []*backend // that accepted for it before, and failed in the handshake: none is dialed beside another
}

// at returns the address of the backend for a client that has connected to port.
func (b *Backend) at(port uint16) netip.AddrPort {
	if b.hasClientPort() {
		return netip.AddrPortFrom(b.Addr.Addr(), port)
	}
	return b.Addr
}

// hasClientPort reports whether clients reach the backend at the port to which they have connected.
func (b *Backend) hasClientPort() bool { return b.Addr.Addr().IsValid() && b.Addr.Port() == 0 }

// connectFrom is connect that begins with b, which pick has chosen.
func (s *Server) connectFrom(ctx context.Context, f *frontend, b *backend, d dialing) (net.Conn, *backend, error) {
	start := time.Now()
	conn, err := s.connectFirst(ctx, f, b, d.port)
	if err == nil {
		return conn, b, nil
	}
	return s.connectAfter(ctx, f, b, d, start, err)
}

// connectFirst connects to b if that answers within its hedgeDelay. An error is for connectAfter.
func (s *Server) connectFirst(ctx context.Context, f *frontend, b *backend, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, min(b.hedgeDelay(s.cfg.Hedge), f.Timeouts.Connect))
	defer cancel()
	result := s.dial(ctx, b, b.at(port))
	if result.err == nil {
		s.dialed(f, b, result.took)
	}
	return result.conn, result.err
}

// connectAfter goes on after the first connect to b, at start, ended with an error.
func (s *Server) connectAfter(ctx context.Context, f *frontend, b *backend, d dialing, start time.Time, err error) (net.Conn, *backend, error) {
	if ctx.Err() != nil {
		b.state.release()
		return nil, nil, ctx.Err()
	}
	select {
	case s.waiting <- struct{}{}:
		defer func() { <-s.waiting }()
	default:
		s.dialFailed(b, err)
		return nil, nil, fmt.Errorf("%w (%d); %s: %w", errWaiting, cap(s.waiting), b.Addr, err)
	}
	limit, cancel := context.WithDeadline(ctx, start.Add(f.Timeouts.Connect))
	defer cancel()
	r := &race{s: s, f: f, dialing: d, tried: append(slices.Clone(d.failed), b), err: err, results: make(chan dialResult, maxDials)}
	if isSilence(err) {
		s.connectFailed(b, err)
		r.dial(limit, b) // again, in parallel to the next
	} else {
		s.dialFailed(b, err)
	}
	winner := r.run(limit)
	cancel()
	r.wait(ctx, winner)
	return winner.conn, winner.backend, r.err
}

type dialResult struct {
	backend *backend
	conn    net.Conn
	took    time.Duration
	err     error
}

// dial connects to b, or for a check to no backend, at an address.
func (s *Server) dial(ctx context.Context, b *backend, to netip.AddrPort) dialResult {
	start := time.Now()
	conn, err := s.deps.Dial(ctx, to)
	return dialResult{b, conn, time.Since(start), err}
}

// A race dials backends for one client, each a hedgeDelay after the one before, until one answers.
type race struct {
	s *Server
	f *frontend
	dialing
	tried   []*backend // in this round, after those that failed
	last    *backend   // that was dialed and has not refused
	round   int
	err     error // of the last dial; nil: one succeeded
	results chan dialResult
	cancels []context.CancelFunc // of the dials in progress and of older ones, the latest last
	dials   int                  // in progress
}

// run dials backends until one answers or ctx ends. It returns the winner, or an empty result.
func (r *race) run(ctx context.Context) dialResult {
	timer := time.NewTimer(r.next(ctx))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if r.last != nil {
				r.s.connectFailed(r.last, context.DeadlineExceeded) // it did not answer in time, and still may
			}
			timer.Reset(r.next(ctx))
		case result := <-r.results:
			r.dials--
			r.err = result.err
			if result.err == nil {
				r.s.dialed(r.f, result.backend, result.took)
				return result
			}
			r.s.dialFailed(result.backend, result.err)
			if result.backend == r.last {
				r.last = nil
			}
			if r.dials == 0 {
				timer.Reset(r.next(ctx))
			}
		case <-ctx.Done():
			return dialResult{}
		}
	}
}

// next dials the next backend and returns when to dial the one after it. At the end of a round it dials none if all have
// refused, so that there is a pause.
func (r *race) next(ctx context.Context) time.Duration {
	b := r.f.pick(r.client, r.tried)
	if b == nil {
		r.tried = r.tried[:len(r.failed)]
		r.round++
		if r.dials > 0 {
			b = r.f.pick(r.client, r.tried)
		}
	}
	if b == nil {
		r.last = nil
		wait := min(pauseFirst<<min(r.round-1, 8), pauseMost)
		return wait - rand.N(wait/4)
	}
	r.f.state.metrics.retries.Inc()
	r.tried = append(r.tried, b)
	r.dial(ctx, b)
	return b.hedgeDelay(r.s.cfg.Hedge) << min(r.round, 8)
}

// dial dials one backend in its own goroutine, and gives up the oldest dial if there are too many. wait waits for it.
func (r *race) dial(ctx context.Context, b *backend) {
	ctx, cancel := context.WithCancel(ctx)
	r.cancels = append(r.cancels, cancel)
	if len(r.cancels) > maxDials {
		r.cancels[0]()
		r.cancels = r.cancels[1:]
	}
	r.last = b
	r.dials++
	go func() {
		defer cancel()
		r.results <- r.s.dial(ctx, b, b.at(r.port))
	}()
}

// wait waits for the dials in progress, which are cancelled by now. To be slower than the winner is no failure.
func (r *race) wait(serving context.Context, winner dialResult) {
	for ; r.dials > 0; r.dials-- {
		result := <-r.results
		switch {
		case result.conn != nil: // it answered a moment later
			_ = result.conn.Close()
			result.backend.state.release()
		case winner.backend != nil:
			r.s.dialFailed(result.backend, context.Canceled)
		case serving.Err() != nil:
			result.backend.state.release()
			r.err = serving.Err()
		default:
			r.err = result.err
			r.s.dialFailed(result.backend, result.err)
		}
	}
}

// Most connections in mode tcp need neither their first bytes nor more than one dial. Those are accepted and connected here,
// and their loop does the rest. The others have a goroutine until they are connected (proxyTCP).

// acceptStream accepts a connection without package net, whose listeners cannot be waited for in another way than by Accept.
func (s *Server) acceptStream(sock *listenSocket) (_ *stream, from netip.AddrPort, err error) {
	if err := s.watch(sock); err != nil {
		return nil, from, err
	}
	for {
		closed := sock.raw.Control(sock.acceptNext)
		got := sock.accepted
		switch err := got.err; {
		case closed != nil:
			return nil, from, closed
		case err == nil:
			return &stream{fd: got.fd}, got.from, nil
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
	r.s.dialed(r.frontend, r.backend, took)
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
	s.conns.Done()
}

// proxyTCP connects a client to a backend and hands both to a loop, which moves bytes until both sides are done. The caller
// counted the connection in f.state; it is counted out when it has ended.
func (s *Server) proxyTCP(ctx context.Context, f *frontend, c *clientConn) {
	s.proxy(f, c, func() (net.Conn, *backend, error) { return s.connect(ctx, f, c) })
}

// proxy is proxyTCP with that connect.
func (s *Server) proxy(f *frontend, c *clientConn, connect func() (net.Conn, *backend, error)) {
	if r := s.connectClient(f, c, connect); r != nil {
		r.begin()
	}
}

// connectClient returns the relay of a client's connection; nil: it was rejected.
func (s *Server) connectClient(f *frontend, c *clientConn, connect func() (net.Conn, *backend, error)) (r *relay) {
	defer func() {
		if r == nil {
			abort(c.conn) // installers retry after a reset, but give up on an HTTP 4xx
			f.state.remove()
			c.release()
		}
	}()
	start := time.Now()
	if c.start.IsZero() {
		c.start = start
	}
	backend, b, err := connect()
	if err != nil {
		s.rejectTCP(f, connectReason(err), c, err)
		return nil
	}
	connected := time.Now()
	b.state.traffic.add(connected.Sub(start))
	if r, err = s.join(f, b, c, backend); err != nil {
		_ = backend.Close()
		b.state.release()
		s.rejectTCP(f, rejectConnect, c, err)
		return nil
	}
	r.connected = connected
	return r
}

// join sends the first bytes and returns the relay of two connections.
func (s *Server) join(f *frontend, b *backend, c *clientConn, conn net.Conn) (*relay, error) {
	if err := s.sendFirstBytes(f, c, conn); err != nil {
		return nil, err
	}
	client, err := c.stream()
	if err != nil {
		return nil, err
	}
	backend, err := streamOf(conn)
	if err != nil {
		return nil, err
	}
	r, err := s.newRelay(f, b, c, client, backend)
	if err != nil {
		backend.abort()
	}
	return r, err
}

// connectReason returns why a client got no backend.
func connectReason(err error) reason {
	switch {
	case errors.Is(err, errNoBackend):
		return rejectNoBackend
	case errors.Is(err, errQueueFull):
		return rejectQueueFull
	case errors.Is(err, errQueueTimeout):
		return rejectQueueTimeout
	case errors.Is(err, errClientGone):
		return rejectClient
	}
	return rejectConnect
}

// sendFirstBytes sends the PROXY header and the bytes that were read to route the connection.
func (s *Server) sendFirstBytes(f *frontend, c *clientConn, backend net.Conn) error {
	first := c.prefix
	if f.SendProxy != 0 {
		if st, ok := c.conn.(*stream); ok && !c.dst.IsValid() {
			c.dst = st.localAddr()
		}
		var b bytes.Buffer
		if err := writeProxyHeader(&b, f.SendProxy, c.src, c.dst); err != nil {
			return err
		}
		first = append(b.Bytes(), first...)
	}
	if len(first) == 0 {
		return nil
	}
	_ = backend.SetWriteDeadline(time.Now().Add(f.Timeouts.Connect))
	_, err := backend.Write(first)
	_ = backend.SetWriteDeadline(time.Time{})
	if err != nil {
		return fmt.Errorf("send first bytes to %s: %w", backend.RemoteAddr(), err)
	}
	return nil
}
