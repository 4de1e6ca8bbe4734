package dnsd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/host/datagram"

	"golang.org/x/sys/unix"
)

const (
	udpBatch  = 64   // messages that one system call takes
	udpBuffer = 1280 // octets of a query and of its reply, which takes its place
)

// A udpReader receives, answers and sends the messages of one socket in batches, in place. A query for the forwarder leaves
// it as a copy.
type udpReader struct {
	s    *Server
	conn *net.UDPConn
	in   *datagram.Receiver
	out  *datagram.Sender
	req  request
	wg   sync.WaitGroup // queries that wait for the forwarder
}

func (s *Server) serveUDP(ctx context.Context, conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = datagram.Prepare(raw)
	}
	if err != nil {
		return fmt.Errorf("prepare socket %s: %w", conn.LocalAddr(), err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) }) // replies in progress still leave
	defer stop()
	u := &udpReader{s: s, conn: conn, in: datagram.NewReceiver(udpBatch, udpBuffer), out: datagram.NewSender(udpBatch)}
	defer u.wg.Wait()
	for {
		n, err := u.in.Receive(raw)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && transient(err):
			continue
		case err != nil:
			return fmt.Errorf("receive on %s: %w", conn.LocalAddr(), err)
		}
		for i := range n {
			if m := u.in.Message(i); u.answer(ctx, m) {
				u.out.Add(u.req.w.b, m.From, m.Local)
			}
		}
		u.out.Send(raw, nil) // a client that is gone is no error of ours
	}
}

// transient reports whether a socket works again after an error. An ICMP message, say, shows as an error of a socket.
func transient(err error) bool {
	e, ok := errors.AsType[unix.Errno](err)
	return ok && e != unix.EBADF && e != unix.ENOTSOCK && e != unix.EINVAL && e != unix.EFAULT
}

// answer answers a message and reports whether there is a reply, in u.req, to be sent with the batch.
func (u *udpReader) answer(ctx context.Context, m datagram.Message) bool {
	defer u.s.recoverPanic()
	if len(m.Data) < headerLen { // or longer than the buffer
		u.s.metrics.dropped[dropMalformed].Inc()
		return false
	}
	r := &u.req
	r.from = m.From.Addr().Unmap()
	r.w.b = m.Data[:min(len(m.Data), maxUDP)]
	switch u.s.handle(r) {
	case ready:
		return u.s.applyRateLimit(r)
	case pending:
		return u.forward(ctx, m)
	default:
		u.s.metrics.dropped[dropMalformed].Inc()
	}
	return false
}

// forward passes a copy of the query to the forwarder, and reports whether there is a reply at once instead.
func (u *udpReader) forward(ctx context.Context, m datagram.Message) bool {
	switch u.s.limit.acquire(u.req.from) {
	case limitReached:
		u.s.metrics.dropped[dropBusy].Inc() // the client asks again
		return false
	case shareUsed:
		u.s.refuseForward(&u.req)
		return true
	}
	r, source := u.req.clone(), datagram.AppendSource(nil, m.Local)
	u.wg.Go(func() {
		defer u.s.limit.release(r.from)
		defer u.s.recoverPanic()
		u.s.answerForwarded(ctx, r)
		_, _, _ = u.conn.WriteMsgUDPAddrPort(r.w.b, source, m.From) // a client that is gone is no error of ours
	})
	return false
}
