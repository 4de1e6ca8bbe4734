package lbproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/lbproxy/h1"
)

// An httpConn is a client connection in HTTP/1.
type httpConn struct {
	conn     net.Conn
	proxy    *httpProxy
	client   *clientConn
	listener *activeListener // of the table when the connection came
	session  *session
	first    [firstBytes]byte
	ahead    []byte        // what was read and is not in in
	memory   *httpMemory   // nil: it is between two requests
	in       *bufio.Reader // of memory
	out      []byte        // not yet sent
	x        exchange
	deadline deadline
	timeout  time.Duration                      // of each read; 0: none
	served   atomic.Bool                        // it had a request
	busy     atomic.Bool                        // it has a request, or is about to be closed
	own      ownSlot                            // where a request needs one; nil: not needed yet
	frontend atomic.Pointer[frontend]           // that has counted the connection; nil: none yet
	giveUp   atomic.Pointer[context.CancelFunc] // of its request to a backend in HTTP/2; nil: it has none
	received atomic.Int64
	sent     atomic.Int64
	begunAt  int64 // sent when the response began
}

// firstBytes is how much of a request is read before the connection has memory for it: most requests are no longer.
const firstBytes = 1 << 10

// serve reads and answers requests until the connection ends, or is HTTP/2.
func (c *httpConn) serve() {
	isHTTP2 := false
	defer func() {
		if !isHTTP2 {
			c.close()
		}
	}()
	defer c.proxy.contain(c.abort)
	if c.listener.endsTLS && !c.handshake() {
		return
	}
	c.ahead = c.client.prefix
	c.received.Add(int64(len(c.ahead)))
	if !c.await(true) {
		return
	}
	if isHTTP2 = c.http2(); isHTTP2 {
		c.serveHTTP2()
		return
	}
	if secure, ok := c.conn.(*tls.Conn); ok && secure.ConnectionState().NegotiatedProtocol == "h2" {
		return // RFC 9113 section 3.4
	}
	c.serveHTTP1()
	c.giveBack()
}

// serveHTTP1 is serve, after the first bytes have come.
func (c *httpConn) serveHTTP1() {
	for c.busy.CompareAndSwap(false, true) {
		if !c.request() {
			c.end()
			return
		}
		c.served.Store(true)
		c.busy.Store(false)
		if c.proxy.isDraining() || !c.await(false) {
			return
		}
	}
}

// timeouts returns those of the balancer, once it is known.
func (c *httpConn) timeouts() lab.Timeouts {
	if f := c.frontend.Load(); f != nil {
		return f.Timeouts
	}
	return defaultTimeouts
}

// await waits for the first byte of the next request. The connection has no memory meanwhile.
func (c *httpConn) await(first bool) bool {
	limit := c.timeouts().KeepAlive
	if first {
		limit = c.timeouts().Request
	}
	c.timeout = 0
	c.deadline.set(limit)
	if c.in != nil && c.in.Buffered() == 0 {
		c.giveBack()
	}
	if c.in != nil {
		_, err := c.in.Peek(1)
		return err == nil
	}
	if len(c.ahead) == 0 {
		n, _ := reading{c}.Read(c.first[:])
		if c.ahead = c.first[:n]; n == 0 {
			return false
		}
	}
	c.borrow()
	return true
}

// request reads and answers one request. It reports whether another may follow.
func (c *httpConn) request() (again bool) {
	x := &c.x
	x.log = requestLog{start: time.Now(), bytes: [2]int64{c.taken(), c.sent.Load()}}
	x.frontend, x.closing, x.status = nil, c.proxy.s.draining.Load(), 0
	c.deadline.set(c.timeouts().Request)
	if err := x.req.ReadRequest(c.in); err != nil {
		return c.refuse(err)
	}
	c.deadline.clear()
	x.log.head = time.Now()
	framing, length := x.req.Framing()
	x.reqBody.Reset(c.in, framing, length)
	x.reqFraming = framing
	if content, ok := c.proxy.acme.challenge(x); ok && !x.secure {
		c.answer(http.StatusOK, content, "")
		return false
	}
	if !c.route() {
		c.countBytes()
		x.refused(c)
		return false
	}
	if status, to := x.redirect(); status != 0 {
		c.redirect(status, to)
		c.countBytes()
		x.done()
		return false
	}
	c.timeout = x.frontend.Timeouts.Body
	again = x.run()
	c.countBytes()
	x.done()
	return again
}

// countBytes sets the bytes of the request, which has ended.
func (c *httpConn) countBytes() {
	b := &c.x.log.bytes
	b[0], b[1] = c.taken()-b[0], c.sent.Load()-b[1]
}

// taken returns how many of the received bytes are of requests so far.
func (c *httpConn) taken() int64 { return c.received.Load() - int64(c.in.Buffered()+len(c.ahead)) }

// route finds the balancer of a request, and answers if there is none.
func (c *httpConn) route() bool {
	f, why := c.find(&c.x)
	if why != "" {
		c.answer(http.StatusServiceUnavailable, why, "Retry-After: 5\r\n") // never a 4xx: installers do not retry after one
		return false
	}
	c.assignFirst(f)
	return true
}

// find sets the balancer of a request. why is what its client gets instead.
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
	if f = l.only; f == nil {
		f = l.frontend(l.byRequest(hostname(string(x.req.Host)), x.req.Target))
	}
	if f == nil || f.Mode != lab.ModeHTTP {
		x.log.reason = rejectNoMatch
		p.s.reject("", rejectNoMatch, x.src, nil)
		return nil, "no balancer of this address matches this host"
	}
	x.frontend = f
	if l.only == nil && f.MaxConnections > 0 && f.state.active.Load() >= int64(f.MaxConnections) && c.frontend.Load() == nil {
		x.log.reason = rejectLimit
		p.s.reject(f.Name, rejectLimit, x.src, nil)
		return nil, "balancer " + f.Name + " has max_connections"
	}
	return f, ""
}

// assign sets the frontend of the connection, which has counted it.
func (c *httpConn) assign(f *frontend) {
	c.frontend.Store(f)
	c.proxy.s.sessions.assign(c.session, f)
}

// assignFirst makes f the frontend of a connection that has none yet.
func (c *httpConn) assignFirst(f *frontend) {
	if c.frontend.Load() == nil {
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
	if f := c.frontend.Load(); f != nil {
		f.state.remove()
	}
	p.clients.Add(-1)
	p.trimIdle()
	c.client.release()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
	p.ended.Broadcast()
}

// abort resets the connection, and with it what its request has at a backend. Its goroutine ends.
func (c *httpConn) abort() { c.session.abort(nil) }

// reading reads from a client: first what was read ahead.
type reading struct{ c *httpConn }

// Read implements io.Reader.
func (r reading) Read(b []byte) (int, error) {
	c := r.c
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		c.ahead = c.ahead[n:]
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
func (c *httpConn) interim(*h1.Head) error {
	c.out = c.x.appendResponse(c.out, h1.NoBody, false)
	return c.flush()
}

// begin implements responder.
func (c *httpConn) begin(x *exchange, f h1.Framing, last bool) error {
	if f == h1.ByClose {
		if x.req.Minor > 0 {
			f = h1.ByChunks // so that the client sees whether it got everything
		} else {
			last, x.closing = true, true
		}
	}
	if f == h1.ByChunks && x.req.Minor == 0 {
		last, x.closing, f = true, true, h1.ByClose
	}
	x.log.framing, c.begunAt = f, c.sent.Load()
	c.out = x.appendResponse(c.out, f, last)
	return nil
}

// content implements responder.
func (c *httpConn) content(p []byte) error {
	c.out = h1.AppendContent(c.out, c.x.log.framing, p)
	if len(c.out) > copyBuffer {
		return c.flush()
	}
	return nil
}

// finish implements responder.
func (c *httpConn) finish(trailers []h1.Field) error {
	if c.x.log.framing == h1.ByChunks {
		c.out = h1.AppendTrailers(c.out, trailers)
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

// gone implements responder. To close the sending side gives the request up, as with nginx.
func (c *httpConn) gone() bool {
	ended, open := c.client.sendingEnded()
	return ended || !open
}

// lost implements responder: the connection is closed in both directions, by the client or by us.
func (c *httpConn) lost() bool {
	socket, ok := socketOf(c.conn).(*net.TCPConn)
	if !ok {
		return false // a connection of another kind, of a test
	}
	info, ok := tcpInfo(socket)
	return !ok || info.State == unix.BPF_TCP_CLOSE
}

// noticeReset gives up the requests of clients that have reset their connections: nothing else uses these while a backend is waited for.
func (p *httpProxy) noticeReset() {
	p.mu.Lock()
	var waiting []*httpConn
	for c := range p.open {
		if c.session.current.Load() != nil || c.giveUp.Load() != nil {
			waiting = append(waiting, c)
		}
	}
	p.mu.Unlock()
	for _, c := range waiting {
		if !c.lost() {
			continue
		}
		if cancel := c.giveUp.Load(); cancel != nil {
			(*cancel)()
		}
		c.abort()
	}
}

// stopReading implements responder.
func (c *httpConn) stopReading(stop bool) {
	at := time.Time{}
	if stop {
		at = time.Unix(1, 0)
	}
	_ = c.conn.SetReadDeadline(at)
}

// An httpMemory is what a connection in HTTP/1 needs for a request. Others use it while it has none: it is most of what an idle
// connection would keep, and a short one would leave to the garbage collector.
type httpMemory struct {
	in        *bufio.Reader
	req, resp h1.Head
	toClient  []byte
	toBackend []byte
}

// borrow gives the connection memory, in which nothing of another connection can be seen.
func (c *httpConn) borrow() {
	m, ok := c.proxy.memory.Get().(*httpMemory)
	if !ok {
		m = &httpMemory{in: bufio.NewReaderSize(nil, clientBuffer)}
	}
	m.in.Reset(reading{c})
	c.memory, c.in, c.out, c.x.out, c.x.req, c.x.resp = m, m.in, m.toClient, m.toBackend, m.req, m.resp
}

// giveBack takes the memory of a connection that has no request, unless a large head has made it large.
func (c *httpConn) giveBack() {
	m := c.memory
	if m == nil || c.x.stream != nil { // a body may still be read from the connection
		return
	}
	m.toClient, m.toBackend, m.req, m.resp = c.out[:0], c.x.out[:0], c.x.req, c.x.resp
	if cap(m.toClient)+cap(m.toBackend)+m.req.Size()+m.resp.Size() > 2*copyBuffer {
		m.toClient, m.toBackend, m.req, m.resp = nil, nil, h1.Head{}, h1.Head{}
	}
	c.memory, c.in, c.out, c.x.out, c.x.req, c.x.resp = nil, nil, nil, nil, h1.Head{}, h1.Head{}
	c.x.reqBody.Reset(nil, h1.NoBody, 0)
	m.in.Reset(nil)
	m.req.Reset()
	m.resp.Reset()
	c.proxy.memory.Put(m)
}
