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

// Limits of HTTP mode.
const (
	headerTimeout = 10 * time.Second // for a request head
	clientIdle    = time.Minute      // between two requests of a connection
	copyBuffer    = 32 << 10
)

// httpProxy is HTTP mode: one http.Server for the connections of all listeners.
type httpProxy struct {
	s        *Server
	server   *http.Server
	accepted connListener
	handlers sync.WaitGroup // also of upgraded connections, which http.Server does not wait for
}

type contextKey int

const (
	httpConnKey contextKey = iota
	attemptKey
)

func newHTTPProxy(s *Server) *httpProxy {
	p := &httpProxy{s: s, accepted: connListener{conns: make(chan net.Conn), done: make(chan struct{})}}
	proxy := &httputil.ReverseProxy{
		Rewrite:       rewrite,
		Transport:     newTransport(s),
		FlushInterval: -1, // flush after each write, so that streams are not delayed
		BufferPool:    &copyBuffers{},
		ErrorHandler:  p.fail,
		ErrorLog:      slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	p.server = &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.contained(proxy, w, r) }),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       clientIdle,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, httpConnKey, c) },
	}
	return p
}

// serve runs until close or shutdown.
func (p *httpProxy) serve() { _ = p.server.Serve(&p.accepted) }

// shutdown waits for requests in progress, upgraded connections included, or for ctx.
func (p *httpProxy) shutdown(ctx context.Context) {
	_ = p.server.Shutdown(ctx)
	p.handlers.Wait()
}

// close aborts what shutdown still waits for.
func (p *httpProxy) close() { _ = p.server.Close() }

// serveConn serves the requests of a connection. f is its frontend, which has counted it; nil: each request is routed.
func (p *httpProxy) serveConn(l *activeListener, f *frontend, client *clientConn) {
	c := &httpConn{Conn: client.conn, proxy: p, client: client, listener: l}
	c.session = &session{client: client.conn, limit: client.limit, start: time.Now()}
	p.s.sessions.add(c.session)
	if f != nil {
		c.assign(f)
	}
	select {
	case p.accepted.conns <- c:
	case <-p.accepted.done:
		_ = c.Close()
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

// An httpConn is a client connection in HTTP mode. Reads begin with the bytes that were read to route it.
type httpConn struct {
	net.Conn
	proxy    *httpProxy
	client   *clientConn
	listener *activeListener // of the table when the connection came
	session  *session
	in, out  atomic.Int64
	once     sync.Once

	mu       sync.Mutex
	frontend *frontendState // that has counted the connection; nil: none yet
}

// assign sets the frontend of the connection, which has counted it.
func (c *httpConn) assign(f *frontend) {
	c.mu.Lock()
	c.frontend = f.state
	c.mu.Unlock()
	c.proxy.s.sessions.assign(c.session, f)
}

// assignFirst makes f the frontend of a connection that has none yet.
func (c *httpConn) assignFirst(f *frontend) {
	c.mu.Lock()
	assigned := c.frontend != nil
	c.mu.Unlock()
	if !assigned {
		f.state.add()
		c.assign(f)
	}
}

// Read implements net.Conn.
func (c *httpConn) Read(b []byte) (int, error) {
	if prefix := c.client.prefix; len(prefix) > 0 {
		n := copy(b, prefix)
		c.client.prefix = prefix[n:]
		c.in.Add(int64(n))
		return n, nil
	}
	n, err := c.Conn.Read(b)
	c.in.Add(int64(n))
	return n, err
}

// Write implements net.Conn.
func (c *httpConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.out.Add(int64(n))
	return n, err
}

// RemoteAddr implements net.Conn. Behind a trusted proxy it is the client that the PROXY header names.
func (c *httpConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.client.src) }

// CloseWrite ends our direction, for upgraded connections.
func (c *httpConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (c *httpConn) Close() error {
	c.once.Do(func() {
		defer c.client.release()
		c.proxy.s.sessions.end(c.session, c.in.Load(), c.out.Load())
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.frontend != nil {
			c.frontend.remove()
		}
	})
	return c.Conn.Close()
}

// A proxiedRequest is one request in progress.
type proxiedRequest struct {
	frontend *frontend
	src      netip.AddrPort
	dst      netip.AddrPort
	endpoint *endpoint // that got the request, and counts it as active
}

// contained proxies a request. A panic ends its connection, as net/http would do without counting it.
func (p *httpProxy) contained(proxy *httputil.ReverseProxy, w http.ResponseWriter, r *http.Request) {
	defer func() {
		switch v := recover(); v { //nolint:errorlint // net/http compares so, too
		case nil:
		case http.ErrAbortHandler: // the reverse proxy's way to break off a response
			panic(v)
		default:
			p.s.panics.Note(v)
			panic(http.ErrAbortHandler)
		}
	}()
	p.proxyRequest(proxy, w, r)
}

// proxyRequest proxies one request to the balancer that its Host asks for.
func (p *httpProxy) proxyRequest(proxy *httputil.ReverseProxy, w http.ResponseWriter, r *http.Request) {
	p.handlers.Add(1)
	defer p.handlers.Done()
	c, _ := r.Context().Value(httpConnKey).(*httpConn)
	l := p.s.active.Load().listeners[c.client.socket.addr]
	if l == nil || c.client.socket.isClosed() {
		l = c.listener
		w.Header().Set("Connection", "close") // the address is gone; this request still gets its answer
	}
	f := l.frontend(l.byName(hostname(r.Host)))
	if f == nil || f.Mode != lab.ModeHTTP {
		p.s.reject("", rejectNoMatch, c.client.src, nil)
		unavailable(w, "no balancer of this address matches this host")
		return
	}
	c.assignFirst(f)
	if l.only == nil && f.MaxConnections > 0 && f.state.active.Load() > int64(f.MaxConnections) {
		p.s.reject(f.Name, rejectLimit, c.client.src, nil)
		unavailable(w, "balancer "+f.Name+" has max_connections")
		return
	}
	_ = http.NewResponseController(w).EnableFullDuplex() // a backend may answer while it still reads
	request := &proxiedRequest{frontend: f, src: c.client.src, dst: c.client.dst}
	defer request.release()
	counted := &statusCounter{ResponseWriter: w}
	proxy.ServeHTTP(counted, r.WithContext(context.WithValue(r.Context(), attemptKey, &attempt{request: request})))
	p.s.metrics.requests.WithLabelValues(f.Name, counted.class()).Inc()
}

// unavailable answers 503 and closes the connection. Never a 4xx: installers do not retry after one.
func unavailable(w http.ResponseWriter, why string) {
	w.Header().Set("Connection", "close")
	w.Header().Set("Retry-After", "5")
	http.Error(w, why, http.StatusServiceUnavailable)
}

// fail answers a request that no backend has answered.
func (p *httpProxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	a, _ := r.Context().Value(attemptKey).(*attempt)
	f := a.request.frontend
	switch {
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the client is gone
	case errors.Is(err, errNoBackend):
		p.s.reject(f.Name, rejectNoBackend, a.request.src, err)
		unavailable(w, "no backend of balancer "+f.Name+" is available")
	case isDial(err):
		p.s.reject(f.Name, rejectConnect, a.request.src, err)
		unavailable(w, "no backend of balancer "+f.Name+" accepts connections")
	default:
		p.s.log.Debug("backend closed the connection before it answered", "balancer", f.Name, keyErr, err)
		http.Error(w, "a backend of balancer "+f.Name+" closed the connection before it answered", http.StatusBadGateway)
	}
}

// rewrite prepares a request for its backend, which the transport picks. The Host header is the client's; its
// X-Forwarded headers are replaced.
func rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme = "http"
	r.Out.URL.Host = r.In.Host
	r.Out.Host = r.In.Host
	r.Out.URL.RawQuery = r.In.URL.RawQuery // unchanged, with what net/url would drop
	r.SetXForwarded()
}

func (r *proxiedRequest) release() {
	if r.endpoint != nil {
		r.endpoint.state.active.Add(-1)
		r.endpoint = nil
	}
}

// statusCounter records the status of a response.
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
