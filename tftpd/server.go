package tftpd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/host/client/connlimit"
	"github.com/bootlab/bootlab/internal/host/link/neighbour"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/host/required"
	"github.com/bootlab/bootlab/internal/host/socket/datagram"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/panics"
)

// A Config tunes a server. The zero Config is the documented default.
type Config struct {
	Timeout      time.Duration // first wait for an answer, unless the client asks for another; 1 s
	Retries      int           // how often a packet is sent again before the transfer fails; 5
	Unanswered   int           // the same for a client that never answered, whose address may be forged; 2, but at most Retries
	MaxTransfers int           // at the same time; beyond that one is evicted, or the request dropped; 1024
	MaxWindow    int           // most packets before an ACK (RFC 7440), whatever the client asks for; 64
	Drain        time.Duration // how long transfers may go on once the server is stopped; 10 s
	SinglePort   bool          // answer from the well-known port, not from one for each transfer: for NAT and containers
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, time.Second)
	c.Retries = cmp.Or(c.Retries, 5)
	c.Unanswered = min(cmp.Or(c.Unanswered, 2), c.Retries)
	c.MaxTransfers = cmp.Or(c.MaxTransfers, 1024)
	c.MaxWindow = min(cmp.Or(c.MaxWindow, maxSegments), maxSegments)
	c.Drain = cmp.Or(c.Drain, 10*time.Second)
	return c
}

// Scripts renders boot scripts.
type Scripts interface {
	// Script returns the script of that name for the machine mac, which asks from that address and port. It records the events of what
	// it refused. A *boot.Refusal has the status that chooses the ERROR code. Received is called on the script once the client has
	// acknowledged it; a refusal with the status 403 is that another machine may have asked for it.
	Script(ctx context.Context, mac lab.MAC, from netip.AddrPort, name string) (*boot.Script, error)
}

// Leases knows which machine has an address.
type Leases interface {
	// MACOf returns the NIC that has addr by lease or by a reservation of l; false if there is none.
	MACOf(l *lab.Lab, addr netip.Addr) (lab.MAC, bool)
}

// Senders knows which machines send requests.
type Senders interface {
	// Requester returns who sent this request from an address and port, after the time since: the machine that gets the answers (Own) or
	// another one (Foreign), as far as it is known. It may take half a second.
	Requester(from netip.AddrPort, request string, since time.Time) (neighbour.User, error)
}

// Deps are what a Server needs. All are required.
type Deps struct {
	Table      func() *Table         // the table in force
	Firmware   fs.FS                 // network boot programs, by name
	Scripts    Scripts               // renders boot.ipxe, autoexec.ipxe and grub.cfg
	Leases     Leases                // for names without a MAC
	Senders    Senders               // of requests from the address and port of a transfer in progress
	Events     event.Recorder        // tftp_served, tftp_failed, tftp_refused, tftp_probe
	Log        *slog.Logger          // for what belongs to no boot
	Registerer prometheus.Registerer // of the metrics
	Panics     *panics.Server        // counts contained panics; nil: they are only logged
}

// A Server serves files by TFTP, read-only.
type Server struct {
	cfg    Config
	deps   Deps
	log    *slog.Logger
	stats  *metrics
	panics *panics.Server
	cache  fileCache
	slots  *connlimit.Set // of transfers
	full   fullness

	mu      sync.Mutex
	active  map[netip.AddrPort]*transfer
	repeats map[repeat]struct{} // whose senders are being looked up
	running atomic.Int32        // with those that were replaced or evicted and have not ended yet; changed with mu held
}

// New returns a server. It panics if a dependency is nil.
func New(cfg Config, deps Deps) (*Server, error) {
	required.Fields(deps, "Panics")
	m, err := newMetrics(deps.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register metrics of tftpd: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Server{
		cfg: cfg, deps: deps, log: deps.Log.With("server", "tftpd"), stats: m, panics: cmp.Or(deps.Panics, panics.LogOnly(deps.Log, "tftpd")),
		active: map[netip.AddrPort]*transfer{}, repeats: map[repeat]struct{}{},
		cache: fileCache{files: map[fileID]*cachedFile{}},
		slots: connlimit.New(connlimit.Config{Max: cfg.MaxTransfers, Grace: cfg.Timeout, Patience: 5 * cfg.Timeout, MinRate: minRate}),
		full:  fullness{reports: make(chan event.Event, maxReports)},
	}, nil
}

const (
	// requestBatch is how many packets one system call receives.
	requestBatch = 16
	// readPause is how long the server waits after a read error, so that one that stays does not keep a CPU busy.
	readPause = 10 * time.Millisecond
	// minRate is how many bytes a second a client must take to keep its only transfer while others find no slot. A round trip of 80 ms
	// in lock-step leaves 6 KiB.
	minRate = 1 << 10
)

// Serve answers requests that arrive at conn until ctx ends, lets transfers in progress finish for a while, and returns nil.
// It does not close conn. A closed conn is an error. It may be called once for each of several sockets.
func (s *Server) Serve(ctx context.Context, conn *net.UDPConn) error {
	if s.cfg.SinglePort {
		_ = allowFragments(conn)
	}
	// Transfers outlive ctx until they end or the drain is over.
	transfers, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer s.reportDropped(ctx)()
	var running sync.WaitGroup
	err := s.receive(ctx, conn, func(p packet) {
		p.transfers = &running
		s.handlePacket(transfers, p)
	})
	s.drain(abort, conn, &running)
	return err
}

// A packet is one that arrived at the well-known port. Its data holds until the next one is received.
type packet struct {
	conn   syscall.RawConn
	data   []byte
	client netip.AddrPort
	local  netip.Addr // that it was sent to; invalid: unknown
	table  *Table     // in force when it arrived

	transfers *sync.WaitGroup // of the socket that it arrived at
}

// receive passes every packet to handle until ctx ends, which is no error. A packet that was read before is handled even then.
// Once receive has returned, the caller may set conn's deadline.
func (s *Server) receive(ctx context.Context, conn *net.UDPConn, handle func(packet)) error {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = datagram.Prepare(raw)
	}
	if err != nil {
		return fmt.Errorf("serve tftp on %s: %w", conn.LocalAddr(), err)
	}
	deadlineSet := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(deadlineSet)
		_ = conn.SetReadDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-deadlineSet
		}
	}()
	in := datagram.NewReceiver(requestBatch, maxRequest)
	for {
		n, err := in.Receive(raw)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("serve tftp on %s: %w", conn.LocalAddr(), err)
		case err != nil:
			s.log.Warn("receive request", "addr", conn.LocalAddr(), "err", err)
			_ = pause.For(ctx, readPause)
			continue
		}
		for i := range n {
			m := in.Message(i)
			client := netip.AddrPortFrom(m.From.Addr().Unmap(), m.From.Port())
			func() {
				defer s.panics.Contain()
				handle(packet{conn: raw, data: m.Data, client: client, local: m.Local})
			}()
		}
	}
}

// drain waits for the transfers of a socket, and aborts those that take longer than the drain.
func (s *Server) drain(abort context.CancelCauseFunc, conn *net.UDPConn, running *sync.WaitGroup) {
	over := time.AfterFunc(s.cfg.Drain, func() { abort(errStopping) })
	if s.cfg.SinglePort {
		defer s.receiveReplies(conn)()
	}
	running.Wait()
	over.Stop()
	abort(errStopping)
}

// receiveReplies goes on to deliver replies that arrive at the shared port, but starts no transfer, until the function that it
// returns is called.
func (s *Server) receiveReplies(conn *net.UDPConn) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	_ = conn.SetReadDeadline(time.Time{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = s.receive(ctx, conn, func(p packet) { // the error of a closed conn was returned by Serve
			if !isRequest(p.data) {
				s.deliver(p)
			}
		})
	})
	return func() { cancel(); wg.Wait() }
}
