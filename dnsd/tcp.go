package dnsd

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
	"github.com/bootlab/bootlab/internal/host/pause"
)

const (
	tcpPipeline = 16                    // queries of one connection that may wait for the forwarder
	acceptPause = 50 * time.Millisecond // after an error, as when the process has no file descriptor left
)

// serveTCP accepts connections until ctx ends. It does not close l.
func (s *Server) serveTCP(ctx context.Context, l *net.TCPListener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { _ = l.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept on %s: %w", l.Addr(), err)
		case err != nil:
			s.log.Warn("accept connection", keyAddr, l.Addr(), keyErr, err)
			_ = pause.For(ctx, acceptPause)
			continue
		}
		c := s.newConn(conn)
		c.slot = s.conns.Add(c.from, func() { // RFC 7766 section 6.2.3: an idle connection may be closed at any time
			s.metrics.evicted.Inc()
			_ = conn.Close()
		})
		if c.slot == nil { // all are in use, most of them by this client
			s.metrics.dropped[dropBusy].Inc()
			_ = conn.Close()
			continue
		}
		wg.Go(func() { c.serve(ctx) })
	}
}

// A tcpConn is one connection. Replies may leave in another order than their questions came (RFC 7766 section 6.2.1.1).
type tcpConn struct {
	s    *Server
	conn net.Conn
	in   *bufio.Reader
	from netip.Addr
	wg   sync.WaitGroup
	wait chan struct{} // one for each query that waits for the forwarder

	slot *connlimit.Conn

	mu sync.Mutex // one reply at a time
}

func (s *Server) newConn(conn net.Conn) *tcpConn {
	return &tcpConn{
		s: s, conn: conn, in: bufio.NewReaderSize(conn, 512), from: addrOfConn(conn),
		wait: make(chan struct{}, tcpPipeline),
	}
}

func (c *tcpConn) serve(ctx context.Context) {
	defer c.s.recoverPanic()
	defer c.conn.Close()
	defer c.slot.Remove()
	c.s.metrics.tcp.Inc()
	defer c.s.metrics.tcp.Dec()
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	defer c.wg.Wait()
	r := &request{tcp: true, from: c.from}
	var buf []byte
	for {
		var err error
		if buf, err = c.read(ctx, buf); err != nil {
			return
		}
		r.w.b = buf
		if !c.answer(ctx, r) {
			return
		}
		buf = r.w.b[:0]
	}
}

func addrOfConn(conn net.Conn) netip.Addr {
	ap, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

// read reads one message into buf.
func (c *tcpConn) read(ctx context.Context, buf []byte) ([]byte, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(c.s.cfg.IdleTimeout)) // the kernel's clock, not deps.Now
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var length [2]byte
	if _, err := io.ReadFull(c.in, length[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if cap(buf) < n {
		buf = make([]byte, n, n+512)
	}
	_, err := io.ReadFull(c.in, buf[:n])
	return buf[:n], err
}

// answer answers the message in r. It reports false if the connection is to be closed.
func (c *tcpConn) answer(ctx context.Context, r *request) bool {
	c.slot.Begin()
	defer c.slot.End()
	if r.transferAsked() {
		return c.s.transfer(r, c.send) == nil
	}
	switch c.s.handle(r) {
	case ready:
		return c.send(r.w.b) == nil
	case pending:
		return c.forward(ctx, r)
	}
	c.s.metrics.dropped[dropMalformed].Inc()
	return false
}

// forward lets a query wait for the forwarder while the next one is read.
func (c *tcpConn) forward(ctx context.Context, r *request) bool {
	switch c.s.takeForward(r) {
	case dropped:
		return false
	case ready:
		return c.send(r.w.b) == nil
	}
	select {
	case c.wait <- struct{}{}:
	case <-ctx.Done():
		c.s.forwards.Release(c.from)
		return false
	}
	r = r.clone()
	c.wg.Go(func() {
		defer func() { <-c.wait; c.s.forwards.Release(c.from) }()
		defer c.s.recoverPanic()
		c.s.answerForwarded(ctx, r)
		_ = c.send(r.w.b)
	})
	return true
}

// send writes one message.
func (c *tcpConn) send(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.s.cfg.IdleTimeout))
	framed := net.Buffers{binary.BigEndian.AppendUint16(nil, uint16(len(b))), b}
	_, err := framed.WriteTo(c.conn)
	return err
}
