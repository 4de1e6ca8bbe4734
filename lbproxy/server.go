package lbproxy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/observe/event"

	"github.com/prometheus/client_golang/prometheus"
)

// Keys of log attributes.
const (
	keyServer  = "server"
	keyAddr    = "addr"
	keyErr     = "err"
	keyBackend = "backend"
)

// A Config tunes a Server. The zero Config is the documented default.
type Config struct {
	Drain    time.Duration // how long connections may go on once Serve's context ended; 0: 10s
	Peek     time.Duration // how long a client may take to send the first bytes that tell balancers apart; 0: 5s
	Hedge    time.Duration // without an answer after this long another backend is tried beside the first; 0: 100ms
	Ejection time.Duration // how long a backend that nothing checks stays down after refused connections; 0: 10s
	Sweep    time.Duration // how often long connections are looked at for idleness and dead peers; 0: 5s
	Pending  int           // connections that may wait for their first bytes at one time; 0: 4096

	Connections int // of all balancers at one time; 0: as many as a third of the process's descriptors is enough for
}

func (c Config) withDefaults() Config {
	c.Drain = cmp.Or(c.Drain, 10*time.Second)
	c.Peek = cmp.Or(c.Peek, 5*time.Second)
	c.Hedge = cmp.Or(c.Hedge, 100*time.Millisecond)
	c.Ejection = cmp.Or(c.Ejection, 10*time.Second)
	c.Sweep = cmp.Or(c.Sweep, 5*time.Second)
	c.Pending = cmp.Or(c.Pending, 4096)
	c.Connections = cmp.Or(c.Connections, maxConnections())
	return c
}

// Deps are what a Server needs. Table, Events, Log, Registerer and Now are required.
type Deps struct {
	Table      func() *Table // asked once, by Serve, where nothing was committed before
	Events     event.Recorder
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time

	// Listen opens a listener; nil: ListenFree. Its connections are TCP, else they are not spliced and never idle.
	Listen func(context.Context, netip.AddrPort) (net.Listener, error)
	// Dial connects to a backend; nil: TCP.
	Dial func(context.Context, netip.AddrPort) (net.Conn, error)
	// Drains keeps drains over restarts; nil: they are forgotten.
	Drains Drains
}

func (d Deps) check() {
	switch {
	case d.Table == nil:
		panic("lbproxy: Deps.Table is nil")
	case d.Events == nil:
		panic("lbproxy: Deps.Events is nil")
	case d.Log == nil:
		panic("lbproxy: Deps.Log is nil")
	case d.Registerer == nil:
		panic("lbproxy: Deps.Registerer is nil")
	case d.Now == nil:
		panic("lbproxy: Deps.Now is nil")
	}
}

// A Server balances. Its methods are safe for concurrent use.
type Server struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *metrics
	web     *web
	probes  chan struct{} // a token for each check under way

	live     atomic.Pointer[live] // the table in force; never nil
	sessions sessions
	room     room
	pending  atomic.Int64  // connections that wait for their first bytes
	changed  chan struct{} // a table was committed
	conns    sync.WaitGroup

	mu        sync.Mutex
	committed bool // some table was
	staged    bool // a Staged is neither committed nor discarded
	listeners map[netip.AddrPort]*listener
	pools     map[string]*pool
	members   map[memberKey]*member
	drained   map[memberKey]bool
	healths   map[healthKey]*Health
}

// maxProbes is how many checks run at one time.
const maxProbes = 256

// New returns a server that listens nowhere yet. The error is a metric that is registered already.
func New(cfg Config, deps Deps) (*Server, error) {
	deps.check()
	m, err := newMetrics(deps.Registerer)
	if err != nil {
		return nil, err
	}
	if deps.Listen == nil {
		deps.Listen = ListenFree
	}
	if deps.Dial == nil {
		deps.Dial = dialTCP
	}
	s := &Server{
		cfg: cfg.withDefaults(), deps: deps, log: deps.Log.With(keyServer, "lbproxy"), metrics: m,
		probes:    make(chan struct{}, maxProbes),
		changed:   make(chan struct{}, 1),
		listeners: make(map[netip.AddrPort]*listener),
		pools:     make(map[string]*pool),
		members:   make(map[memberKey]*member),
		drained:   make(map[memberKey]bool),
		healths:   make(map[healthKey]*Health),
	}
	s.room.most = s.cfg.Connections
	m.most.Set(float64(s.room.most))
	s.live.Store(&live{})
	s.web = newWeb(s)
	return s, nil
}

// Serve accepts connections and checks backends until ctx ends, then closes the listeners, lets connections go on for up
// to Config.Drain, breaks the rest and returns nil. It returns an error only before it starts: from the drains, or from
// the listeners where no table was committed before. A Server serves once.
func (s *Server) Serve(ctx context.Context) error {
	if err := s.loadDrains(ctx); err != nil {
		return err
	}
	if err := s.first(); err != nil {
		return err
	}
	var tasks, web sync.WaitGroup
	tasks.Go(func() { s.sweep(ctx) })
	web.Go(s.web.serve)
	running := newRunning(s, &tasks)
	for ctx.Err() == nil {
		running.reconcile(ctx)
		select {
		case <-s.changed:
		case <-ctx.Done():
		}
	}
	s.closeListeners()
	running.stop()
	tasks.Wait() // nobody accepts any more, so that what drain waits for can only shrink
	s.drain()
	web.Wait()
	return nil
}

// first brings the daemon's table into force where no other is yet.
func (s *Server) first() error {
	s.mu.Lock()
	committed := s.committed
	s.mu.Unlock()
	if committed {
		return nil
	}
	staged, err := s.Stage(s.deps.Table())
	if err != nil {
		return err
	}
	staged.Commit()
	return nil
}

// drain waits for the connections, breaks those that outstay Config.Drain and waits for their goroutines.
func (s *Server) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Drain)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.web.shutdown(ctx)
		s.conns.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.sessions.abort()
	s.web.close()
	<-done
	s.web.handlers.Wait()
}

// running are the goroutines of Serve: one for each listener and one for each backend that is checked.
type running struct {
	s       *Server
	tasks   *sync.WaitGroup
	accepts map[*listener]bool
	watches map[*Health]context.CancelFunc
}

func newRunning(s *Server, tasks *sync.WaitGroup) *running {
	return &running{s: s, tasks: tasks, accepts: make(map[*listener]bool), watches: make(map[*Health]context.CancelFunc)}
}

// reconcile starts what the table in force has and stops what it has not. A listener stops by being closed.
func (r *running) reconcile(ctx context.Context) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	wanted := make(map[*listener]bool, len(r.s.listeners))
	for _, l := range r.s.listeners {
		wanted[l] = true
		if !r.accepts[l] {
			r.tasks.Go(func() { r.s.accept(ctx, l) })
		}
	}
	r.accepts = wanted
	checked := make(map[*Health]bool, len(r.s.healths))
	for _, h := range r.s.healths {
		checked[h] = true
		if r.watches[h] == nil {
			own, cancel := context.WithCancel(ctx)
			r.watches[h] = cancel
			r.tasks.Go(func() { r.s.watch(own, h) })
		}
	}
	for h, cancel := range r.watches {
		if !checked[h] {
			cancel()
			delete(r.watches, h)
		}
	}
}

func (r *running) stop() {
	for _, cancel := range r.watches {
		cancel()
	}
}

// announce turns a verdict into events and metrics of every balancer that has this backend.
func (s *Server) announce(h *Health, v verdict) {
	if v.condition == "" {
		return
	}
	kind := event.BackendUp
	if v.condition == Down {
		kind = event.BackendDown
	}
	for _, f := range s.live.Load().fronts {
		for i := range f.seats {
			seat := &f.seats[i]
			if seat.health != h {
				continue
			}
			s.gauge(f, seat)
			e := event.Event{Kind: kind, Addr: seat.Addr.Addr(), Host: seat.Host, Detail: f.Name + " " + seat.Addr.String(), Dur: v.dur}
			if v.condition == Down {
				e.Err = v.reason
			}
			s.deps.Events.Record(e)
		}
	}
}

// gauge sets the metric of one seat.
func (s *Server) gauge(f *front, seat *seat) {
	up := 0.0
	if seat.open() {
		up = 1
	}
	s.metrics.up.WithLabelValues(f.Name, seat.Label).Set(up)
}

// reject counts a connection or request that is turned away.
func (s *Server) reject(balancer string, why reason, client netip.AddrPort, err error) {
	s.metrics.rejected.WithLabelValues(balancer, string(why)).Inc()
	s.log.Debug("turned away", "balancer", balancer, "reason", string(why), keyAddr, client, keyErr, errText(err))
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// isClosed reports whether err says that we closed the connection or listener ourselves.
func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }
