package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/lbproxy/h1"
)

// A responder is the client's side of an exchange. What begin, content and finish write is sent by flush at the latest.
type responder interface {
	// interim sends a 1xx response.
	interim(resp *h1.Head) error
	// begin writes the head of the final response. last: the connection ends after it.
	begin(x *exchange, framing h1.Framing, last bool) error
	// content writes a part of the body.
	content(p []byte) error
	flush() error
	// finish ends the body.
	finish(trailers []h1.Field) error
	// gone reports whether the client gave its request up.
	gone() bool
	// lost reports whether the client cannot get a response any more.
	lost() bool
	// stopReading makes reads of the request's body fail, or lets them succeed again.
	stopReading(stop bool)
}

// An exchange is one request and its response. A connection reuses it for its next request.
type exchange struct {
	proxy    *httpProxy
	client   responder
	frontend *frontend
	src, dst netip.AddrPort
	secure   bool // the client uses TLS

	req         h1.Head
	reqBody     h1.Body
	reqFraming  h1.Framing        // of the body to the backend
	reqTrailers func() []h1.Field // once reqBody was read; nil: those of reqBody

	resp     h1.Head
	respBody h1.Body
	backend  *backend // that got the request, and counts it as active
	stickyTo *backend // that the sticky cookie names
	conn     *backendConn
	current  *atomic.Pointer[backendConn] // conn, for those who abort the exchange
	slot     func()                       // gives the slot for a connection to a backend back; nil: it has none
	out      []byte
	upload   *upload
	expected *expectation // of an HTTP/2 client, whose body is not to be read before; nil: none
	stream   *http2Upload // instead of upload, to an HTTP/2 backend
	had      int          // backends that had the whole request, and failed
	begun    bool         // the final response's head was given to the client
	closing  bool         // the client's connection ends after the response
	status   int
	log      requestLog
}

// Errors of an exchange; each has its answer in fail.
var (
	errClientGone    = errors.New("the client closed the connection")
	errServerTimeout = errors.New("the backend did not answer in time")
	errBodyTimeout   = errors.New("the client did not send the body in time")
	errBadResponse   = errors.New("the backend's response is malformed")
	errNoTunnel      = errors.New("CONNECT is not passed on in HTTP/2")
)

// run proxies one request, whose head and body are set. It reports whether the client's connection may carry another.
func (x *exchange) run() (again bool) {
	x.resp.Status, x.status, x.had, x.begun, x.upload, x.conn, x.stickyTo = 0, 0, 0, false, nil, nil, nil
	defer x.release()
	// A client that is refused a tunnel may have sent its protocol already, which is no request.
	x.closing = x.closing || x.req.Connect()
	if x.frontend.speaksHTTP2() {
		return x.runHTTP2()
	}
	err := x.roundTrip()
	if err == nil {
		err = x.respond()
	}
	if err != nil {
		x.fail(err)
		return false
	}
	if x.upload != nil {
		return x.upload.ended.Load() && !x.closing
	}
	return x.reqBody.Done() && !x.closing
}

// release gives the backend's connection and count back.
func (x *exchange) release() {
	x.current.Store(nil)
	x.stopUpload()
	if x.conn != nil {
		x.conn.close()
		x.conn = nil
	}
	x.giveSlotBack()
	if x.backend != nil {
		x.backend.state.release()
		x.backend = nil
	}
}

// roundTrip sends the request to a backend and reads the head of the response. A backend that cannot be connected to is
// skipped; so is a connection that is lost before the response begins, if the request may be repeated.
func (x *exchange) roundTrip() error {
	var fresh *backend
	for {
		c, err := x.connect(fresh)
		if err != nil {
			return err
		}
		x.conn = c
		x.current.Store(c)
		if s, ok := x.client.(*http2Stream); ok && s.gone() { // it was reset before what aborts its connection could know that
			return errClientGone
		}
		err = x.try()
		if err == nil {
			return nil
		}
		lost := c.lost.Load()
		closed := !lost && c.closed.Load() // by us: the client is gone, or bootlab ends
		if c.delivered() {
			x.had++
		}
		c.close()
		switch {
		case lost && x.onlyDown():
			return errServerTimeout // nor would the same backend answer now
		case closed, c.answered.Load(), errors.Is(err, errServerTimeout), !x.repeatable():
			return err
		}
		x.frontend.state.metrics.retries.Inc()
		x.log.retries++
		x.conn = nil
		fresh = x.backend
		if errors.Is(err, syscall.ETIMEDOUT) {
			x.proxy.s.connectFailed(fresh, err)
		}
		x.backend = nil
		fresh.state.release()
	}
}

// repeatable reports whether a request that got no byte of a response may be sent again (RFC 9110 section 9.2.2), where its
// connection was lost: its method is idempotent and it has no body. What one backend had goes to one other: it may be why both failed.
func (x *exchange) repeatable() bool {
	return idempotent(x.req.Method) && x.reqFraming == h1.NoBody && x.log.retries < 3 && x.had <= 1
}

// onlyDown reports whether a request whose backend went down has no other: connections of it are to be closed.
func (x *exchange) onlyDown() bool {
	return x.frontend.OnDown == lab.OnDownClose && !x.frontend.hasUsable(x.src.Addr())
}

func idempotent(method []byte) bool {
	switch string(method) {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return false
}

// context returns what ends when nobody waits for the response any more; of a client in HTTP/1, whose connection says that, when bootlab ends.
func (x *exchange) context() context.Context {
	if s, ok := x.client.(*http2Stream); ok {
		return s.r.Context()
	}
	return x.proxy.ctx
}

// connect returns an idle connection to the backend that pick chooses, or a new one: then to the first backend that
// accepts. fresh is a backend whose idle connections are not to be trusted; nil: none.
func (x *exchange) connect(fresh *backend) (*backendConn, error) {
	f, s, ctx := x.frontend, x.proxy.s, x.context()
	x.log.dialed = time.Now()
	var tried []*backend // that accepted, and failed in the handshake
	last := errNoBackend
	for {
		b, err := x.next(tried, last)
		if err == nil && !x.takeSlot() {
			b.state.release() // others may have it meanwhile
			if x.slot, err = x.proxy.awaitSlot(ctx, f, x.own(), x.src.Addr()); err == nil {
				b, err = x.next(tried, last)
			}
		}
		if ctx.Err() != nil && err != nil {
			return nil, errClientGone
		}
		if err != nil {
			return nil, err
		}
		x.log.backend = b
		if b != fresh && f.SendProxy == 0 {
			if c := b.state.pool.get(x.src, x.repeatable()); c != nil {
				x.backend = b
				return c, nil
			}
		}
		x.proxy.opening()
		conn, b, err := s.connectFrom(ctx, f, b, dialing{client: x.src.Addr(), failed: tried})
		if err != nil {
			x.proxy.closed()
		}
		if err != nil && ctx.Err() != nil {
			return nil, errClientGone
		}
		if err != nil {
			return nil, &dialError{balancer: f.Name, err: err}
		}
		x.log.backend = b
		c, err := x.newBackendConn(conn, b)
		if err == nil {
			x.backend = b
			return c, nil
		}
		x.proxy.closed()
		last = err
		b.state.release()
		if slices.Contains(tried, b) {
			return nil, last
		}
		tried = append(tried, b)
	}
}

// try sends the request on the exchange's connection and reads the head of the final response.
func (x *exchange) try() error {
	c := x.conn
	c.repeatable.Store(x.repeatable())
	c.deadline.set(x.frontend.Timeouts.Server)
	x.log.connected = time.Now()
	out, complete := x.appendBuffered(x.appendRequest(x.out[:0]))
	x.out = out
	if _, err := c.Write(out); err != nil && complete {
		return x.backendError(err)
	}
	if !complete {
		x.startUpload()
	}
	for {
		if _, err := c.in.Peek(1); err != nil {
			return x.backendError(err)
		}
		c.answered.Store(true)
		if err := x.resp.ReadResponse(c.in); err != nil {
			return x.backendError(err)
		}
		if x.resp.Status >= 200 || x.resp.Status == http.StatusSwitchingProtocols {
			break
		}
		if x.req.Minor == 0 {
			continue
		}
		if err := x.client.interim(&x.resp); err != nil {
			return errClientGone
		}
	}
	x.expected.over()
	if x.upload != nil {
		x.upload.final.Store(true)
	}
	c.deadline.clear()
	x.log.answered = time.Now()
	x.responded()
	return nil
}

// responded notes that the backend has answered the request.
func (x *exchange) responded() {
	state := x.backend.state
	state.received()
	state.responded(x.log.answered.Sub(x.log.connected))
	if state.stalled.Load() {
		x.proxy.s.reinstate(x.backend.health, state)
	}
}

// backendError returns why the backend's connection failed: what the client did wrong comes first, because it closes it.
func (x *exchange) backendError(err error) error {
	if u := x.upload; u != nil {
		if cause := u.cause.Load(); cause != nil {
			return *cause
		}
	}
	var syntax h1.SyntaxError
	switch {
	case errors.Is(err, net.ErrClosed) && !x.conn.lost.Load() && x.client.lost():
		return errClientGone // which has ended the backend's connection
	case x.conn.deadline.expired():
		x.backend.health.requestCheck()
		return errServerTimeout
	case errors.As(err, &syntax), errors.Is(err, h1.ErrHeadTooLarge):
		return fmt.Errorf("%w: %w", errBadResponse, err)
	}
	return fmt.Errorf("connection to backend %s: %w", x.backend.Addr, err)
}

// respond passes the response on.
func (x *exchange) respond() error {
	c := x.conn
	x.status = x.resp.Status
	if x.resp.Status == http.StatusSwitchingProtocols || x.tunnels() {
		return x.tunnel()
	}
	framing, length := x.responseFraming()
	x.respBody.Reset(c.in, framing, length)
	last := !x.req.Persistent() || x.closing || x.upload != nil && !x.upload.ended.Load()
	x.closing, x.begun = last, true
	if err := x.client.begin(x, framing, last); err != nil {
		return errClientGone
	}
	if !x.respBody.Done() && !x.respBody.Ready() {
		if err := x.client.flush(); err != nil {
			return errClientGone
		}
	}
	if framing == h1.ByLength && !x.respBody.Received() && (x.upload == nil || x.upload.ended.Load()) {
		c.deadline.setQuiet(x.frontend.Timeouts.Server) // other framings are those of streams, which may be silent
	}
	if err := x.copyResponse(); err != nil {
		if c, ok := x.client.(*httpConn); ok && c.sent.Load() == c.begunAt { // its head was not sent yet
			x.begun = false
		}
		return err
	}
	c.deadline.clear()
	if err := x.client.finish(x.respBody.Trailers()); err != nil {
		return errClientGone
	}
	if err := x.client.flush(); err != nil {
		return errClientGone
	}
	x.backend.state.received()
	x.keepConn(framing)
	return nil
}

// keepConn puts the backend's connection back if it may carry another request.
func (x *exchange) keepConn(framing h1.Framing) {
	c, r := x.conn, &x.resp
	reusable := r.Persistent() && framing != h1.ByClose && x.frontend.SendProxy == 0 && !x.req.Connect()
	if r.Status == http.StatusNoContent && (r.Chunked || r.Length > 0) { // its backend may be about to send a body
		reusable = false
	}
	if u := x.upload; u != nil && reusable {
		// The last write may be about to return: a backend can answer before it does.
		if reusable = u.ended.Load(); reusable {
			c.deadline.set(time.Second)
			<-u.done
			c.deadline.clear()
			reusable = u.sent
			control(c.socket, func(fd int) { setUserTimeout(fd, x.proxy.s.cfg.Unacked) })
		}
	}
	if !reusable {
		return
	}
	x.current.Store(nil)
	x.conn = nil
	c.user = x.src
	c.pool.put(c)
}

// responseFraming returns how the response's body is delimited (RFC 9112 section 6.3).
func (x *exchange) responseFraming() (h1.Framing, int64) {
	r := &x.resp
	switch {
	case string(x.req.Method) == "HEAD", r.Status == http.StatusNoContent, r.Status == http.StatusNotModified:
		return h1.NoBody, 0
	case r.Chunked:
		return h1.ByChunks, 0
	case r.Length >= 0:
		return h1.ByLength, r.Length
	}
	return h1.ByClose, 0
}

// flushAt is how much of a response may wait for more.
const flushAt = 16 << 10

// copyResponse passes the response's body on: what has come is sent at once, so that streams are not delayed.
func (x *exchange) copyResponse() error {
	if x.respBody.Done() {
		return nil
	}
	if direct, ok := x.client.(interface{ splice(*exchange) error }); ok && x.respBody.Left() >= spliceFrom {
		return direct.splice(x)
	}
	buf := x.proxy.buffers.Get()
	defer x.proxy.buffers.Put(buf)
	pending := 0
	for {
		n, err := x.respBody.Read(buf)
		if n > 0 {
			if werr := x.client.content(buf[:n]); werr != nil {
				return errClientGone
			}
			pending += n
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return x.backendError(err)
		case x.respBody.Done():
			return nil
		case pending < flushAt && x.respBody.Ready():
			continue
		}
		pending = 0
		if err := x.client.flush(); err != nil {
			return errClientGone
		}
	}
}
