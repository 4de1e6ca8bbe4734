package lbproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/lbproxy/h1"
)

// A target is the backend that a request is sent to.
type target struct {
	frontend *frontend
	backend  *backend
	conn     atomic.Pointer[net.Conn] // to it, that dial takes instead of opening one; nil: there is none
	client   netip.Addr
	own      ownSlot         // of the client's connection
	wanted   context.Context // ends when the request has a connection, or needs none any more

	mu     sync.Mutex
	ended  bool
	closed func() // of opening; nil: it was called, or there is none
}

type targetKey struct{}

// A connectError is of the first connect for a request; connectAfter goes on.
type connectError struct {
	start time.Time
	err   error
}

// Error implements error.
func (e *connectError) Error() string { return e.err.Error() }

// take returns the connection of the target; nil: there is none, or not any more.
func (t *target) take() net.Conn {
	if c := t.conn.Swap(nil); c != nil {
		return *c
	}
	return nil
}

// leave leaves closed to connectHTTP2, if the request still wants a connection.
func (t *target) leave(closed func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || t.wanted.Err() != nil {
		closed()
		return
	}
	t.closed = closed
}

// end returns what was left; nil: nothing.
func (t *target) end() (closed func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	return t.closed
}

// dial returns a connection to a backend. It may end after the request that asked for it.
func (h *http2) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	to, _ := ctx.Value(targetKey{}).(*target)
	conn := to.take()
	if conn == nil {
		closed, err := h.opening(to)
		if err != nil {
			return nil, errBackendLimit
		}
		start := time.Now()
		if conn, err = h.proxy.s.connectFirst(ctx, to.frontend, to.backend, 0); err != nil {
			to.leave(closed)
			return nil, &connectError{start, err}
		}
		conn = h.opened(conn, to.backend, closed)
	}
	secure, err := h.proxy.secure(ctx, conn, to.frontend, to.backend)
	if err != nil {
		return nil, &dialError{balancer: to.frontend.Name, err: err}
	}
	return secure, nil
}

// opening takes a slot for a new connection to the target, and counts the connection. closed gives both back.
func (h *http2) opening(to *target) (closed func(), err error) {
	release := h.proxy.s.slots.take(to.client)
	if release == nil {
		release = to.own.take() // last, because the connection may outlive the client's
	}
	if release == nil {
		if release, err = h.proxy.awaitSlot(to.wanted, to.frontend, to.own, to.client); err != nil {
			return nil, err
		}
	}
	h.proxy.opening()
	return func() { h.proxy.closed(); release() }, nil
}

// opened returns the socket of a new connection to a backend. closed is called once it is closed.
func (h *http2) opened(conn net.Conn, b *backend, closed func()) net.Conn {
	setBackendOptions(conn, h.proxy.s.cfg.Unacked)
	return b.state.pool.addSocket(conn, closed)
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
	if c, ok := x.client.(*httpConn); ok {
		c.giveUp.Store(&cancel)
		defer c.giveUp.Store(nil)
	}
	if x.req.Connect() {
		x.fail(errNoTunnel)
		return false
	}
	x.stream = &http2Upload{x: x, trailer: make(http.Header), expected: x.expects()}
	x.stream.timer = time.AfterFunc(x.frontend.Timeouts.Server, func() {
		if !x.stream.answered.Load() {
			x.stream.late.Store(true)
			cancel()
		}
	})
	defer x.stream.timer.Stop()
	resp, err := x.sendHTTP2(ctx)
	x.stream.expected.over()
	if err == nil {
		defer func() { _ = resp.Body.Close() }()
		err = x.respondHTTP2(resp)
	}
	if err != nil && ctx.Err() != nil && !x.stream.late.Load() {
		err = errClientGone
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
	var tried []*backend // that accepted, and failed in the handshake
	var conn net.Conn    // to b; nil: the transport opens one if it has none
	x.log.dialed = time.Now()
	b, err := x.next(nil, errNoBackend)
	for err == nil {
		resp, failure := x.tryHTTP2(ctx, b, conn)
		if failure == nil {
			x.stream.answered.Store(true)
			x.log.answered = time.Now()
			x.responded()
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
		if lost {
			x.had++
		}
		var refused *connectError
		switch {
		case ctx.Err() != nil:
			return nil, errClientGone
		case lost && x.onlyDown():
			return nil, errServerTimeout // nor would the same backend answer now
		case lost && x.repeatable():
			tried = nil // it is not picked while it is down
		case errors.As(failure, &refused):
			conn, b, err = x.connectHTTP2(ctx, b, tried, refused)
			continue
		case isDial(failure):
			tried = append(tried, b)
		default:
			return nil, failure
		}
		x.frontend.state.metrics.retries.Inc()
		x.log.retries++
		b.state.release()
		conn, x.backend = nil, nil
		b, err = x.next(tried, failure)
	}
	return nil, err
}

// connectHTTP2 goes on after the first connect to b failed. It returns a backend that accepts, and the connection to it.
func (x *exchange) connectHTTP2(ctx context.Context, b *backend, tried []*backend, refused *connectError) (conn net.Conn, _ *backend, err error) {
	x.stream.timer.Stop() // timeouts.server runs once there is a connection
	h := x.proxy.h2
	closed := x.slot
	if x.slot = nil; closed == nil {
		closed, err = h.opening(x.target(ctx, b))
	}
	if err == nil {
		x.backend = nil // connectAfter gives it back
		if conn, b, err = x.proxy.s.connectAfter(ctx, x.frontend, b, dialing{client: x.src.Addr(), failed: tried}, refused.start, refused.err); err == nil {
			return h.opened(conn, b, closed), b, nil
		}
		closed()
	}
	switch {
	case ctx.Err() != nil:
		return nil, nil, errClientGone
	case errors.Is(err, errBackendLimit):
		return nil, nil, err
	}
	return nil, nil, &dialError{balancer: x.frontend.Name, err: err}
}

// target returns the target of the request at a backend. It wants a connection until ctx ends.
func (x *exchange) target(ctx context.Context, b *backend) *target {
	return &target{frontend: x.frontend, backend: b, client: x.src.Addr(), own: x.own(), wanted: ctx}
}

// tryHTTP2 sends the request to one backend, until that answers or goes down. conn is a new connection to it; nil: there is none.
func (x *exchange) tryHTTP2(ctx context.Context, b *backend, conn net.Conn) (*http.Response, error) {
	x.backend, x.log.backend, x.log.connected = b, b, time.Now()
	x.stream.timer.Reset(x.frontend.Timeouts.Server)
	wanted, got := context.WithCancel(ctx)
	defer got()
	to := x.target(wanted, b)
	if conn != nil {
		to.conn.Store(&conn)
	}
	ctx = httptrace.WithClientTrace(x.stream.expected.trace(ctx), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got() }})
	ctx, x.stream.giveUp = context.WithCancel(context.WithValue(ctx, targetKey{}, to))
	x.stream.over, x.stream.repeatable = ctx.Done(), x.repeatable()
	b.state.pool.ask(x.stream)
	defer b.state.pool.withdraw(x.stream)
	resp, err := x.proxy.h2.transport.RoundTrip(x.toHTTP2(b).WithContext(ctx))
	if conn := to.take(); conn != nil { // the transport had another
		_ = conn.Close()
	}
	x.giveSlotBack()
	if x.slot = to.end(); err == nil {
		x.giveSlotBack()
	}
	return resp, err
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
	expected   *expectation // nil: the client sends the body at once
	timer      *time.Timer  // ends the wait for the response
	answered   atomic.Bool
	late       atomic.Bool           // the timer has ended it
	lost       atomic.Bool           // the backend went down
	repeatable bool                  // the request may be sent again; guarded by connPool.mu
	giveUp     context.CancelFunc    // of the request to the current backend
	over       <-chan struct{}       // closed at its end
	since      atomic.Int64          // when the wait for the backend began, since epoch; 0: the client's body is awaited
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
	if !u.expected.wait() && u.expected.client == nil { // net/http would send 100 after the final response
		<-u.over
		return 0, net.ErrClosed
	}
	if !u.answered.Load() {
		u.timer.Stop() // the client has timeouts.body
	}
	u.since.Store(0)
	n, err := u.x.reqBody.Read(p)
	u.since.Store(int64(time.Since(epoch)))
	switch {
	case errors.Is(err, io.EOF):
		for _, f := range u.x.trailers() {
			// Those that were not announced cannot be sent any more (net/http).
			name := http.CanonicalHeaderKey(string(f.Name))
			if _, announced := u.trailer[name]; announced {
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

// waited returns how long the request waits for the backend.
func (u *http2Upload) waited() time.Duration {
	if since := time.Duration(u.since.Load()); since > 0 {
		return time.Since(epoch) - since
	}
	return 0
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
	for name := range resp.Trailer { // net/http has taken the field away
		x.resp.Fields = append(x.resp.Fields, h1.Field{Name: []byte("Trailer"), Value: []byte(name)})
	}
	_, streams := x.client.(*http2Stream)
	f, _ := x.responseFraming()
	switch {
	case resp.ContentLength == 0 && x.resp.Length < 0: // the stream ended with the head (net/http)
		f = h1.NoBody
	case f == h1.ByClose, f == h1.ByLength && len(resp.Trailer) > 0 && !streams:
		f, x.resp.Length = h1.ByChunks, -1 // in HTTP/1 a length leaves no place for trailers
	}
	x.begun = true
	x.closing = x.closing || !x.req.Persistent() || x.reqFraming != h1.NoBody && !x.stream.ended.Load()
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
	x.backend.state.received()
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
