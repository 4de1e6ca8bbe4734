// Package rtnetlink asks the kernel about routes, links, addresses and neighbours, and changes them (rtnetlink(7)).
//
//	c, err := rtnetlink.Open()
//	defer c.Close()
//	reply, err := c.Get(unix.RTM_GETLINK, unix.RTM_NEWLINK, body, unix.SizeofIfInfomsg)
//	err = c.Change(unix.RTM_NEWADDR, unix.NLM_F_CREATE, body) // needs CAP_NET_ADMIN
//
// It does one request at a time, and knows no meaning of what it carries.
package rtnetlink

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// wait ends what hangs: the kernel answers at once.
const wait = 5 * time.Second

// attrType masks the flags out of the type of an attribute (NLA_TYPE_MASK).
const attrType = 0x3fff

// A Conn is a netlink socket. It is for one goroutine at a time.
type Conn struct {
	fd  int
	seq uint32
	buf []byte
}

// Open returns a socket, which Close closes. It needs no privilege; the kernel asks for one when something is changed.
func Open() (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	timeout := unix.NsecToTimeval(int64(wait))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("setsockopt", err)
	}
	return &Conn{fd: fd, buf: make([]byte, 16<<10)}, nil
}

// Close closes the socket.
func (c *Conn) Close() { _ = unix.Close(c.fd) }

// A Message is a reply of the kernel. It holds until the next request.
type Message struct {
	Head []byte // the fixed part
	rest []byte // attributes
}

// Attrs yields the attributes.
func (m Message) Attrs() func(yield func(kind uint16, value []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for b := m.rest; len(b) >= unix.SizeofRtAttr; {
			n := int(binary.NativeEndian.Uint16(b))
			if n < unix.SizeofRtAttr || n > len(b) || !yield(binary.NativeEndian.Uint16(b[2:])&attrType, b[unix.SizeofRtAttr:n]) {
				return
			}
			b = b[min(align(n), len(b)):]
		}
	}
}

// Get sends a request for one object and returns the reply of that type, whose fixed part has that size. An error of the kernel is a
// syscall.Errno.
func (c *Conn) Get(request, reply uint16, body []byte, size int) (Message, error) {
	if err := c.send(request, 0, body); err != nil {
		return Message{}, err
	}
	return c.receive(reply, size)
}

// Change sends a request that changes something, with these further flags, and waits for its outcome. An error of the kernel is a
// syscall.Errno; without the privilege it is fs.ErrPermission, too.
func (c *Conn) Change(request, flags uint16, body []byte) error {
	if err := c.send(request, unix.NLM_F_ACK|flags, body); err != nil {
		return err
	}
	_, err := c.receive(unix.NLMSG_ERROR, 4)
	return err
}

func (c *Conn) send(request, flags uint16, body []byte) error {
	c.seq++
	b := make([]byte, 0, unix.SizeofNlMsghdr+len(body))
	b = binary.NativeEndian.AppendUint32(b, uint32(unix.SizeofNlMsghdr+len(body)))
	b = binary.NativeEndian.AppendUint16(b, request)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = binary.NativeEndian.AppendUint32(b, c.seq)
	b = binary.NativeEndian.AppendUint32(b, 0) // the kernel fills in the port
	return os.NewSyscallError("sendto", unix.Sendto(c.fd, append(b, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
}

// receive waits for the reply to the last request.
func (c *Conn) receive(reply uint16, size int) (Message, error) {
	for {
		n, from, err := unix.Recvfrom(c.fd, c.buf, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return Message{}, os.NewSyscallError("recvfrom", err)
		}
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
			continue // not the kernel
		}
		if m, done, err := c.parse(c.buf[:n], reply, size); done {
			return m, err
		}
	}
}

// parse looks in b for the reply to the last request. An error message with the number 0 is success.
func (c *Conn) parse(b []byte, reply uint16, size int) (m Message, done bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.SizeofNlMsghdr || n > len(b) {
			break
		}
		kind, body := binary.NativeEndian.Uint16(b[4:]), b[unix.SizeofNlMsghdr:n]
		switch {
		case binary.NativeEndian.Uint32(b[8:]) != c.seq:
		case kind == unix.NLMSG_ERROR && len(body) >= 4 && binary.NativeEndian.Uint32(body) != 0:
			return m, true, syscall.Errno(-int32(binary.NativeEndian.Uint32(body)))
		case kind == reply && len(body) >= size:
			return Message{body[:size], body[min(align(size), len(body)):]}, true, nil
		}
		b = b[min(align(n), len(b)):]
	}
	return m, false, nil
}

// AppendAttr appends an attribute to the body of a request.
func AppendAttr(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, align(len(b))-len(b))...)
}

// Family returns the address family of an address, as a body has it.
func Family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }
