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
	// Keep-alive of backend connections, below the five seconds of the servers with the shortest timeout: a request must
	// not be sent on a connection that its server is just closing.
	backendIdle    = 4 * time.Second
	backendMaxIdle = 256 // connections to one backend
)

// An attempt is one try of a request at one backend.
type attempt struct {
	request  *proxiedRequest
	endpoint *endpoint
	timeout  time.Duration // of a new connection
}

// transport sends requests to backends. It implements http.RoundTripper.
type transport struct {
	s      *Server
	shared *http.Transport // with keep-alive
	single *http.Transport // one request for each connection, because its PROXY header names that request's client
}

func newTransport(s *Server) *transport {
	t := &transport{s: s}
	t.shared = &http.Transport{
		DialContext:         t.dial,
		DisableCompression:  true,
		MaxIdleConnsPerHost: backendMaxIdle,
		IdleConnTimeout:     backendIdle,
		WriteBufferSize:     4 << 10,
		ReadBufferSize:      4 << 10,
	}
	t.single = t.shared.Clone()
	t.single.DisableKeepAlives = true
	return t
}

// RoundTrip sends a request to a backend of its balancer, and to the next if it cannot connect. A backend that does not
// answer within its hedgeDelay is skipped; once all were skipped, they are tried again with four times the delay.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	a, _ := r.Context().Value(attemptKey).(*attempt)
	request := a.request
	f := request.frontend
	var tried, refused []*endpoint
	last, wait := errNoBackend, t.firstWait(f)
	for first := true; ; first = false {
		e := f.pick(request.src.Addr(), tried)
		if e == nil && (wait >= f.Timeouts.Connect || len(tried) == len(refused)) {
			return nil, last
		}
		if e == nil {
			wait, tried = 4*wait, slices.Clone(refused)
			continue
		}
		if !first {
			f.state.metrics.retries.Inc()
		}
		request.endpoint, tried = e, append(tried, e)
		resp, err := t.try(r, &attempt{request: request, endpoint: e, timeout: min(e.hedgeDelay(wait), f.Timeouts.Connect)})
		if err == nil || !isDial(err) || r.Context().Err() != nil {
			return resp, err
		}
		last, request.endpoint = err, nil
		t.s.dialFailed(e, err)
		if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
			refused = append(refused, e)
		}
	}
}

// firstWait returns the first floor of hedgeDelay: short if there is more than one backend.
func (t *transport) firstWait(f *frontend) time.Duration {
	if len(f.endpoints) == 1 {
		return f.Timeouts.Connect
	}
	return t.s.cfg.Hedge
}

// try sends the request to one backend.
func (t *transport) try(r *http.Request, a *attempt) (*http.Response, error) {
	out := r.WithContext(context.WithValue(r.Context(), attemptKey, a))
	target := *r.URL
	target.Host = a.endpoint.Addr.String()
	out.URL = &target
	if r.Body != nil && r.Body != http.NoBody {
		out.Body = noClose{r.Body}
	}
	if a.request.frontend.SendProxy != 0 {
		return t.single.RoundTrip(out)
	}
	return t.shared.RoundTrip(out)
}

// dial connects for an attempt. Another request may get the connection.
func (t *transport) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	a, _ := ctx.Value(attemptKey).(*attempt)
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	start := time.Now()
	conn, err := t.s.deps.Dial(ctx, a.endpoint.Addr)
	if err != nil {
		return nil, &dialError{addr: addr, err: err}
	}
	t.s.dialed(a.endpoint, time.Since(start))
	control(conn, func(fd int) { _ = keepAlive(fd) })
	if version := a.request.frontend.SendProxy; version != 0 {
		if err := writeProxyHeader(conn, version, a.request.src, a.request.dst); err != nil {
			_ = conn.Close()
			return nil, &dialError{addr: addr, err: err}
		}
	}
	return conn, nil
}

// A dialError is of connecting to a backend: nothing of the request was sent.
type dialError struct {
	addr string
	err  error
}

// Error implements error.
func (e *dialError) Error() string { return fmt.Sprintf("connect to backend %s: %v", e.addr, e.err) }

// Unwrap returns the cause.
func (e *dialError) Unwrap() error { return e.err }

func isDial(err error) bool { return errors.As(err, new(*dialError)) }

// noClose keeps the transport from closing a request's body when it cannot connect.
type noClose struct{ io.Reader }

// Close implements io.Closer and does nothing: http.Server closes the body when the request ends.
func (noClose) Close() error { return nil }
