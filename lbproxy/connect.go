package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// errNoBackend says that no member may get the connection.
var errNoBackend = errors.New("every backend is down or drained")

// dialTCP is the default Deps.Dial. Nagle's algorithm is off; keep-alive is turned on later, for connections that live.
func dialTCP(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1}
	d.SetMultipathTCP(false)
	// Not Dialer.DialTCP: its zero local address is bound before connecting (Go 1.26), which takes an ephemeral port from
	// every destination at once, and runs out of them where connect alone would not.
	return d.DialContext(ctx, "tcp", addr.String())
}

// connect connects to a backend of f for a client. A member that refuses is passed over at once; one that does not
// answer for its patience is raced against the next, and the first to answer is kept. Whoever failed, or was silent
// while another answered, has that counted against its health. The caller gives the seat's active count back.
func (s *Server) connect(ctx context.Context, f *front, client netip.Addr) (net.Conn, *seat, error) {
	seat := f.pick(client, nil)
	if seat == nil {
		return nil, nil, errNoBackend
	}
	began := time.Now()
	patience := min(seat.patience(s.cfg.Hedge), f.Timeouts.Connect)
	first, cancel := context.WithTimeout(ctx, patience)
	conn, err := s.deps.Dial(first, seat.Addr)
	silent := first.Err() != nil
	cancel()
	if err == nil {
		seat.health.dialed(time.Since(began))
		return conn, seat, nil
	}
	if ctx.Err() != nil {
		seat.member.active.Add(-1)
		return nil, nil, ctx.Err()
	}
	r := &race{
		s: s, f: f, client: client, done: tried{seat}, last: err,
		finishes: make(chan finish, len(f.seats)),
	}
	limit, cancel := context.WithTimeout(ctx, f.Timeouts.Connect)
	defer cancel()
	if silent {
		r.dial(limit, seat) // goes on while another is tried beside it
	} else {
		s.lost(seat, err)
	}
	end := r.run(limit)
	cancel()
	r.settle(ctx, end)
	return end.conn, end.seat, r.last
}

// lost gives back a seat that could not be connected to.
func (s *Server) lost(seat *seat, err error) {
	seat.member.active.Add(-1)
	s.announce(seat.health, seat.health.dialFailed(err, s.deps.Now()))
}

// A finish is how one dial of a race ended.
type finish struct {
	seat *seat
	conn net.Conn
	took time.Duration
	err  error
}

// A race dials several seats for one client, each a patience after the one before.
type race struct {
	s        *Server
	f        *front
	client   netip.Addr
	done     tried
	last     error // why the last dial failed; nil: one did not
	finishes chan finish
	running  int
}

// run dials seats until one answers, none is left or ctx ends. It returns the winner, or an empty finish.
func (r *race) run(ctx context.Context) finish {
	next := r.next(ctx)
	for r.running > 0 {
		select {
		case <-next:
			next = r.next(ctx)
		case end := <-r.finishes:
			r.running--
			r.last = end.err
			if end.err == nil {
				end.seat.health.dialed(end.took)
				return end
			}
			r.s.lost(end.seat, end.err)
			next = r.next(ctx)
		case <-ctx.Done():
			return finish{}
		}
	}
	return finish{}
}

// next dials the next seat and returns when the one after it is due; never where there is none.
func (r *race) next(ctx context.Context) <-chan time.Time {
	seat := r.f.pick(r.client, r.done)
	if seat == nil {
		return nil
	}
	r.f.pool.m.retries.Inc()
	r.done = append(r.done, seat)
	r.dial(ctx, seat)
	return time.After(seat.patience(r.s.cfg.Hedge))
}

// dial dials one seat in a goroutine of its own, which settle waits for.
func (r *race) dial(ctx context.Context, seat *seat) {
	r.running++
	go func() {
		began := time.Now()
		conn, err := r.s.deps.Dial(ctx, seat.Addr)
		r.finishes <- finish{seat, conn, time.Since(began), err}
	}()
}

// settle waits for the dials that have not ended, which are cancelled by now, and counts their silence against them
// unless the whole server is stopping.
func (r *race) settle(stopping context.Context, winner finish) {
	for ; r.running > 0; r.running-- {
		end := <-r.finishes
		switch {
		case end.conn != nil:
			_ = end.conn.Close() // it answered too, a moment later
			end.seat.member.active.Add(-1)
		case stopping.Err() != nil:
			end.seat.member.active.Add(-1)
			r.last = stopping.Err()
		case winner.seat != nil:
			r.s.lost(end.seat, fmt.Errorf("no answer while %s answered: %w", winner.seat.Addr, end.err))
		default:
			r.last = end.err
			r.s.lost(end.seat, end.err)
		}
	}
}
