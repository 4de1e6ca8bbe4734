package datagram

import (
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"github.com/bootlab/bootlab/internal/host/socket/sockaddr"

	"golang.org/x/sys/unix"
)

// A Single exchanges single datagrams with one peer over a socket that is not connected: recvfrom(2) and sendto(2) cost less
// than a batch of one. It belongs to one goroutine.
type Single struct {
	conn      syscall.RawConn
	fd        uintptr // for as long as the owner does not close the socket
	to        sockaddr.Raw
	size      uint32 // of to
	connected bool

	in       []byte
	n        int
	from     sockaddr.Raw
	fromSize uint32
	out      []byte
	errno    syscall.Errno

	wait, poll, write func(fd uintptr) bool // bound once, so that no call allocates
}

// NewSingle returns a Single that sends to a peer and receives datagrams of at most space bytes, from any sender.
func NewSingle(conn syscall.RawConn, to netip.AddrPort, space int) *Single {
	s := &Single{conn: conn, in: make([]byte, space)}
	s.size = s.to.Set(to)
	_ = conn.Control(func(fd uintptr) { s.fd = fd }) // of a closed socket the fd is not used
	s.wait, s.write = s.recvfrom, s.sendto
	s.poll = func(fd uintptr) bool { s.recvfrom(fd); return true }
	return s
}

// Receive waits for a datagram. Its errors are those of Receiver.Receive.
func (s *Single) Receive() error { return s.call(s.conn.Read(s.wait), "recvfrom") }

// Poll is like Receive, but reports false instead of waiting.
func (s *Single) Poll() (received bool, err error) {
	s.errno = 0
	err = s.conn.Read(s.poll)
	if err == nil && s.errno == unix.EAGAIN {
		return false, nil
	}
	err = s.call(err, "recvfrom")
	return err == nil, err
}

// Data returns the last datagram, cut off at the space for it. It holds until the next Receive.
func (s *Single) Data() []byte { return s.in[:s.n] }

// From returns the sender of the last datagram, as Message.From. After Connect it is the peer.
func (s *Single) From() netip.AddrPort {
	if s.connected {
		return s.to.AddrPort()
	}
	return s.from.AddrPort()
}

// Connect connects the socket to the peer, which saves the kernel a tenth of its work for each datagram. Other senders get an
// ICMP error from then on.
func (s *Single) Connect() error {
	if s.connected {
		return nil
	}
	err := s.conn.Control(func(fd uintptr) {
		_, _, s.errno = unix.RawSyscall(unix.SYS_CONNECT, fd, uintptr(unsafe.Pointer(s.to.Pointer())), uintptr(s.size))
	})
	err = s.call(err, "connect")
	s.connected = err == nil
	return err
}

// Send sends a datagram to the peer, and waits for room in the socket where there is none. The socket must be open: its file
// descriptor is used directly.
func (s *Single) Send(b []byte) error {
	s.out = b
	if s.fd != 0 && s.sendto(s.fd) { // without the locks of conn
		return s.call(nil, "sendto")
	}
	return s.call(s.conn.Write(s.write), "sendto")
}

func (s *Single) call(err error, name string) error {
	if err == nil {
		err = os.NewSyscallError(name, errOf(s.errno))
	}
	return err
}

func (s *Single) recvfrom(fd uintptr) bool {
	var from, size unsafe.Pointer
	if !s.connected {
		s.fromSize = sockaddr.Size
		from, size = unsafe.Pointer(s.from.Pointer()), unsafe.Pointer(&s.fromSize)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(s.in))), uintptr(len(s.in)),
		unix.MSG_DONTWAIT, uintptr(from), uintptr(size))
	s.n, s.errno = 0, errno
	if errno == 0 {
		s.n = int(n)
	}
	return errno != unix.EAGAIN
}

func (s *Single) sendto(fd uintptr) bool {
	to, size := unsafe.Pointer(s.to.Pointer()), s.size
	if s.connected {
		to, size = nil, 0
	}
	_, _, s.errno = unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(s.out))), uintptr(len(s.out)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, uintptr(to), uintptr(size))
	return s.errno != unix.EAGAIN
}
