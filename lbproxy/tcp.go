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

// proxyTCP connects a client to a backend and hands both to a loop, which moves bytes until both sides are done. The caller
// counted the connection in f.state; it is counted out when it has ended.
func (s *Server) proxyTCP(ctx context.Context, f *frontend, c *clientConn) {
	s.proxy(f, c, func() (net.Conn, *backend, error) { return s.connect(ctx, f, c) })
}

// proxy is proxyTCP with that connect.
func (s *Server) proxy(f *frontend, c *clientConn, connect func() (net.Conn, *backend, error)) {
	if r := s.connectClient(f, c, connect); r != nil {
		r.begin()
	}
}

// connectClient returns the relay of a client's connection; nil: it was rejected.
func (s *Server) connectClient(f *frontend, c *clientConn, connect func() (net.Conn, *backend, error)) (r *relay) {
	defer func() {
		if r == nil {
			abort(c.conn) // installers retry after a reset, but give up on an HTTP 4xx
			f.state.remove()
			c.release()
		}
	}()
	start := time.Now()
	if c.start.IsZero() {
		c.start = start
	}
	backend, b, err := connect()
	if err != nil {
		s.rejectTCP(f, connectReason(err), c, err)
		return nil
	}
	connected := time.Now()
	b.state.traffic.add(connected.Sub(start))
	if r, err = s.join(f, b, c, backend); err != nil {
		_ = backend.Close()
		b.state.release()
		s.rejectTCP(f, rejectConnect, c, err)
		return nil
	}
	r.connected = connected
	return r
}

// join sends the first bytes and returns the relay of two connections.
func (s *Server) join(f *frontend, b *backend, c *clientConn, conn net.Conn) (*relay, error) {
	if err := s.sendFirstBytes(f, c, conn); err != nil {
		return nil, err
	}
	client, err := c.stream()
	if err != nil {
		return nil, err
	}
	backend, err := streamOf(conn)
	if err != nil {
		return nil, err
	}
	r, err := s.newRelay(f, b, c, client, backend)
	if err != nil {
		backend.abort()
	}
	return r, err
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
		if st, ok := c.conn.(*stream); ok && !c.dst.IsValid() {
			c.dst = st.localAddr()
		}
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
