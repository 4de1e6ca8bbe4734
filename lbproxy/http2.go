package lbproxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// http2 is HTTP/2, by net/http: its server for clients, its transport for backends. What a request or a response is and
// what becomes of it is decided by the exchange, as in HTTP/1.
type http2 struct {
	proxy     *httpProxy
	server    *http.Server
	transport *http.Transport
	accepted  connListener
	streams   streamBudget
}

const (
	preface     = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" // RFC 9113 section 3.4
	maxStreams  = 100                                // requests of one connection at one time (RFC 9113 section 6.5.2)
	http2Window = 1 << 20                            // of a stream
)

// Requests of all HTTP/2 connections at one time: one takes some 70 KiB while its client reads nothing.
const (
	maxAllStreams    = 2048
	maxClientStreams = maxAllStreams / 4 // of one address
)

// A streamBudget counts the requests of HTTP/2 connections in progress. The zero value is ready.
type streamBudget struct {
	mu      sync.Mutex
	all     int
	clients map[netip.Addr]int
}

// add counts a request of a client in. It reports false, and counts nothing, if there are too many.
func (b *streamBudget) add(client netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all >= maxAllStreams || b.clients[client] >= maxClientStreams {
		return false
	}
	if b.clients == nil {
		b.clients = map[netip.Addr]int{}
	}
	b.all++
	b.clients[client]++
	return true
}

// remove counts it out.
func (b *streamBudget) remove(client netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all--
	if b.clients[client]--; b.clients[client] == 0 {
		delete(b.clients, client)
	}
}

type connKey struct{}

func newHTTP2(p *httpProxy) *http2 {
	h := &http2{proxy: p, accepted: connListener{conns: make(chan net.Conn), done: make(chan struct{})}}
	only := new(http.Protocols)
	only.SetUnencryptedHTTP2(true) // TLS has ended in handshake
	quiet := slog.NewLogLogger(p.s.log.Handler(), slog.LevelDebug)
	h.server = &http.Server{
		Handler: h, Protocols: only, MaxHeaderBytes: maxHead, IdleTimeout: defaultTimeouts.KeepAlive, ErrorLog: quiet,
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: http2Window, MaxReceiveBufferPerConnection: http2Window},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	h.transport = &http.Transport{
		Protocols: only, DialContext: h.dial, DisableCompression: true, IdleConnTimeout: defaultTimeouts.KeepAlive,
		// A backend that does not answer a ping loses its connection.
		HTTP2: &http.HTTP2Config{SendPingTimeout: userTimeout, PingTimeout: userTimeout},
	}
	return h
}

func (h *http2) serve()                       { _ = h.server.Serve(&h.accepted) }
func (h *http2) shutdown(ctx context.Context) { _ = h.server.Shutdown(ctx) }

func (h *http2) close() {
	_ = h.server.Close()
	h.transport.CloseIdleConnections()
}

// http2 reports whether a client begins with HTTP/2, as one that negotiated it or knows it of its own does.
func (c *httpConn) http2() bool {
	limit := defaultTimeouts.Request
	if c.frontend != nil {
		limit = c.frontend.Timeouts.Request
	}
	c.deadline.set(limit)
	for n := 1; n <= len(preface); n++ {
		got, err := c.in.Peek(n)
		if err != nil || string(got) != preface[:n] {
			return false
		}
	}
	return true
}

// serveHTTP2 serves the requests of an HTTP/2 connection until it ends.
func (c *httpConn) serveHTTP2() {
	if !c.busy.CompareAndSwap(false, true) {
		return
	}
	c.deadline.clear()
	h := &http2Conn{Conn: c.conn, c: c, closed: make(chan struct{})}
	select {
	case c.proxy.h2.accepted.conns <- h:
		<-h.closed
	case <-c.proxy.h2.accepted.done: // draining
	}
}

// An http2Conn is a client connection in HTTP/2, after TLS.
type http2Conn struct {
	net.Conn
	c      *httpConn
	closed chan struct{}
	once   sync.Once
}

// Read implements net.Conn.
func (h *http2Conn) Read(b []byte) (int, error) { return h.c.in.Read(b) }

// Write implements net.Conn.
func (h *http2Conn) Write(b []byte) (int, error) {
	n, err := h.Conn.Write(b)
	h.c.sent.Add(int64(n))
	return n, err
}

// Close implements net.Conn.
func (h *http2Conn) Close() error {
	h.once.Do(func() { close(h.closed) })
	return h.Conn.Close()
}

// ServeHTTP implements http.Handler: it proxies one request of an HTTP/2 client.
func (h *http2) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn, _ := r.Context().Value(connKey{}).(*http2Conn)
	c := conn.c
	s := &http2Stream{w: w, r: r, control: http.NewResponseController(w)}
	x := &exchange{proxy: h.proxy, client: s, src: c.x.src, dst: c.x.dst, secure: c.x.secure, upstream: new(atomic.Pointer[memberConn])}
	s.x = x
	defer func() {
		if v := recover(); v != nil {
			if v != http.ErrAbortHandler { //nolint:errorlint // net/http compares so, too
				h.proxy.s.reject("", rejectPanic, x.src, nil)
				h.proxy.s.panics.Note(v)
			}
			panic(http.ErrAbortHandler) // resets the stream
		}
	}()
	if !h.streams.add(x.src.Addr()) {
		h.proxy.s.reject("", rejectLimit, x.src, nil)
		s.answer(http.StatusServiceUnavailable, "too many requests at one time")
		return
	}
	defer h.streams.remove(x.src.Addr())
	x.log = record{start: time.Now(), head: time.Now()}
	if err := x.req.fromHTTP2(r); err != nil {
		h.proxy.s.reject("", rejectSyntax, x.src, err)
		s.answer(http.StatusBadRequest, err.Error())
		return
	}
	s.body()
	f, why := c.find(x)
	if why != "" {
		s.answer(http.StatusServiceUnavailable, why)
		return
	}
	c.assignOnce(f)
	if to := x.redirect(); to != "" {
		s.x.status = redirectStatus(x.req.method)
		http.Redirect(w, r, to, s.x.status)
		x.done()
		return
	}
	defer context.AfterFunc(r.Context(), func() {
		if m := x.upstream.Load(); m != nil {
			m.abort()
		}
	})()
	x.run()
	x.log.bytes = [2]int64{s.received.Load(), s.sent}
	x.done()
	if s.broken {
		panic(http.ErrAbortHandler)
	}
}

// assignOnce is assignFirst for requests that run side by side.
func (c *httpConn) assignOnce(f *frontend) {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	c.assignFirst(f)
}

// fromHTTP2 makes h the head of a request that net/http has parsed. What an HTTP/1 backend would read otherwise is refused
// (RFC 9113 section 8.2.1).
func (h *head) fromHTTP2(r *http.Request) error {
	*h = head{method: []byte(r.Method), target: []byte(r.RequestURI), minor: 1, host: []byte(r.Host), hasHost: true, length: r.ContentLength}
	if r.Method == http.MethodConnect || !isToken(h.method) || !isTarget(h.target) || h.target[0] != '/' && string(h.target) != "*" || !isHost(h.host) {
		return syntaxError("the method, path or authority is malformed")
	}
	for name, values := range r.Header {
		for _, value := range values {
			f := field{[]byte(name), []byte(value)}
			if !isToken(f.name) || !isText(f.value) {
				return syntaxError("a field is malformed")
			}
			h.fields = append(h.fields, f)
		}
	}
	if len(h.fields) > maxFields {
		return syntaxError("there are too many fields")
	}
	for name := range r.Trailer { // net/http has taken the field away
		h.fields = append(h.fields, field{[]byte("Trailer"), []byte(name)})
	}
	return nil
}

// An http2Stream is a request of an HTTP/2 client. It implements responder.
type http2Stream struct {
	w       http.ResponseWriter
	r       *http.Request
	x       *exchange
	control *http.ResponseController
	broken  bool // the stream is reset at its end

	received atomic.Int64 // of the request's body
	sent     int64        // of the response's body
}

// body sets how the request's body is read and sent.
func (s *http2Stream) body() {
	x := s.x
	switch {
	case s.r.ContentLength > 0:
		x.sending = byLength
	case s.r.ContentLength < 0:
		x.sending = byChunks
	}
	if x.sending == noBody {
		x.content.reset(nil, noBody, 0)
		return
	}
	x.content.reset(bufio.NewReaderSize(s, memberBuffer), byClose, 0)
	x.ending = func() []field { return fieldsOf(s.r.Trailer) }
}

// Read reads the request's body.
func (s *http2Stream) Read(p []byte) (int, error) {
	if f := s.x.frontend; f != nil {
		_ = s.control.SetReadDeadline(time.Now().Add(f.Timeouts.Body))
	}
	n, err := s.r.Body.Read(p)
	s.received.Add(int64(n))
	return n, err
}

// fieldsOf returns the fields that may be trailers.
func fieldsOf(header http.Header) (out []field) {
	for name, values := range header {
		for _, value := range values {
			if f := (field{[]byte(name), []byte(value)}); kindOf(f.name) == fieldOther && isToken(f.name) && isText(f.value) {
				out = append(out, f)
			}
		}
	}
	return out
}

// setFields sets the response's fields that are not of one connection.
func (s *http2Stream) setFields(resp *head) {
	header := s.w.Header()
	clear(header)
	header["Date"], header["Content-Type"] = nil, nil // what the backend does not send is not made up
	for _, f := range resp.fields {
		switch kindOf(f.name) {
		case fieldLength, fieldEncoding, fieldConnection, fieldKeepAlive, fieldProxyConnection, fieldUpgrade, fieldHost, fieldTE:
			continue
		}
		header.Add(string(f.name), string(f.value))
	}
}

// interim implements responder.
func (s *http2Stream) interim(resp *head) error {
	s.setFields(resp)
	s.w.WriteHeader(resp.status)
	return nil
}

// begin implements responder.
func (s *http2Stream) begin(x *exchange, _ framing, _ bool) error {
	s.setFields(&x.resp)
	if length := x.resp.length; length >= 0 && !x.resp.chunked && x.resp.status != http.StatusNoContent {
		s.w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	}
	if cookie := x.cookie(); cookie != "" {
		s.w.Header().Add("Set-Cookie", cookie)
	}
	s.w.WriteHeader(x.resp.status)
	return nil
}

// patient gives the client time to take what is written: as much as it has for a part of its own body.
func (s *http2Stream) patient() {
	_ = s.control.SetWriteDeadline(time.Now().Add(s.x.frontend.Timeouts.Body))
}

// content implements responder.
func (s *http2Stream) content(p []byte) error {
	s.patient()
	s.sent += int64(len(p))
	_, err := s.w.Write(p)
	return err
}

// flush implements responder.
func (s *http2Stream) flush() error {
	s.patient()
	return s.control.Flush()
}

// finish implements responder.
func (s *http2Stream) finish(trailers []field) error {
	for _, f := range trailers {
		s.w.Header().Add(http.TrailerPrefix+string(f.name), string(f.value))
	}
	return nil
}

// answer answers with a text of ours.
func (s *http2Stream) answer(status int, text string) {
	s.x.status = status
	header := s.w.Header()
	clear(header)
	if status == http.StatusServiceUnavailable {
		header.Set("Retry-After", "5")
	}
	http.Error(s.w, text, status)
}

// stopReading implements responder.
func (s *http2Stream) stopReading(stop bool) {
	if stop {
		_ = s.control.SetReadDeadline(time.Unix(1, 0))
	}
}

// A target is the backend that a connection is opened to.
type target struct {
	frontend *frontend
	endpoint *endpoint
}

type targetKey struct{}

// dial opens a connection to a backend. It may end after the request that asked for it.
func (h *http2) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	to, _ := ctx.Value(targetKey{}).(target)
	ctx, cancel := context.WithTimeout(ctx, to.frontend.Timeouts.Connect)
	defer cancel()
	start := time.Now()
	conn, err := h.proxy.s.deps.Dial(ctx, to.endpoint.Addr)
	if err != nil {
		h.proxy.s.connectFailed(to.endpoint, err)
		return nil, &dialError{balancer: to.frontend.Name, err: err}
	}
	h.proxy.s.dialed(to.endpoint, time.Since(start))
	setMemberOptions(conn)
	return conn, nil
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
	return x.content.done() && !x.closing
}

// sendHTTP2 sends the request, to the next backend if one cannot be connected to.
func (x *exchange) sendHTTP2(ctx context.Context) (*http.Response, error) {
	var tried []*endpoint
	last := errNoBackend
	for {
		e := x.pick(tried)
		if e == nil {
			return nil, last
		}
		tried = append(tried, e)
		x.endpoint, x.log.endpoint, x.log.dialed, x.log.connected = e, e, time.Now(), time.Now()
		r := x.toHTTP2(e)
		resp, err := x.proxy.h2.transport.RoundTrip(r.WithContext(context.WithValue(ctx, targetKey{}, target{x.frontend, e})))
		if err == nil {
			x.stream.answered.Store(true)
			x.log.answered = time.Now()
			return resp, nil
		}
		if x.stream.late.Load() {
			e.health.requestCheck()
			return nil, errServerTimeout
		}
		if cause := x.stream.cause.Load(); cause != nil {
			return nil, x.uploadError(*cause)
		}
		if ctx.Err() != nil {
			return nil, errClientGone
		}
		if !isDial(err) {
			return nil, err
		}
		last = err
		x.log.retries++
		e.state.active.Add(-1)
		x.endpoint = nil
	}
}

// toHTTP2 returns the request for a backend.
func (x *exchange) toHTTP2(e *endpoint) *http.Request {
	var sent head
	raw := x.appendRequest(nil)
	_, raw = cutLine(raw[:len(raw)-len("\r\n")])
	_ = sent.parseFields(raw, false) // it was written by us
	r := &http.Request{Method: string(x.req.method), Host: string(x.req.host), Header: make(http.Header), URL: urlOf(e.Addr.String(), string(x.req.target))}
	for _, f := range sent.fields {
		switch kindOf(f.name) {
		case fieldHost, fieldLength, fieldEncoding, fieldConnection, fieldUpgrade:
			continue
		}
		if equalFold(f.name, "trailer") {
			for name := range strings.SplitSeq(string(f.value), ",") {
				x.stream.trailer[http.CanonicalHeaderKey(strings.TrimSpace(name))] = nil
			}
			continue
		}
		r.Header.Add(string(f.name), string(f.value))
	}
	for _, f := range x.req.fields {
		if kindOf(f.name) == fieldTE && equalFold(f.value, "trailers") {
			r.Header.Set("Te", "trailers")
		}
	}
	if x.sending != noBody {
		r.Body, r.Trailer, r.ContentLength = x.stream, x.stream.trailer, x.req.length
	}
	return r
}

// urlOf returns the URL of a target that is sent as it is.
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
	x        *exchange
	trailer  http.Header
	timer    *time.Timer // ends the wait for the response
	answered atomic.Bool
	late     atomic.Bool           // the timer has ended it
	ended    atomic.Bool           // the body was read from the client to its end
	cause    atomic.Pointer[error] // why it could not be

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
	n, err := u.x.content.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		for _, f := range u.x.trailers() {
			// Those that were not announced cannot be sent any more (net/http).
			if name := http.CanonicalHeaderKey(string(f.name)); hasKey(u.trailer, name) {
				u.trailer[name] = append(u.trailer[name], string(f.value))
			}
		}
	case err != nil:
		u.cause.Store(&err)
	}
	u.ended.Store(u.x.content.done())
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
	x.resp = head{status: resp.StatusCode, reason: []byte(http.StatusText(resp.StatusCode)), minor: 1, length: -1, fields: fieldsOf(resp.Header)}
	if resp.Header.Get("Content-Length") != "" {
		x.resp.length = resp.ContentLength
	}
	f, _ := x.replyFraming()
	switch {
	case resp.Body == http.NoBody && x.resp.length <= 0:
		f = noBody
	case f == byClose, f == byLength && len(resp.Trailer) > 0 && x.resp.minor > 0:
		f, x.resp.length = byChunks, -1 // a length leaves no place for trailers
	}
	x.begun = true
	x.closing = x.closing || !x.req.persistent() || x.sending != noBody && !x.stream.ended.Load()
	if f == noBody && x.resp.length < 0 && x.status != http.StatusNoContent && x.status != http.StatusNotModified && string(x.req.method) != http.MethodHead {
		x.resp.length = 0
	}
	if err := x.client.begin(x, f, x.closing); err != nil {
		return errClientGone
	}
	if f != noBody {
		if err := x.copyStream(resp.Body); err != nil {
			return err
		}
	}
	if err := x.client.finish(fieldsOf(resp.Trailer)); err != nil {
		return errClientGone
	}
	if f == noBody {
		if _, ok := x.client.(*http2Stream); ok {
			return nil // its end is in the frame of its head
		}
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

// connListener is the net.Listener that http.Server accepts from.
type connListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// Accept implements net.Listener.
func (l *connListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *connListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *connListener) Addr() net.Addr { return &net.TCPAddr{} }
