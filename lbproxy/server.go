package lbproxy

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/host/required"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/panics"
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
	Drain    time.Duration // how long connections may continue after Serve's context ends; 0: 10s
	Peek     time.Duration // time limit for the first bytes of a client, where routing needs them; 0: 5s
	Hedge    time.Duration // how long a backend may take to accept before the next is tried in parallel; 0: 100ms
	Ejection time.Duration // how long an unchecked backend stays down after failed connections; 0: 10s
	Sweep    time.Duration // interval of the test for idle connections and unresponsive peers; 0: 5s
	Unacked  time.Duration // how long a backend in HTTP mode may leave sent data unacknowledged (TCP_USER_TIMEOUT), except in uploads; 0: 15s
	Silence  time.Duration // how long a request may have no answer before its backend is probed; 0: 750ms
	Pending  int           // connections that may wait for their first bytes at one time; 0: 4096
	Waiting  int           // clients that may wait for a backend at one time, after the first has failed; 0: a sixteenth of Connections

	Connections int // of all balancers at one time, at two file descriptors each; 0: 4096
	// BackendConnections is how many connections to backends there may be beyond one for each connection of a client; 0: 4096.
	BackendConnections int
	Sessions           int // of all balancers of mode udp at one time, at one file descriptor each; 0: 4096
	Checks             int // health checks at one time; 0: 256

	Memory int64 // bytes that the process may use, for the limits of HTTP/2; 0: any number

	ACME string // folder of certificates from ACME servers and their accounts; empty: they are lost at the end
}

func (c Config) withDefaults() Config {
	c.Drain = cmp.Or(c.Drain, 10*time.Second)
	c.Peek = cmp.Or(c.Peek, 5*time.Second)
	c.Hedge = cmp.Or(c.Hedge, 100*time.Millisecond)
	c.Ejection = cmp.Or(c.Ejection, 10*time.Second)
	c.Sweep = cmp.Or(c.Sweep, 5*time.Second)
	c.Unacked = cmp.Or(c.Unacked, userTimeout)
	c.Silence = cmp.Or(c.Silence, 750*time.Millisecond)
	c.Pending = cmp.Or(c.Pending, 4096)
	c.Connections = cmp.Or(c.Connections, 4096)
	c.BackendConnections = cmp.Or(c.BackendConnections, 4096)
	c.Sessions = cmp.Or(c.Sessions, 4096)
	c.Checks = cmp.Or(c.Checks, 256)
	c.Memory = cmp.Or(c.Memory, math.MaxInt64)
	c.Waiting = cmp.Or(c.Waiting, max(c.Connections/16, 1))
	return c
}

// Deps are what a Server needs. Events, Log, Registerer and Now are required.
type Deps struct {
	Events     event.Recorder
	Log        *slog.Logger
	AccessLog  *slog.Logger // gets each line of the access log
	Registerer prometheus.Registerer
	Panics     *panics.Server // counts contained panics; nil: they are only logged
	Now        func() time.Time

	// Listen opens a listening socket, which the server closes; nil: ListenFree. In mode tcp connections
	// are TCP; in mode http others are not closed when idle.
	Listen func(context.Context, netip.AddrPort) (net.Listener, error)
	// ListenPacket opens a UDP socket, which the server closes; nil: ListenPacketFree.
	ListenPacket func(context.Context, netip.AddrPort) (PacketConn, error)
	// Dial connects to a backend; nil: TCP.
	Dial func(context.Context, netip.AddrPort) (net.Conn, error)
	// Addresses finds the addresses of backends that have a name or a lease; nil: these never get any.
	Addresses Addresses
	// Drains stores drains across restarts; nil: they are lost.
	Drains Drains
	// WasUp reports whether the backend of a balancer with that BackendStatus.Key was healthy before, also before a restart; nil: none was.
	WasUp func(balancer, key string) bool
	// RuntimeBackends stores what is set at run time across restarts; nil: it is lost.
	RuntimeBackends RuntimeBackends
}

// A Server balances connections. Its methods are safe for concurrent use.
type Server struct {
	cfg        Config
	deps       Deps
	log        *slog.Logger
	accessLog  *slog.Logger
	panics     *panics.Server
	metrics    *metrics
	http       *httpProxy
	udp        *udpProxy
	checkSlots chan struct{} // one token for each check in progress

	waiting chan struct{} // one token for each client that waits for a backend

	active   atomic.Pointer[activeTable] // never nil
	sessions sessions
	limit    *connlimit.Set // of all client connections
	slots    *backendSlots  // of connections to backends beyond one for each of limit
	logLimit rate.Sometimes
	faultLog rate.Sometimes
	pending  *connlimit.Set // connections that wait for their first bytes
	changed  chan struct{}  // a table was committed
	conns    sync.WaitGroup

	draining       atomic.Bool
	before, during atomic.Int64 // connections that were accepted before and during the drain
	pipes          pipePool
	loops          loops
	sweeps         heartbeat
	dialsDirect    bool // Deps.Dial is TCP
	workers        *workers

	changing   sync.Mutex // one change by an admin at a time, so that the store has what is in force
	announcing sync.Mutex // changes of health are recorded in their order

	mu             sync.Mutex
	staged         bool // a Staged is neither committed nor discarded
	sockets        map[netip.AddrPort]*listenSocket
	frontendStates map[string]*frontendState
	backendStates  map[backendKey]*backendState
	drained        map[backendKey]time.Time                     // since when
	runtime        map[string]map[netip.AddrPort]RuntimeBackend // by balancer
	superseded     []RuntimeBackend                             // by the lab file; to be deleted from the store
	healths        map[healthKey]*checkedHealth
	found          map[source]*found // addresses of backends that the lab file gives none
}

// containedDial returns dial, whose panics become errors: it is called on goroutines of net/http, too.
func containedDial(contain *panics.Server, dial func(context.Context, netip.AddrPort) (net.Conn, error)) func(context.Context, netip.AddrPort) (net.Conn, error) {
	return func(ctx context.Context, to netip.AddrPort) (conn net.Conn, err error) {
		err = contain.Run(func() (err error) {
			conn, err = dial(ctx, to)
			return err
		})
		return conn, err
	}
}

// New returns a server that does not listen yet. The error is of a metric that is already registered.
func New(cfg Config, deps Deps) (*Server, error) {
	required.Fields(deps, "Panics", "Listen", "ListenPacket", "Dial", "Addresses", "Drains", "WasUp", "RuntimeBackends")
	m, err := newMetrics(deps.Registerer)
	if err != nil {
		return nil, err
	}
	if deps.Listen == nil {
		deps.Listen = ListenFree
	}
	if deps.ListenPacket == nil {
		deps.ListenPacket = func(ctx context.Context, addr netip.AddrPort) (PacketConn, error) { return ListenPacketFree(ctx, addr) }
	}
	direct := deps.Dial == nil
	if direct {
		deps.Dial = dialTCP
	}
	deps.Panics = cmp.Or(deps.Panics, panics.LogOnly(deps.Log, "lbproxy"))
	deps.Dial = containedDial(deps.Panics, deps.Dial)
	cfg = cfg.withDefaults()
	s := &Server{
		cfg: cfg, deps: deps, log: deps.Log.With(keyServer, "lbproxy"), accessLog: deps.AccessLog.With(keyServer, "lbproxy"), metrics: m, panics: deps.Panics,
		checkSlots:     make(chan struct{}, cfg.Checks),
		pipes:          pipePool{most: min(max(cfg.Connections/32, 1), pipesMost)},
		waiting:        make(chan struct{}, cfg.Waiting),
		changed:        make(chan struct{}, 1),
		sockets:        make(map[netip.AddrPort]*listenSocket),
		frontendStates: make(map[string]*frontendState),
		backendStates:  make(map[backendKey]*backendState),
		drained:        make(map[backendKey]time.Time),
		runtime:        make(map[string]map[netip.AddrPort]RuntimeBackend),
		healths:        make(map[healthKey]*checkedHealth),
	}
	s.limit = connlimit.New(connlimit.Config{Max: s.cfg.Connections, Shared: true})
	s.slots = newBackendSlots(s.cfg.BackendConnections)
	// Of connections that wait for their first bytes, the client with the most loses its oldest.
	s.pending = connlimit.New(connlimit.Config{Max: s.cfg.Pending})
	s.logLimit.Interval, s.faultLog.Interval = time.Minute, time.Minute
	m.limit.Set(float64(s.cfg.Connections))
	s.active.Store(&activeTable{})
	s.workers = &workers{tasks: make(chan func()), waiting: make(chan struct{}, workersIdle), closed: make(chan struct{})}
	s.loops.handle = s.handle
	s.dialsDirect = direct
	s.http = newHTTPProxy(s)
	s.udp = newUDPProxy(s)
	return s, nil
}

// Serve accepts connections and checks backends until ctx ends. Then it drains: it waits up to Config.Drain for the
// connections that are open, accepts others meanwhile, closes the sockets, aborts what is left and returns nil. An error comes only at the
// start, from the stores of Deps. A Server serves once.
func (s *Server) Serve(ctx context.Context) error {
	if err := s.loadDrains(ctx); err != nil {
		return err
	}
	if err := s.loadRuntime(ctx); err != nil {
		return err
	}
	var tasks, http sync.WaitGroup
	accepting, stopAccepting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAccepting()
	handling, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	tasks.Go(func() { s.panics.Loop(accepting, func() { s.sweep(accepting) }) })
	tasks.Go(func() { s.panics.Loop(accepting, func() { s.watchAnswers(accepting) }) })
	tasks.Go(func() { s.panics.Loop(accepting, func() { s.udp.run(accepting) }) })
	tasks.Go(func() { s.panics.Loop(accepting, func() { s.lookUp(accepting) }) })
	http.Go(s.http.serve)
	running := &running{s: s, tasks: &tasks, handling: handling, checks: make(map[*checkedHealth]context.CancelFunc)}
	for ctx.Err() == nil {
		running.reconcile(accepting)
		tasks.Go(func() { defer s.panics.Contain(); s.forgetSuperseded(ctx) }) // the disk may hang
		select {
		case <-s.changed:
		case <-ctx.Done():
		}
	}
	end := time.Now().Add(s.cfg.Drain)
	s.acceptUntilDrained(end)
	s.closeSockets()
	stopAccepting()
	for _, cancel := range running.checks {
		cancel()
	}
	tasks.Wait() // nothing accepts any more, so the number of connections can only fall
	s.drain(end, abort)
	s.loops.close()
	close(s.workers.closed) // ends the goroutines that wait, now and later
	http.Wait()
	return nil
}

// lastConnections is how long the connections accepted while draining have at the end of the drain, when none is accepted
// any more.
const lastConnections = time.Second

// acceptUntilDrained waits for the connections that are open, but not to the end of the drain.
func (s *Server) acceptUntilDrained(end time.Time) {
	s.draining.Store(true)
	s.http.closeIdle()
	ctx, cancel := context.WithDeadline(context.Background(), end.Add(-min(lastConnections, s.cfg.Drain/4)))
	defer cancel()
	for s.before.Load() > 0 && pause.For(ctx, 10*time.Millisecond) == nil {
	}
}

// drain waits for the connections, aborts the rest and waits for their goroutines.
func (s *Server) drain(end time.Time, abort context.CancelFunc) {
	if last := time.Now().Add(lastConnections); last.Before(end) {
		end = last // those that were open before are gone
	}
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.http.shutdown(ctx)
		s.conns.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	abort()
	s.sessions.abort()
	s.http.close()
	<-done
	s.pipes.close()
}

// running are the goroutines of Serve: one accepts on each socket, one checks each backend.
type running struct {
	s        *Server
	tasks    *sync.WaitGroup
	handling context.Context // of the connections
	accept   map[*listenSocket]bool
	checks   map[*checkedHealth]context.CancelFunc
}

// reconcile starts the goroutines that the active table needs and stops the others. A socket's ends when it is closed.
func (r *running) reconcile(ctx context.Context) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	sockets := make(map[*listenSocket]bool, len(r.s.sockets))
	for _, sock := range r.s.sockets {
		sockets[sock] = true
		if !r.accept[sock] {
			r.tasks.Go(func() { r.s.panics.Loop(ctx, func() { r.s.accept(ctx, r.handling, sock) }) })
		}
	}
	r.accept = sockets
	wanted := make(map[*checkedHealth]bool, len(r.s.healths))
	for _, h := range r.s.healths {
		wanted[h] = true
		if r.checks[h] == nil {
			own, cancel := context.WithCancel(ctx)
			r.checks[h] = cancel
			r.tasks.Go(func() { r.s.panics.Loop(own, func() { r.s.checkLoop(own, h) }) })
		}
	}
	for h, cancel := range r.checks {
		if !wanted[h] {
			cancel()
			delete(r.checks, h)
		}
	}
}

// work calls f on a goroutine that the end of Serve waits for.
func (s *Server) work(f func()) {
	s.conns.Add(1)
	s.workers.run(func() {
		defer s.conns.Done()
		f()
	})
}

// reject counts and logs a connection or request that is rejected.
func (s *Server) reject(balancer string, why reason, client netip.AddrPort, err error) {
	s.metrics.rejected.WithLabelValues(balancer, string(why)).Inc()
	text := ""
	if err != nil {
		text = err.Error()
	}
	s.log.Debug("rejected connection", "balancer", balancer, "reason", string(why), keyAddr, client, keyErr, text)
}

// workersIdle is how many goroutines wait for the next function.
const workersIdle = 128

// workers run functions on goroutines that are kept for the next one: the stack of a new goroutine grows, by copying, until it can
// connect to a backend, which took a short connection a tenth of its CPU time.
type workers struct {
	tasks   chan func()
	waiting chan struct{} // one value for each goroutine that waits
	closed  chan struct{}
}

// run calls f on a goroutine that waits, else on a new one.
func (w *workers) run(f func()) {
	select {
	case w.tasks <- f:
	default:
		go w.work(f)
	}
}

func (w *workers) work(f func()) {
	for {
		f()
		select {
		case w.waiting <- struct{}{}:
		default:
			return // enough wait
		}
		select {
		case f = <-w.tasks:
			<-w.waiting
		case <-w.closed:
			return
		}
	}
}
