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

// carry takes a connection of TCP mode to a backend and moves bytes until both sides are done. The pool's count is the
// caller's, who entered it; carry leaves it.
func (s *Server) carry(ctx context.Context, f *front, g *guest) {
	defer g.leave()
	defer f.pool.leave()
	defer func() { _ = g.conn.Close() }()
	backend, seat, err := s.connect(ctx, f, g.src.Addr())
	if err != nil {
		why := rejectConnect
		if errors.Is(err, errNoBackend) {
			why = rejectNoBackend
		}
		s.reject(f.Name, why, g.src, err)
		abort(g.conn) // never an answer of our own: installers retry a reset, and take an HTTP 4xx for the last word
		return
	}
	defer seat.member.active.Add(-1)
	defer func() { _ = backend.Close() }()
	if err := s.greet(f, g, backend); err != nil {
		s.reject(f.Name, rejectConnect, g.src, err)
		abort(g.conn)
		return
	}
	ses := &session{client: g.conn, from: g.src.Addr(), backend: backend, pool: f.pool, idle: f.Timeouts.Idle, born: time.Now()}
	s.sessions.add(ses)
	in, out := s.relay(g, backend)
	s.sessions.end(ses, in+int64(len(g.prefix)), out)
}

// greet sends the backend what comes before the client's own stream: our PROXY header and the bytes that were peeked at.
func (s *Server) greet(f *front, g *guest, backend net.Conn) error {
	first := g.prefix
	if f.SendProxy != 0 {
		var b bytes.Buffer
		if err := writeProxyHeader(&b, f.SendProxy, g.src, g.dst); err != nil {
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

// relay moves bytes both ways until both sides have said their last, and returns how many went from and to the client.
// The end of one direction is passed on as such (half-close); a broken side breaks the other.
func (s *Server) relay(g *guest, backend net.Conn) (in, out int64) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.guard(g, func() {
			var err error
			if out, err = pump(g.conn, backend); err != nil {
				abort(g.conn)
				abort(backend)
			}
		})
	}()
	in, err := pump(backend, g.conn)
	if err != nil && !s.answering(g, backend) {
		abort(g.conn)
		abort(backend)
	}
	<-done
	return in, out
}

// pump moves bytes from src to dst until src ends, then ends dst's direction too. Between TCP sockets this is splice(2).
func pump(dst, src net.Conn) (int64, error) {
	n, err := io.Copy(dst, src)
	if err != nil {
		return n, err
	}
	if half, ok := dst.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	return n, nil
}

// lingering is how long a client may go on sending to a backend that has closed, while it still reads the answer.
const lingering = 2 * time.Second

// answering reports whether a backend that takes no more from the client may still have an answer under way, as one that
// refuses an upload in its middle does. The client's bytes are then read and dropped for a while, because closing with
// bytes unread would reset the connection and destroy the answer.
func (s *Server) answering(g *guest, backend net.Conn) bool {
	if !dead(backend) || dead(g.conn) {
		return false
	}
	_ = g.conn.SetReadDeadline(time.Now().Add(lingering))
	_, _ = io.Copy(io.Discard, g.conn)
	return true
}
