package tftpd

import (
	"context"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/host/datagram"
)

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
