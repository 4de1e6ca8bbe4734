package lbproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

const (
	clientBuffer = 4 << 10
	copyBuffer   = 32 << 10
	// lingerTime and lingerBytes limit what is read and dropped after an answer that the client may not have read yet:
	// closing with unread bytes would reset the connection and lose the answer.
	lingerTime  = 2 * time.Second
	lingerBytes = 1 << 20
)

// httpProxy is HTTP mode: an HTTP/1 engine of our own.
type httpProxy struct {
	s            *Server
	deadlines    deadlines
	buffers      copyBuffers
	h2           *http2
	certificates certificates
	ctx          context.Context // ends when close aborts what is left
	cancel       context.CancelFunc

	mu       sync.Mutex
	draining bool
	open     map[*httpConn]struct{}
	ended    sync.Cond // one of open has ended
}

func newHTTPProxy(s *Server) *httpProxy {
	p := &httpProxy{s: s, open: make(map[*httpConn]struct{}), certificates: certificates{s: s}}
	p.ended.L = &p.mu
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.h2 = newHTTP2(p)
	return p
}

// serve keeps the deadlines until close.
func (p *httpProxy) serve() {
	go p.h2.serve()
	defer p.h2.close()
	p.s.panics.Loop(p.ctx, func() { p.deadlines.run(p.ctx, p.expireIdle) })
}

// expireIdle closes connections to backends that were idle for too long.
func (p *httpProxy) expireIdle() {
	before := time.Now().Add(-backendIdle)
	for _, f := range p.s.active.Load().frontends {
		for i := range f.endpoints {
			f.endpoints[i].state.pool.expire(before)
		}
	}
}

// closeIdle closes connections that are between two requests, and from now on others after their response.
func (p *httpProxy) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
	for c := range p.open {
		if c.served.Load() && c.busy.CompareAndSwap(false, true) { // it is between two requests, and never comes to the next
			_ = c.conn.Close()
		}
	}
}

// shutdown closes idle connections and waits for requests in progress, upgraded connections included, or for ctx.
func (p *httpProxy) shutdown(ctx context.Context) {
	defer context.AfterFunc(ctx, p.ended.Broadcast)()
	p.closeIdle()
	p.mu.Lock()
	defer p.mu.Unlock()
	go p.h2.shutdown(ctx)
	for len(p.open) > 0 && ctx.Err() == nil {
		p.ended.Wait()
	}
}

// close aborts what shutdown still waits for.
func (p *httpProxy) close() {
	p.mu.Lock()
	for c := range p.open {
		c.abort()
	}
	p.cancel()
	for len(p.open) > 0 {
		p.ended.Wait()
	}
	p.mu.Unlock()
	for _, f := range p.s.active.Load().frontends {
		for i := range f.endpoints {
			f.endpoints[i].state.pool.end()
		}
	}
}

// contain recovers a panic on a goroutine, and calls after.
func (p *httpProxy) contain(after func()) {
	if r := recover(); r != nil {
		p.s.reject("", rejectPanic, noAddr, nil)
		p.s.panics.Note(r)
		after()
	}
}

// serveConn serves the requests of a connection. f is its frontend, which has counted it; nil: each request is routed.
func (p *httpProxy) serveConn(l *activeListener, f *frontend, client *clientConn) {
	c := &httpConn{conn: client.conn, proxy: p, client: client, listener: l}
	c.session = &session{client: client.conn, limit: client.limit, start: time.Now()}
	c.deadline.conn = client.conn
	c.x.proxy, c.x.client, c.x.upstream, c.x.src, c.x.dst = p, c, &c.session.upstream, client.src, client.dst
	p.s.sessions.add(c.session)
	p.deadlines.add(&c.deadline)
	if f != nil {
		c.assign(f)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[c] = struct{}{}
	go c.serve()
}

// An httpConn is a client connection in HTTP/1.
type httpConn struct {
	conn     net.Conn
	proxy    *httpProxy
	client   *clientConn
	listener *activeListener // of the table when the connection came
	session  *session
	in       *bufio.Reader
	out      []byte // not yet sent
	x        exchange
	deadline deadline
	timeout  time.Duration // of each read; 0: none
	served   atomic.Bool   // it had a request
	busy     atomic.Bool   // it has a request, or is about to be closed
	frontend *frontend     // that has counted the connection; nil: none yet
	received atomic.Int64
	sent     atomic.Int64
}

// serve reads and answers requests until the connection ends.
func (c *httpConn) serve() {
	defer c.close()
	defer c.proxy.contain(c.abort)
	if len(c.listener.certificates) > 0 && !c.handshake() {
		return
	}
	c.in = bufio.NewReaderSize(reading{c}, clientBuffer)
	if c.http2() {
		c.serveHTTP2()
		return
	}
	for first := true; c.await(first); first = false {
		if !c.request() {
			return
		}
		c.served.Store(true)
		c.busy.Store(false)
		if c.proxy.isDraining() {
			return
		}
	}
}

func (p *httpProxy) isDraining() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.draining
}

// await waits for the first byte of the next request.
func (c *httpConn) await(first bool) bool {
	t := defaultTimeouts
	if c.frontend != nil {
		t = c.frontend.Timeouts
	}
	limit := t.KeepAlive
	if first {
		limit = t.Request
	}
	c.timeout = 0
	c.deadline.set(limit)
	_, err := c.in.Peek(1)
	return err == nil && c.busy.CompareAndSwap(false, true)
}

// request reads and answers one request. It reports whether another may follow.
func (c *httpConn) request() (again bool) {
	x := &c.x
	x.log = record{start: time.Now()}
	x.frontend, x.closing, x.status = nil, c.proxy.s.draining.Load(), 0
	limit := defaultTimeouts.Request
	if c.frontend != nil {
		limit = c.frontend.Timeouts.Request
	}
	c.deadline.set(limit)
	if err := x.req.readRequest(c.in); err != nil {
		return c.refuse(err)
	}
	c.deadline.clear()
	x.log.head = time.Now()
	framing, length := x.req.framing()
	x.content.reset(c.in, framing, length)
	x.sending = framing
	if !c.route() {
		return false
	}
	if to := x.redirect(); to != "" {
		c.answer(redirectStatus(x.req.method), to, "Location: "+to+"\r\n")
		x.done()
		return false
	}
	c.timeout = x.frontend.Timeouts.Body
	x.log.bytes = [2]int64{c.received.Load(), c.sent.Load()}
	again = x.run()
	x.log.bytes = [2]int64{c.received.Load() - x.log.bytes[0], c.sent.Load() - x.log.bytes[1]}
	x.done()
	if !again {
		c.end()
	}
	return again
}

// redirectStatus returns the status of a permanent redirect: only 308 keeps every method, only 301 is known everywhere.
func redirectStatus(method []byte) int {
	if string(method) == http.MethodGet || string(method) == http.MethodHead {
		return http.StatusMovedPermanently
	}
	return http.StatusPermanentRedirect
}

// route finds the balancer of a request, and answers if there is none.
func (c *httpConn) route() bool {
	f, why := c.find(&c.x)
	if why != "" {
		c.unavailable(why)
		return false
	}
	c.assignFirst(f)
	return true
}

// find sets the balancer of a request. why says what its client is told instead.
func (c *httpConn) find(x *exchange) (f *frontend, why string) {
	p := c.proxy
	l := p.s.active.Load().listeners[c.client.socket.addr]
	if l == nil || c.client.socket.isClosed() {
		l = c.listener
		x.closing = true // the address is gone; this request still gets its answer
	}
	if p.isDraining() {
		x.closing = true
	}
	f = l.frontend(l.byName(hostname(string(x.req.host))))
	if f == nil || f.Mode != lab.ModeHTTP {
		p.s.reject("", rejectNoMatch, x.src, nil)
		return nil, "no balancer of this address matches this host"
	}
	x.frontend = f
	if l.only == nil && f.MaxConnections > 0 && f.state.active.Load() >= int64(f.MaxConnections) && c.frontend == nil {
		p.s.reject(f.Name, rejectLimit, x.src, nil)
		return nil, "balancer " + f.Name + " has max_connections"
	}
	return f, ""
}

// refuse answers a request whose head cannot be used.
func (c *httpConn) refuse(err error) bool {
	var syntax syntaxError
	status, why := 0, reason("")
	switch {
	case errors.Is(err, errHeadTooLarge):
		status, why = http.StatusRequestHeaderFieldsTooLarge, rejectHead
	case errors.As(err, &syntax):
		status, why = http.StatusBadRequest, rejectSyntax
	case c.deadline.expired():
		status, why = http.StatusRequestTimeout, rejectTimeout
	default:
		return false // the client is gone
	}
	name := ""
	if c.frontend != nil {
		name = c.frontend.Name
	}
	c.proxy.s.reject(name, why, c.x.src, err)
	c.answer(status, err.Error(), "")
	return false
}

// unavailable answers 503. Never a 4xx: installers do not retry after one.
func (c *httpConn) unavailable(why string) {
	c.answer(http.StatusServiceUnavailable, why, "Retry-After: 5\r\n")
}

// answer answers with a text of ours and ends the connection.
func (c *httpConn) answer(status int, text, fields string) {
	c.x.status = status
	c.out = append(c.out[:0], "HTTP/1.1 "...)
	c.out = strconv.AppendInt(c.out, int64(status), 10)
	c.out = append(c.out, ' ')
	c.out = append(c.out, http.StatusText(status)...)
	c.out = append(c.out, "\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"...)
	c.out = append(c.out, fields...)
	c.out = append(c.out, "Content-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(text)+1), 10)
	c.out = append(c.out, "\r\n\r\n"...)
	if string(c.x.req.method) != http.MethodHead {
		c.out = append(append(c.out, text...), '\n')
	}
	_ = c.flush()
	c.end()
}

// end lets the client read what was sent before the connection is closed.
func (c *httpConn) end() {
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok || c.deadline.expired() || half.CloseWrite() != nil {
		return
	}
	c.timeout = 0
	c.deadline.set(lingerTime)
	_, _ = io.CopyN(io.Discard, c.in, lingerBytes)
}

// assign sets the frontend of the connection, which has counted it.
func (c *httpConn) assign(f *frontend) {
	c.frontend = f
	c.proxy.s.sessions.assign(c.session, f)
}

// assignFirst makes f the frontend of a connection that has none yet.
func (c *httpConn) assignFirst(f *frontend) {
	if c.frontend == nil {
		f.state.add()
		c.assign(f)
	}
}

// close closes the connection and counts it out.
func (c *httpConn) close() {
	p := c.proxy
	_ = c.conn.Close()
	p.deadlines.remove(&c.deadline)
	p.s.sessions.end(c.session, c.received.Load(), c.sent.Load())
	if c.frontend != nil {
		c.frontend.state.remove()
	}
	c.client.release()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
	p.ended.Broadcast()
}

// abort resets the connection, and with it what its request has at a backend. Its goroutine ends.
func (c *httpConn) abort() { c.session.abort() }

// reading reads from a client: first the bytes that were read to route the connection.
type reading struct{ c *httpConn }

// Read implements io.Reader.
func (r reading) Read(b []byte) (int, error) {
	c := r.c
	if prefix := c.client.prefix; len(prefix) > 0 {
		n := copy(b, prefix)
		c.client.prefix = prefix[n:]
		c.received.Add(int64(n))
		return n, nil
	}
	if c.timeout > 0 {
		c.deadline.set(c.timeout)
		defer c.deadline.clear()
	}
	n, err := c.conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// interim implements responder.
func (c *httpConn) interim(*head) error {
	c.out = c.x.appendResponse(c.out, noBody, false)
	return c.flush()
}

// begin implements responder.
func (c *httpConn) begin(x *exchange, f framing, last bool) error {
	if f == byClose {
		if x.req.minor > 0 {
			f = byChunks // so that the client sees whether it got everything
		} else {
			last, x.closing = true, true
		}
	}
	if f == byChunks && x.req.minor == 0 {
		last, x.closing, f = true, true, byClose
	}
	x.log.framing = f
	c.out = x.appendResponse(c.out, f, last)
	return nil
}

// content implements responder.
func (c *httpConn) content(p []byte) error {
	c.out = appendContent(c.out, c.x.log.framing, p)
	if len(c.out) > copyBuffer {
		return c.flush()
	}
	return nil
}

// finish implements responder.
func (c *httpConn) finish(trailers []field) error {
	if c.x.log.framing == byChunks {
		c.out = appendTrailers(c.out, trailers)
	}
	return nil
}

// flush implements responder.
func (c *httpConn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	n, err := c.conn.Write(c.out)
	c.sent.Add(int64(n))
	if cap(c.out) > 2*copyBuffer {
		c.out = nil
	}
	c.out = c.out[:0]
	return err
}

// fail answers a request that got no response, or breaks a response off.
func (x *exchange) fail(err error) {
	p, f := x.proxy, x.frontend
	var syntax syntaxError
	answer := func(why reason, status int, text string) {
		p.s.reject(f.Name, why, x.src, err)
		x.log.reason = why
		x.answer(status, text)
	}
	x.log.err = err
	switch {
	case x.begun:
		x.log.reason = rejectBroken
		if errors.Is(err, errClientGone) {
			x.log.reason = rejectClient
		}
		x.breakOff()
	case errors.As(err, &syntax) && !errors.Is(err, errBadResponse):
		answer(rejectSyntax, http.StatusBadRequest, err.Error())
	case errors.Is(err, errHeadTooLarge) && !errors.Is(err, errBadResponse):
		answer(rejectHead, http.StatusRequestHeaderFieldsTooLarge, err.Error())
	case errors.Is(err, errBodyTimeout):
		answer(rejectTimeout, http.StatusRequestTimeout, err.Error())
	case errors.Is(err, errClientGone):
		x.log.reason = rejectClient
		x.breakOff()
	case errors.Is(err, errNoBackend):
		answer(rejectNoBackend, http.StatusServiceUnavailable, "no backend of balancer "+f.Name+" is available")
	case isDial(err):
		answer(rejectConnect, http.StatusServiceUnavailable, "no backend of balancer "+f.Name+" accepts connections")
	case errors.Is(err, errServerTimeout):
		answer(rejectServerTimeout, http.StatusGatewayTimeout, fmt.Sprintf("a backend of balancer %s did not answer within %s", f.Name, f.Timeouts.Server))
	case errors.Is(err, errBadResponse):
		answer(rejectResponse, http.StatusBadGateway, "a backend of balancer "+f.Name+" sent a malformed response")
	default:
		answer(rejectClosed, http.StatusBadGateway, "a backend of balancer "+f.Name+" closed the connection before it answered")
	}
}

// answer answers with a text of ours, after the upload has ended: it reads from the same connection.
func (x *exchange) answer(status int, text string) {
	x.status = status
	x.stopUpload()
	c, ok := x.client.(*httpConn)
	if !ok {
		x.client.(*http2Stream).answer(status, text)
		return
	}
	fields := ""
	if status == http.StatusServiceUnavailable {
		fields = "Retry-After: 5\r\n"
	}
	c.answer(status, text, fields)
}

// stopUpload ends an upload that is still in progress.
func (x *exchange) stopUpload() {
	u := x.upload
	if u == nil {
		return
	}
	if x.member != nil {
		x.member.abort()
	}
	if !u.ended.Load() {
		x.client.stopReading(true)
	}
	<-u.done
	x.client.stopReading(false)
}

// stopReading implements responder.
func (c *httpConn) stopReading(stop bool) {
	at := time.Time{}
	if stop {
		at = time.Unix(1, 0)
	}
	_ = c.conn.SetReadDeadline(at)
}

// breakOff resets the client's connection, so that a part of a response is not taken for the whole.
func (x *exchange) breakOff() {
	switch c := x.client.(type) {
	case *httpConn:
		c.abort()
	case *http2Stream:
		c.broken = true
	}
}

// defaultTimeouts are those of a connection whose balancer is not known yet.
var defaultTimeouts = lab.Timeouts{}.WithDefaults()

// copyBuffers holds buffers of copyBuffer bytes.
type copyBuffers struct{ pool sync.Pool }

// Get returns a buffer.
func (p *copyBuffers) Get() []byte {
	if b, ok := p.pool.Get().(*[copyBuffer]byte); ok {
		return b[:]
	}
	return make([]byte, copyBuffer)
}

// Put gives a buffer back.
func (p *copyBuffers) Put(b []byte) { p.pool.Put((*[copyBuffer]byte)(b)) }
