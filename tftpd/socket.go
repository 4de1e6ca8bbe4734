package tftpd

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/bootlab/bootlab/internal/host/datagram"

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
