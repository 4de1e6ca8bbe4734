package lbproxy

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
	"github.com/bootlab/bootlab/lbproxy/h1"
)

// http2 is HTTP/2, by net/http: its server for clients, its transport for backends. What a request or a response is and
// what becomes of it is decided by the exchange, as in HTTP/1.
type http2 struct {
	proxy     *httpProxy
	server    *http.Server
	transport *http.Transport
	accepted  connListener
	streams   *connlimit.Counter // requests in progress
	open      *connlimit.Counter // streams
	control   controlBudgets
}

const (
	preface    = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" // RFC 9113 section 3.4
	maxStreams = 100                                // requests of one connection at one time (RFC 9113 section 6.5.2)
	http2Frame = 16 << 10                           // of a client's, the least that may be asked for (RFC 9113 section 4.2)
)

// http2Limits are of all HTTP/2 connections of clients together, for the memory that the process may use. A request takes up to some 150 KiB
// while its client reads nothing, and as much of its body as its window allows while its backend reads nothing.
type http2Limits struct {
	requests int // in progress: more get 503
	open     int // streams whose response was not written to its end, 503 or not: more end their connection
	window   int // of a stream, in octets
}

func newHTTP2Limits(memory int64) (l http2Limits) {
	l.requests = int(min(max(memory/(512<<10), 64), 2048))
	l.open = 2 * l.requests
	l.window = int(min(max(memory/8/int64(l.requests), 64<<10), maxWindow)) // 64 KiB is about what RFC 9113 section 6.9.2 begins with
	return l
}

const maxWindow = 1 << 20 // of a stream, and of a connection

type connKey struct{}

var errManyStreams = errors.New("too many requests at one time")

func newHTTP2(p *httpProxy) *http2 {
	limits := newHTTP2Limits(p.s.cfg.Memory)
	h := &http2{
		proxy: p, accepted: connListener{conns: make(chan net.Conn), done: make(chan struct{})},
		streams: connlimit.NewCounter(limits.requests), open: connlimit.NewCounter(limits.open),
	}
	only := new(http.Protocols)
	only.SetUnencryptedHTTP2(true) // TLS has ended in handshake
	quiet := slog.NewLogLogger(p.s.log.Handler(), slog.LevelDebug)
	h.server = &http.Server{
		Handler: h, Protocols: only, MaxHeaderBytes: h1.MaxHead, ErrorLog: quiet,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: http2Frame, MaxReceiveBufferPerStream: limits.window, MaxReceiveBufferPerConnection: maxWindow,
		},
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
	for n := 1; n <= len(preface); n++ {
		got, err := c.in.Peek(n)
		if err != nil || string(got) != preface[:n] {
			return false
		}
	}
	return true
}

// serveHTTP2 lets net/http serve the requests of an HTTP/2 connection, which it closes.
func (c *httpConn) serveHTTP2() {
	h := &http2Conn{
		Conn: c.conn, c: c, away: make(chan struct{}), in: frameScanner{left: len(preface)}, open: make(map[uint32]struct{}),
	}
	c.proxy.h2.control.add(c.x.src.Addr(), h)
	if !c.busy.CompareAndSwap(false, true) {
		_ = h.Close()
		return
	}
	c.own = make(ownSlot, 1)
	h.use(0)
	select {
	case c.proxy.h2.accepted.conns <- h:
	case <-c.proxy.h2.accepted.done: // draining
		_ = h.Close()
	}
}

// ServeHTTP implements http.Handler: it proxies one request of an HTTP/2 client.
func (h *http2) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn, _ := r.Context().Value(connKey{}).(*http2Conn)
	c := conn.c
	conn.use(1)
	defer conn.use(-1)
	s := &http2Stream{c: c, w: w, r: r, control: http.NewResponseController(w)}
	x := &exchange{proxy: h.proxy, client: s, src: c.x.src, dst: c.x.dst, secure: c.x.secure, current: new(atomic.Pointer[backendConn])}
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
	x.log = requestLog{start: time.Now(), head: time.Now()}
	if !h.take(h.streams, x.src.Addr()) {
		s.refuse(c, errManyStreams)
		return
	}
	conn.admitted(1)
	defer conn.admitted(-1)
	if err := setHTTP2(&x.req, r); err != nil {
		s.refuse(c, err)
		return
	}
	s.body()
	f, why := c.find(x)
	if why != "" {
		s.answer(http.StatusServiceUnavailable, why)
		x.refused(c)
		return
	}
	c.proxy.mu.Lock() // requests run side by side
	c.assignFirst(f)
	c.proxy.mu.Unlock()
	if status, to := x.redirect(); status != 0 {
		s.x.status = status
		http.Redirect(w, r, to, status)
		x.done()
		return
	}
	defer context.AfterFunc(r.Context(), func() {
		if m := x.current.Load(); m != nil {
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

// take counts a request in. Where a client with few finds none left, the client with the most loses a connection.
func (h *http2) take(c *connlimit.Counter, client netip.Addr) bool {
	if c.Take(client) {
		return true
	}
	most, ok := c.Outnumbered(client)
	if !ok || !h.control.evict(most) {
		return false
	}
	h.proxy.s.metrics.evicted.Inc()
	return c.TakeLeft(client)
}

// refuse answers a request that is not taken.
func (s *http2Stream) refuse(c *httpConn, err error) {
	why, status := rejectSyntax, http.StatusBadRequest
	switch {
	case errors.Is(err, errManyStreams):
		why, status = rejectLimit, http.StatusServiceUnavailable
	case errors.Is(err, errNoTunnel):
		why, status = rejectUnsupported, http.StatusNotImplemented
	case errors.Is(err, h1.ErrHeadTooLarge):
		why, status = rejectHead, http.StatusRequestHeaderFieldsTooLarge
	}
	c.proxy.s.reject("", why, s.x.src, err)
	s.x.log.reason, s.x.log.err = why, err
	text := err.Error()
	if why == rejectLimit {
		text = "" // a body would wait for the client's window, and its request is in no budget
	}
	s.answer(status, text)
	s.x.refused(c)
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

// setHTTP2 makes h the head of a request that net/http has parsed. What an HTTP/1 backend would read otherwise is refused
// (RFC 9113 section 8.2.1).
func setHTTP2(h *h1.Head, r *http.Request) error {
	*h = h1.Head{Method: []byte(r.Method), Target: []byte(r.RequestURI), Minor: 1, Host: []byte(r.Host), HasHost: true, Length: r.ContentLength}
	if h.Connect() {
		return errNoTunnel
	}
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch: // servers want to know of these that there is no body (RFC 9110 section 8.6)
	default:
		if r.ContentLength == 0 && r.Header["Content-Length"] == nil {
			h.Length = -1
		}
	}
	if !h1.IsToken(h.Method) || !h1.IsTarget(h.Target) || h.Target[0] != '/' && string(h.Target) != "*" || !h1.IsHost(h.Host) {
		return h1.SyntaxError("the method, path or authority is malformed")
	}
	// net/http takes the first length, and the authority before the host, and passes the others on.
	if lengths := r.Header["Content-Length"]; len(lengths) > 1 || len(lengths) == 1 && lengths[0] != strconv.FormatInt(r.ContentLength, 10) {
		return h1.SyntaxError("Content-Length is malformed, there twice or not the body's")
	}
	if hosts := r.Header["Host"]; len(hosts) > 1 || len(hosts) == 1 && !strings.EqualFold(hosts[0], r.Host) {
		return h1.SyntaxError("Host is there twice or not the authority")
	}
	for name, values := range r.Header {
		for _, value := range values {
			f := h1.Field{Name: []byte(name), Value: []byte(value)}
			if !h1.IsToken(f.Name) || !h1.IsText(f.Value) {
				return h1.SyntaxError("a field is malformed")
			}
			h.Fields = append(h.Fields, f)
		}
	}
	if expects100(r) {
		h.Fields = append(h.Fields, h1.Field{Name: []byte("Expect"), Value: []byte("100-continue")})
	}
	if len(h.Fields) > h1.MaxFields {
		return h1.ErrHeadTooLarge
	}
	for name := range r.Trailer { // net/http has taken the field away
		h.Fields = append(h.Fields, h1.Field{Name: []byte("Trailer"), Value: []byte(name)})
	}
	return nil
}

// An http2Stream is a request of an HTTP/2 client. It implements responder.
type http2Stream struct {
	c       *httpConn
	w       http.ResponseWriter
	r       *http.Request
	x       *exchange
	control *http.ResponseController
	broken  bool // the stream is reset at its end

	reading, writing streamDeadline

	received atomic.Int64 // of the request's body
	sent     int64        // of the response's body
}

// gone implements responder.
func (s *http2Stream) gone() bool { return s.r.Context().Err() != nil }

// lost implements responder.
func (s *http2Stream) lost() bool { return s.gone() }

// body sets how the request's body is read and sent.
func (s *http2Stream) body() {
	x := s.x
	switch {
	case s.r.ContentLength > 0:
		x.reqFraming = h1.ByLength
	case s.r.ContentLength < 0:
		x.reqFraming = h1.ByChunks
	}
	if x.reqFraming == h1.NoBody {
		x.reqBody.Reset(nil, h1.NoBody, 0)
		return
	}
	x.reqBody.Reset(bufio.NewReaderSize(s, backendBuffer), h1.ByClose, 0)
	x.reqTrailers = func() []h1.Field { return fieldsOf(s.r.Trailer) }
}

// Read reads the request's body.
func (s *http2Stream) Read(p []byte) (int, error) {
	if f := s.x.frontend; f != nil {
		s.reading.move(f.Timeouts.Body, s.control.SetReadDeadline)
	}
	n, err := s.r.Body.Read(p)
	s.received.Add(int64(n))
	return n, err
}

// A streamDeadline is when the one of a stream was set last. net/http wakes the goroutine of the connection to set it.
type streamDeadline time.Time

// move lets the deadline come after d from now, or up to an eighth or a second earlier.
func (t *streamDeadline) move(d time.Duration, set func(time.Time) error) {
	now := time.Now()
	if now.Sub(time.Time(*t)) >= min(d/8, time.Second) {
		*t = streamDeadline(now)
		_ = set(now.Add(d))
	}
}

// headOf returns the fields of a head. What is of one connection is left out where the head is written.
func headOf(header http.Header) (out []h1.Field) {
	for name, values := range header {
		for _, value := range values {
			if f := (h1.Field{Name: []byte(name), Value: []byte(value)}); h1.IsToken(f.Name) && h1.IsText(f.Value) {
				out = append(out, f)
			}
		}
	}
	return out
}

// fieldsOf returns the fields that may be trailers.
func fieldsOf(header http.Header) []h1.Field {
	return slices.DeleteFunc(headOf(header), func(f h1.Field) bool { return h1.KindOf(f.Name) != h1.FieldOther })
}

// setFields sets the response's fields that are not of one connection.
func (s *http2Stream) setFields(resp *h1.Head) {
	header := s.w.Header()
	clear(header)
	header["Date"], header["Content-Type"] = nil, nil // what the backend does not send is not made up
	for _, f := range resp.Fields {
		switch h1.KindOf(f.Name) {
		case h1.FieldLength, h1.FieldEncoding, h1.FieldConnection, h1.FieldKeepAlive, h1.FieldProxyConnection, h1.FieldUpgrade, h1.FieldHost, h1.FieldTE:
			continue
		}
		header.Add(string(f.Name), string(f.Value))
	}
}

// interim implements responder.
func (s *http2Stream) interim(resp *h1.Head) error {
	if e := s.x.expected; e != nil && resp.Status == http.StatusContinue {
		e.want() // net/http sends it
		return nil
	}
	s.setFields(resp)
	s.w.WriteHeader(resp.Status)
	return nil
}

// begin implements responder.
func (s *http2Stream) begin(x *exchange, _ h1.Framing, _ bool) error {
	s.setFields(&x.resp)
	if length := x.resp.Length; length >= 0 && !x.resp.Chunked && x.resp.Status != http.StatusNoContent {
		s.w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	}
	if cookie := x.cookie(); cookie != "" {
		s.w.Header().Add("Set-Cookie", cookie)
	}
	s.w.WriteHeader(x.resp.Status)
	return nil
}

// extendDeadline gives the client time to take what is written: as much as it has for a part of its own body.
func (s *http2Stream) extendDeadline() {
	s.writing.move(s.x.frontend.Timeouts.Body, s.control.SetWriteDeadline)
}

// content implements responder.
func (s *http2Stream) content(p []byte) error {
	s.extendDeadline()
	s.sent += int64(len(p))
	_, err := s.w.Write(p)
	return err
}

// flush implements responder.
func (s *http2Stream) flush() error {
	s.extendDeadline()
	return s.control.Flush()
}

// finish implements responder.
func (s *http2Stream) finish(trailers []h1.Field) error {
	for _, f := range trailers {
		s.w.Header().Add(http.TrailerPrefix+string(f.Name), string(f.Value))
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
	if text == "" {
		header.Set("Content-Length", "0")
		s.w.WriteHeader(status)
		return
	}
	http.Error(s.w, text, status)
}

// stopReading implements responder.
func (s *http2Stream) stopReading(stop bool) {
	if stop {
		_ = s.control.SetReadDeadline(time.Unix(1, 0))
	}
}
