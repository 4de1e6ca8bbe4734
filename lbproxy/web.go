package lbproxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// Timeouts of HTTP mode that no balancer sets.
const (
	headerTimeout = 10 * time.Second // for a whole request head
	clientIdle    = time.Minute      // between two requests of one connection
	copyBuffer    = 32 << 10
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
	v.session = &session{client: g.conn, from: g.src.Addr(), born: time.Now()}
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
		defer v.guest.leave()
		v.web.s.sessions.end(v.session, v.in.Load(), v.out.Load())
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.pool != nil {
			v.pool.leave()
		}
	})
	return v.Conn.Close()
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
