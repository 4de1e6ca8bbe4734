package lbproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/lbproxy/h1"
)

// A target is the backend that a connection is opened to.
type target struct {
	frontend *frontend
	backend  *backend
}

type targetKey struct{}

// dial opens a connection to a backend. It may end after the request that asked for it.
func (h *http2) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	to, _ := ctx.Value(targetKey{}).(target)
	ctx, cancel := context.WithTimeout(ctx, to.frontend.Timeouts.Connect)
	defer cancel()
	start := time.Now()
	conn, err := h.proxy.s.deps.Dial(ctx, to.backend.Addr)
	if err != nil {
		h.proxy.s.connectFailed(to.backend, err)
		return nil, &dialError{balancer: to.frontend.Name, err: err}
	}
	h.proxy.s.dialed(to.backend, time.Since(start))
	setBackendOptions(conn, h.proxy.s.cfg.Unacked)
	secure, err := h.proxy.secure(ctx, to.backend.state.pool.addSocket(conn), to.frontend, to.backend)
	if err != nil {
		return nil, &dialError{balancer: to.frontend.Name, err: err}
	}
	return secure, nil
}

// speaksHTTP2 reports whether requests go to the backends in HTTP/2.
func (f *Frontend) speaksHTTP2() bool {
	return f.Protocol == lab.BackendH2C || f.Protocol == lab.BackendH2
}

// runHTTP2 is run for a backend that speaks HTTP/2 without TLS, such as a gRPC server.
func (x *exchange) runHTTP2() (again bool) {
	ctx, cancel := context.WithCancel(x.proxy.ctx)
	defer cancel()
	if s, ok := x.client.(*http2Stream); ok {
		defer context.AfterFunc(s.r.Context(), cancel)()
	}
	x.stream = &http2Upload{x: x, trailer: make(http.Header)}
	x.stream.timer = time.AfterFunc(x.frontend.Timeouts.Server, func() {
		if !x.stream.answered.Load() {
			x.stream.late.Store(true)
			cancel()
		}
	})
	defer x.stream.timer.Stop()
	resp, err := x.sendHTTP2(ctx)
	if err == nil {
		defer func() { _ = resp.Body.Close() }()
		err = x.respondHTTP2(resp)
	}
	cancel()
	x.stream.stop()
	if err != nil {
		x.fail(err)
		return false
	}
	return x.reqBody.Done() && !x.closing
}

// sendHTTP2 sends the request, to the next backend if one cannot be connected to.
func (x *exchange) sendHTTP2(ctx context.Context) (*http.Response, error) {
	var tried []*backend
	last := errNoBackend
	for {
		b, err := x.next(tried, last)
		if err != nil {
			return nil, err
		}
		tried = append(tried, b)
		x.backend, x.log.backend, x.log.dialed, x.log.connected = b, b, time.Now(), time.Now()
		resp, err := x.tryHTTP2(ctx, b)
		if err == nil {
			x.stream.answered.Store(true)
			x.log.answered = time.Now()
			return resp, nil
		}
		if x.stream.late.Load() {
			b.health.requestCheck()
			return nil, errServerTimeout
		}
		if cause := x.stream.cause.Load(); cause != nil {
			return nil, x.uploadError(*cause)
		}
		lost := x.stream.lost.Swap(false)
		switch {
		case ctx.Err() != nil:
			return nil, errClientGone
		case lost && x.onlyDown():
			return nil, errServerTimeout // nor would the same backend answer now
		case lost && x.repeatable():
			tried = nil // it is not picked while it is down
		case !isDial(err):
			return nil, err
		}
		last = err
		x.frontend.state.metrics.retries.Inc()
		x.log.retries++
		b.state.release()
		x.backend = nil
	}
}

// tryHTTP2 sends the request to one backend, until that answers or goes down.
func (x *exchange) tryHTTP2(ctx context.Context, b *backend) (*http.Response, error) {
	ctx, x.stream.giveUp = context.WithCancel(context.WithValue(ctx, targetKey{}, target{x.frontend, b}))
	x.stream.repeatable = x.repeatable()
	b.state.pool.ask(x.stream)
	defer b.state.pool.unask(x.stream)
	return x.proxy.h2.transport.RoundTrip(x.toHTTP2(b).WithContext(ctx))
}

// toHTTP2 returns the request for a backend.
func (x *exchange) toHTTP2(b *backend) *http.Request {
	var sent h1.Head
	raw := x.appendRequest(nil)
	_, raw = h1.CutLine(raw[:len(raw)-len("\r\n")])
	_ = sent.ParseFields(raw, false) // it was written by us
	r := &http.Request{Method: string(x.req.Method), Host: string(x.req.Host), Header: make(http.Header), URL: urlOf(b.cookie+"."+x.frontend.Name, string(x.req.Target))}
	for _, f := range sent.Fields {
		switch h1.KindOf(f.Name) {
		case h1.FieldHost, h1.FieldLength, h1.FieldEncoding, h1.FieldConnection, h1.FieldUpgrade:
			continue
		}
		if h1.EqualFold(f.Name, "trailer") {
			for name := range strings.SplitSeq(string(f.Value), ",") {
				x.stream.trailer[http.CanonicalHeaderKey(strings.TrimSpace(name))] = nil
			}
			continue
		}
		r.Header.Add(string(f.Name), string(f.Value))
	}
	for _, f := range x.req.Fields {
		if h1.KindOf(f.Name) == h1.FieldTE && h1.EqualFold(f.Value, "trailers") {
			r.Header.Set("Te", "trailers")
		}
	}
	if x.reqFraming != h1.NoBody {
		r.Body, r.Trailer, r.ContentLength = x.stream, x.stream.trailer, x.req.Length
	}
	return r
}

// urlOf returns the URL of a target that is sent as it is. The transport shares connections between requests with the same
// host: it names the backend and the balancer, which may have TLS settings of its own. dial does not look at it.
func urlOf(host, target string) *url.URL {
	u, err := url.ParseRequestURI(target)
	if err != nil || u.RequestURI() != target {
		u = &url.URL{Opaque: target}
	}
	u.Scheme, u.Host = "http", host
	return u
}

// An http2Upload is the body of a request to an HTTP/2 backend. The transport may read it after the response has ended,
// until stop.
type http2Upload struct {
	x          *exchange
	trailer    http.Header
	timer      *time.Timer // ends the wait for the response
	answered   atomic.Bool
	late       atomic.Bool           // the timer has ended it
	lost       atomic.Bool           // the backend went down
	repeatable bool                  // the request may be sent again; guarded by connPool.mu
	giveUp     context.CancelFunc    // of the request to the current backend
	ended      atomic.Bool           // the body was read from the client to its end
	cause      atomic.Pointer[error] // why it could not be

	mu      sync.Mutex
	stopped bool
}

// Read implements io.Reader.
func (u *http2Upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stopped {
		return 0, net.ErrClosed
	}
	n, err := u.x.reqBody.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		for _, f := range u.x.trailers() {
			// Those that were not announced cannot be sent any more (net/http).
			if name := http.CanonicalHeaderKey(string(f.Name)); hasKey(u.trailer, name) {
				u.trailer[name] = append(u.trailer[name], string(f.Value))
			}
		}
	case err != nil:
		u.cause.Store(&err)
	}
	u.ended.Store(u.x.reqBody.Done())
	if !u.answered.Load() {
		u.timer.Reset(u.x.frontend.Timeouts.Server)
	}
	return n, err
}

func hasKey(h http.Header, name string) bool {
	_, ok := h[name]
	return ok
}

// Close implements io.Closer. The body is of the client's connection, which is read on.
func (u *http2Upload) Close() error { return nil }

// stop ends reading: nothing reads the client's connection afterwards.
func (u *http2Upload) stop() {
	if !u.mu.TryLock() {
		u.x.client.stopReading(true)
		u.mu.Lock()
		u.x.client.stopReading(false)
	}
	u.stopped = true
	u.mu.Unlock()
}

// respondHTTP2 passes a backend's HTTP/2 response on.
func (x *exchange) respondHTTP2(resp *http.Response) error {
	x.status = resp.StatusCode
	x.resp = h1.Head{Status: resp.StatusCode, Reason: []byte(http.StatusText(resp.StatusCode)), Minor: 1, Length: -1, Fields: headOf(resp.Header)}
	if resp.Header.Get("Content-Length") != "" {
		x.resp.Length = resp.ContentLength
	}
	f, _ := x.responseFraming()
	switch {
	case resp.ContentLength == 0 && x.resp.Length < 0: // the stream ended with the head (net/http)
		f = h1.NoBody
	case f == h1.ByClose, f == h1.ByLength && len(resp.Trailer) > 0 && x.resp.Minor > 0:
		f, x.resp.Length = h1.ByChunks, -1 // a length leaves no place for trailers
	}
	x.begun = true
	x.closing = x.closing || !x.req.Persistent() || x.reqFraming != h1.NoBody && !x.stream.ended.Load()
	_, streams := x.client.(*http2Stream)
	if !streams && f == h1.NoBody && x.resp.Length < 0 && x.status != http.StatusNoContent && x.status != http.StatusNotModified && string(x.req.Method) != http.MethodHead {
		x.resp.Length = 0
	}
	if err := x.client.begin(x, f, x.closing); err != nil {
		return errClientGone
	}
	if f != h1.NoBody {
		if err := x.copyStream(resp.Body); err != nil {
			return err
		}
	}
	if err := x.client.finish(fieldsOf(resp.Trailer)); err != nil {
		return errClientGone
	}
	if streams && f == h1.NoBody {
		return nil // its end is in the frame of its head
	}
	if err := x.client.flush(); err != nil {
		return errClientGone
	}
	return nil
}

// copyStream passes a body on as it comes.
func (x *exchange) copyStream(in io.Reader) error {
	buf := x.proxy.buffers.Get()
	defer x.proxy.buffers.Put(buf)
	for {
		if err := x.client.flush(); err != nil {
			return errClientGone
		}
		n, err := in.Read(buf)
		if n > 0 {
			if err := x.client.content(buf[:n]); err != nil {
				return errClientGone
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
