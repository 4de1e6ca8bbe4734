package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A guest is one connection that was accepted.
type guest struct {
	conn   net.Conn
	l      *listener
	src    netip.AddrPort // the client, as the PROXY header of a believed peer names it
	dst    netip.AddrPort // what the client connected to
	prefix []byte         // bytes that were read while peeking

	room *room // that it was counted in
	left sync.Once
}

// leave counts the connection out, once it is closed.
func (g *guest) leave() { g.left.Do(g.room.leave) }

// take hands a connection, which has its place in the room, to its balancer. It does not block.
func (s *Server) take(ctx context.Context, l *listener, conn net.Conn) {
	g := &guest{conn: conn, l: l, room: &s.room, src: addrPort(conn.RemoteAddr()), dst: addrPort(conn.LocalAddr())}
	p := s.live.Load().sites[l.addr]
	switch {
	case p == nil:
		abort(conn)
		g.leave()
	case p.direct() && p.solo.Mode == lab.ModeHTTP:
		p.solo.pool.enter()
		s.web.take(p, p.solo, g)
	case p.direct():
		p.solo.pool.enter()
		s.conns.Go(func() { s.guard(g, func() { s.carry(ctx, p.solo, g) }) })
	case p.onlyHTTP() && !p.trusts(g.src.Addr()):
		s.web.take(p, p.enterSolo(), g)
	default:
		s.conns.Go(func() { s.guard(g, func() { s.tellApart(ctx, p, g) }) })
	}
}

// enterSolo counts a connection in where the address has one balancer only, and returns that.
func (p *place) enterSolo() *front {
	if p.solo != nil {
		p.solo.pool.enter()
	}
	return p.solo
}

// guard runs a handler; a panic ends its connection and nothing else.
func (s *Server) guard(g *guest, handle func()) {
	defer func() {
		if r := recover(); r != nil {
			abort(g.conn)
			g.leave()
			s.reject("", rejectPanic, g.src, nil)
			s.log.Error("handler panicked", keyAddr, g.src, keyErr, fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	handle()
}

// tellApart reads the first bytes of a connection and hands it to the balancer that they ask for.
func (s *Server) tellApart(ctx context.Context, p *place, g *guest) {
	f, why, err := s.identify(ctx, p, g)
	if f == nil && why == "" {
		s.web.take(p, nil, g) // every balancer here is HTTP: told apart request by request
		return
	}
	if f != nil && f != p.solo && f.full() {
		why, err = rejectLimit, fmt.Errorf("%d connections, the most that balancer %s takes", f.MaxConnections, f.Name)
	}
	if why != "" {
		name := ""
		if f != nil {
			name = f.Name
		}
		s.reject(name, why, g.src, err)
		abort(g.conn)
		g.leave()
		return
	}
	f.pool.enter()
	if f.Mode == lab.ModeHTTP {
		s.web.take(p, f, g)
		return
	}
	s.carry(ctx, f, g)
}

// identify finds the balancer of a connection, and its client where a believed peer names one. No balancer and no
// reason means HTTP.
func (s *Server) identify(ctx context.Context, p *place, g *guest) (*front, reason, error) {
	defer s.pending.Add(-1)
	if s.pending.Add(1) > int64(s.cfg.Pending) {
		return nil, rejectPending, fmt.Errorf("%d connections wait for their first bytes", s.cfg.Pending)
	}
	_ = g.conn.SetReadDeadline(time.Now().Add(s.cfg.Peek))
	stop := context.AfterFunc(ctx, func() { _ = g.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	defer func() { _ = g.conn.SetReadDeadline(time.Time{}) }()
	peek := newPeeker(g.conn)
	defer func() { g.prefix = peek.close() }()
	if p.trusts(g.src.Addr()) {
		src, dst, err := peek.proxyHeader()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, rejectSlow, err
		case err != nil:
			return nil, rejectHeader, err
		case src.IsValid():
			g.src, g.dst = src, dst
		}
	}
	if p.solo != nil {
		return p.solo, "", nil
	}
	if p.onlyHTTP() {
		return nil, "", nil
	}
	name, byHost, err := peek.name()
	f := p.fallback
	switch {
	case err == nil && byHost:
		f = p.byHost(name)
	case err == nil:
		f = p.byName(name)
	case !errors.Is(err, errUnknownProtocol):
		return nil, rejectSlow, err
	}
	if f == nil {
		return nil, rejectNoMatch, errors.New("no balancer of this address wants the name that the client asks for")
	}
	return p.front(f), "", nil
}

// addrPort returns the address of a TCP connection, an IPv4 one as such.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// abort closes a connection with a reset, so that the other side cannot take it for an orderly end.
func abort(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
