package datagram

import (
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"github.com/bootlab/bootlab/internal/host/socket/sockaddr"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr; the compiler pads it as C does.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// mmsg calls recvmmsg(2) or sendmmsg(2) without waiting and returns how many messages it received or sent. The raw call is not announced to
// the scheduler, which would wake its monitor thread for each first message after a pause: on a machine with one CPU that thread then runs
// before the reply leaves.
func mmsg(call, fd uintptr, msgs []mmsghdr) (n int, errno syscall.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(call, fd, uintptr(unsafe.Pointer(&msgs[0])), uintptr(len(msgs)), unix.MSG_DONTWAIT, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// A Receiver receives datagrams, several with one system call. The next Receive overwrites its buffers. It belongs to one
// goroutine.
type Receiver struct {
	msgs     []mmsghdr
	iovs     []unix.Iovec
	names    []sockaddr.Raw
	controls []control
	bufs     []byte
	space    int

	used  int // by the last Receive
	errno syscall.Errno
	read  func(fd uintptr) bool // bound once, so that Receive does not allocate
}

// NewReceiver returns a Receiver of up to size datagrams at a time, each of at most space bytes.
func NewReceiver(size, space int) *Receiver {
	r := &Receiver{
		msgs: make([]mmsghdr, size), iovs: make([]unix.Iovec, size), names: make([]sockaddr.Raw, size),
		controls: make([]control, size), bufs: make([]byte, size*space), space: space, used: size,
	}
	for i := range r.msgs {
		r.iovs[i].Base = &r.bufs[i*space]
		r.iovs[i].SetLen(space)
		h := &r.msgs[i].hdr
		h.Name, h.Control, h.Iov = r.names[i].Pointer(), &r.controls[i][0], &r.iovs[i]
		h.SetIovlen(1)
	}
	r.read = r.recvmmsg
	return r
}

// Receive waits for datagrams and returns how many there are: at least one, unless err is set. A closed socket is
// net.ErrClosed and a passed deadline os.ErrDeadlineExceeded; an error of the network, such as ENETDOWN, wraps a
// syscall.Errno, and the socket works again when its cause is gone.
func (r *Receiver) Receive(conn syscall.RawConn) (n int, err error) {
	for i := range r.msgs[:r.used] { // the kernel has changed these
		h := &r.msgs[i].hdr
		h.Namelen, h.Flags = sockaddr.Size, 0
		h.SetControllen(len(control{}))
	}
	r.used = 0
	if err := conn.Read(r.read); err != nil {
		return 0, err
	}
	if r.errno != 0 {
		return 0, os.NewSyscallError("recvmmsg", r.errno)
	}
	return r.used, nil
}

func (r *Receiver) recvmmsg(fd uintptr) bool {
	n, errno := mmsg(unix.SYS_RECVMMSG, fd, r.msgs)
	if errno == unix.EAGAIN {
		return false
	}
	if r.errno = errno; errno == 0 {
		r.used = n
	}
	return true
}

// A Message is one received datagram.
type Message struct {
	// Data is nil if the datagram was longer than the Receiver's space, and has that space as its capacity, so that a reply
	// can take its place. It holds until the next Receive.
	Data []byte
	From netip.AddrPort // on a dual-stack socket an IPv4 address is IPv4-mapped; the zone of a link-local address is its number
	// Local is the address of this machine that the datagram was sent to; for an IPv4 broadcast, the address that a reply
	// should have. It and Interface need Prepare.
	Local     netip.Addr
	Interface int // the index of the interface where it arrived
}

// Message returns datagram i of the last Receive.
func (r *Receiver) Message(i int) Message {
	m := &r.msgs[i]
	msg := Message{Data: r.bufs[i*r.space:][:m.n:r.space], From: r.names[i].AddrPort()}
	if m.hdr.Flags&unix.MSG_TRUNC != 0 {
		msg.Data = nil
	}
	msg.Local, msg.Interface = r.controls[i].destination(int(m.hdr.Controllen))
	return msg
}
