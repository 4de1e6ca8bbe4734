package dhcpd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/host/required"
	"github.com/bootlab/bootlab/internal/host/socket/datagram"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/panics"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// maxQueued is how many requests may wait for a commit. More are dropped, and the clients ask again.
const maxQueued = 1024

// Deps are what a server works with. All but FromDisk are required.
type Deps struct {
	Table      func() *Table
	Book       *leases.Book
	Events     event.Recorder
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Panics     *panics.Server // counts contained panics; nil: they are only logged
	Now        func() time.Time
	Loops      *bootloop.Detector                          // shared with the boot service
	Listen     func(iface string) (*segment.Socket, error) // segment.Listen, or a test's
	Report     func(iface string, err error)               // called with the state of an interface, twice a second and when interfaces change: nil: served, else why not
	FromDisk   func(*lab.Host, lab.MAC) bool               // whether the host is to boot its own disk by that NIC now, for local_boot: none; nil: never
}

// A Server answers DHCP on the interfaces of its table.
type Server struct {
	deps     Deps
	log      *slog.Logger
	m        *metrics
	commits  chan *pending
	changes  []*leases.Change // of the batch that is being committed
	stored   storeErrors
	releases pendingReleases
	// unstored are of commits those that may be answered without the disk.
	unstored chan *pending
	free     sync.Pool // of *pending

	prober           *segment.Prober
	probes           *rate.Limiter // of new clients
	declines         *rate.Limiter // of clients whose DHCPDECLINE changes nothing
	unprobed         atomic.Uint64 // addresses offered without waiting for a probe
	poolConflicts    poolConflicts
	rogues           observations[rogueKey, struct{}]
	addressConflicts observations[netip.Addr, otherUser] // looked up for each DHCPACK
	manyAddresses    observations[lab.MAC, struct{}]     // machines that answer ARP at many addresses of a full pool
	started          time.Time
	quarantine       *declineQuarantine
	floods           *floods
	outside          rate.Sometimes // logs of machines in no network
	panics           *panics.Server

	mu         sync.Mutex
	interfaces map[string]*served
	loops      map[*loop]struct{} // that run
	start      func(*served)      // serves an interface while Serve runs; nil else
}

// A served interface has an open socket, unless the interface does not exist yet.
type served struct {
	iface string
	sock  *segment.Socket
	stop  context.CancelFunc // nil until it is served
	err   error              // as last reported; of Commit, then of KeepServing
}

// New returns a server without sockets: see Stage. The error is that its metrics cannot be registered.
func New(deps Deps) (*Server, error) {
	required.Fields(deps, "Panics", "FromDisk")
	s := &Server{
		deps: deps, started: deps.Now(), log: deps.Log.With("server", "dhcpd"), panics: cmp.Or(deps.Panics, panics.LogOnly(deps.Log, "dhcpd")),
		commits: make(chan *pending, maxQueued), unstored: make(chan *pending, maxQueued), free: sync.Pool{New: func() any { return new(pending) }},
		quarantine: newDeclineQuarantine(deps.Now), floods: newFloods(deps.Now),
		rogues: observations[rogueKey, struct{}]{keep: rogueFor, most: maxRogues}, addressConflicts: observations[netip.Addr, otherUser]{keep: conflictTime, most: maxAddressConflicts},
		manyAddresses: observations[lab.MAC, struct{}]{keep: conflictTime, most: maxRogues},
		probes:        rate.NewLimiter(probeRate, probeBurst), declines: rate.NewLimiter(probeRate, probeBurst),
		outside: rate.Sometimes{First: 1, Interval: noNetworkEvery}, interfaces: map[string]*served{}, loops: map[*loop]struct{}{},
	}
	s.prober = segment.NewProber(segment.ProberDeps{
		Now: deps.Now, Relevant: func(a netip.Addr) bool { return deps.Table().isPooled(a) }, Received: s.arpReceived, Ignored: s.claimsIgnored,
	})
	var err error
	s.m, err = newMetrics(deps.Registerer, s)
	return s, err
}

// A Staged is a set of sockets that are open but not yet served. Either Commit or Discard must follow.
type Staged struct {
	server *Server
	opened map[string]*segment.Socket // nil: the interface does not exist yet
	wanted []string
	pools  []*leases.Pool
}

// Stage opens the sockets that t needs and the server does not have. An interface that does not exist yet, such as a bridge
// that libvirt makes later, is served as soon as it exists. An error wraps syscall.EADDRINUSE where another program holds a
// port; then no socket stays open.
func (s *Server) Stage(t *Table) (*Staged, error) {
	st := &Staged{server: s, opened: map[string]*segment.Socket{}, wanted: t.Interfaces(), pools: t.Pools()}
	s.mu.Lock()
	have := slices.Collect(maps.Keys(s.interfaces))
	s.mu.Unlock()
	var errs []error
	for _, iface := range st.wanted {
		if slices.Contains(have, iface) {
			continue
		}
		sock, err := s.deps.Listen(iface)
		if err != nil && !errors.Is(err, syscall.ENODEV) {
			errs = append(errs, fmt.Errorf("%s: %w", on(iface), err))
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

// on names an interface for people; "" is the socket for packets of relays.
func on(iface string) string {
	if iface == "" {
		return "any interface, for relays"
	}
	return "interface " + iface
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

// Commit serves the new sockets, now or as soon as Serve runs, and closes those of interfaces that the table has no more.
func (st *Staged) Commit() {
	s := st.server
	s.deps.Book.Serve(st.pools...)
	s.mu.Lock()
	defer s.mu.Unlock()
	for iface, i := range s.interfaces {
		if !slices.Contains(st.wanted, iface) {
			i.close()
			delete(s.interfaces, iface)
		}
	}
	for iface, sock := range st.opened {
		i := &served{iface: iface, sock: sock}
		s.interfaces[iface] = i
		if sock == nil {
			s.report(i, segment.ErrNoInterface)
		} else {
			s.report(i, sock.Check())
		}
		if s.start != nil {
			s.start(i)
		}
	}
	st.opened = nil
}

// report passes the state of an interface on, and logs it when it changes.
func (s *Server) report(i *served, err error) {
	switch {
	case err != nil && (i.err == nil || i.err.Error() != err.Error()):
		s.log.Warn("interface is not served", keyIface, i.iface, keyErr, err)
	case err == nil && i.err != nil:
		s.log.Info("interface is served", keyIface, i.iface)
	}
	i.err = err
	s.deps.Report(i.iface, err)
}

// close ends the service of an interface. One that is served closes its socket itself, since it may have reopened it.
func (i *served) close() {
	if i.stop != nil {
		i.stop()
		return
	}
	if i.sock != nil {
		_ = i.sock.Close()
	}
}

// Serve answers on the committed sockets until ctx ends, then closes them and returns nil. It may be called once.
func (s *Server) Serve(ctx context.Context) error {
	var wg sync.WaitGroup
	s.mu.Lock()
	s.start = func(i *served) {
		var serving context.Context
		serving, i.stop = context.WithCancel(ctx)
		report := func(err error) { s.report(i, err) }
		wg.Go(func() { segment.KeepServing(serving, i.iface, i.sock, s.deps.Listen, report, s.log, s.serveSocket) })
	}
	for _, i := range s.interfaces {
		s.start(i)
	}
	s.mu.Unlock()
	wg.Go(func() { s.panics.Loop(ctx, func() { s.commitLoop(ctx) }) })
	wg.Go(func() { s.panics.Loop(ctx, func() { s.ackUnstoredLoop(ctx) }) })
	wg.Go(func() { s.panics.Loop(ctx, func() { s.prober.Run(ctx) }) })
	wg.Go(func() { s.panics.Loop(ctx, func() { s.probeAheadLoop(ctx) }) })
	wg.Go(func() { s.panics.Loop(ctx, func() { s.reclaimLoop(ctx) }) })
	wg.Go(func() { s.panics.Loop(ctx, func() { s.verifiedLoop(ctx) }) })
	wg.Go(func() { s.panics.Loop(ctx, func() { s.silentLoop(ctx) }) })
	<-ctx.Done()
	s.mu.Lock()
	s.start = nil
	for _, i := range s.interfaces {
		i.close()
	}
	clear(s.interfaces)
	s.mu.Unlock()
	wg.Wait()
	return nil
}

// serveSocket serves an interface until ctx ends and the socket is closed.
func (s *Server) serveSocket(ctx context.Context, sock *segment.Socket) {
	var wg sync.WaitGroup
	wg.Go(func() { s.panics.Loop(ctx, func() { s.receive(ctx, sock, portServer, receiveBatch) }) })
	wg.Go(func() { s.panics.Loop(ctx, func() { s.receive(ctx, sock, portPXE, 1) }) })
	wg.Go(func() { s.panics.Loop(ctx, func() { s.advertise(ctx, sock) }) })
	wg.Go(func() { s.panics.Loop(ctx, func() { s.prober.Serve(ctx, sock) }) })
	wg.Go(func() {
		s.panics.Loop(ctx, func() {
			segment.Watch(ctx, sock, func(id netip.Addr) bool { return s.deps.Table().ownAddress(id) }, s.rogueReplied)
		})
	})
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
		s.log.Info("router solicitations are not answered: iPXE may boot 13 s slower", keyIface, iface, keyErr, err)
	}
}

const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = time.Second / 2 // an interface that comes back is served at once
	// receiveBatch is how many packets are received, and answered, with one system call. More gain nothing measurable.
	receiveBatch = 16
	// receiveSpace is the longest message that is received whole; Ethernet carries 1472 bytes.
	receiveSpace = 2048
)

// receive is the packet loop of one port. It answers on its own goroutine; only a reply that must wait for a commit or a
// probe leaves it.
func (s *Server) receive(ctx context.Context, sock *segment.Socket, port uint16, batch int) {
	in, out := datagram.NewReceiver(batch, receiveSpace), segment.NewSender(batch, s.sendFailed)
	x := &exchange{iface: sock.Interface(), port: port, sock: sock, out: out}
	l, leave := s.enter(sock, port)
	defer leave()
	wait := minBackoff
	for {
		n, err := sock.Receive(port, in)
		if errors.Is(err, os.ErrDeadlineExceeded) { // Alive asks
			s.answerItself(x, l)
			continue
		}
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// A NIC that goes down gives ENETDOWN; the socket works again when the NIC is up.
			s.log.Warn("receive from interface", keyIface, sock.Interface(), keyErr, err)
			if pause.For(ctx, wait) != nil {
				return
			}
			wait = min(2*wait, maxBackoff)
			continue
		}
		wait = minBackoff
		for i := range n {
			m := in.Message(i)
			x.from, x.local = m.From, m.Local
			s.handle(x, m.Data)
		}
		out.Flush()
	}
}

// sendFailed counts a reply that the kernel refused.
func (s *Server) sendFailed(_ *segment.Socket, d segment.Dest, err error) {
	s.m.dropped[dropSend].Inc()
	s.log.Warn("send reply", keyAddr, d.To, keyErr, err)
}
