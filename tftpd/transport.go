package tftpd

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/host/socket/datagram"

	"golang.org/x/sys/unix"
)

// A transport carries the packets of one transfer: over a socket of its own, or over the port that all transfers share.
type transport interface {
	// send sends b as packets of size bytes; the last may be shorter.
	send(b []byte, size int) error
	// receive returns the client's next reply. The error is os.ErrDeadlineExceeded, the cause of ctx, errGone, or an error of
	// the network.
	receive(ctx context.Context, deadline time.Time) (reply, error)
	close()
}

// The bounds of one send with UDP_SEGMENT: 64 segments (UDP_MAX_SEGMENTS of older kernels), and what fits a UDP datagram.
const (
	maxSegments     = 64
	maxSegmentBytes = 65000
)

// A sender sends packets to one client.
type sender struct {
	raw        syscall.RawConn
	client     netip.AddrPort
	source     netip.Addr // the address to send from; invalid: the socket has but one
	out        *datagram.Sender
	single     *datagram.Single // for single packets; nil: out
	noSegments bool             // no UDP_SEGMENT here: one system call for each packet
}

// send sends b as packets of size bytes, in one system call where the kernel can split it (UDP_SEGMENT).
func (s *sender) send(b []byte, size int) error {
	if !s.noSegments && len(b) > size {
		err := s.write(b, size)
		if err == nil || !cannotSegment(err) {
			return err
		}
		s.noSegments = true
	}
	for len(b) > size {
		if err := s.write(b[:size], 0); err != nil {
			return err
		}
		b = b[size:]
	}
	return s.write(b, 0)
}

// write sends b in one system call. The kernel splits it into segments of that size; 0: b is one packet.
func (s *sender) write(b []byte, segment int) (err error) {
	if segment == 0 && s.single != nil {
		return s.single.Send(b)
	}
	s.out.AddSegments(b, segment, s.client, s.source)
	s.out.Send(s.raw, func(_ int, e error) { err = e })
	return err
}

// cannotSegment reports whether err says that UDP_SEGMENT is not available: an old kernel, an interface without checksum
// offload, packets larger than the MTU.
func cannotSegment(err error) bool {
	e, ok := errors.AsType[syscall.Errno](err)
	return ok && (e == unix.EIO || e == unix.EINVAL || e == unix.EMSGSIZE || e == unix.ENOPROTOOPT || e == unix.EOPNOTSUPP)
}

// A sharedPort is the transport of a transfer that shares its port with all others. The reader of that port passes it what
// its client sends.
type sharedPort struct {
	sender
	replies chan reply
	timer   *time.Timer
}

// maxReplies is how many replies may wait. More are dropped, as on the network.
const maxReplies = 8

func newSharedPort(raw syscall.RawConn, local netip.Addr, client netip.AddrPort) *sharedPort {
	return &sharedPort{
		sender:  sender{raw: raw, client: client, source: local, out: datagram.NewSender(1)},
		replies: make(chan reply, maxReplies), timer: time.NewTimer(time.Hour),
	}
}

// put passes a reply to the transfer.
func (s *sharedPort) put(r reply) {
	select {
	case s.replies <- r:
	default:
	}
}

func (s *sharedPort) receive(ctx context.Context, deadline time.Time) (reply, error) {
	if ctx.Err() != nil {
		return reply{}, context.Cause(ctx)
	}
	select {
	case r := <-s.replies:
		return r, nil
	default:
	}
	s.timer.Reset(time.Until(deadline))
	select {
	case r := <-s.replies:
		return r, nil
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	case <-s.timer.C:
		return reply{}, os.ErrDeadlineExceeded
	}
}

func (s *sharedPort) close() { s.timer.Stop() }
