package lbproxy

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/host/file/freshfile"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"

	"golang.org/x/sys/unix"
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
	memory       sync.Pool // of *httpMemory
	h2           *http2
	certificates certificates
	backendTLS   *backendTLS
	acme         acmeCertificates
	clients      atomic.Int64    // connections of clients
	backends     atomic.Int64    // connections to backends, being opened, in use and idle
	ctx          context.Context // ends when close aborts what is left
	cancel       context.CancelFunc

	mu       sync.Mutex
	draining bool
	open     map[*httpConn]struct{}
	ended    sync.Cond // one of open has ended
}

func newHTTPProxy(s *Server) *httpProxy {
	p := &httpProxy{
		s: s, open: make(map[*httpConn]struct{}),
		certificates: certificates{s: s, files: freshfile.NewCertificates(s.log)},
		backendTLS:   freshfile.New(s.log, backendTLSKey.files, newBackendTLS),
	}
	p.ended.L = &p.mu
	p.acme.p = p
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.h2 = newHTTP2(p)
	return p
}

// serve keeps the deadlines until close.
func (p *httpProxy) serve() {
	go p.h2.serve()
	defer p.h2.close()
	p.s.panics.Loop(p.ctx, func() { p.deadlines.run(p.ctx, p.tick) })
}

// tick does what is due about once a second.
func (p *httpProxy) tick() {
	p.expireIdle()
	p.trimHTTP2()
	p.noticeReset()
	p.acme.tick(p.ctx, time.Now())
}

// expireIdle closes connections to backends that were idle for too long.
func (p *httpProxy) expireIdle() {
	before := time.Now().Add(-backendIdle)
	p.h2.control.expire(time.Now().Add(-controlBurst / controlRate * time.Second))
	for _, f := range p.s.active.Load().frontends {
		for i := range f.backends {
			f.backends[i].state.pool.expire(before)
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
		for i := range f.backends {
			f.backends[i].state.pool.end()
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
	c.x.proxy, c.x.client, c.x.current, c.x.src, c.x.dst = p, c, &c.session.current, client.src, client.dst
	p.clients.Add(1)
	p.s.sessions.add(c.session)
	p.deadlines.add(&c.deadline)
	if f != nil {
		c.assign(f)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[c] = struct{}{}
	p.s.workers.run(c.serve)
}

func (p *httpProxy) isDraining() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.draining
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

// A deadline ends the blocked calls of one connection. To move it costs one atomic store, where net.Conn's own costs a
// timer each time; it ends within deadlineTick of its time.
type deadline struct {
	conn  net.Conn
	write bool // ends blocked writes as well as reads
	at    atomic.Int64
	quiet atomic.Int64 // nanoseconds without data from the peer before it expires; 0: it expires whatever comes
}

const (
	deadlineTick    = 250 * time.Millisecond
	deadlineExpired = -1
)

var epoch = time.Now()

// set lets the deadline expire after d. One that has expired stays so.
func (d *deadline) set(after time.Duration) {
	d.store(int64(time.Since(epoch) + after))
}

// setQuiet lets the deadline expire once nothing has come from the peer for that long, and nothing waits to be read.
func (d *deadline) setQuiet(limit time.Duration) {
	d.quiet.Store(int64(limit))
	d.set(limit)
}

// rest returns how much longer a deadline of setQuiet has; 0: it expires.
func (d *deadline) rest() time.Duration {
	limit := time.Duration(d.quiet.Load())
	if limit == 0 {
		return 0
	}
	socket, unread := socketOf(d.conn), 0
	control(socket, func(fd int) { unread, _ = unix.IoctlGetInt(fd, unix.TIOCINQ) })
	info, ok := tcpInfo(socket)
	switch {
	case !ok:
		return 0
	case unread > 0: // the client is slow
		return limit
	}
	return max(limit-time.Duration(info.Last_data_recv)*time.Millisecond, 0)
}

// clear ends the deadline.
func (d *deadline) clear() {
	d.quiet.Store(0)
	d.store(0)
}

func (d *deadline) store(at int64) {
	for {
		old := d.at.Load()
		if old == deadlineExpired || d.at.CompareAndSwap(old, at) {
			return
		}
	}
}

// expired reports whether the deadline has ended the connection's calls.
func (d *deadline) expired() bool { return d.at.Load() == deadlineExpired }

// deadlines are the deadlines of all connections in HTTP mode.
type deadlines struct {
	heartbeat heartbeat

	mu   sync.Mutex
	open map[*deadline]struct{}
}

func (t *deadlines) add(d *deadline) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[*deadline]struct{})
	}
	t.open[d] = struct{}{}
}

func (t *deadlines) remove(d *deadline) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, d)
}

// run expires deadlines until ctx ends, and calls tick about once a second.
func (t *deadlines) run(ctx context.Context, tick func()) {
	defer t.heartbeat.Store(0)
	for n := 0; pause.For(ctx, deadlineTick) == nil; n++ {
		t.heartbeat.Add(1)
		t.expire(int64(time.Since(epoch)))
		if n%4 == 0 {
			tick()
		}
	}
}

func (t *deadlines) expire(now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for d := range t.open {
		at := d.at.Load()
		if at <= 0 || at > now {
			continue
		}
		if rest := d.rest(); rest > 0 {
			d.at.CompareAndSwap(at, now+int64(rest))
			continue
		}
		if !d.at.CompareAndSwap(at, deadlineExpired) {
			continue
		}
		_ = d.conn.SetReadDeadline(time.Unix(1, 0))
		if d.write {
			_ = d.conn.SetWriteDeadline(time.Unix(1, 0))
		}
	}
}
