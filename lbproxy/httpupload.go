package lbproxy

import (
	"errors"
	"io"
	"os"
	"sync/atomic"

	"github.com/bootlab/bootlab/lbproxy/h1"
)

// An upload sends a request's body while the response is awaited.
type upload struct {
	ended atomic.Bool           // the body was read from the client to its end
	final atomic.Bool           // the final response has begun: no part of the body moves the backend's deadline any more
	cause atomic.Pointer[error] // why it could not be
	sent  bool                  // all was written; valid after done
	done  chan struct{}
}

// smallBody is how much of a body is sent with the head, if it has come already.
const smallBody = backendBuffer

// appendBuffered appends the body if all of it has been received with the head.
func (x *exchange) appendBuffered(out []byte) (_ []byte, complete bool) {
	b := &x.reqBody
	if x.reqFraming == h1.NoBody {
		return out, true
	}
	if !b.Received() || b.Left() > smallBody {
		return out, false
	}
	return b.AppendReceived(out), true
}

func (x *exchange) startUpload() {
	if _, streams := x.client.(*http2Stream); streams {
		x.expected = x.expects()
	}
	u := &upload{done: make(chan struct{})}
	x.upload = u
	// A backend that reads slowly closes its window, and the kernel counts that as unacknowledged, too (Linux 6.18).
	control(x.conn.socket, func(fd int) { setUserTimeout(fd, x.frontend.Timeouts.Server) })
	go func() {
		defer close(u.done)
		defer x.proxy.contain(func() { x.conn.close() })
		u.sent = x.sendBody(u, x.conn)
	}()
}

// sendBody copies the body to the backend. An error of the client's closes the backend's connection, so that it never
// takes a part for the whole; an error of the backend's is left to who reads its response.
func (x *exchange) sendBody(u *upload, m *backendConn) (sent bool) {
	buf := x.proxy.buffers.Get()
	defer x.proxy.buffers.Put(buf)
	b := &x.reqBody
	out := make([]byte, 0, 64)
	if !x.expected.wait() {
		return false
	}
	for {
		if !u.final.Load() {
			m.deadline.clear() // the client has timeouts.body
		}
		m.awaitsClient.Store(true)
		n, err := b.Read(buf)
		m.awaitsClient.Store(false)
		if err != nil && !errors.Is(err, io.EOF) {
			err = x.uploadError(err)
			u.cause.Store(&err)
			m.abort()
			return false
		}
		last := b.Done()
		u.ended.Store(last)
		out = out[:0]
		if n > 0 {
			out = h1.AppendContent(out, x.reqFraming, buf[:n])
		}
		if last && x.reqFraming == h1.ByChunks {
			out = h1.AppendTrailers(out, x.trailers())
		}
		if !u.final.Load() {
			m.deadline.set(x.frontend.Timeouts.Server)
			if u.final.Load() { // meanwhile
				m.deadline.clear()
			}
		}
		if _, err := m.Write(out); err != nil {
			return false
		}
		if last {
			return true
		}
	}
}

// trailers returns the trailers of the request, whose body was read.
func (x *exchange) trailers() []h1.Field {
	if x.reqTrailers != nil {
		return x.reqTrailers()
	}
	return x.reqBody.Trailers()
}

// uploadError returns why the client's body could not be read.
func (x *exchange) uploadError(err error) error {
	var syntax h1.SyntaxError
	switch {
	case errors.As(err, &syntax), errors.Is(err, h1.ErrHeadTooLarge):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errBodyTimeout
	}
	return errClientGone
}

// stopUpload ends an upload that is still in progress.
func (x *exchange) stopUpload() {
	u := x.upload
	if u == nil {
		return
	}
	x.expected.over()
	if x.conn != nil {
		x.conn.abort()
	}
	if !u.ended.Load() {
		x.client.stopReading(true)
	}
	<-u.done
	x.client.stopReading(false)
}
