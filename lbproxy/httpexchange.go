package lbproxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A responder is the client's side of an exchange. What begin, content and finish write is sent by flush at the latest.
type responder interface {
	// interim sends a 1xx response.
	interim(resp *head) error
	// begin writes the head of the final response. last: the connection ends after it.
	begin(x *exchange, framing framing, last bool) error
	// content writes a part of the body.
	content(p []byte) error
	flush() error
	// finish ends the body.
	finish(trailers []field) error
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

	req     head
	content body

	resp     head
	reply    body
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
	sending  framing                     // of the body to the backend
	ending   func() []field              // trailers of the request, once its body was read; nil: those of content
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
	x.resp.status, x.status, x.begun, x.upload, x.member, x.stuck = 0, 0, false, nil, nil, nil
	defer x.release()
	if x.frontend.Protocol == lab.BackendH2C {
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
		x.endpoint.state.active.Add(-1)
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
		if !x.repeatable(err, member, lost) {
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
		fresh.state.active.Add(-1)
	}
}

// repeatable reports whether a request may be sent again (RFC 9110 section 9.2.2): its method is idempotent, nothing of
// its body was sent, no byte of a response came, and the connection is one that its backend may have been closing, or
// whose backend went down.
func (x *exchange) repeatable(err error, member *memberConn, lost bool) bool {
	return (member.reused || lost) && !member.answered.Load() && !x.begun && x.upload == nil && x.sending == noBody &&
		idempotent(x.req.method) && !errors.Is(err, errServerTimeout) && x.log.retries < 3
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
	e := x.pick(nil)
	if e == nil {
		return nil, errNoBackend
	}
	if e != fresh && f.SendProxy == 0 {
		if member := e.state.pool.get(); member != nil {
			x.endpoint, x.log.endpoint = e, e
			return member, nil
		}
	}
	x.log.endpoint = e
	conn, e, err := s.connectFrom(x.proxy.ctx, f, e, x.src.Addr())
	if err != nil && x.proxy.ctx.Err() != nil {
		return nil, errClientGone
	}
	if err != nil {
		return nil, &dialError{balancer: f.Name, err: err}
	}
	x.endpoint, x.log.endpoint = e, e
	return x.newMember(conn, e)
}

// try sends the request on the exchange's connection and reads the head of the final response.
func (x *exchange) try() error {
	m := x.member
	m.deadline.set(x.frontend.Timeouts.Server)
	x.log.connected = time.Now()
	out, complete, err := x.appendBuffered(x.appendRequest(x.out[:0]))
	x.out = out
	if err != nil {
		return x.uploadError(err)
	}
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
		if err := x.resp.readResponse(m.in); err != nil {
			return x.memberError(err)
		}
		if x.resp.status >= 200 || x.resp.status == http.StatusSwitchingProtocols {
			break
		}
		if x.req.minor == 0 {
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
	var syntax syntaxError
	switch {
	case x.member.deadline.expired():
		x.endpoint.health.requestCheck()
		return errServerTimeout
	case errors.As(err, &syntax), errors.Is(err, errHeadTooLarge):
		return fmt.Errorf("%w: %w", errBadResponse, err)
	}
	return fmt.Errorf("connection to backend %s: %w", x.endpoint.Addr, err)
}

// respond passes the response on.
func (x *exchange) respond() error {
	m := x.member
	x.status = x.resp.status
	if x.resp.status == http.StatusSwitchingProtocols {
		return x.tunnel()
	}
	framing, length := x.replyFraming()
	x.reply.reset(m.in, framing, length)
	last := !x.req.persistent() || x.closing || x.upload != nil && !x.upload.ended.Load()
	x.closing, x.begun = last, true
	if err := x.client.begin(x, framing, last); err != nil {
		return errClientGone
	}
	if !x.reply.done() && !x.reply.ready() {
		if err := x.client.flush(); err != nil {
			return errClientGone
		}
	}
	if err := x.copyReply(); err != nil {
		return err
	}
	if err := x.client.finish(x.reply.trailers.fields); err != nil {
		return errClientGone
	}
	if err := x.client.flush(); err != nil {
		return errClientGone
	}
	x.keepMember(framing)
	return nil
}

// keepMember puts the backend's connection back if it may carry another request.
func (x *exchange) keepMember(framing framing) {
	m := x.member
	reusable := x.resp.persistent() && framing != byClose && x.frontend.SendProxy == 0 && x.resp.status != http.StatusSwitchingProtocols
	if u := x.upload; u != nil && reusable {
		// The last write may be about to return: a backend can answer before it does.
		if reusable = u.ended.Load(); reusable {
			m.deadline.set(time.Second)
			<-u.done
			m.deadline.clear()
			reusable = u.sent
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
func (x *exchange) replyFraming() (framing, int64) {
	r := &x.resp
	switch {
	case string(x.req.method) == "HEAD", r.status == http.StatusNoContent, r.status == http.StatusNotModified:
		return noBody, 0
	case r.chunked:
		return byChunks, 0
	case r.length >= 0:
		return byLength, r.length
	}
	return byClose, 0
}

// flushAt is how much of a response may wait for more.
const flushAt = 16 << 10

// copyReply passes the response's body on: what has come is sent at once, so that streams are not delayed.
func (x *exchange) copyReply() error {
	if x.reply.done() {
		return nil
	}
	if direct, ok := x.client.(interface{ splice(*exchange) error }); ok && x.reply.framing == byLength && x.reply.left >= spliceFrom {
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
		case x.reply.done():
			return nil
		case pending < flushAt && x.reply.ready():
			continue
		}
		pending = 0
		if err := x.client.flush(); err != nil {
			return errClientGone
		}
	}
}

// An upload sends a request's body while the response is awaited.
type upload struct {
	ended atomic.Bool           // the body was read from the client to its end
	cause atomic.Pointer[error] // why it could not be
	sent  bool                  // all was written; valid after done
	done  chan struct{}
}

// smallBody is how much of a body is sent with the head, if it has come already.
const smallBody = memberBuffer

// appendBuffered appends the body if all of it has been received with the head.
func (x *exchange) appendBuffered(out []byte) (_ []byte, complete bool, err error) {
	b := &x.content
	if x.sending == noBody {
		return out, true, nil
	}
	if b.framing != byLength || b.in == nil || b.left > int64(b.in.Buffered()) || b.left > smallBody {
		return out, false, nil
	}
	at := len(out)
	out = append(out, make([]byte, b.left)...)
	_, err = io.ReadFull(b, out[at:])
	return out, err == nil, err
}

func (x *exchange) startUpload() {
	u := &upload{done: make(chan struct{})}
	x.upload = u
	go func() {
		defer close(u.done)
		defer x.proxy.contain(func() { x.member.close() })
		u.sent = x.sendBody(u, x.member)
	}()
}

// sendBody copies the body to the backend. An error of the client's closes the backend's connection, so that it never
// takes a part for the whole; an error of the backend's is left to who reads its response.
func (x *exchange) sendBody(u *upload, m *memberConn) (sent bool) {
	buf := x.proxy.buffers.Get()
	defer x.proxy.buffers.Put(buf)
	b := &x.content
	out := make([]byte, 0, 64)
	for {
		n, err := b.Read(buf)
		if err != nil && !errors.Is(err, io.EOF) {
			err = x.uploadError(err)
			u.cause.Store(&err)
			m.abort()
			return false
		}
		last := b.done()
		u.ended.Store(last)
		out = out[:0]
		if n > 0 {
			out = appendContent(out, x.sending, buf[:n])
		}
		if last && x.sending == byChunks {
			out = appendTrailers(out, x.trailers())
		}
		if !m.answered.Load() {
			m.deadline.set(x.frontend.Timeouts.Server)
			if m.answered.Load() { // meanwhile
				m.deadline.clear()
			}
		}
		if _, err := m.Write(out); err != nil {
			return false
		}
		if last {
			return true
		}
	}
}

// trailers returns the trailers of the request, whose body was read.
func (x *exchange) trailers() []field {
	if x.ending != nil {
		return x.ending()
	}
	return x.content.trailers.fields
}

// uploadError returns why the client's body could not be read.
func (x *exchange) uploadError(err error) error {
	var syntax syntaxError
	switch {
	case errors.As(err, &syntax), errors.Is(err, errHeadTooLarge):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errBodyTimeout
	}
	return errClientGone
}

// finishUpload reports whether the body was read to its end.
func (x *exchange) finishUpload() bool {
	if x.upload == nil {
		return x.content.done()
	}
	if x.upload.ended.Load() {
		return true
	}
	return false
}

// appendContent appends a part of a body, as a chunk where the framing needs it.
func appendContent(out []byte, f framing, p []byte) []byte {
	if f != byChunks {
		return append(out, p...)
	}
	out = strconv.AppendInt(out, int64(len(p)), 16)
	out = append(out, "\r\n"...)
	out = append(out, p...)
	return append(out, "\r\n"...)
}

// appendTrailers appends the last chunk and the trailers.
func appendTrailers(out []byte, fields []field) []byte {
	out = append(out, "0\r\n"...)
	for _, f := range fields {
		out = appendField(out, f.name, f.value)
	}
	return append(out, "\r\n"...)
}

func appendField(out, name, value []byte) []byte {
	out = append(out, name...)
	out = append(out, ": "...)
	out = append(out, value...)
	return append(out, "\r\n"...)
}
