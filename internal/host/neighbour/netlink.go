package neighbour

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/lab"
)

// A kernel asks the kernel of its routes, links and neighbours (rtnetlink(7)). It needs no privilege.
type kernel struct {
	fd  int
	seq uint32
	buf []byte
}

// netlinkWait ends what hangs: the kernel answers at once.
const netlinkWait = 5 * time.Second

func openKernel() (*kernel, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	wait := unix.NsecToTimeval(int64(netlinkWait))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("setsockopt", err)
	}
	return &kernel{fd: fd, buf: make([]byte, 16<<10)}, nil
}

func (k *kernel) close() { _ = unix.Close(k.fd) }

// A route is the way to an address.
type route struct {
	link   int        // the index of its interface
	direct bool       // no router on the way, and not this machine itself
	source netip.Addr // that this machine sends from
}

// route returns the way to addr.
func (k *kernel) route(addr netip.Addr) (r route, err error) {
	body := make([]byte, unix.SizeofRtMsg)
	body[0], body[1] = family(addr), byte(addr.BitLen())
	body = appendAttr(body, unix.RTA_DST, addr.AsSlice())
	reply, err := k.ask(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, body, unix.SizeofRtMsg)
	if err != nil {
		return r, fmt.Errorf("find the route to %s: %w", addr, err)
	}
	r.direct = reply.head[7] == unix.RTN_UNICAST
	for kind, value := range reply.attrs() {
		switch kind {
		case unix.RTA_OIF:
			if len(value) == 4 {
				r.link = int(binary.NativeEndian.Uint32(value))
			}
		case unix.RTA_GATEWAY, unix.RTA_VIA:
			r.direct = false
		case unix.RTA_PREFSRC:
			r.source, _ = netip.AddrFromSlice(value)
		}
	}
	return r, nil
}

// hardware returns the MAC of an interface; false if it has none, as a tunnel.
func (k *kernel) hardware(link int) (mac lab.MAC, ok bool, err error) {
	body := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(body[4:], uint32(link))
	reply, err := k.ask(unix.RTM_GETLINK, unix.RTM_NEWLINK, body, unix.SizeofIfInfomsg)
	if err != nil {
		return mac, false, fmt.Errorf("find the MAC of interface %d: %w", link, err)
	}
	if binary.NativeEndian.Uint16(reply.head[2:]) != unix.ARPHRD_ETHER {
		return mac, false, nil
	}
	for kind, value := range reply.attrs() {
		if kind == unix.IFLA_ADDRESS && len(value) == len(mac) {
			return lab.MAC(value), true, nil
		}
	}
	return mac, false, nil
}

// neighbour returns the MAC that the kernel sends to for an address of an interface's segment; zero: none is known. Kernels before 5.0 do
// not answer for a single address: none is known then.
func (k *kernel) neighbour(link int, addr netip.Addr) (mac lab.MAC) {
	body := make([]byte, unix.SizeofNdMsg)
	body[0] = family(addr)
	binary.NativeEndian.PutUint32(body[4:], uint32(link))
	body = appendAttr(body, unix.NDA_DST, addr.AsSlice())
	reply, err := k.ask(unix.RTM_GETNEIGH, unix.RTM_NEWNEIGH, body, unix.SizeofNdMsg)
	if err != nil {
		return mac
	}
	for kind, value := range reply.attrs() {
		if kind == unix.NDA_LLADDR && len(value) == len(mac) {
			return lab.MAC(value)
		}
	}
	return mac
}

// attrType masks the flags out of the type of an attribute (NLA_TYPE_MASK).
const attrType = 0x3fff

// A message is a reply of the kernel.
type message struct {
	head []byte // of fixed size
	rest []byte // attributes
}

// attrs yields the attributes.
func (m message) attrs() func(yield func(kind uint16, value []byte) bool) {
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

// ask sends one request and returns its reply, whose fixed part has that size. The reply holds until the next request.
func (k *kernel) ask(request, reply uint16, body []byte, size int) (message, error) {
	k.seq++
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	b = binary.NativeEndian.AppendUint16(b, request)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, k.seq)
	b = binary.NativeEndian.AppendUint32(b, 0) // the kernel fills in the port
	if err := unix.Sendto(k.fd, append(b, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return message{}, os.NewSyscallError("sendto", err)
	}
	for {
		n, from, err := unix.Recvfrom(k.fd, k.buf, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return message{}, os.NewSyscallError("recvfrom", err)
		}
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
			continue // not the kernel
		}
		if m, done, err := k.parse(k.buf[:n], reply, size); done {
			return m, err
		}
	}
}

// parse looks in b for the reply to the last request.
func (k *kernel) parse(b []byte, reply uint16, size int) (m message, done bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.SizeofNlMsghdr || n > len(b) {
			break
		}
		kind, body := binary.NativeEndian.Uint16(b[4:]), b[unix.SizeofNlMsghdr:n]
		switch {
		case binary.NativeEndian.Uint32(b[8:]) != k.seq:
		case kind == unix.NLMSG_ERROR && len(body) >= 4:
			return m, true, syscall.Errno(-int32(binary.NativeEndian.Uint32(body)))
		case kind == reply && len(body) >= size:
			return message{body[:size], body[min(align(size), len(body)):]}, true, nil
		}
		b = b[min(align(n), len(b)):]
	}
	return m, false, nil
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

func appendAttr(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return append(b, value...) // an address ends on a boundary
}

func family(addr netip.Addr) byte {
	if addr.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
