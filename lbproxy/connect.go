package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"
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
	first, cancel := context.WithTimeout(ctx, min(b.hedgeDelay(s.cfg.Hedge), f.Timeouts.Connect))
	conn, err := s.deps.Dial(first, b.at(d.port))
	cancel()
	if err == nil {
		s.dialed(b, time.Since(start))
		return conn, b, nil
	}
	return s.connectAfter(ctx, f, b, d, start, err)
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
				r.s.dialed(result.backend, result.took)
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
		start := time.Now()
		conn, err := r.s.deps.Dial(ctx, b.at(r.port))
		r.results <- dialResult{b, conn, time.Since(start), err}
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
