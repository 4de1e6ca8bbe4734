package lbproxy

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/lab"
)

// A relay moves the bytes of one connection in mode tcp, each direction on its own. Its loop owns it from begin on: an idle
// connection has no goroutine.
type relay struct {
	s        *Server
	frontend *frontend
	backend  *backend
	client   *clientConn
	loop     *loop
	session  session
	up, down direction    // to the backend, and to the client
	left     atomic.Int32 // directions that have not ended
	phase    atomic.Int32

	connect   *directConnect         // nil: the backend was connected before
	until     time.Time              // bytes of the client are discarded
	connected time.Time              // the backend was
	end       atomic.Pointer[ending] // the first cause of the end; nil: none but the end of both directions
}

// The phases of a relay. Who changes connecting to another owns the relay.
const (
	connecting int32 = iota
	moving
	over
)

// A direction of a relay.
type direction struct {
	relay    *relay
	dst, src *stream
	mover    mover
	readable bool // src may have bytes
	discards bool // what it reads
	ended    bool
	delays   bool // dst has Nagle's algorithm
}

// newRelay returns the relay of a client's connection and a backend's.
func (s *Server) newRelay(f *frontend, b *backend, c *clientConn, client, backend *stream) (*relay, error) {
	l, err := s.loops.get()
	if err != nil {
		return nil, err
	}
	r := &relay{s: s, frontend: f, backend: b, client: c, loop: l}
	r.session = session{
		client: client, limit: c.limit, backend: backend, to: b.state, frontend: f.state, idle: f.Timeouts.Idle, start: time.Now(), relay: r,
	}
	r.up = direction{relay: r, dst: backend, src: client, mover: mover{pipes: &s.pipes}}
	r.down = direction{relay: r, dst: client, src: backend, mover: mover{pipes: &s.pipes}}
	client.relay, backend.relay, backend.writable = r, r, true
	r.left.Store(2)
	s.conns.Add(1)
	s.sessions.add(&r.session)
	if len(c.prefix) > 0 {
		r.spoke(&r.up)
	}
	return r, nil
}

// spoke notes whose turn it is to send.
func (r *relay) spoke(from *direction) {
	turn, client := r.session.turn.Load(), from == &r.up
	if !client {
		r.backend.state.received()
	}
	if client == (turn%2 == 1) && turn > 0 {
		return
	}
	if turn++; client != (turn%2 == 1) {
		turn++ // the backend speaks first
	}
	r.session.turn.Store(turn)
	if client || turn == 2 {
		r.s.sessions.watch(&r.session)
	}
}

// begin hands the relay to its loop, which waits until the backend is connected.
func (r *relay) begin() {
	if err := r.loop.add(r.down.src); err != nil && r.phase.CompareAndSwap(connecting, over) {
		r.s.reject(r.frontend.Name, rejectConnect, r.client.src, err)
		r.endsBy(endConnect)
		r.finish((*stream).abort)
	}
}

// handle handles an event of a stream. A panic ends the relay and nothing else.
func (s *Server) handle(st *stream, events uint32) {
	if st.notify != nil {
		select {
		case st.notify <- struct{}{}:
		default:
		}
		return
	}
	r := st.relay
	defer func() {
		if p := recover(); p != nil {
			s.reject("", rejectPanic, r.client.src, nil)
			s.panics.Note(p)
			r.endsBy(endPanic)
			r.finish((*stream).abort)
		}
	}()
	switch r.phase.Load() {
	case connecting:
		if r.phase.CompareAndSwap(connecting, moving) {
			r.established(events)
		}
	case moving:
		r.moved(st, events)
	}
}

// established begins to move bytes. The client's may have come already, so they are looked for first.
func (r *relay) established(events uint32) {
	if r.connect != nil && !r.connect.done(r, events) {
		return
	}
	r.up.readable = true
	r.up.advance()
	if r.phase.Load() == over {
		return
	}
	if r.connect != nil && r.session.turn.Load() == 0 {
		r.loop.handshakes.add(r)
	}
	if err := r.loop.add(r.up.src); err != nil {
		r.endsBy(endConnect)
		r.finish((*stream).abort)
		return
	}
	r.moved(r.down.src, events)
}

// moved moves what an event of a stream allows to move.
func (r *relay) moved(st *stream, events uint32) {
	in, out := &r.up, &r.down
	if st == r.down.src {
		in, out = out, in
	}
	st.urgent = st.urgent || events&unix.EPOLLPRI != 0
	st.failed = st.failed || events&unix.EPOLLERR != 0
	st.fin = st.fin || events&unix.EPOLLRDHUP != 0
	in.readable = in.readable || events&^unix.EPOLLOUT != 0
	in.advance()
	if r.phase.Load() == moving && out.holds() && events&^unix.EPOLLIN != 0 {
		out.advance()
	}
}

// abort resets both sides. The loop sees that and ends the relay. Of a relay that connects it ends the connect: its client may get
// another backend.
func (r *relay) abort(why *ending) {
	r.endsBy(why)
	if r.phase.Load() != connecting {
		r.up.src.reset()
	}
	r.down.src.reset()
}

// endsBy notes why the relay ends. Only the first cause counts.
func (r *relay) endsBy(why *ending) { r.end.CompareAndSwap(nil, why) }

// finish closes both sides and gives back everything. Only the owner may call it.
func (r *relay) finish(closing func(*stream)) {
	r.phase.Store(over)
	r.left.Store(0)
	r.up.mover.release()
	r.down.mover.release()
	in, out := r.up.mover.moved+int64(len(r.client.prefix)), r.down.mover.moved
	r.s.sessions.end(&r.session, in, out)
	r.log(in, out)
	closing(r.down.src)
	r.backend.state.release()
	closing(r.up.src)
	r.frontend.state.remove()
	r.client.release()
	r.s.conns.Done()
}

// turnReads is how many reads a direction makes before others of its loop have their turn.
const turnReads = 16

// holds reports whether something was read and not yet written.
func (d *direction) holds() bool { return d.mover.piped > 0 || len(d.mover.bytes) > 0 }

// advance moves bytes until there are none, dst takes none, or the turn is over.
func (d *direction) advance() {
	m := &d.mover
	for range turnReads {
		if !d.holds() && !d.read() {
			return
		}
		if m.err == nil && !m.drain(uintptr(d.dst.fd)) {
			if m.err = d.relay.loop.awaitWritable(d.dst); m.err == nil {
				return
			}
		}
		if m.err != nil || m.eof {
			d.end(m.err)
			return
		}
		m.release()
	}
	d.relay.loop.again = append(d.relay.loop.again, d)
}

// read reads what has come; false: nothing, or the direction has ended.
func (d *direction) read() bool {
	m := &d.mover
	if d.ended || !d.readable {
		return false
	}
	if !m.fill(uintptr(d.src.fd)) {
		d.readable = false
		return false
	}
	if d.holds() {
		d.relay.spoke(d)
	}
	if n := len(m.bytes); n > 0 && n < readSize && !d.src.urgent && !d.src.failed {
		// That is all that had come: what comes later is another event (epoll(7)). The end had come before: nothing follows.
		d.readable = false
		m.eof = d.src.fin
	}
	switch {
	case d.discards:
		m.eof = m.eof || !time.Now().Before(d.relay.until)
		m.release()
		m.piped = 0
	case d.delays && m.moved > 0 && d.holds():
		// Only from the second write on: the first is never delayed, and many connections have one.
		d.delays = false
		_ = unix.SetsockoptInt(d.dst.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	return true
}

// end ends a direction. Its end is passed on (half-close); an error on one side resets the other.
func (d *direction) end(err error) {
	r := d.relay
	d.mover.release()
	switch {
	case d.discards: // the backend has closed
	case err == nil && r.left.Load() > 1:
		shutdownSocket(d.dst.fd, unix.SHUT_WR)
	case err == nil: // finish closes both
	case d == &r.up && isClosed(d.dst) && !isClosed(d.src):
		r.serverBroke()
		d.discard()
		return
	default:
		if d == &r.down && (isClosed(d.src) || !isClosed(d.dst)) {
			r.serverBroke()
		}
		r.endsBy(endClient)
		r.finish((*stream).abort)
		return
	}
	d.ended = true
	if r.left.Add(-1) == 0 {
		r.finish(func(st *stream) { _ = st.Close() })
	}
}

// serverBroke notes that the backend reset the connection.
func (r *relay) serverBroke() {
	if r.end.CompareAndSwap(nil, endServer) && !r.client.wasEvicted() {
		r.backend.state.broke()
	}
}

// uploadTimeout is how long a client may go on sending after its backend has closed.
const uploadTimeout = 2 * time.Second

// discard reads and drops what the client still sends to a backend that has closed, as one does that refuses an upload
// halfway: closing with unread bytes would reset the connection and lose the backend's answer.
func (d *direction) discard() {
	d.discards, d.readable, d.mover.err, d.mover.eof = true, true, nil, false
	d.relay.until = time.Now().Add(uploadTimeout)
	time.AfterFunc(uploadTimeout, func() { // an event for a client that sends nothing
		d.src.control(func(fd uintptr) { shutdownSocket(int(fd), unix.SHUT_RD) })
	})
	d.relay.loop.again = append(d.relay.loop.again, d)
}

// An ending is how a connection in mode tcp ended: in the words of the access log, and as HAProxy's termination state (%ts).
type ending struct{ words, state string }

var (
	endComplete     = &ending{"complete", "--"}
	endClient       = &ending{string(rejectClient), "CD"}
	endServer       = &ending{string(rejectBroken), "SD"}
	endIdle         = &ending{"idle", "cD"} // timeouts.idle
	endClientLost   = &ending{"client_unresponsive", "cD"}
	endServerLost   = &ending{"server_unresponsive", "sD"}
	endBackendDown  = &ending{"backend_down", "DD"} // on_down: close
	endShutdown     = &ending{"shutdown", "KD"}
	endEvicted      = &ending{"evicted", "RD"} // by the connection limit
	endPanic        = &ending{string(rejectPanic), "ID"}
	endConnect      = &ending{string(rejectConnect), "SC"}
	endConnectTime  = &ending{string(rejectConnect), "sC"}
	endNoBackend    = &ending{string(rejectNoBackend), "SC"}
	endQueueFull    = &ending{string(rejectQueueFull), "SQ"}
	endQueueTimeout = &ending{string(rejectQueueTimeout), "sQ"}
	endQueueLeft    = &ending{string(rejectClient), "CQ"}
	endLimit        = &ending{string(rejectLimit), "PR"}
)

// endingOf returns the ending of a connection that was rejected.
func endingOf(why reason, err error) *ending {
	switch why {
	case rejectNoBackend:
		return endNoBackend
	case rejectQueueFull:
		return endQueueFull
	case rejectQueueTimeout:
		return endQueueTimeout
	case rejectClient:
		return endQueueLeft
	case rejectLimit:
		return endLimit
	case rejectPanic:
		return endPanic
	}
	if isSilence(err) {
		return endConnectTime
	}
	return endConnect
}

// A connRecord is what the access log has of one connection in mode tcp.
type connRecord struct {
	client    *clientConn
	backend   *backend // nil: none was connected
	end       *ending
	err       error
	in, out   int64
	connected time.Duration // from the start until the backend was connected; below 0: it was not
	total     time.Duration
}

// logs reports whether the access log has a connection with that ending.
func (f *frontend) logs(end *ending) bool {
	return f.Log == lab.LogRequests || f.Log == lab.LogErrors && end != endComplete
}

// rejectTCP counts and logs a connection of f that is rejected.
func (s *Server) rejectTCP(f *frontend, why reason, c *clientConn, err error) {
	s.reject(f.Name, why, c.src, err)
	if end := endingOf(why, err); f.logs(end) {
		s.logConnection(f, &connRecord{client: c, end: end, err: err, in: int64(len(c.prefix)), connected: -1, total: time.Since(c.start)})
	}
}

// log writes the line of a relay that has ended. An event loop must not wait for the log.
func (r *relay) log(in, out int64) {
	if r.frontend.Log != lab.LogRequests && r.frontend.Log != lab.LogErrors {
		return
	}
	end := r.ending()
	if !r.frontend.logs(end) {
		return
	}
	record := &connRecord{client: r.client, backend: r.backend, end: end, in: in, out: out, connected: r.connected.Sub(r.client.start), total: time.Since(r.client.start)}
	r.s.work(func() {
		defer r.s.panics.Contain()
		r.s.logConnection(r.frontend, record)
	})
}

// ending returns how the relay ended.
func (r *relay) ending() *ending {
	if r.client.wasEvicted() {
		return endEvicted
	}
	if end := r.end.Load(); end != nil {
		return end
	}
	return endComplete
}

// logConnection writes a line of the access log. The times are those of HAProxy's Tw+Tc and Tt; -1 is a step that was not reached.
func (s *Server) logConnection(f *frontend, l *connRecord) {
	backend, connected := "", -1.0
	if l.backend != nil {
		backend = l.backend.Label
	}
	if l.connected >= 0 {
		connected = float64(l.connected.Microseconds()) / 1000
	}
	attrs := []slog.Attr{
		slog.String("balancer", f.Name), slog.String(keyBackend, backend), slog.String(keyAddr, l.client.src.String()),
		slog.Int64("bytes_in", l.in), slog.Int64("bytes_out", l.out),
		slog.Float64("connect_ms", connected), slog.Float64("total_ms", float64(l.total.Microseconds())/1000),
		slog.String("end", l.end.words), slog.String("state", l.end.state),
	}
	if l.err != nil {
		attrs = append(attrs, slog.String(keyErr, l.err.Error()))
	}
	s.accessLog.LogAttrs(context.Background(), slog.LevelInfo, "connection", attrs...)
}
