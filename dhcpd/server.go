package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"

	"github.com/prometheus/client_golang/prometheus"
)

// A Config tunes a server. The zero value is right for a lab.
type Config struct {
	Queue int // requests that may wait for a commit; 0: 1024. Beyond it they are dropped, and the clients ask again
}

const defaultQueue = 1024

// Deps are what a server works with. All but FromDisk are required.
type Deps struct {
	Table      func() *Table
	Book       *leases.Book
	Events     event.Recorder
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
	Circles    *bootloop.Guard                             // shared with who serves scripts
	Listen     func(iface string) (*segment.Socket, error) // segment.Listen, or a test's
	FromDisk   func(*lab.Host) bool                        // whether it starts from its own disk now, for local_boot: none; nil: never
}

// A Server answers DHCP on the interfaces of its table.
type Server struct {
	deps   Deps
	log    *slog.Logger
	m      *metrics
	jobs   chan *job
	free   *sync.Pool // of jobs
	quiet  *limiter
	ration *ration
	asides *asides
	prober *segment.Prober
	probes *probeBudget

	squatters squatters

	mu    sync.Mutex
	lines map[string]*line
	run   func(*line) // starts a line while Serve runs; nil else
}

// A line is one interface that is served.
type line struct {
	iface string
	sock  *segment.Socket
	stop  context.CancelFunc // nil until it runs
}

// New returns a server that has no sockets yet: see Stage.
func New(cfg Config, deps Deps) *Server {
	for name, missing := range map[string]bool{
		"Table": deps.Table == nil, "Book": deps.Book == nil, "Events": deps.Events == nil,
		"Log": deps.Log == nil, "Circles": deps.Circles == nil, "Registerer": deps.Registerer == nil, "Now": deps.Now == nil, "Listen": deps.Listen == nil,
	} {
		if missing {
			panic("dhcpd: Deps." + name + " is nil")
		}
	}
	if cfg.Queue <= 0 {
		cfg.Queue = defaultQueue
	}
	s := &Server{
		deps: deps, log: deps.Log.With("server", "dhcpd"), jobs: make(chan *job, cfg.Queue), free: newJobs(),
		quiet: newLimiter(deps.Now), ration: newRation(deps.Now), asides: newAsides(deps.Now), lines: map[string]*line{},
	}
	s.prober = segment.NewProber(segment.ProberConfig{Probes: maxProbes}, segment.ProberDeps{
		Now: deps.Now, Wanted: func(a netip.Addr) bool { return deps.Table().gives(a) },
	})
	s.probes = newProbeBudget(deps.Now)
	s.m = newMetrics(deps.Registerer, s)
	return s
}

// A Staged is a set of sockets that is open but not yet served. Either Commit or Discard must follow.
type Staged struct {
	server *Server
	opened map[string]*segment.Socket // nil: of an interface that is not there yet
	wanted []string
	pools  []*leases.Pool
}

// Stage opens the sockets that t needs and the server does not have. An interface that is not there, such as a bridge that
// somebody else makes later, is waited for. An error wraps syscall.EADDRINUSE where another
// program holds a port; then nothing stays open.
func (s *Server) Stage(t *Table) (*Staged, error) {
	st := &Staged{server: s, opened: map[string]*segment.Socket{}, wanted: t.Interfaces(), pools: t.ranges()}
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
	s.deps.Book.Serve(st.pools...)
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
	keeper := segment.Keeper{Listen: s.deps.Listen, Log: s.log}
	s.mu.Lock()
	s.run = func(l *line) {
		var lineCtx context.Context
		lineCtx, l.stop = context.WithCancel(ctx)
		wg.Go(func() { keeper.Keep(lineCtx, l.iface, l.sock, s.serveSocket) })
	}
	for _, l := range s.lines {
		s.run(l)
	}
	s.mu.Unlock()
	wg.Go(func() { s.commitLoop(ctx) })
	wg.Go(func() { s.prober.Run(ctx) })
	wg.Go(func() { s.surveyLoop(ctx) })
	wg.Go(func() { s.reclaimLoop(ctx) })
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
	// batch is how many packets are taken, and answered, with one system call. More gain nothing measurable.
	batch = 16
)

// serveSocket serves one life of an interface, until ctx ends and the socket is closed.
func (s *Server) serveSocket(ctx context.Context, sock *segment.Socket) {
	var wg sync.WaitGroup
	wg.Go(func() { s.receive(ctx, sock, segment.PortServer, batch) })
	wg.Go(func() { s.receive(ctx, sock, segment.PortPXE, 1) })
	wg.Go(func() { s.advertise(ctx, sock) })
	wg.Go(func() { s.prober.Serve(ctx, sock) })
	wg.Go(func() { segment.Watch(ctx, sock, s.isOurServer, s.rogue) })
	wg.Wait()
}

// advertise answers router solicitations.
func (s *Server) advertise(ctx context.Context, sock *segment.Socket) {
	iface := sock.Interface()
	wanted := func(m lab.MAC) bool { return s.deps.Table().advertises(iface, m) }
	err := segment.Advertise(ctx, sock, wanted, func(err error) {
		if err == nil {
			s.m.advertisements.Inc()
		}
	})
	if err != nil {
		s.log.Info("iPXE may boot 13 s slower", keyIface, iface, keyErr, err)
	}
}

// receive is the packet loop of one port. It answers in place; only what must first be durable is handed on.
func (s *Server) receive(ctx context.Context, sock *segment.Socket, port uint16, batch int) {
	in, out := segment.NewInbox(batch), segment.NewOutbox(batch, s.sendFailed)
	packet := &inbound{iface: sock.Interface(), port: port, sock: sock, out: out}
	wait := minBackoff
	for {
		n, err := sock.Receive(port, in)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// A NIC that flaps gives ENETDOWN; the socket is good again when the NIC is.
			s.log.Warn("read from interface", keyIface, sock.Interface(), keyErr, err)
			if pause.For(ctx, wait) != nil {
				return
			}
			wait = min(2*wait, maxBackoff)
			continue
		}
		wait = minBackoff
		for i := range n {
			p := in.At(i)
			packet.from, packet.local, packet.data = p.From, p.Local, p.Data
			s.handle(packet)
		}
		out.Flush()
	}
}

// sendFailed counts a reply that the kernel refused.
func (s *Server) sendFailed(_ *segment.Socket, d segment.Dest, message []byte, err error) {
	s.m.dropped[dropSend].Inc()
	s.log.Warn("send reply", keyAddr, d.To, keyErr, err)
}
