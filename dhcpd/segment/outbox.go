package segment

import (
	"encoding/binary"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// frameSpace is the room for a frame in an outbox: an Ethernet frame and a little.
const frameSpace = 1536

// An Outbox sends frames, several with one system call, over any sockets. It belongs to one goroutine.
type Outbox struct {
	failed func(s *Socket, d Dest, message []byte, err error)
	queue  []outgoing
	bufs   []byte // a frame for each place of the queue

	// One system call's worth, of one descriptor.
	msgs    []mmsghdr
	iovs    []unix.Iovec
	names   []sockaddr
	control []controlSpace
	picked  []int // places in the queue
	first   int   // message to send next
	sent    int
	errno   unix.Errno
	write   func(fd uintptr) bool // bound once, so that Flush does not allocate
}

type outgoing struct {
	sock  *Socket
	to    Dest
	frame []byte
	conn  syscall.RawConn // nil: sent
	raw   bool
}

// sockaddr is room for either kind of address.
type sockaddr struct{ link unix.RawSockaddrLinklayer }

func (a *sockaddr) inet() *unix.RawSockaddrInet4 {
	return (*unix.RawSockaddrInet4)(unsafe.Pointer(&a.link))
}

// NewOutbox returns an outbox for up to size frames, at least 1 and at most MaxBatch, of 1.5 KiB each. failed is called
// during Queue and Flush for each message that could not be sent, and may be nil; message belongs to the outbox.
func NewOutbox(size int, failed func(s *Socket, d Dest, message []byte, err error)) *Outbox {
	size = min(max(size, 1), MaxBatch)
	if failed == nil {
		failed = func(*Socket, Dest, []byte, error) {}
	}
	o := &Outbox{
		failed: failed, queue: make([]outgoing, 0, size), bufs: make([]byte, size*frameSpace), msgs: make([]mmsghdr, size),
		iovs: make([]unix.Iovec, size), names: make([]sockaddr, size), control: make([]controlSpace, size), picked: make([]int, 0, size),
	}
	for i := range o.msgs {
		o.msgs[i].hdr.Iov = &o.iovs[i]
		o.msgs[i].hdr.SetIovlen(1)
		o.control[i].hdr.Level, o.control[i].hdr.Type = unix.IPPROTO_IP, unix.IP_PKTINFO
		o.control[i].hdr.SetLen(unix.SizeofCmsghdr + unix.SizeofInet4Pktinfo)
	}
	o.write = o.sendmmsg
	return o
}

// Frame returns an empty message behind FrameHeadroom bytes, to be appended to and handed to Queue. It sends what is
// queued if there is no room.
func (o *Outbox) Frame() []byte {
	if len(o.queue) == cap(o.queue) {
		o.Flush()
	}
	return o.bufs[len(o.queue)*frameSpace:][:FrameHeadroom:frameSpace]
}

// Queue takes a frame for sending; frame[FrameHeadroom:] is the DHCP message. The frame, where it is not from Frame, must
// stay as it is until Flush.
func (o *Outbox) Queue(s *Socket, d Dest, frame []byte) {
	if len(o.queue) == cap(o.queue) {
		o.Flush()
	}
	out := outgoing{sock: s, to: d, frame: frame, conn: s.port(d.Port).sys}
	if !d.MAC.IsZero() && s.raw != nil {
		out.raw, out.conn = true, s.raw.sys
		putHeaders(frame, s.MAC(), &d)
	}
	o.queue = append(o.queue, out)
}

// Len returns how many frames are queued.
func (o *Outbox) Len() int { return len(o.queue) }

// Flush sends what is queued. Those for one socket and of one kind go together, in the order they came.
func (o *Outbox) Flush() {
	for i := range o.queue {
		if conn := o.queue[i].conn; conn != nil {
			o.pick(i, conn)
			o.sendPicked(conn)
		}
	}
	clear(o.queue)
	o.queue = o.queue[:0]
}

// pick prepares all frames from place i on that go out by conn.
func (o *Outbox) pick(i int, conn syscall.RawConn) {
	o.picked = o.picked[:0]
	for ; i < len(o.queue); i++ {
		out := &o.queue[i]
		if out.conn != conn {
			continue
		}
		out.conn = nil
		o.prepare(len(o.picked), out)
		o.picked = append(o.picked, i)
	}
}

func (o *Outbox) prepare(n int, out *outgoing) {
	h, data := &o.msgs[n].hdr, out.frame
	h.Name, h.Control, h.Flags = (*byte)(unsafe.Pointer(&o.names[n])), nil, 0
	h.SetControllen(0)
	if out.raw {
		h.Namelen = unix.SizeofSockaddrLinklayer
		o.names[n].link = unix.RawSockaddrLinklayer{Family: unix.AF_PACKET, Ifindex: int32(out.sock.index), Halen: 6}
		copy(o.names[n].link.Addr[:], out.to.MAC[:])
	} else {
		data = data[FrameHeadroom:]
		h.Namelen = unix.SizeofSockaddrInet4
		to := o.names[n].inet()
		*to = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: out.to.To.Addr().As4()}
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&to.Port))[:], out.to.To.Port())
		if out.to.Source.Is4() {
			o.control[n].info.Spec_dst = out.to.Source.As4()
			h.Control = (*byte)(unsafe.Pointer(&o.control[n]))
			h.SetControllen(pktinfoSpace)
		}
	}
	o.iovs[n].Base = unsafe.SliceData(data)
	o.iovs[n].SetLen(len(data))
}

// sendPicked sends what is prepared. The kernel stops at the first message that it cannot send; that one is mended or
// given up, and the rest goes on.
func (o *Outbox) sendPicked(conn syscall.RawConn) {
	for o.first = 0; o.first < len(o.picked); {
		o.sent, o.errno = 0, 0
		err := conn.Write(o.write)
		if err == nil && o.errno != 0 {
			err = os.NewSyscallError("sendmmsg", o.errno)
		}
		o.first += o.sent
		if err != nil {
			o.mend(&o.queue[o.picked[o.first]], err)
			o.first++
		}
	}
}

func (o *Outbox) sendmmsg(fd uintptr) bool {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&o.msgs[o.first])),
		uintptr(len(o.picked)-o.first), unix.MSG_DONTWAIT, 0, 0)
	if errno == unix.EAGAIN || errno == unix.EINTR {
		return false
	}
	if o.errno = errno; errno == 0 {
		o.sent = int(n)
	}
	return true
}

// mend tries what Send does when the first try fails.
func (o *Outbox) mend(out *outgoing, err error) {
	switch {
	case out.raw:
		err = out.sock.sendLoud(out.to, out.frame, err)
	case notOurAddress(err):
		err = out.sock.sendUDP(out.to, out.frame[FrameHeadroom:])
	}
	if err != nil {
		o.failed(out.sock, out.to, out.frame[FrameHeadroom:], err)
	}
}
