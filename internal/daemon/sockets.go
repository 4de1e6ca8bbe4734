package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/host/freebind"
	"github.com/bootlab/bootlab/internal/lab"
)

// An endpoint is a port of a server of the appliance.
type endpoint struct {
	server  string
	network string // tcp or udp
	addr    netip.AddrPort
}

// endpoints returns where the servers of the appliance listen.
func endpoints(l *lab.Lab, own []netip.Addr) (all []endpoint) {
	a := l.Appliance
	for _, s := range []struct {
		server, network string
		listen          lab.Listen
	}{{serverTFTP, "udp", a.TFTP}, {serverDNS, "udp", a.DNS}, {serverDNS, "tcp", a.DNS}, {serverHTTP, "tcp", a.HTTP}, {serverAdmin, "tcp", a.Admin}, {serverRedfish, "tcp", l.Redfish.Listen}} {
		for _, addr := range s.listen.Addrs(own) {
			all = append(all, endpoint{s.server, s.network, addr})
		}
	}
	return all
}

// key is the key of the lab file that the endpoint is from.
func (e endpoint) key() string {
	if e.server == serverRedfish {
		return "redfish.listen"
	}
	return "appliance." + map[string]string{serverTFTP: "tftp", serverDNS: "dns", serverHTTP: "http", serverAdmin: "admin"}[e.server]
}

// A socket is an open endpoint: it has one of tcp and udp.
type socket struct {
	endpoint
	tcp  *net.TCPListener
	udp  *net.UDPConn
	stop context.CancelFunc // nil until it is served
}

func (s *socket) close() {
	if s.tcp != nil {
		_ = s.tcp.Close()
	}
	if s.udp != nil {
		_ = s.udp.Close()
	}
}

// sockets are the ports of the appliance itself, which follow the networks of the lab. Those of DHCP and the balancers are opened
// by their servers.
type sockets struct {
	health *health
	lab    string       // the lab file
	unix   net.Listener // of the command line

	mu    sync.Mutex
	open  map[endpoint]*socket
	start map[string]func(*socket) // of the servers that serve now
	err   string                   // of the last changed
}

// changed reports whether err is another than that of the call before.
func (s *sockets) changed(err error) bool {
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

// failed returns why addresses are not listened on, as of the last changed; empty: none.
func (s *sockets) failed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// stagedSockets are sockets that are open but not yet served. Either commit or discard must follow.
type stagedSockets struct {
	of     *sockets
	opened []*socket
	wanted []endpoint
}

// stage opens the sockets of wanted that are not open yet: all, or none. The error of a taken port names who holds it.
func (s *sockets) stage(ctx context.Context, wanted []endpoint) (*stagedSockets, error) {
	st, errs := s.openAll(ctx, wanted)
	if len(errs) > 0 {
		st.discard()
		return nil, listenErrors(errs, s.lab)
	}
	return st, nil
}

// openAll opens the sockets of wanted that are not open yet, and returns why some are not.
func (s *sockets) openAll(ctx context.Context, wanted []endpoint) (st *stagedSockets, errs []*listenError) {
	st = &stagedSockets{of: s, wanted: wanted}
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
			errs = append(errs, &listenError{key: e.key(), network: e.network, addr: e.addr.String(), err: err})
		}
	}
	return st, errs
}

// discard closes what stage opened.
func (st *stagedSockets) discard() {
	for _, sock := range st.opened {
		sock.close()
	}
}

// commit serves the new sockets, now or as soon as their server does, and closes those that are not wanted any more.
func (st *stagedSockets) commit() {
	s := st.of
	s.mu.Lock()
	defer s.mu.Unlock()
	for e, sock := range s.open {
		if !slices.Contains(st.wanted, e) {
			s.closeLocked(sock)
		}
	}
	for _, sock := range st.opened {
		s.open[sock.endpoint] = sock
		s.health.opened(sock.server, sock.addr.String(), nil)
		if start := s.start[sock.server]; start != nil {
			start(sock)
		}
	}
}

// closeLocked ends the service of a socket, which then closes it.
func (s *sockets) closeLocked(sock *socket) {
	delete(s.open, sock.endpoint)
	if !s.listensLocked(sock) {
		s.health.closed(sock.server, sock.addr.String())
	}
	if sock.stop != nil {
		sock.stop()
		return
	}
	sock.close()
}

// listensLocked reports whether the server has another socket on that address: DNS has two.
func (s *sockets) listensLocked(sock *socket) bool {
	for e := range s.open {
		if e.server == sock.server && e.addr == sock.addr {
			return true
		}
	}
	return false
}

// serve calls with for each socket of a server until ctx ends, now and for those that are opened later. with must return when its
// context ends; then the socket is closed. The first error of with ends all, and is returned.
func (s *sockets) serve(ctx context.Context, server string, with func(context.Context, *socket) error) error {
	g, ctx := errgroup.WithContext(ctx)
	s.mu.Lock()
	start := func(sock *socket) {
		var serving context.Context
		serving, sock.stop = context.WithCancel(ctx)
		g.Go(func() error {
			defer sock.close()
			return with(serving, sock)
		})
	}
	s.start[server] = start
	for _, sock := range s.open {
		if sock.server == server {
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

// close closes what is open and not served.
func (s *sockets) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sock := range s.open {
		sock.close()
	}
	if s.unix != nil {
		_ = s.unix.Close()
	}
}

// listen opens a socket. No interface needs to have the address (IP_FREEBIND): it may come after the daemon, or be lost for a
// while, and the socket works again as soon as it is back.
func (e endpoint) listen(ctx context.Context) (*socket, error) {
	lc := net.ListenConfig{Control: freebind.Control}
	// Multipath TCP sockets do not support TCP_INFO.
	lc.SetMultipathTCP(false)
	var opened io.Closer
	var err error
	if e.network == "udp" {
		opened, err = lc.ListenPacket(ctx, "udp", e.addr.String())
	} else {
		opened, err = lc.Listen(ctx, "tcp", e.addr.String())
	}
	if err != nil {
		return nil, err
	}
	s := &socket{endpoint: e}
	s.tcp, _ = opened.(*net.TCPListener)
	s.udp, _ = opened.(*net.UDPConn)
	return s, nil
}

// withoutIPv6 reports whether err only says that this machine has no IPv6, whose loopback is not missed then.
func (e endpoint) withoutIPv6(err error) bool {
	return e.addr.Addr() == netip.IPv6Loopback() && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL))
}

// listenUnix opens the socket of the command line. A stale one is replaced; one that answers belongs to another daemon.
func listenUnix(ctx context.Context, path string) (net.Listener, *listenError) {
	refused := func(err error) (net.Listener, *listenError) {
		return nil, &listenError{key: adminSocketKey, err: err}
	}
	var d net.Dialer
	if c, err := d.DialContext(ctx, "unix", path); err == nil {
		defer func() { _ = c.Close() }()
		_, taken := refused(fmt.Errorf("another bootlab is running at %s: stop it first", path))
		taken.pid, taken.stopping = peer(c), stoppingSince(ctx, path)
		return nil, taken
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

// openSockets opens the socket of the command line and the ports at the start. path is the lab file.
func openSockets(ctx context.Context, h *health, l *lab.Lab, path string) (*sockets, error) {
	s := &sockets{health: h, lab: path, open: map[endpoint]*socket{}, start: map[string]func(*socket){}}
	var refused *listenError
	if s.unix, refused = listenUnix(ctx, l.Appliance.AdminSocket); refused != nil && !refused.stopping.IsZero() {
		return nil, listenErrors([]*listenError{refused}, path) // the ports that are free by now are not opened to be closed again
	}
	st, errs := s.openAll(ctx, endpoints(l, interfaces.OwnAddresses(l)))
	if refused != nil {
		errs = append(errs, refused)
	}
	if len(errs) > 0 {
		st.discard()
		s.close()
		return nil, listenErrors(errs, path)
	}
	h.opened(serverAdmin, s.unix.Addr().String(), nil)
	st.commit()
	return s, nil
}

// makeFolders makes the folders of persistent state and of the admin socket.
func makeFolders(a lab.Appliance) error {
	if err := stateFolder(a, makeFolder); err != nil {
		return err
	}
	return socketFolder(a, makeFolder)
}

func stateFolder(a lab.Appliance, do func(dir string, mode fs.FileMode) error) error {
	if err := do(a.State, 0o750); err != nil {
		return fmt.Errorf("appliance.state: %w: want a folder, or a path at which one can be made", err)
	}
	return nil
}

func socketFolder(a lab.Appliance, do func(dir string, mode fs.FileMode) error) error {
	if err := do(filepath.Dir(a.AdminSocket), 0o755); err != nil {
		return fmt.Errorf("appliance.admin_socket: %w: want its folder, or a path at which one can be made", err)
	}
	return nil
}

// makeFolder makes a folder, unless it is there. Every user may enter those that it makes above it, which stay root's.
func makeFolder(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	return os.MkdirAll(dir, mode)
}
