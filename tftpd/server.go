package tftpd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"bootlab/internal/event"
	"bootlab/internal/lab"
)

// A Config tunes a server. The zero Config is what the documentation says.
type Config struct {
	Timeout      time.Duration // first wait for an answer, unless the client asks for another; 1 s
	Retries      int           // how often a packet is sent again before the client counts as gone; 5
	MaxTransfers int           // at the same time; beyond, who never answered makes room, or the request is dropped; 512
	MaxWindow    int           // most packets before an ACK (RFC 7440), whatever is asked for; 64
	Drain        time.Duration // how long transfers may go on once the server is to stop; 10 s
}

func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = time.Second
	}
	if c.Retries <= 0 {
		c.Retries = 5
	}
	if c.MaxTransfers <= 0 {
		c.MaxTransfers = 512
	}
	if c.MaxWindow <= 0 || c.MaxWindow > maxSegments {
		c.MaxWindow = maxSegments
	}
	if c.Drain <= 0 {
		c.Drain = 10 * time.Second
	}
	return c
}

// Scripts renders boot scripts.
type Scripts interface {
	// Script returns the script called name of the machine mac, which asks from that address. It tells in events what it
	// did or refused. An error may have a method HTTPStatus() int that says what sort of refusal it is.
	Script(ctx context.Context, mac lab.MAC, from netip.Addr, name string) ([]byte, error)
}

// Leases knows which machine has an address.
type Leases interface {
	MAC(addr netip.Addr) (lab.MAC, bool)
}

// Deps are what a server needs. All are required.
type Deps struct {
	Table    func() *Table         // the table in force
	Firmware fs.FS                 // network boot programs, by name
	Scripts  Scripts               // renders boot.ipxe and autoexec.ipxe
	Leases   Leases                // for names without a MAC
	Events   event.Recorder        // tftp_served, tftp_failed, tftp_refused, tftp_probe
	Log      *slog.Logger          // for what is no boot's business
	Metrics  prometheus.Registerer // where the metrics are registered
}

// A Server serves files by TFTP, read-only.
type Server struct {
	cfg   Config
	deps  Deps
	log   *slog.Logger
	stats *metrics

	mu      sync.Mutex
	active  map[netip.AddrPort]*transfer
	running int // with those that were replaced but have not ended yet
	wg      sync.WaitGroup
}

// New returns a server. A missing dependency is a bug and panics.
func New(cfg Config, deps Deps) (*Server, error) {
	for name, missing := range map[string]bool{
		"Table": deps.Table == nil, "Firmware": deps.Firmware == nil, "Scripts": deps.Scripts == nil, "Leases": deps.Leases == nil,
		"Events": deps.Events == nil, "Log": deps.Log == nil, "Metrics": deps.Metrics == nil,
	} {
		if missing {
			panic("tftpd: Deps." + name + " is nil")
		}
	}
	return &Server{
		cfg: cfg.withDefaults(), deps: deps, log: deps.Log.With("server", "tftpd"),
		stats: newMetrics(deps.Metrics), active: map[netip.AddrPort]*transfer{},
	}, nil
}

// pause is how long the server waits after a read error, so that one that stays does not keep a CPU busy.
const pause = 10 * time.Millisecond

// Serve answers requests that arrive at conn until ctx ends, lets transfers under way finish for a while, and returns
// nil. conn stays the caller's to close. A closed conn is an error.
func (s *Server) Serve(ctx context.Context, conn *net.UDPConn) error {
	if err := watchDestination(conn); err != nil {
		return fmt.Errorf("serve tftp on %s: %w", conn.LocalAddr(), err)
	}
	// Transfers outlive ctx until they are done or the drain is over.
	work, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	err := s.listen(ctx, work, conn)
	stop()
	s.drain(abort)
	return err
}

func (s *Server) listen(ctx, work context.Context, conn *net.UDPConn) error {
	b, oob := make([]byte, maxRequest), make([]byte, 256)
	for {
		n, oobn, _, from, err := conn.ReadMsgUDPAddrPort(b, oob)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("serve tftp on %s: %w", conn.LocalAddr(), err)
		case err != nil:
			s.log.Warn("read request", "err", err)
			sleep(ctx, pause)
			continue
		}
		client := netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		s.accept(work, b[:n], client, destination(oob[:oobn]))
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// drain waits for the transfers, and ends them once that takes too long.
func (s *Server) drain(abort context.CancelCauseFunc) {
	over := time.AfterFunc(s.cfg.Drain, func() { abort(errStopping) })
	s.wg.Wait()
	over.Stop()
	abort(errStopping)
}

// accept takes a request up, unless it is one that is being answered already, or there is too much to do.
func (s *Server) accept(ctx context.Context, packet []byte, client netip.AddrPort, local netip.Addr) {
	t := &transfer{key: string(packet), client: client, started: time.Now(), retries: s.cfg.Retries, stats: s.stats}
	ctx, t.cancel = context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.active[client]
	switch {
	case old != nil && old.key == t.key && !old.touched.Load():
		// The transfer's own timer will send again what got lost.
		s.stats.dropped[reasonDuplicate].Inc()
		t.cancel(nil)
		return
	case s.running >= s.cfg.MaxTransfers && !s.makeRoomLocked():
		s.stats.dropped[reasonBusy].Inc()
		t.cancel(nil)
		return
	case old != nil:
		old.cancel(errReplaced) // it has restarted, with the same port
	}
	s.active[client] = t
	s.running++
	s.stats.active.Set(float64(s.running))
	s.wg.Go(func() {
		defer s.forget(t)
		s.handle(ctx, t, local)
	})
}

// makeRoomLocked ends the transfer that has waited longest for the first sign of its client, if a client that is there
// would have given one by now: requests under false addresses, or from ports that are closed, must not keep machines out.
func (s *Server) makeRoomLocked() bool {
	var oldest *transfer
	for _, t := range s.active {
		if !t.touched.Load() && (oldest == nil || t.started.Before(oldest.started)) {
			oldest = t
		}
	}
	if oldest == nil || time.Since(oldest.started) < s.cfg.Timeout {
		return false
	}
	oldest.cancel(errCrowded)
	delete(s.active, oldest.client)
	return true
}

func (s *Server) forget(t *transfer) {
	t.cancel(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active[t.client] == t {
		delete(s.active, t.client)
	}
	s.running--
	s.stats.active.Set(float64(s.running))
}

// handle answers one request. Whatever it holds must not end the process.
func (s *Server) handle(ctx context.Context, t *transfer, local netip.Addr) {
	table := s.deps.Table()
	started := time.Now()
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("request handler panicked", "addr", t.client, "err", p)
		}
	}()
	r, err := ParseRequest([]byte(t.key))
	if err != nil {
		// A stray ACK or ERROR gets no answer: two servers could go on for ever.
		s.stats.dropped[reasonMalformed].Inc()
		s.log.Debug("malformed request", "addr", t.client, "err", err)
		return
	}
	if t.conn, err = dial(local, t.client.Addr()); err != nil {
		s.log.Error("open transfer", "addr", t.client, "err", err)
		return
	}
	defer t.conn.Close()
	err = s.prepare(ctx, table, t, r)
	if err == nil {
		defer t.content.close()
		err = t.run(ctx)
	}
	s.conclude(t, r, err, time.Since(started))
}

// prepare finds what was asked for and agrees on terms. The error is a *refusal.
func (s *Server) prepare(ctx context.Context, table *Table, t *transfer, r Request) (err error) {
	if r.Write {
		return &refusal{code: CodeAccess, message: "read-only server", err: errors.New("a write request: the server is read-only")}
	}
	if r.Mode != "octet" && r.Mode != "netascii" {
		return &refusal{code: CodeIllegal, message: "unknown mode", err: fmt.Errorf("mode %q: want octet or netascii", printable(r.Mode))}
	}
	target, ok := resolve(r.Name)
	if !ok {
		return &refusal{code: CodeAccess, message: "access violation", err: errNoSuchPath}
	}
	if t.content, err = s.open(ctx, table, target, t.client.Addr()); err != nil {
		return err
	}
	l := limits{window: s.cfg.MaxWindow, timeout: s.cfg.Timeout, size: t.content.size}
	if r.Mode == "netascii" {
		if t.content, err = netascii(t.content); err != nil {
			return err
		}
		l.size = -1 // the size on this disk is not the number of bytes to come
	}
	if len(r.Options) > 0 {
		l.block = blockLimit(t.client)
	}
	t.terms = negotiate(r.Options, l)
	return nil
}

// conclude tells the client, if it has to be told, and the house how the request ended.
func (s *Server) conclude(t *transfer, r Request, err error, took time.Duration) {
	e := event.Event{MAC: macOf(r.Name), Addr: t.client.Addr(), Detail: label(r.Name), Dur: took}
	var refused *refusal
	var ce *clientError
	result := resultFailed
	switch {
	case err == nil:
		result, e.Kind, e.Bytes = resultServed, event.TFTPServed, t.content.size
		s.stats.duration.Observe(took.Seconds())
	case errors.Is(err, errProbe):
		result, e.Kind = resultProbe, event.TFTPProbe
	case errors.As(err, &refused) && t.base == 0:
		result, e.Kind, e.Err = resultRefused, event.TFTPRefused, redact(err.Error())
		s.tell(t, refused.code, refused.message)
	default:
		e.Kind, e.Bytes, e.Err = event.TFTPFailed, t.acked(), err.Error()
		if !errors.As(err, &ce) {
			s.tell(t, CodeUndefined, "transfer aborted")
		}
	}
	s.stats.results[result].Inc()
	s.stats.bytes.Add(float64(e.Bytes))
	if refused == nil || !refused.told {
		s.deps.Events.Record(e)
	}
}

func (s *Server) tell(t *transfer, code ErrorCode, message string) {
	if err := t.write(appendError(nil, code, message)); err != nil {
		s.log.Debug("send error packet", "addr", t.client, "err", err)
	}
}
