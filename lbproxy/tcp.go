package lbproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// proxyTCP connects a client to a backend and moves bytes until both sides are done. The caller counted the connection in
// f.state; proxyTCP counts it out.
func (s *Server) proxyTCP(ctx context.Context, f *frontend, c *clientConn) {
	defer c.release()
	defer f.state.remove()
	defer func() { _ = c.conn.Close() }()
	backend, e, err := s.connect(ctx, f, c.src.Addr())
	if err != nil {
		why := rejectConnect
		if errors.Is(err, errNoBackend) {
			why = rejectNoBackend
		}
		s.reject(f.Name, why, c.src, err)
		abort(c.conn) // installers retry after a reset, but give up on an HTTP 4xx
		return
	}
	defer e.state.active.Add(-1)
	defer func() { _ = backend.Close() }()
	if err := s.sendFirstBytes(f, c, backend); err != nil {
		s.reject(f.Name, rejectConnect, c.src, err)
		abort(c.conn)
		return
	}
	ses := &session{client: c.conn, limit: c.limit, backend: backend, member: e.state, frontend: f.state, idle: f.Timeouts.Idle, start: time.Now()}
	s.sessions.add(ses)
	in, out := s.splice(c, backend)
	s.sessions.end(ses, in+int64(len(c.prefix)), out)
}

// sendFirstBytes sends the PROXY header and the bytes that were read to route the connection.
func (s *Server) sendFirstBytes(f *frontend, c *clientConn, backend net.Conn) error {
	first := c.prefix
	if f.SendProxy != 0 {
		var b bytes.Buffer
		if err := writeProxyHeader(&b, f.SendProxy, c.src, c.dst); err != nil {
			return err
		}
		first = append(b.Bytes(), first...)
	}
	if len(first) == 0 {
		return nil
	}
	_ = backend.SetWriteDeadline(time.Now().Add(f.Timeouts.Connect))
	_, err := backend.Write(first)
	_ = backend.SetWriteDeadline(time.Time{})
	if err != nil {
		return fmt.Errorf("send first bytes to %s: %w", backend.RemoteAddr(), err)
	}
	return nil
}

// splice moves bytes both ways until both directions have ended, and returns how many came from and went to the client.
// The end of one direction is passed on (half-close); an error on one side resets the other.
func (s *Server) splice(c *clientConn, backend net.Conn) (in, out int64) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.guard(c, func() {
			var err error
			if out, err = s.spliceOneWay(c.conn, backend); err != nil {
				abort(c.conn)
				abort(backend)
			}
		})
	}()
	in, err := s.spliceOneWay(backend, c.conn)
	if err != nil && !discardUpload(c.conn, backend) {
		abort(c.conn)
		abort(backend)
	}
	<-done
	return in, out
}

// spliceOneWay moves bytes from src to dst until src ends, then closes dst for writing.
func (s *Server) spliceOneWay(dst, src net.Conn) (int64, error) {
	n, err := moveBytes(dst, src, &s.pipes)
	if err != nil {
		return n, err
	}
	if half, ok := dst.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	return n, nil
}

// uploadTimeout is how long a client may go on sending after its backend has closed.
const uploadTimeout = 2 * time.Second

// discardUpload reads and drops what the client still sends to a backend that has closed, as one does that refuses an
// upload halfway: closing with unread bytes would reset the connection and lose the backend's answer. It returns false
// if it is not the backend that has closed.
func discardUpload(client, backend net.Conn) bool {
	if !isClosed(backend) || isClosed(client) {
		return false
	}
	_ = client.SetReadDeadline(time.Now().Add(uploadTimeout))
	_, _ = io.Copy(io.Discard, client)
	return true
}
