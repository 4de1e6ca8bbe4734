package ports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/socket/freebind"
)

// An Endpoint is a port of a server of the appliance.
type Endpoint struct {
	Server  string
	Network string // tcp or udp
	Addr    netip.AddrPort
	Key     string // of the lab file, which it is from
}

// Open opens the endpoint, for what only closes it.
func (e Endpoint) Open(ctx context.Context) (io.Closer, error) {
	s, err := e.listen(ctx)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// A Socket is an open endpoint: it has one of TCP and UDP.
type Socket struct {
	Endpoint
	TCP  *net.TCPListener
	UDP  *net.UDPConn
	stop context.CancelFunc // nil until it is served
}

// Close closes the socket. Its error is nil.
func (s *Socket) Close() error {
	if s.TCP != nil {
		_ = s.TCP.Close()
	}
	if s.UDP != nil {
		_ = s.UDP.Close()
	}
	return nil
}

// A Config is what Open needs. All fields are required.
type Config struct {
	Lab         string                                 // the lab file
	AdminSocket string                                 // path of the socket of the command line
	Opened      func(server, socket string, err error) // called for each port that is open, err being nil
	Closed      func(server, socket string)            // called for each that is not any more
	Log         *slog.Logger
}

// Ports are the ports of the appliance itself, which follow the networks of the lab. Those of DHCP and the balancers are opened
// by their servers. They are safe for concurrent use.
type Ports struct {
	cfg  Config
	unix net.Listener // of the command line

	mu    sync.Mutex
	open  map[Endpoint]*Socket
	start map[string]func(*Socket) // of the servers that serve now
	err   string                   // of the last Changed
}

// CommandLine returns the socket of the command line.
func (s *Ports) CommandLine() net.Listener { return s.unix }

// Changed reports whether err is another than that of the call before.
func (s *Ports) Changed(err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.err
	s.err = text
	return before != text
}

// Failed returns why addresses are not listened on, as of the last Changed; empty: none.
func (s *Ports) Failed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Staged are sockets that are open but not yet served. Either Commit or Discard must follow.
type Staged struct {
	of     *Ports
	opened []*Socket
	wanted []Endpoint
}

// Stage opens the sockets of wanted that are not open yet: all, or none. The error of a port in use names who holds it.
func (s *Ports) Stage(ctx context.Context, wanted []Endpoint) (*Staged, error) {
	st, errs := s.openAll(ctx, wanted)
	if len(errs) > 0 {
		st.Discard()
		return nil, listenErrors(errs, s.cfg.Lab)
	}
	return st, nil
}

// openAll opens the sockets of wanted that are not open yet, and returns why some are not.
func (s *Ports) openAll(ctx context.Context, wanted []Endpoint) (st *Staged, errs []*listenError) {
	st = &Staged{of: s, wanted: wanted}
	for _, e := range wanted {
		s.mu.Lock()
		have := s.open[e] != nil
		s.mu.Unlock()
		if have {
			continue
		}
		switch sock, err := e.listen(ctx); {
		case err == nil:
			st.opened = append(st.opened, sock)
		case !e.withoutIPv6(err):
			errs = append(errs, &listenError{key: e.Key, network: e.Network, addr: e.Addr.String(), err: err})
		}
	}
	return st, errs
}

// Discard closes what Stage opened.
func (st *Staged) Discard() {
	for _, sock := range st.opened {
		_ = sock.Close()
	}
}

// Commit serves the new sockets, now or as soon as their server does, and closes those that are not wanted any more.
func (st *Staged) Commit() {
	s := st.of
	s.mu.Lock()
	defer s.mu.Unlock()
	for e, sock := range s.open {
		if !slices.Contains(st.wanted, e) {
			s.closeLocked(sock)
		}
	}
	for _, sock := range st.opened {
		s.open[sock.Endpoint] = sock
		s.cfg.Opened(sock.Server, sock.Addr.String(), nil)
		if start := s.start[sock.Server]; start != nil {
			start(sock)
		}
	}
}

// closeLocked ends the service of a socket, which then closes it.
func (s *Ports) closeLocked(sock *Socket) {
	delete(s.open, sock.Endpoint)
	if !s.listensLocked(sock) {
		s.cfg.Closed(sock.Server, sock.Addr.String())
	}
	if sock.stop != nil {
		sock.stop()
		return
	}
	_ = sock.Close()
}

// listensLocked reports whether the server has another socket on that address: DNS has two.
func (s *Ports) listensLocked(sock *Socket) bool {
	for e := range s.open {
		if e.Server == sock.Server && e.Addr == sock.Addr {
			return true
		}
	}
	return false
}

// Serve calls with for each socket of a server until ctx ends, now and for those that are opened later. with must return when its
// context ends; then the socket is closed. The first error of with ends all, and is returned.
func (s *Ports) Serve(ctx context.Context, server string, with func(context.Context, *Socket) error) error {
	g, ctx := errgroup.WithContext(ctx)
	s.mu.Lock()
	start := func(sock *Socket) {
		var serving context.Context
		serving, sock.stop = context.WithCancel(ctx)
		g.Go(func() error {
			defer func() { _ = sock.Close() }()
			return with(serving, sock)
		})
	}
	s.start[server] = start
	for _, sock := range s.open {
		if sock.Server == server {
			start(sock)
		}
	}
	s.mu.Unlock()
	g.Go(func() error {
		<-ctx.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.start, server) // before the group can be empty
		return nil
	})
	return g.Wait()
}

// Close closes what is open and not served.
func (s *Ports) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sock := range s.open {
		_ = sock.Close()
	}
	if s.unix != nil {
		_ = s.unix.Close()
	}
}

// listen opens a socket. No interface needs to have the address (IP_FREEBIND): it may come after the daemon, or be lost for a
// while, and the socket works again as soon as it is back.
func (e Endpoint) listen(ctx context.Context) (*Socket, error) {
	lc := net.ListenConfig{Control: freebind.Control}
	// Multipath TCP sockets do not support TCP_INFO.
	lc.SetMultipathTCP(false)
	var opened io.Closer
	var err error
	if e.Network == "udp" {
		opened, err = lc.ListenPacket(ctx, "udp", e.Addr.String())
	} else {
		opened, err = lc.Listen(ctx, "tcp", e.Addr.String())
	}
	if err != nil {
		return nil, err
	}
	s := &Socket{Endpoint: e}
	s.TCP, _ = opened.(*net.TCPListener)
	s.UDP, _ = opened.(*net.UDPConn)
	return s, nil
}

// withoutIPv6 reports whether err only says that this machine has no IPv6, whose loopback is not missed then.
func (e Endpoint) withoutIPv6(err error) bool {
	return e.Addr.Addr() == netip.IPv6Loopback() && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL))
}

// listenUnix opens the socket of the command line. A stale one is replaced; one that answers belongs to another daemon.
func listenUnix(ctx context.Context, path string) (net.Listener, *listenError) {
	refused := func(err error) (net.Listener, *listenError) {
		return nil, &listenError{key: adminSocketKey, err: err}
	}
	var d net.Dialer
	if c, err := d.DialContext(ctx, "unix", path); err == nil {
		defer func() { _ = c.Close() }()
		_, inUse := refused(fmt.Errorf("another bootlab is running at %s: stop it first", path))
		inUse.pid, inUse.stopping = peer(c), stoppingSince(ctx, path)
		return nil, inUse
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if errors.Is(err, fs.ErrPermission) {
		return refused(fmt.Errorf("%w: start it as root, or take a folder that this user may write to", err))
	}
	if err != nil {
		return refused(err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		_ = l.Close()
		return refused(err)
	}
	return l, nil
}

// open opens the socket of the command line and the ports at the start.
func open(ctx context.Context, cfg Config, wanted []Endpoint) (*Ports, error) {
	s := &Ports{cfg: cfg, open: map[Endpoint]*Socket{}, start: map[string]func(*Socket){}}
	var refused *listenError
	if s.unix, refused = listenUnix(ctx, cfg.AdminSocket); refused != nil && !refused.stopping.IsZero() {
		return nil, listenErrors([]*listenError{refused}, cfg.Lab) // the ports that are free by now are not opened to be closed again
	}
	st, errs := s.openAll(ctx, wanted)
	if refused != nil {
		errs = append(errs, refused)
	}
	if len(errs) > 0 {
		st.Discard()
		s.Close()
		return nil, listenErrors(errs, cfg.Lab)
	}
	st.Commit()
	return s, nil
}
