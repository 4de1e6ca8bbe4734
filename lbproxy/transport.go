package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"time"
)

const (
	// Between two requests to a backend. Below the five seconds after which the most impatient servers hang up, so that
	// a request does not meet a connection that is just being closed.
	backendIdle  = 4 * time.Second
	backendSpare = 256 // idle connections kept to one backend
)

// An attempt is one try of one request at one backend.
type attempt struct {
	visit   *visit
	seat    *seat
	timeout time.Duration // for a new connection
}

// transport sends requests to backends. It implements http.RoundTripper.
type transport struct {
	s      *Server
	shared *http.Transport // keeps connections
	single *http.Transport // one request a connection, whose PROXY header names that request's client
}

func newTransport(s *Server) *transport {
	t := &transport{s: s}
	t.shared = &http.Transport{
		DialContext:         t.dial,
		DisableCompression:  true,
		MaxIdleConnsPerHost: backendSpare,
		IdleConnTimeout:     backendIdle,
		WriteBufferSize:     4 << 10,
		ReadBufferSize:      4 << 10,
	}
	t.single = t.shared.Clone()
	t.single.DisableKeepAlives = true
	return t
}

// RoundTrip sends a request to a backend of its balancer, and to another as long as no connection can be made. A member
// that is silent for its patience is passed over for the next, and tried again with four times that once all were.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	a, _ := r.Context().Value(attemptKey).(*attempt)
	x := a.visit
	var done, refused tried
	last, wait := errNoBackend, t.firstWait(x.front)
	for first := true; ; first = false {
		seat := x.front.pick(x.src.Addr(), done)
		if seat == nil && (wait >= x.front.Timeouts.Connect || len(done) == len(refused)) {
			return nil, last
		}
		if seat == nil {
			wait, done = 4*wait, slices.Clone(refused)
			continue
		}
		if !first {
			x.front.pool.m.retries.Inc()
		}
		x.seat, done = seat, append(done, seat)
		resp, err := t.try(r, &attempt{visit: x, seat: seat, timeout: min(seat.patience(wait), x.front.Timeouts.Connect)})
		if err == nil || !isDial(err) || r.Context().Err() != nil {
			return resp, err
		}
		last, x.seat = err, nil
		t.s.lost(seat, err)
		if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
			refused = append(refused, seat)
		}
	}
}

// firstWait returns how long a backend may be silent at first: not long where there is another.
func (t *transport) firstWait(f *front) time.Duration {
	if len(f.seats) == 1 {
		return f.Timeouts.Connect
	}
	return t.s.cfg.Hedge
}

// try sends the request to one backend.
func (t *transport) try(r *http.Request, a *attempt) (*http.Response, error) {
	out := r.WithContext(context.WithValue(r.Context(), attemptKey, a))
	target := *r.URL
	target.Host = a.seat.Addr.String()
	out.URL = &target
	if r.Body != nil && r.Body != http.NoBody {
		out.Body = keptOpen{r.Body}
	}
	if a.visit.front.SendProxy != 0 {
		return t.single.RoundTrip(out)
	}
	return t.shared.RoundTrip(out)
}

// dial makes a connection for an attempt, or for whichever request takes it first.
func (t *transport) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	a, _ := ctx.Value(attemptKey).(*attempt)
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	began := time.Now()
	conn, err := t.s.deps.Dial(ctx, a.seat.Addr)
	if err != nil {
		return nil, &dialError{addr: addr, err: err}
	}
	a.seat.health.dialed(time.Since(began))
	control(conn, func(fd int) { _ = keepAlive(fd) })
	if version := a.visit.front.SendProxy; version != 0 {
		if err := writeProxyHeader(conn, version, a.visit.src, a.visit.dst); err != nil {
			_ = conn.Close()
			return nil, &dialError{addr: addr, err: err}
		}
	}
	return conn, nil
}

// A dialError says that a backend could not be connected to, so that nothing of the request has been sent.
type dialError struct {
	addr string
	err  error
}

// Error implements error.
func (e *dialError) Error() string { return fmt.Sprintf("connect to backend %s: %v", e.addr, e.err) }

// Unwrap returns why the connection could not be made.
func (e *dialError) Unwrap() error { return e.err }

func isDial(err error) bool { return errors.As(err, new(*dialError)) }

// keptOpen is a request's body that a transport which failed to connect does not close.
type keptOpen struct{ io.Reader }

// Close implements io.Closer and does nothing: http.Server closes the body when the request ends.
func (keptOpen) Close() error { return nil }
