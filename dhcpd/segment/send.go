package segment

import (
	"syscall"

	"github.com/bootlab/bootlab/internal/host/socket/datagram"
)

// frameSpace is the room for a frame in a Sender: an Ethernet frame and a little.
const frameSpace = 1536

// A Sender sends frames over any sockets, several with one system call. It belongs to one goroutine.
type Sender struct {
	failed func(s *Socket, d Dest, err error)
	queue  []outgoing
	bufs   []byte // a frame for each place of the queue

	batch  *datagram.Sender // of one system call, for one descriptor
	picked []*outgoing      // what is in batch
	retry  func(i int, err error)
}

type outgoing struct {
	sock  *Socket
	to    Dest
	frame []byte
	conn  syscall.RawConn // nil: sent
	raw   bool
}

// NewSender returns a Sender of up to size frames at a time, of 1.5 KiB each. failed is called during Queue and Flush for
// each message that could not be sent, and may be nil.
func NewSender(size int, failed func(s *Socket, d Dest, err error)) *Sender {
	if failed == nil {
		failed = func(*Socket, Dest, error) {}
	}
	s := &Sender{
		failed: failed, queue: make([]outgoing, 0, size), bufs: make([]byte, size*frameSpace),
		batch: datagram.NewSender(size), picked: make([]*outgoing, 0, size),
	}
	s.retry = func(i int, err error) { s.sendAgain(s.picked[i], err) }
	return s
}

// Frame returns an empty message behind FrameHeadroom bytes, to be appended to and handed to Queue. If there is no room it
// first sends what is queued.
func (s *Sender) Frame() []byte {
	if len(s.queue) == cap(s.queue) {
		s.Flush()
	}
	return s.bufs[len(s.queue)*frameSpace:][:FrameHeadroom:frameSpace]
}

// Queue takes a frame for sending; frame[FrameHeadroom:] is the DHCP message. A frame that is not from Frame must stay as
// it is until Flush.
func (s *Sender) Queue(sock *Socket, d Dest, frame []byte) {
	if len(s.queue) == cap(s.queue) {
		s.Flush()
	}
	out := outgoing{sock: sock, to: d, frame: frame, conn: sock.port(d.Port).sys}
	if !d.MAC.IsZero() && sock.raw != nil {
		out.raw, out.conn = true, sock.raw.Conn()
		putHeaders(frame, sock.MAC(), &d)
	}
	s.queue = append(s.queue, out)
}

// Flush sends what is queued. Frames for one socket and of one kind are sent together, in their order.
func (s *Sender) Flush() {
	for i := range s.queue {
		conn := s.queue[i].conn
		if conn == nil {
			continue
		}
		s.picked = s.picked[:0]
		for k := i; k < len(s.queue); k++ {
			out := &s.queue[k]
			if out.conn != conn {
				continue
			}
			out.conn = nil
			s.picked = append(s.picked, out)
			if out.raw {
				s.batch.AddFrame(out.frame, out.sock.index, out.to.MAC)
			} else {
				s.batch.Add(out.frame[FrameHeadroom:], out.to.To, out.to.Source)
			}
		}
		s.batch.Send(conn, s.retry)
	}
	clear(s.queue)
	s.queue = s.queue[:0]
}

// sendAgain sends a message that failed in another way: by UDP broadcast where the kernel refuses raw frames (a filter, a
// lost capability), since a broadcast reaches this client too; without the source address where the machine does not have
// that address now.
func (s *Sender) sendAgain(out *outgoing, err error) {
	message := out.frame[FrameHeadroom:]
	switch {
	case out.raw:
		out.to.Broadcast()
		err = out.sock.sendUDP(out.to, message)
	case sourceUnavailable(err):
		err = out.sock.sendUDP(out.to, message)
	}
	if err != nil {
		s.failed(out.sock, out.to, err)
	}
}
