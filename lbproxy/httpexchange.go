package lbproxy

import (
	"errors"
	"fmt"
	"io"
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

	req     h1.Head
	content h1.Body

	resp     h1.Head
	reply    h1.Body
	member   *memberConn
	endpoint *endpoint // that got the request, and counts it as active
	stuck    *endpoint // that the sticky cookie names
	out      []byte
	upload   *upload
	stream   *http2Upload // instead of upload, to an HTTP/2 backend
	begun    bool         // the final response's head was given to the client
	closing  bool         // the client's connection ends after the response
	status   int
	upstream *atomic.Pointer[memberConn] // where member is for who aborts the exchange
	sending  h1.Framing                  // of the body to the backend
	ending   func() []h1.Field           // trailers of the request, once its body was read; nil: those of content
	log      record
}

// Errors of an exchange; each has its answer in fail.
var (
	errClientGone    = errors.New("the client closed the connection")
	errServerTimeout = errors.New("the backend did not answer in time")
	errBodyTimeout   = errors.New("the client did not send the body in time")
	errBadResponse   = errors.New("the backend's response is malformed")
)

// run proxies one request, whose head and body are set. It reports whether the client's connection may carry another.
func (x *exchange) run() (again bool) {
	x.resp.Status, x.status, x.begun, x.upload, x.member, x.stuck = 0, 0, false, nil, nil, nil
	defer x.release()
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
	return x.finishUpload() && !x.closing
}

// release gives the backend's connection and count back.
func (x *exchange) release() {
	x.upstream.Store(nil)
	x.stopUpload()
	if x.member != nil {
		x.member.close()
		x.member = nil
	}
	if x.endpoint != nil {
		x.endpoint.state.release()
		x.endpoint = nil
	}
}

// roundTrip sends the request to a backend and reads the head of the response. A backend that cannot be connected to is
// skipped; so is a connection that ends before the response begins, if the request may be repeated.
func (x *exchange) roundTrip() error {
	var fresh *endpoint
	for {
		member, err := x.connect(fresh)
		if err != nil {
			return err
		}
		x.member = member
		x.upstream.Store(member)
		err = x.try()
		if err == nil {
			return nil
		}
		lost := member.lost.Load()
		member.close()
		switch {
		case lost && x.onlyDown():
			return errServerTimeout // nor would the same backend answer now
		case !lost && !member.reused, member.answered.Load(), errors.Is(err, errServerTimeout), !x.repeatable():
			return err
		}
		x.frontend.state.metrics.retries.Inc()
		x.log.retries++
		x.member = nil
		fresh = x.endpoint
		if errors.Is(err, syscall.ETIMEDOUT) {
			x.proxy.s.connectFailed(fresh, err)
		}
		x.endpoint = nil
		fresh.state.release()
	}
}

// repeatable reports whether a request that got no byte of a response may be sent again (RFC 9110 section 9.2.2), where its
// backend went down or was closing its connection: its method is idempotent and it has no body.
func (x *exchange) repeatable() bool {
	return idempotent(x.req.Method) && x.sending == h1.NoBody && x.log.retries < 3
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

// connect returns an idle connection to the backend that pick chooses, or a new one: then to the first backend that
// accepts. fresh is a backend whose idle connections are not to be trusted; nil: none.
func (x *exchange) connect(fresh *endpoint) (*memberConn, error) {
	f, s := x.frontend, x.proxy.s
	x.log.dialed = time.Now()
	var tried []*endpoint // that accepted, and failed in the handshake
	last := errNoBackend
	for {
		e, err := x.next(tried, last)
		if err != nil {
			return nil, err
		}
		x.log.endpoint = e
		if e != fresh && f.SendProxy == 0 {
			if member := e.state.pool.get(); member != nil {
				x.endpoint = e
				return member, nil
			}
		}
		conn, e, err := s.connectFrom(x.proxy.ctx, f, e, dialing{client: x.src.Addr(), failed: tried})
		if err != nil && x.proxy.ctx.Err() != nil {
			return nil, errClientGone
		}
		if err != nil {
			return nil, &dialError{balancer: f.Name, err: err}
		}
		x.log.endpoint = e
		member, err := x.newMember(conn, e)
		if err == nil {
			x.endpoint = e
			return member, nil
		}
		last = err
		e.state.release()
		if slices.Contains(tried, e) {
			return nil, last
		}
		tried = append(tried, e)
	}
}

// try sends the request on the exchange's connection and reads the head of the final response.
func (x *exchange) try() error {
	m := x.member
	m.deadline.set(x.frontend.Timeouts.Server)
	x.log.connected = time.Now()
	out, complete := x.appendBuffered(x.appendRequest(x.out[:0]))
	x.out = out
	if _, err := m.Write(out); err != nil && complete {
		return x.memberError(err)
	}
	if !complete {
		x.startUpload()
	}
	for {
		if _, err := m.in.Peek(1); err != nil {
			return x.memberError(err)
		}
		m.answered.Store(true)
		if err := x.resp.ReadResponse(m.in); err != nil {
			return x.memberError(err)
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
	m.deadline.clear()
	x.log.answered = time.Now()
	return nil
}

// memberError returns why the backend's connection failed: what the client did wrong comes first, because it closes it.
func (x *exchange) memberError(err error) error {
	if u := x.upload; u != nil {
		if cause := u.cause.Load(); cause != nil {
			return *cause
		}
	}
	var syntax h1.SyntaxError
	switch {
	case x.member.deadline.expired():
		x.endpoint.health.requestCheck()
		return errServerTimeout
	case errors.As(err, &syntax), errors.Is(err, h1.ErrHeadTooLarge):
		return fmt.Errorf("%w: %w", errBadResponse, err)
	}
	return fmt.Errorf("connection to backend %s: %w", x.endpoint.Addr, err)
}

// respond passes the response on.
func (x *exchange) respond() error {
	m := x.member
	x.status = x.resp.Status
	if x.resp.Status == http.StatusSwitchingProtocols {
		return x.tunnel()
	}
	framing, length := x.replyFraming()
	x.reply.Reset(m.in, framing, length)
	last := !x.req.Persistent() || x.closing || x.upload != nil && !x.upload.ended.Load()
	x.closing, x.begun = last, true
	if err := x.client.begin(x, framing, last); err != nil {
		return errClientGone
	}
	if !x.reply.Done() && !x.reply.Ready() {
		if err := x.client.flush(); err != nil {
			return errClientGone
		}
	}
	if err := x.copyReply(); err != nil {
		return err
	}
	if err := x.client.finish(x.reply.Trailers()); err != nil {
		return errClientGone
	}
	if err := x.client.flush(); err != nil {
		return errClientGone
	}
	x.keepMember(framing)
	return nil
}

// keepMember puts the backend's connection back if it may carry another request.
func (x *exchange) keepMember(framing h1.Framing) {
	m := x.member
	reusable := x.resp.Persistent() && framing != h1.ByClose && x.frontend.SendProxy == 0 && x.resp.Status != http.StatusSwitchingProtocols
	if u := x.upload; u != nil && reusable {
		// The last write may be about to return: a backend can answer before it does.
		if reusable = u.ended.Load(); reusable {
			m.deadline.set(time.Second)
			<-u.done
			m.deadline.clear()
			reusable = u.sent
			control(m.socket, func(fd int) { setUserTimeout(fd, x.proxy.s.cfg.Unacked) })
		}
	}
	if !reusable {
		return
	}
	x.upstream.Store(nil)
	x.member = nil
	m.pool.put(m)
}

// replyFraming returns how the response's body is delimited (RFC 9112 section 6.3).
func (x *exchange) replyFraming() (h1.Framing, int64) {
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

// copyReply passes the response's body on: what has come is sent at once, so that streams are not delayed.
func (x *exchange) copyReply() error {
	if x.reply.Done() {
		return nil
	}
	if direct, ok := x.client.(interface{ splice(*exchange) error }); ok && x.reply.Left() >= spliceFrom {
		return direct.splice(x)
	}
	buf := x.proxy.buffers.Get()
	defer x.proxy.buffers.Put(buf)
	pending := 0
	for {
		n, err := x.reply.Read(buf)
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
			return x.memberError(err)
		case x.reply.Done():
			return nil
		case pending < flushAt && x.reply.Ready():
			continue
		}
		pending = 0
		if err := x.client.flush(); err != nil {
			return errClientGone
		}
	}
}
