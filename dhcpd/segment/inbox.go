package segment

import (
	"encoding/binary"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// MaxBatch is the most packets that one system call moves. On one core 8 give nearly all of the gain; 32 ride out a
	// burst of a rack that is switched on.
	MaxBatch = 32
	// maxMessage is the longest message that is received whole; Ethernet carries 1472 bytes.
	maxMessage = 2048
	// pktinfoSpace is CMSG_SPACE(sizeof(struct in_pktinfo)).
	pktinfoSpace = (unix.SizeofCmsghdr + unix.SizeofInet4Pktinfo + 7) &^ 7
)

// mmsghdr is struct mmsghdr; the compiler pads it as C does.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// control is room for one IP_PKTINFO, aligned as the kernel wants it.
type controlSpace struct {
	hdr  unix.Cmsghdr
	info unix.Inet4Pktinfo
	_    [pktinfoSpace - unix.SizeofCmsghdr - unix.SizeofInet4Pktinfo]byte
}

// An Inbox receives packets, several with one system call. Its buffers (2 KiB a packet) are used again by the next
// Receive. It belongs to one goroutine.
type Inbox struct {
	msgs    []mmsghdr
	iovs    []unix.Iovec
	names   []unix.RawSockaddrInet4
	control []controlSpace
	bufs    []byte

	used  int // by the last Receive
	errno unix.Errno
	read  func(fd uintptr) bool // bound once, so that Receive does not allocate
}

// NewInbox returns an inbox for up to size packets at a time, at least 1 and at most MaxBatch.
func NewInbox(size int) *Inbox {
	size = min(max(size, 1), MaxBatch)
	b := &Inbox{
		msgs: make([]mmsghdr, size), iovs: make([]unix.Iovec, size), names: make([]unix.RawSockaddrInet4, size),
		control: make([]controlSpace, size), bufs: make([]byte, size*maxMessage), used: size,
	}
	for i := range b.msgs {
		b.iovs[i].Base = &b.bufs[i*maxMessage]
		b.iovs[i].SetLen(maxMessage)
		h := &b.msgs[i].hdr
		h.Name, h.Control, h.Iov = (*byte)(unsafe.Pointer(&b.names[i])), (*byte)(unsafe.Pointer(&b.control[i])), &b.iovs[i]
		h.SetIovlen(1)
	}
	b.read = b.recvmmsg
	return b
}

// A Packet is one datagram. Data belongs to the inbox and holds until its next Receive.
type Packet struct {
	Data    []byte
	From    netip.AddrPort
	Local   netip.Addr // our address that it was sent to, or of the interface where it was broadcast; on any interface only
	IfIndex int        // where it arrived; on any interface only
}

// Receive waits for packets on a port of the socket, PortServer or PortPXE, and returns how many there are: at least one,
// unless err is set. An error that is not net.ErrClosed passes, such as ENETDOWN of a NIC that flaps: wait a little and
// receive again.
func (s *Socket) Receive(port uint16, b *Inbox) (n int, err error) {
	for i := range b.msgs[:b.used] {
		h := &b.msgs[i].hdr
		h.Namelen, h.Flags = unix.SizeofSockaddrInet4, 0
		h.SetControllen(pktinfoSpace)
	}
	b.used = 0
	if err := s.port(port).sys.Read(b.read); err != nil {
		return 0, err
	}
	if b.errno != 0 {
		return 0, os.NewSyscallError("recvmmsg", b.errno)
	}
	return b.used, nil
}

func (b *Inbox) recvmmsg(fd uintptr) bool {
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&b.msgs[0])), uintptr(len(b.msgs)),
		unix.MSG_DONTWAIT, 0, 0)
	if errno == unix.EAGAIN || errno == unix.EINTR {
		return false
	}
	if b.errno = errno; errno == 0 {
		b.used = int(n)
	}
	return true
}

// At returns packet i of the last Receive. A packet that was too long for a frame has no Data.
func (b *Inbox) At(i int) Packet {
	m, name := &b.msgs[i], &b.names[i]
	p := Packet{Data: b.bufs[i*maxMessage:][:m.n:m.n]}
	if m.hdr.Flags&unix.MSG_TRUNC != 0 {
		p.Data = nil
	}
	wire := (*[2]byte)(unsafe.Pointer(&name.Port)) // in network order
	p.From = netip.AddrPortFrom(netip.AddrFrom4(name.Addr), binary.BigEndian.Uint16(wire[:]))
	if c := &b.control[i]; m.hdr.Controllen >= unix.SizeofCmsghdr+unix.SizeofInet4Pktinfo &&
		c.hdr.Level == unix.IPPROTO_IP && c.hdr.Type == unix.IP_PKTINFO {
		p.Local, p.IfIndex = netip.AddrFrom4(c.info.Spec_dst), int(c.info.Ifindex)
	}
	return p
}
