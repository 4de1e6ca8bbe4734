package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
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

// connect connects a client to a backend of f. If the first refuses, the next is tried at once; if it does not answer
// within its hedgeDelay, the next is tried in parallel and the first to answer is used. A failure, or silence while
// another answered, counts against the backend's health. The caller gives the endpoint's active count back.
func (s *Server) connect(ctx context.Context, f *frontend, client netip.Addr) (net.Conn, *endpoint, error) {
	e := f.pick(client, nil)
	if e == nil {
		return nil, nil, errNoBackend
	}
	start := time.Now()
	first, cancel := context.WithTimeout(ctx, min(e.hedgeDelay(s.cfg.Hedge), f.Timeouts.Connect))
	conn, err := s.deps.Dial(first, e.Addr)
	silent := first.Err() != nil
	cancel()
	if err == nil {
		e.health.dialed(time.Since(start))
		return conn, e, nil
	}
	if ctx.Err() != nil {
		e.state.active.Add(-1)
		return nil, nil, ctx.Err()
	}
	r := &race{
		s: s, f: f, client: client, tried: []*endpoint{e}, err: err,
		results: make(chan dialResult, len(f.endpoints)),
	}
	limit, cancel := context.WithTimeout(ctx, f.Timeouts.Connect)
	defer cancel()
	if silent {
		r.dial(limit, e) // again, in parallel to the next
	} else {
		s.dialFailed(e, err)
	}
	winner := r.run(limit)
	cancel()
	r.wait(ctx, winner)
	return winner.conn, winner.endpoint, r.err
}

// dialFailed gives back an endpoint that could not be connected to.
func (s *Server) dialFailed(e *endpoint, err error) {
	e.state.active.Add(-1)
	s.report(e.health, e.health.dialFailed(err, s.deps.Now()))
}

type dialResult struct {
	endpoint *endpoint
	conn     net.Conn
	took     time.Duration
	err      error
}

// A race dials several endpoints for one client, each a hedgeDelay after the one before.
type race struct {
	s       *Server
	f       *frontend
	client  netip.Addr
	tried   []*endpoint
	err     error // of the last dial; nil: one succeeded
	results chan dialResult
	dials   int // in progress
}

// run dials endpoints until one answers, none is left or ctx ends. It returns the winner, or an empty result.
func (r *race) run(ctx context.Context) dialResult {
	next := r.next(ctx)
	for r.dials > 0 {
		select {
		case <-next:
			next = r.next(ctx)
		case result := <-r.results:
			r.dials--
			r.err = result.err
			if result.err == nil {
				result.endpoint.health.dialed(result.took)
				return result
			}
			r.s.dialFailed(result.endpoint, result.err)
			next = r.next(ctx)
		case <-ctx.Done():
			return dialResult{}
		}
	}
	return dialResult{}
}

// next dials the next endpoint and returns when to dial the one after it; never if none is left.
func (r *race) next(ctx context.Context) <-chan time.Time {
	e := r.f.pick(r.client, r.tried)
	if e == nil {
		return nil
	}
	r.f.state.metrics.retries.Inc()
	r.tried = append(r.tried, e)
	r.dial(ctx, e)
	return time.After(e.hedgeDelay(r.s.cfg.Hedge))
}

// dial dials one endpoint in its own goroutine. wait waits for it.
func (r *race) dial(ctx context.Context, e *endpoint) {
	r.dials++
	go func() {
		start := time.Now()
		conn, err := r.s.deps.Dial(ctx, e.Addr)
		r.results <- dialResult{e, conn, time.Since(start), err}
	}()
}

// wait waits for the dials in progress, which are cancelled by now. Their silence counts as a failure unless the server
// is stopping.
func (r *race) wait(serving context.Context, winner dialResult) {
	for ; r.dials > 0; r.dials-- {
		result := <-r.results
		switch {
		case result.conn != nil: // it answered a moment later
			_ = result.conn.Close()
			result.endpoint.state.active.Add(-1)
		case serving.Err() != nil:
			result.endpoint.state.active.Add(-1)
			r.err = serving.Err()
		case winner.endpoint != nil:
			r.s.dialFailed(result.endpoint, fmt.Errorf("no answer while %s answered: %w", winner.endpoint.Addr, result.err))
		default:
			r.err = result.err
			r.s.dialFailed(result.endpoint, result.err)
		}
	}
}
