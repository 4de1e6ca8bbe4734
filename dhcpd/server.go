package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"bootlab/internal/event"

	"github.com/prometheus/client_golang/prometheus"
)

// A Config tunes a server. The zero value is right for a lab.
type Config struct {
	Queue int // requests that may wait for a commit; 0: 1024. Beyond it they are dropped, and the clients ask again
}

const defaultQueue = 1024

// Deps are what a server works with. All are required.
type Deps struct {
	Table      func() *Table
	Book       *Book
	Events     event.Recorder
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
	Listen     func(iface string) (*Socket, error) // Listen, or a test's
}

// A Server answers DHCP on the interfaces of its table.
type Server struct {
	deps   Deps
	log    *slog.Logger
	m      *metrics
	jobs   chan *job
	quiet  *limiter
	ration *ration
	loops  *loopGuard

	mu    sync.Mutex
	lines map[string]*line
	run   func(*line) // starts a line while Serve runs; nil else
}

// A line is one interface that is served.
type line struct {
	iface string
	sock  *Socket
	stop  context.CancelFunc // nil until it runs
}

// New returns a server that has no sockets yet: see Stage.
func New(cfg Config, deps Deps) *Server {
	for name, missing := range map[string]bool{
		"Table": deps.Table == nil, "Book": deps.Book == nil, "Events": deps.Events == nil,
		"Log": deps.Log == nil, "Registerer": deps.Registerer == nil, "Now": deps.Now == nil, "Listen": deps.Listen == nil,
	} {
		if missing {
			panic("dhcpd: Deps." + name + " is nil")
		}
	}
	if cfg.Queue <= 0 {
		cfg.Queue = defaultQueue
	}
	s := &Server{
		deps: deps, log: deps.Log.With("server", "dhcpd"), jobs: make(chan *job, cfg.Queue),
		quiet: newLimiter(deps.Now), ration: newRation(deps.Now), loops: newLoopGuard(deps.Now), lines: map[string]*line{},
	}
	s.m = newMetrics(deps.Registerer, s)
	return s
}

// A Staged is a set of sockets that is open but not yet served. Either Commit or Discard must follow.
type Staged struct {
	server *Server
	opened map[string]*Socket // nil: of an interface that is not there yet
	wanted []string
}

// Stage opens the sockets that t needs and the server does not have. An interface that is not there, such as a bridge that
// somebody else makes later, is waited for. An error wraps syscall.EADDRINUSE where another
// program holds a port; then nothing stays open.
func (s *Server) Stage(t *Table) (*Staged, error) {
	st := &Staged{server: s, opened: map[string]*Socket{}, wanted: t.Interfaces()}
	s.mu.Lock()
	have := slices.Collect(maps.Keys(s.lines))
	s.mu.Unlock()
	var errs []error
	for _, iface := range st.wanted {
		if slices.Contains(have, iface) {
			continue
		}
		sock, err := s.deps.Listen(iface)
		if errors.Is(err, syscall.ENODEV) {
			s.log.Warn("interface is not there yet; it is served as soon as it is", keyIface, iface)
		} else if err != nil {
			errs = append(errs, err)
			continue
		}
		st.opened[iface] = sock
	}
	if err := errors.Join(errs...); err != nil {
		st.Discard()
		return nil, fmt.Errorf("open DHCP sockets: %w", err)
	}
	return st, nil
}

// Discard closes what Stage opened.
func (st *Staged) Discard() {
	for _, sock := range st.opened {
		if sock != nil {
			_ = sock.Close()
		}
	}
	st.opened = nil
}

// Commit serves the new sockets, now or as soon as Serve runs, and closes those of interfaces that are gone.
func (st *Staged) Commit() {
	s := st.server
	s.mu.Lock()
	defer s.mu.Unlock()
	for iface, l := range s.lines {
		if !slices.Contains(st.wanted, iface) {
			l.close()
			delete(s.lines, iface)
		}
	}
	for iface, sock := range st.opened {
		l := &line{iface: iface, sock: sock}
		s.lines[iface] = l
		if s.run != nil {
			s.run(l)
		}
	}
	st.opened = nil
}

// close ends a line: one that runs closes its socket itself, since it may have reopened it.
func (l *line) close() {
	if l.stop != nil {
		l.stop()
		return
	}
	if l.sock != nil {
		_ = l.sock.Close()
	}
}

// Serve answers until ctx ends, then closes all sockets and returns nil. It may be called once.
func (s *Server) Serve(ctx context.Context) error {
	var wg sync.WaitGroup
	s.mu.Lock()
	s.run = func(l *line) {
		var lineCtx context.Context
		lineCtx, l.stop = context.WithCancel(ctx)
		wg.Go(func() { s.serveLine(lineCtx, l.iface, l.sock) })
	}
	for _, l := range s.lines {
		s.run(l)
	}
	s.mu.Unlock()
	wg.Go(func() { s.commitLoop(ctx) })
	<-ctx.Done()
	s.mu.Lock()
	s.run = nil
	for _, l := range s.lines {
		l.close()
	}
	clear(s.lines)
	s.mu.Unlock()
	wg.Wait()
	return nil
}

const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
	// watchEvery is how often an interface is looked at: one that was taken away and made again under the same name, as
	// libvirt does with its bridges, leaves a socket that hears nothing and reports no error.
	watchEvery = 3 * time.Second
)

// serveLine serves one interface through all its lives.
func (s *Server) serveLine(ctx context.Context, iface string, sock *Socket) {
	if sock == nil {
		sock = s.reopen(ctx, iface)
	}
	for sock != nil {
		s.serveSocket(ctx, sock)
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("interface was replaced, opening it again", keyIface, iface)
		sock = s.reopen(ctx, iface)
	}
}

func (s *Server) reopen(ctx context.Context, iface string) *Socket {
	for wait := minBackoff; ; wait = min(2*wait, maxBackoff) {
		sock, err := s.deps.Listen(iface)
		if err == nil {
			return sock
		}
		s.log.Debug("interface is not back yet", keyIface, iface, keyErr, err)
		if !sleep(ctx, wait) {
			return nil
		}
	}
}

// serveSocket reads from a socket until ctx ends or the interface under it was replaced, and closes it.
func (s *Server) serveSocket(ctx context.Context, sock *Socket) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for _, p := range sock.ports() {
		wg.Go(func() { s.receive(ctx, sock, p) })
	}
	wg.Go(func() { s.advertise(ctx, sock) })
	for sleep(ctx, watchEvery) && !sock.stale() {
	}
	cancel()
	_ = sock.Close()
	wg.Wait()
}

// receive is the packet loop of one port. It answers in place; only what must first be durable is handed on.
func (s *Server) receive(ctx context.Context, sock *Socket, p port) {
	in := &inbound{iface: sock.iface, port: p.number, link: sock, out: make([]byte, 0, frameHeadroom+maxDatagram)}
	buf := make([]byte, 2*maxDatagram)
	wait := minBackoff
	for {
		n, from, local, err := p.read(buf)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// A NIC that flaps gives ENETDOWN; the socket is good again when the NIC is.
			s.log.Warn("read from interface", keyIface, sock.iface, keyErr, err)
			if !sleep(ctx, wait) {
				return
			}
			wait = min(2*wait, maxBackoff)
			continue
		}
		wait = minBackoff
		in.data, in.from, in.local = buf[:n], from, local
		s.handle(in)
	}
}

// sleep waits for d and reports whether ctx still holds.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
