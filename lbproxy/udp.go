package lbproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
	"github.com/bootlab/bootlab/internal/host/socket/datagram"
	"github.com/bootlab/bootlab/internal/host/socket/freebind"
)

const (
	udpBatch = 32    // datagrams that one system call takes
	udpSpace = 65535 // bytes of the longest

	udpTick = 500 * time.Millisecond // between two looks for idle sessions
	// udpAnswers is how long sessions may wait for their answers when the server stops.
	udpAnswers = time.Second
)

// A udpProxy forwards the datagrams of all balancers of mode udp. One goroutine receives from every socket, of clients and of
// backends, by epoll(7), so that sessions need no locks and cost a file descriptor and some 300 bytes each.
type udpProxy struct {
	s         *Server
	heartbeat heartbeat

	mu      sync.Mutex
	open    map[netip.AddrPort]*udpSocket // those of the active table
	removed []*udpSocket                  // not closed yet
	wakeUp  func()                        // nil: run does not wait
	kick    chan struct{}                 // holds one value after a change

	// Of run only.
	epoll     *os.File // opened for the first socket
	epollRaw  syscall.RawConn
	listening map[fileDescriptor]*udpSocket
	sessions  map[udpKey]*udpSession
	byFD      map[fileDescriptor]*udpSession
	limit     *connlimit.Set
	in        *datagram.Receiver
	toClients *datagram.Sender
	outbox    udpOutbox
	events    []unix.EpollEvent
	now       time.Time
	ticked    time.Time
}

func newUDPProxy(s *Server) *udpProxy {
	return &udpProxy{
		s: s, open: make(map[netip.AddrPort]*udpSocket), kick: make(chan struct{}, 1), listening: make(map[fileDescriptor]*udpSocket),
		sessions: make(map[udpKey]*udpSession), byFD: make(map[fileDescriptor]*udpSession),
		limit: connlimit.New(connlimit.Config{Max: s.cfg.Sessions}),
	}
}

// commit makes the sockets that were opened part of those in use, and drops those that the table does not have.
func (p *udpProxy) commit(opened map[netip.AddrPort]*udpSocket, wanted map[netip.AddrPort]*frontend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for addr, sock := range opened {
		p.open[addr] = sock
	}
	for addr, sock := range p.open {
		if wanted[addr] == nil {
			delete(p.open, addr)
			p.removed = append(p.removed, sock)
		}
	}
	select {
	case p.kick <- struct{}{}:
	default:
	}
	if p.wakeUp != nil {
		p.wakeUp()
	}
}

// has reports whether a socket is open.
func (p *udpProxy) has(addr netip.AddrPort) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[addr] != nil
}

// run forwards datagrams until ctx ends. Then it receives none from clients any more, which wait in the sockets for the next
// process if it has them, delivers the answers that come within udpAnswers, and closes the sockets.
func (p *udpProxy) run(ctx context.Context) {
	for p.epoll == nil {
		select {
		case <-ctx.Done():
			p.closeSockets()
			return
		case <-p.kick:
		}
		if err := p.start(); err != nil {
			p.s.log.Error("balancers of mode udp do not serve", keyErr, err)
		}
	}
	stop := context.AfterFunc(ctx, p.wake)
	defer stop()
	defer p.heartbeat.Store(0)
	for ctx.Err() == nil {
		p.heartbeat.Add(1)
		p.reconcile()
		p.wait()
	}
	p.deliverAnswers()
	p.closeSockets()
}

// start opens the epoll instance if there is a socket.
func (p *udpProxy) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) == 0 {
		return nil
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	epoll := os.NewFile(uintptr(fd), "epoll of datagrams")
	raw, err := epoll.SyscallConn()
	if err != nil {
		return err
	}
	p.epoll, p.epollRaw = epoll, raw
	p.wakeUp = func() { _ = epoll.SetReadDeadline(time.Unix(1, 0)) }
	p.in, p.toClients = datagram.NewReceiver(udpBatch, udpSpace), datagram.NewSender(udpBatch)
	p.outbox.sender = datagram.NewSender(udpBatch)
	p.events = make([]unix.EpollEvent, 128)
	return nil
}

// wake makes wait return.
func (p *udpProxy) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wakeUp != nil {
		p.wakeUp()
	}
}

// reconcile receives from the sockets that are open, and closes those that were removed, with their sessions.
func (p *udpProxy) reconcile() {
	_ = p.epoll.SetReadDeadline(p.ticked.Add(udpTick)) // before the look at the changes, so that no wake is lost
	p.mu.Lock()
	removed := p.removed
	p.removed = nil
	for _, sock := range p.open {
		if p.listening[sock.fd] == nil && p.watch(sock.fd) == nil {
			p.listening[sock.fd] = sock
		}
	}
	p.mu.Unlock()
	for _, sock := range removed {
		for _, ses := range p.sessions {
			if ses.key.socket == sock {
				p.end(ses)
			}
		}
		delete(p.listening, sock.fd)
		_ = sock.conn.Close()
	}
}

// watch makes wait report what a socket receives.
func (p *udpProxy) watch(fd fileDescriptor) (err error) {
	_ = p.epollRaw.Control(func(epoll uintptr) {
		err = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	})
	return os.NewSyscallError("epoll_ctl", err)
}

// wait waits for datagrams, for the next tick or for wake, and forwards what has come.
func (p *udpProxy) wait() {
	n := 0
	_ = p.epollRaw.Read(func(fd uintptr) bool {
		n = pollEvents(fd, p.events)
		return n > 0
	})
	p.now = time.Now()
	for _, e := range p.events[:n] {
		fd := fileDescriptor(e.Fd)
		if ses := p.byFD[fd]; ses != nil {
			p.answer(ses)
		} else if sock := p.listening[fd]; sock != nil {
			p.receive(sock)
		}
	}
	if p.now.Sub(p.ticked) >= udpTick {
		p.ticked = p.now
		p.expire()
	}
}

// receive forwards a batch of the clients' datagrams.
func (p *udpProxy) receive(sock *udpSocket) {
	t := p.s.active.Load()
	f := t.udp[sock.addr]
	n, err := p.in.Receive(sock.fd)
	if err != nil || f == nil {
		return
	}
	bytes := 0
	for i := range n {
		m := p.in.Message(i)
		bytes += len(m.Data)
		p.forward(t, f, sock, m)
	}
	p.flush()
	f.state.metrics.in.Add(float64(bytes))
	f.state.metrics.datagramsIn.Add(float64(n))
}

// answer passes what a backend has sent to its client.
func (p *udpProxy) answer(ses *udpSession) {
	n, err := p.in.Receive(ses.fd)
	switch {
	case err != nil && err != errWouldBlock:
		p.refused(ses, err, nil)
		return
	case err != nil:
		drainErrors(int(ses.fd)) // one that a send has reported
		return
	case ses.oneWay():
		return
	}
	bytes := 0
	for i := range n {
		m := p.in.Message(i)
		bytes += len(m.Data)
		p.toClients.Add(m.Data, ses.key.client, ses.key.local)
	}
	p.toClients.Send(ses.key.socket.fd, nil) // a client that is gone is no error of ours
	f := ses.frontend
	f.state.metrics.out.Add(float64(bytes))
	f.state.metrics.datagramsOut.Add(float64(n))
	ses.answered += n
	ses.waits = p.now
	ses.touch(p.now)
	if ses.backend.state.succeeded() && ses.backend.state.mayReturn(p.s.deps.Now()) {
		p.s.reinstate(ses.backend.health, ses.backend.state)
	}
	if f.Responses > 0 && ses.answered >= ses.asked*f.Responses {
		p.end(ses)
	}
}

// expire ends the sessions that were idle for too long, and counts those that wait for an answer against their backends.
func (p *udpProxy) expire() {
	t := p.s.active.Load()
	for _, ses := range p.sessions {
		if f := t.udp[ses.key.socket.addr]; f != nil && !ses.follow(t, f) {
			p.end(ses)
			continue
		}
		idle := p.now.Sub(ses.used)
		if ses.awaits() && p.now.Sub(ses.waits) >= udpSilence {
			p.unanswered(ses)
		}
		if idle >= ses.frontend.Timeouts.Idle {
			p.end(ses)
		}
	}
}

// deliverAnswers passes answers on for as long as sessions wait for some, for udpAnswers at most.
func (p *udpProxy) deliverAnswers() {
	end := time.Now().Add(udpAnswers)
	clear(p.listening) // what clients send stays in the sockets
	for time.Now().Before(end) {
		for _, ses := range p.sessions {
			if !ses.awaits() {
				p.end(ses)
			}
		}
		if len(p.sessions) == 0 {
			return
		}
		// A client's datagram that is not received makes epoll ready all the time: hence no wait for it.
		_ = p.epoll.SetReadDeadline(end)
		p.wait()
		time.Sleep(time.Millisecond)
	}
}

// closeSockets closes everything.
func (p *udpProxy) closeSockets() {
	for _, ses := range p.sessions {
		p.end(ses)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for addr, sock := range p.open {
		_ = sock.conn.Close()
		delete(p.open, addr)
	}
	for _, sock := range p.removed {
		_ = sock.conn.Close()
	}
	p.removed, p.wakeUp = nil, nil
	if p.epoll != nil {
		_ = p.epoll.Close()
	}
}

// A udpSocket is one address and port of a balancer of mode udp.
type udpSocket struct {
	conn PacketConn
	addr netip.AddrPort
	fd   fileDescriptor // of conn; only udpProxy closes it
}

// ListenPacketFree opens a UDP socket at an address that no interface needs to have yet, as ListenFree does for TCP.
func ListenPacketFree(ctx context.Context, addr netip.AddrPort) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: freebind.Control}
	conn, err := lc.ListenPacket(ctx, "udp", addr.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

// A PacketConn is a UDP socket.
type PacketConn interface {
	syscall.Conn
	io.Closer
}

// newUDPSocket prepares a socket, also one of the process before: replies leave from the address that the client has sent to.
func newUDPSocket(conn PacketConn, addr netip.AddrPort) (*udpSocket, error) {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = datagram.Prepare(raw)
	}
	if err != nil {
		return nil, err
	}
	s := &udpSocket{conn: conn, addr: addr}
	err = raw.Control(func(fd uintptr) { s.fd = fileDescriptor(fd) })
	return s, err
}

// connectUDP returns a socket that receives from a backend alone, and its ICMP errors.
func connectUDP(to netip.AddrPort) (fileDescriptor, error) {
	fd, err := openSocket(to, unix.SOCK_DGRAM)
	if err != nil {
		return 0, err
	}
	// Without this, the kernel reports of ICMP only that a port is not open, and nothing of a machine that ARP does not find.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
	if to.Addr().Unmap().Is6() {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	}
	if err := connectSocket(fd, to); err != nil {
		_ = closeSocket(fd)
		return 0, err
	}
	return fileDescriptor(fd), nil
}

// drainErrors drops the copies of errors that the kernel keeps (IP_RECVERR): with them, the socket is never idle for epoll(7).
func drainErrors(fd int) {
	for err := error(nil); err == nil; {
		_, _, _, _, err = unix.Recvmsg(fd, nil, nil, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	}
}

// errWouldBlock says that a socket has nothing to receive, or no room to send.
var errWouldBlock = errors.New("would block")

// A fileDescriptor is a socket of one goroutine that never waits for it.
type fileDescriptor int

// Control implements syscall.RawConn.
func (fd fileDescriptor) Control(f func(uintptr)) error { f(uintptr(fd)); return nil }

// Read implements syscall.RawConn. It fails with errWouldBlock instead of waiting.
func (fd fileDescriptor) Read(f func(uintptr) bool) error {
	if !f(uintptr(fd)) {
		return errWouldBlock
	}
	return nil
}

// Write implements syscall.RawConn. It fails with errWouldBlock instead of waiting.
func (fd fileDescriptor) Write(f func(uintptr) bool) error { return fd.Read(f) }

func (fd fileDescriptor) close() { _ = closeSocket(int(fd)) }
