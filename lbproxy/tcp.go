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
// f.state; it is counted out when it has ended.
func (s *Server) proxyTCP(ctx context.Context, f *frontend, c *clientConn) {
	r := s.connectClient(ctx, f, c)
	if r != nil {
		r.run()
	}
}

// connectClient returns the relay of a client's connection; nil: it was rejected.
func (s *Server) connectClient(ctx context.Context, f *frontend, c *clientConn) (r *relay) {
	defer func() {
		if r == nil {
			abort(c.conn) // installers retry after a reset, but give up on an HTTP 4xx
			f.state.remove()
			c.release()
		}
	}()
	start := time.Now()
	backend, e, err := s.connect(ctx, f, c)
	if err != nil {
		s.reject(f.Name, connectReason(err), c.src, err)
		return nil
	}
	e.state.traffic.add(time.Since(start))
	if err := s.sendFirstBytes(f, c, backend); err != nil {
		_ = backend.Close()
		e.state.release()
		s.reject(f.Name, rejectConnect, c.src, err)
		return nil
	}
	return s.newRelay(f, e, c, backend)
}

// connectReason returns why a client got no backend.
func connectReason(err error) reason {
	switch {
	case errors.Is(err, errNoBackend):
		return rejectNoBackend
	case errors.Is(err, errQueueFull):
		return rejectQueueFull
	case errors.Is(err, errQueueTimeout):
		return rejectQueueTimeout
	case errors.Is(err, errClientGone):
		return rejectClient
	}
	return rejectConnect
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

// spliceOneWay moves bytes from src to dst until src ends, then closes dst for writing.
func (s *Server) spliceOneWay(dst, src net.Conn) (n int64, err error) {
	if m := newMover(dst, src, &s.pipes); m != nil {
		n, err = m.run()
	} else {
		n, err = io.Copy(dst, src)
	}
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
