package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"bootlab/internal/lab"
)

// Timeouts of HTTP mode that no balancer sets.
const (
	headerTimeout = 10 * time.Second // for a whole request head
	clientIdle    = time.Minute      // between two requests of one connection
	// Between two requests to a backend. Below the five seconds after which the most impatient servers hang up, so that
	// a request does not meet a connection that is just being closed.
	backendIdle  = 4 * time.Second
	backendSpare = 256 // idle connections kept to one backend
	copyBuffer   = 32 << 10
)

// web is HTTP mode: one http.Server for the connections of all listeners.
type web struct {
	s        *Server
	server   *http.Server
	arrivals arrivals
	handlers sync.WaitGroup // also of upgraded connections, which http.Server does not wait for
}

type contextKey int

const (
	visitorKey contextKey = iota
	attemptKey
)

func newWeb(s *Server) *web {
	w := &web{s: s, arrivals: arrivals{conns: make(chan net.Conn), done: make(chan struct{})}}
	proxy := &httputil.ReverseProxy{
		Rewrite:       rewrite,
		Transport:     newTransport(s),
		FlushInterval: -1, // a stream's bytes leave as they come
		BufferPool:    &copyBuffers{},
		ErrorHandler:  w.fail,
		ErrorLog:      slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	w.server = &http.Server{
		Handler:           http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.handle(proxy, rw, r) }),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       clientIdle,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, visitorKey, c) },
	}
	return w
}

// serve runs until close or shutdown.
func (w *web) serve() { _ = w.server.Serve(&w.arrivals) }

// shutdown waits for requests under way, upgraded connections included, or for ctx.
func (w *web) shutdown(ctx context.Context) {
	_ = w.server.Shutdown(ctx)
	w.handlers.Wait()
}

// close breaks what shutdown still waits for.
func (w *web) close() { _ = w.server.Close() }

// take hands a connection to HTTP mode. f is its balancer where that is known and counted in already.
func (w *web) take(p *place, f *front, g *guest) {
	v := &visitor{Conn: g.conn, web: w, guest: g, place: p}
	v.session = &session{client: g.conn, born: time.Now()}
	w.s.sessions.add(v.session)
	if f != nil {
		v.settle(f)
	}
	select {
	case w.arrivals.conns <- v:
	case <-w.arrivals.done:
		_ = v.Close()
	}
}

// arrivals is the net.Listener that http.Server accepts from.
type arrivals struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// Accept implements net.Listener.
func (a *arrivals) Accept() (net.Conn, error) {
	select {
	case c := <-a.conns:
		return c, nil
	case <-a.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (a *arrivals) Close() error {
	a.once.Do(func() { close(a.done) })
	return nil
}

// Addr implements net.Listener.
func (a *arrivals) Addr() net.Addr { return &net.TCPAddr{} }

// A visitor is a client's connection in HTTP mode. Bytes that were peeked at are read first.
type visitor struct {
	net.Conn
	web     *web
	guest   *guest
	place   *place // the listener's when the connection came
	session *session
	in, out atomic.Int64
	once    sync.Once

	mu   sync.Mutex
	pool *pool // that the connection is counted in; nil: none yet
}

// settle counts the connection, which pool.enter has counted in, as f's.
func (v *visitor) settle(f *front) {
	v.mu.Lock()
	v.pool = f.pool
	v.mu.Unlock()
	v.web.s.sessions.settle(v.session, f)
}

// belong makes a connection whose balancer only its first request tells that balancer's.
func (v *visitor) belong(f *front) {
	v.mu.Lock()
	known := v.pool != nil
	v.mu.Unlock()
	if !known {
		f.pool.enter()
		v.settle(f)
	}
}

// Read implements net.Conn.
func (v *visitor) Read(b []byte) (int, error) {
	if p := v.guest.prefix; len(p) > 0 {
		n := copy(b, p)
		v.guest.prefix = p[n:]
		v.in.Add(int64(n))
		return n, nil
	}
	n, err := v.Conn.Read(b)
	v.in.Add(int64(n))
	return n, err
}

// Write implements net.Conn.
func (v *visitor) Write(b []byte) (int, error) {
	n, err := v.Conn.Write(b)
	v.out.Add(int64(n))
	return n, err
}

// RemoteAddr implements net.Conn. It is the client that a believed PROXY header names.
func (v *visitor) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(v.guest.src) }

// CloseWrite ends our direction, for upgraded connections.
func (v *visitor) CloseWrite() error {
	if half, ok := v.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.once.Do(func() {
		v.web.s.sessions.end(v.session, v.in.Load(), v.out.Load())
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.pool != nil {
			v.pool.leave()
		}
	})
	return v.Conn.Close()
}

// An attempt is one try of one request at one backend.
type attempt struct {
	visit   *visit
	seat    *seat
	timeout time.Duration // for a new connection
}

// A visit is one request under way.
type visit struct {
	front *front
	src   netip.AddrPort
	dst   netip.AddrPort
	seat  *seat // that has the request; its active count is ours
}

// handle proxies one request, to the balancer that its Host asks for.
func (w *web) handle(proxy *httputil.ReverseProxy, rw http.ResponseWriter, r *http.Request) {
	w.handlers.Add(1)
	defer w.handlers.Done()
	v, _ := r.Context().Value(visitorKey).(*visitor)
	p := w.s.live.Load().sites[v.guest.l.addr]
	if p == nil || v.guest.l.retired() {
		p = v.place
		rw.Header().Set("Connection", "close") // the address is gone; the request still gets its answer
	}
	f := p.front(p.byHost(hostname(r.Host)))
	if f == nil || f.Mode != lab.ModeHTTP {
		w.s.reject("", rejectNoMatch, v.guest.src, nil)
		refuse(rw, "no balancer here wants this host")
		return
	}
	v.belong(f)
	if p.solo == nil && f.MaxConnections > 0 && f.pool.active.Load() > int64(f.MaxConnections) {
		w.s.reject(f.Name, rejectLimit, v.guest.src, nil)
		refuse(rw, "balancer "+f.Name+" has its most connections")
		return
	}
	_ = http.NewResponseController(rw).EnableFullDuplex() // a backend may answer while it still reads
	x := &visit{front: f, src: v.guest.src, dst: v.guest.dst}
	defer x.leave()
	counted := &statusCounter{ResponseWriter: rw}
	proxy.ServeHTTP(counted, r.WithContext(context.WithValue(r.Context(), attemptKey, &attempt{visit: x})))
	w.s.metrics.requests.WithLabelValues(f.Name, counted.class()).Inc()
}

// refuse answers 503 and closes. Never a 4xx: installers take that for the last word.
func refuse(rw http.ResponseWriter, why string) {
	rw.Header().Set("Connection", "close")
	rw.Header().Set("Retry-After", "5")
	http.Error(rw, why, http.StatusServiceUnavailable)
}

// fail answers for a request that no backend answered.
func (w *web) fail(rw http.ResponseWriter, r *http.Request, err error) {
	a, _ := r.Context().Value(attemptKey).(*attempt)
	f := a.visit.front
	switch {
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the client is gone
	case errors.Is(err, errNoBackend):
		w.s.reject(f.Name, rejectNoBackend, a.visit.src, err)
		refuse(rw, "no backend of balancer "+f.Name+" is available")
	case isDial(err):
		w.s.reject(f.Name, rejectConnect, a.visit.src, err)
		refuse(rw, "no backend of balancer "+f.Name+" takes connections")
	default:
		w.s.log.Debug("backend broke off", "balancer", f.Name, keyErr, err)
		http.Error(rw, "a backend of balancer "+f.Name+" broke off", http.StatusBadGateway)
	}
}

// rewrite prepares a request for its backend, which the transport picks. The host stays as the client asked for it; what
// the client claimed about whom it forwards for is replaced by what we know.
func rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme = "http"
	r.Out.URL.Host = r.In.Host
	r.Out.Host = r.In.Host
	r.Out.URL.RawQuery = r.In.URL.RawQuery // as it is, also what net/url would drop: the backend judges
	r.SetXForwarded()
}

func (x *visit) leave() {
	if x.seat != nil {
		x.seat.member.active.Add(-1)
		x.seat = nil
	}
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
		if _, err := conn.Write(appendProxyHeader(nil, version, proxyHeader{a.visit.src, a.visit.dst})); err != nil {
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

// statusCounter remembers the status of an answer.
type statusCounter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (c *statusCounter) WriteHeader(status int) {
	if c.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach flushing and hijacking.
func (c *statusCounter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// class returns the class of the status, such as "2xx".
func (c *statusCounter) class() string {
	if c.status < 100 || c.status > 599 {
		return "none"
	}
	return [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}[c.status/100-1]
}

// copyBuffers implements httputil.BufferPool.
type copyBuffers struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (p *copyBuffers) Get() []byte {
	if b, ok := p.pool.Get().(*[copyBuffer]byte); ok {
		return b[:]
	}
	return make([]byte, copyBuffer)
}

// Put implements httputil.BufferPool.
func (p *copyBuffers) Put(b []byte) { p.pool.Put((*[copyBuffer]byte)(b)) }
