package datagram

import (
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"github.com/bootlab/bootlab/internal/host/socket/sockaddr"

	"golang.org/x/sys/unix"
)

// A Sender sends datagrams of one socket, several with one system call. It belongs to one goroutine.
type Sender struct {
	msgs     []mmsghdr
	iovs     []unix.Iovec
	names    []sockaddr.Raw
	controls []control

	queued int
	next   int // first message that is not sent yet
	errno  syscall.Errno
	write  func(fd uintptr) bool // bound once, so that Send does not allocate
}

// NewSender returns a Sender of up to size datagrams at a time.
func NewSender(size int) *Sender {
	s := &Sender{
		msgs: make([]mmsghdr, size), iovs: make([]unix.Iovec, size), names: make([]sockaddr.Raw, size), controls: make([]control, size),
	}
	for i := range s.msgs {
		h := &s.msgs[i].hdr
		h.Name, h.Iov = s.names[i].Pointer(), &s.iovs[i]
		h.SetIovlen(1)
	}
	s.write = s.sendmmsg
	return s
}

// Len returns how many datagrams are queued.
func (s *Sender) Len() int { return s.queued }

// Add queues a datagram that leaves from the address source; if that is invalid, the kernel chooses one. data must not
// change before Send. There must be room: at most size datagrams are queued between two Sends.
func (s *Sender) Add(data []byte, to netip.AddrPort, source netip.Addr) {
	s.AddSegments(data, 0, to, source)
}

// AddConnected queues a datagram for the peer of a connected socket.
func (s *Sender) AddConnected(data []byte) {
	s.add(data).Namelen = 0
	s.queued++
}

// AddSegments is like Add, but the kernel splits data into datagrams of that many bytes (UDP_SEGMENT).
func (s *Sender) AddSegments(data []byte, size int, to netip.AddrPort, source netip.Addr) {
	h := s.add(data)
	h.Namelen = s.names[s.queued].Set(to)
	c := AppendSource(s.controls[s.queued][:0], source)
	if size > 0 {
		c = appendSegmentSize(c, size)
	}
	if len(c) > 0 {
		h.Control = &c[0]
		h.SetControllen(len(c))
	}
	s.queued++
}

// AddFrame queues a whole frame for a packet socket (AF_PACKET), to leave by the interface of that index.
func (s *Sender) AddFrame(frame []byte, index int, mac [6]byte) {
	h := s.add(frame)
	h.Namelen = s.names[s.queued].SetLink(index, mac)
	s.queued++
}

func (s *Sender) add(data []byte) *unix.Msghdr {
	s.iovs[s.queued].Base = unsafe.SliceData(data)
	s.iovs[s.queued].SetLen(len(data))
	h := &s.msgs[s.queued].hdr
	h.Control = nil
	h.SetControllen(0)
	return h
}

// Send sends what is queued, in that order, and waits for room in the socket where there is none. failed, which may be nil,
// is called for each datagram that could not be sent, with its place in the queue; the others are sent.
func (s *Sender) Send(conn syscall.RawConn, failed func(i int, err error)) {
	for s.next = 0; s.next < s.queued; {
		s.errno = 0
		err := conn.Write(s.write)
		if err == nil {
			err = os.NewSyscallError("sendmmsg", errOf(s.errno))
		}
		if err == nil {
			continue
		}
		if failed != nil {
			failed(s.next, err)
		}
		s.next++ // the kernel stops at the first message that it cannot send
	}
	s.queued = 0
}

func (s *Sender) sendmmsg(fd uintptr) bool {
	n, errno := mmsg(unix.SYS_SENDMMSG, fd, s.msgs[s.next:s.queued])
	if errno == unix.EAGAIN {
		return false
	}
	if s.errno = errno; errno == 0 {
		s.next += n
	}
	return true
}

// errOf keeps errno 0 from becoming an error.
func errOf(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}
