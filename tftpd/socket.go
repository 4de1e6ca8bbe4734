package tftpd

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/bootlab/bootlab/internal/host/socket/datagram"

	"golang.org/x/sys/unix"
)

// errPortClosed is ECONNREFUSED after another sender was answered: its port may be the closed one, or the client's.
var errPortClosed = errors.New("a port is closed, the client's or that of another sender")

// maxUnknownTIDs is how many packets of other senders one transfer answers.
const maxUnknownTIDs = 16

// connectFrom is how many transfers there must be for sockets to be connected, which is cheaper for the kernel. Other senders
// get an ICMP error then, not ERROR 5.
const connectFrom = 16

// A socket is the transport of a transfer with a port of its own, whose number is the transfer identifier (RFC 1350
// section 4).
type socket struct {
	sender
	conn        *net.UDPConn
	busy        busyPoll
	deadline    time.Time   // of conn
	stop        func() bool // of the wake-up at the end of the context
	unknownTIDs int         // packets of other senders
}

// newSocket opens the socket of one transfer, on that address of this machine. The end of ctx wakes its reader. active
// returns how many transfers there are.
func newSocket(ctx context.Context, local netip.Addr, client netip.AddrPort, active func() int) (*socket, error) {
	conn, err := listenFor(local, client.Addr())
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &socket{
		sender: sender{raw: raw, client: client, out: datagram.NewSender(1), single: datagram.NewSingle(raw, client, maxReply)}, conn: conn,
		busy: busyPoll{active: active}, stop: context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) }),
	}, nil
}

func (s *socket) close() {
	s.stop()
	_ = s.conn.Close()
}

func (s *socket) send(b []byte, size int) error { return s.clientError(s.sender.send(b, size)) }

// receive implements transport. Packets of other senders get ERROR 5 and do not disturb the transfer (RFC 1350 section 4).
func (s *socket) receive(ctx context.Context, deadline time.Time) (reply, error) {
	for {
		if err := s.next(ctx, deadline); err != nil {
			return reply{}, s.clientError(err)
		}
		if from := s.single.From(); from != s.client {
			s.rejectUnknownTID(from)
			continue
		}
		if s.busy.active() > connectFrom {
			_ = s.single.Connect() // it works without
		}
		if r, ok := parseReply(s.single.Data()); ok {
			return r, nil
		}
	}
}

func (s *socket) rejectUnknownTID(from netip.AddrPort) {
	if s.unknownTIDs++; s.unknownTIDs <= maxUnknownTIDs {
		_, _ = s.conn.WriteToUDPAddrPort(appendError(nil, CodeUnknownTID, "unknown transfer"), from)
	}
}

// next receives the next packet of any sender.
func (s *socket) next(ctx context.Context, deadline time.Time) error {
	if ctx.Err() == nil && s.busy.worthwhile() {
		received, err := s.busy.poll(s.single.Poll)
		if received || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // of an earlier receive
			return err
		}
	}
	for {
		if err := s.setDeadline(deadline); err != nil {
			return err
		}
		if ctx.Err() != nil { // its deadline may have been set before this one
			return context.Cause(ctx)
		}
		err := s.single.Receive()
		switch {
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !time.Now().Before(deadline):
			return err
		}
		s.deadline = time.Time{} // it was an earlier one
	}
}

// setDeadline makes a receive end at the deadline, or up to half of minWait before. Setting a deadline costs as much as a
// tenth of a block.
func (s *socket) setDeadline(deadline time.Time) error {
	if early := deadline.Sub(s.deadline); early >= 0 && early < minWait/2 {
		return nil
	}
	s.deadline = deadline
	return s.conn.SetReadDeadline(deadline)
}

// clientError makes errGone of the kernel's word that the client's port is closed.
func (s *socket) clientError(err error) error {
	switch {
	case !errors.Is(err, unix.ECONNREFUSED):
		return err
	case s.unknownTIDs > 0:
		return errPortClosed
	}
	return errGone
}

// listenFor opens the socket of one transfer with a client. It is not connected: a packet of another sender has to be
// answered with ERROR 5.
func listenFor(local, client netip.Addr) (*net.UDPConn, error) {
	network := "udp4"
	if client.Is6() {
		network = "udp6"
	}
	conn, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0)))
	if err != nil && local.IsValid() {
		// The address is not one of this machine, as behind a transparent proxy.
		conn, err = net.ListenUDP(network, nil)
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(allowFragments(conn), receiveErrors(conn)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// allowFragments lets routers fragment packets, since boot ROMs do no path MTU discovery.
func allowFragments(conn *net.UDPConn) error {
	return setOptions(conn, [][3]int{
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT}, {unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT},
	})
}

// receiveErrors makes the kernel report that the client's port is closed, though the socket is not connected.
func receiveErrors(conn *net.UDPConn) error {
	return setOptions(conn, [][3]int{{unix.IPPROTO_IP, unix.IP_RECVERR, 1}, {unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1}})
}

// setOptions sets options that a boot can do without: level, name and value of each. One of each pair fails, since a socket
// is of one family.
func setOptions(conn *net.UDPConn, options [][3]int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) {
		for _, o := range options {
			_ = unix.SetsockoptInt(int(fd), o[0], o[1], o[2])
		}
	})
}

// blockLimit returns how many bytes of a file fit one packet on the way to client, or 0 if the kernel does not know.
func blockLimit(client netip.AddrPort) int {
	network, level, option, overhead := "udp4", unix.IPPROTO_IP, unix.IP_MTU, overhead4
	if client.Addr().Is6() {
		network, level, option, overhead = "udp6", unix.IPPROTO_IPV6, unix.IPV6_MTU, overhead6
	}
	// Connecting a UDP socket sends nothing; it makes the kernel choose the route, which has the MTU.
	probe, err := net.DialUDP(network, nil, net.UDPAddrFromAddrPort(client))
	if err != nil {
		return 0
	}
	defer probe.Close()
	raw, err := probe.SyscallConn()
	if err != nil {
		return 0
	}
	mtu := 0
	if err := raw.Control(func(fd uintptr) { mtu, _ = unix.GetsockoptInt(int(fd), level, option) }); err != nil {
		return 0
	}
	return max(0, mtu-overhead)
}

// A busyPoll decides whether a transfer polls its socket before it sleeps. In lock-step on a LAN the ACK arrives sooner than a
// thread can be suspended and woken, which would be half the time that a block takes.
//
// It polls only while there is one transfer, since others would have to wait, and stops where clients are slower.
type busyPoll struct {
	active func() int    // transfers in progress
	misses int           // in a row
	skip   int           // receives that do not poll
	polled time.Duration // since the thread slept
}

const (
	pollLimit    = 50 * time.Microsecond  // for one reply
	pollShare    = 500 * time.Microsecond // of polling, then the rest of a process with one CPU has its turn
	maxMisses    = 8                      // in a row, then polling stops for skipReceives
	skipReceives = 1000
)

// worthwhile reports whether to poll for the next packet.
func (p *busyPoll) worthwhile() bool {
	if p.skip > 0 {
		p.skip--
		return false
	}
	if p.polled > pollShare && runtime.GOMAXPROCS(0) == 1 {
		p.polled = 0
		return false
	}
	return p.active() == 1
}

// poll calls receive until it returns a packet or an error, or the limit has passed.
func (p *busyPoll) poll(receive func() (bool, error)) (received bool, err error) {
	start := time.Now()
	for {
		received, err = receive()
		took := time.Since(start)
		if received || err != nil || took >= pollLimit {
			p.record(received, took)
			return received, err
		}
	}
}

func (p *busyPoll) record(found bool, took time.Duration) {
	p.polled += took
	if found {
		p.misses = 0
	} else if p.misses++; p.misses >= maxMisses {
		p.misses, p.skip = 0, skipReceives
	}
}
