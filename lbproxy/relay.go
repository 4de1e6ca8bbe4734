package lbproxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// A relay moves the bytes of one connection in TCP mode, each direction on its own. A direction without bytes for
// parkTick is parked: it has no goroutine then.
type relay struct {
	s        *Server
	frontend *frontend
	endpoint *endpoint
	client   *clientConn
	backend  net.Conn
	session  *session
	up, down direction
	left     atomic.Int32 // directions that have not ended
}

// A direction of a relay.
type direction struct {
	relay    *relay
	dst, src net.Conn
	mover    *mover // nil: a connection that is not TCP
	moved    int64
	seen     int64       // mover.reads when parkIdle looked; -1: it has not
	fd       int32       // of src, while parked
	running  atomic.Bool // neither parked nor ended
}

// newRelay returns the relay of a client's connection and a backend's.
func (s *Server) newRelay(f *frontend, e *endpoint, c *clientConn, backend net.Conn) *relay {
	r := &relay{s: s, frontend: f, endpoint: e, client: c, backend: backend}
	r.session = &session{
		client: c.conn, limit: c.limit, backend: backend, member: e.state, frontend: f.state, idle: f.Timeouts.Idle, start: time.Now(), relay: r,
	}
	r.up = direction{relay: r, dst: backend, src: c.conn, mover: newMover(backend, c.conn, &s.pipes), seen: -1}
	r.down = direction{relay: r, dst: c.conn, src: backend, mover: newMover(c.conn, backend, &s.pipes), seen: -1}
	return r
}

// run moves bytes until both directions have ended or are parked. The end of one direction is passed on (half-close); an
// error on one side resets the other.
func (r *relay) run() {
	r.left.Store(2)
	r.s.conns.Add(1)
	r.s.sessions.add(r.session)
	r.s.workers.run(func() { r.s.move(&r.down) })
	r.s.move(&r.up)
}

// parkIdle has directions parked that have read nothing since the last call.
func (r *relay) parkIdle() {
	for _, d := range []*direction{&r.up, &r.down} {
		if d.mover == nil || !d.running.Load() {
			continue
		}
		reads := d.mover.reads.Load()
		if reads == d.seen {
			_ = d.src.SetReadDeadline(time.Unix(1, 0))
		}
		d.seen = reads
	}
}

// abort resets both sides.
func (r *relay) abort() {
	for _, c := range []net.Conn{r.client.conn, r.backend} {
		abort(c)
		r.s.parker.wake(c)
	}
}

// end gives back everything, once both directions have ended.
func (r *relay) end() {
	r.s.sessions.end(r.session, r.up.moved+int64(len(r.client.prefix)), r.down.moved)
	_ = r.backend.Close()
	r.endpoint.state.release()
	_ = r.client.conn.Close()
	r.frontend.state.remove()
	r.client.release()
	r.s.conns.Done()
}

// move moves bytes in one direction until it ends or is parked. A panic ends the relay and nothing else.
func (s *Server) move(d *direction) {
	r := d.relay
	defer func() {
		if p := recover(); p != nil {
			s.reject("", rejectPanic, r.client.src, nil)
			s.panics.Note(p)
			d.ended(errors.New("panic"))
		}
	}()
	d.running.Store(true)
	for {
		err := d.copy()
		if d.mover != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			if s.parker.park(d) {
				return // another goroutine may have it already
			}
			continue
		}
		d.ended(err)
		return
	}
}

// copy moves bytes until src ends, there is an error or the deadline of src, which park sets, is over.
func (d *direction) copy() (err error) {
	if d.mover == nil {
		d.moved, err = io.Copy(d.dst, d.src)
		return err
	}
	d.moved, err = d.mover.run()
	return err
}

// ended passes the end of a direction on.
func (d *direction) ended(err error) {
	r := d.relay
	d.running.Store(false)
	switch {
	case err == nil && r.left.Load() == 1: // end closes both
	case err == nil:
		if half, ok := d.dst.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	case d != &r.up || !discardUpload(r.client.conn, r.backend):
		r.abort()
	}
	if r.left.Add(-1) == 0 {
		r.end()
	}
}
