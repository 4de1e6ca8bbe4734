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
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/host/datagram"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A Config tunes a server. The zero Config is what the documentation says.
type Config struct {
	Timeout      time.Duration // first wait for an answer, unless the client asks for another; 1 s
	Retries      int           // how often a packet is sent again before the client counts as gone; 5
	MaxTransfers int           // at the same time; beyond, who never answered makes room, or the request is dropped; 1024
	MaxWindow    int           // most packets before an ACK (RFC 7440), whatever is asked for; 64
	Drain        time.Duration // how long transfers may go on once the server is to stop; 10 s
	SinglePort   bool          // answer from the port that was asked, not from one for each transfer: for NAT and containers
}

func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = time.Second
	}
	if c.Retries <= 0 {
		c.Retries = 5
	}
	if c.MaxTransfers <= 0 {
		c.MaxTransfers = 1024
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
	// MACOf returns the NIC that has addr by lease or reservation; false: nobody does.
	MACOf(addr netip.Addr) (lab.MAC, bool)
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

	mu     sync.Mutex
	active map[netip.AddrPort]*transfer
	full   struct { // when there was no room last, and for whom
		from netip.Addr
		at   time.Time
	}
	fileCache fileCache
	running   atomic.Int32 // with those that were replaced but have not ended yet; changes with mu held
	wg        sync.WaitGroup
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
		fileCache: fileCache{files: map[fileID]*cachedFile{}},
	}, nil
}

// readPause is how long the server waits after a read error, so that one that stays does not keep a CPU busy.
const readPause = 10 * time.Millisecond

// requestBuffer is how many bytes of requests may wait in the kernel, if it allows that: a rack that is switched on asks at once.
const requestBuffer = 1 << 20

// Serve answers requests that arrive at conn until ctx ends, lets transfers under way finish for a while, and returns
// nil. conn stays the caller's to close. A closed conn is an error.
func (s *Server) Serve(ctx context.Context, conn *net.UDPConn) error {
	_ = conn.SetReadBuffer(requestBuffer)
	if s.cfg.SinglePort {
		_ = allowFragments(conn)
	}
	// Transfers outlive ctx until they are done or the drain is over.
	work, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	err := s.listen(ctx, conn, func(p packet) { s.take(work, p) })
	s.drain(abort, conn)
	return err
}

// requestBatch is how many packets the server takes from that port with one system call.
const requestBatch = 16

// A packet is what came to the port that all clients know. Its bytes are good until the next one comes.
type packet struct {
	conn   *net.UDPConn
	bytes  []byte
	client netip.AddrPort
	local  netip.Addr // that it was sent to; invalid where the kernel did not tell
}

// listen hands every packet to take until ctx ends, which is no error. What is read is handed on even then; once listen has
// returned, conn's deadline is another's to set.
func (s *Server) listen(ctx context.Context, conn *net.UDPConn, take func(packet)) error {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = datagram.ReceiveDestination(raw)
	}
	if err != nil {
		return fmt.Errorf("serve tftp on %s: %w", conn.LocalAddr(), err)
	}
	hushed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(hushed)
		_ = conn.SetReadDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-hushed
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
			s.log.Warn("read request", "err", err)
			_ = pause.For(ctx, readPause)
			continue
		}
		for i := range n {
			m := in.Message(i)
			client := netip.AddrPortFrom(m.From.Addr().Unmap(), m.From.Port())
			take(packet{conn: conn, bytes: m.Data, client: client, local: m.Local})
		}
	}
}

// drain waits for the transfers, and ends them once that takes too long.
func (s *Server) drain(abort context.CancelCauseFunc, conn *net.UDPConn) {
	over := time.AfterFunc(s.cfg.Drain, func() { abort(errStopping) })
	if s.cfg.SinglePort {
		defer s.receiveReplies(conn)()
	}
	s.wg.Wait()
	over.Stop()
	abort(errStopping)
}

// receiveReplies goes on to hand transfers what their clients send to the shared port, but takes up no request, until the function that
// it returns is called.
func (s *Server) receiveReplies(conn *net.UDPConn) func() {
	ctx, cancel := context.WithCancel(context.Background())
	_ = conn.SetReadDeadline(time.Time{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = s.listen(ctx, conn, func(p packet) { // a closed conn was told already
			if !isRequest(p.bytes) {
				s.deliver(p)
			}
		})
	})
	return func() { cancel(); wg.Wait() }
}
