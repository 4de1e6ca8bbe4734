package datagram

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"

	"github.com/bootlab/bootlab/internal/host/socket/sockaddr"

	"golang.org/x/sys/unix"
)

// A control holds the control messages of one datagram. It has room for IP_PKTINFO and IPV6_PKTINFO together, which a
// dual-stack socket gets for an IPv4 datagram.
type control [96]byte

// Prepare sets the options of a server's socket. It enlarges the receive buffer, and makes the kernel say to which address of this
// machine each datagram was sent: on a machine with several addresses a reply must leave from that one, or its receiver drops it.
func Prepare(conn syscall.RawConn) error {
	var err4, err6 error
	if err := conn.Control(func(fd uintptr) {
		EnlargeReceiveBuffer(int(fd))
		err4 = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		err6 = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	}); err != nil {
		return err
	}
	if err4 != nil && err6 != nil { // a socket of one family refuses the other's option
		return fmt.Errorf("set IP_PKTINFO: %w", errors.Join(err4, err6))
	}
	return nil
}

// receiveBuffer is how much may wait in a socket of a server until it is received, counted as the kernel does, with its own overhead: a
// burst of 1,300 small datagrams, as when a rack is switched on or a reload keeps the only CPU busy. The kernel's default is for a fifth
// of that. It is a limit, not memory in use.
const receiveBuffer = 1 << 20

// EnlargeReceiveBuffer makes room in the socket of a server for a burst of datagrams. Beyond net.core.rmem_max it needs CAP_NET_ADMIN;
// without, the socket has what it may have.
func EnlargeReceiveBuffer(fd int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
}

// destination returns the address of this machine that a datagram was sent to and the interface where it arrived, from the
// first n bytes of its control messages. An IPv6 group is no address that a reply could leave from: invalid.
func (c *control) destination(n int) (local netip.Addr, index int) {
	for b := c[:min(n, len(c))]; len(b) >= unix.SizeofCmsghdr; {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		size := int(h.Len)
		if size < unix.SizeofCmsghdr || size > len(b) {
			return local, index
		}
		data := b[unix.CmsgLen(0):size]
		switch {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			// ipi_spec_dst; of a broadcast, unlike IPV6_PKTINFO on the same socket, it is the interface's own address.
			return netip.AddrFrom4([4]byte(data[4:])), int(binary.NativeEndian.Uint32(data))
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			index = int(binary.NativeEndian.Uint32(data[16:]))
			if a := netip.AddrFrom16([16]byte(data)); !a.IsMulticast() {
				local = sockaddr.WithZone(a, index).Unmap()
			}
		}
		b = b[min(unix.CmsgSpace(len(data)), len(b)):]
	}
	return local, index
}

// AppendSource appends the control message that makes a datagram leave from an address of this machine; nothing for an
// invalid address. The interface is left to routing, since the way back need not be the way in, except for a link-local
// address.
func AppendSource(b []byte, source netip.Addr) []byte {
	switch source = source.Unmap(); {
	case source.Is4():
		b, data := appendMessage(b, unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
		a := source.As4()
		copy(data[4:], a[:]) // ipi_spec_dst
		return b
	case source.Is6():
		b, data := appendMessage(b, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
		a := source.As16()
		copy(data, a[:])
		binary.NativeEndian.PutUint32(data[16:], uint32(sockaddr.ZoneIndex(source.Zone())))
		return b
	}
	return b
}

// appendSegmentSize appends the control message that makes the kernel cut what is sent into datagrams of that size
// (UDP_SEGMENT).
func appendSegmentSize(b []byte, size int) []byte {
	b, data := appendMessage(b, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
	binary.NativeEndian.PutUint16(data, uint16(size))
	return b
}

// appendMessage appends a control message with n zero bytes of data, and returns that data too.
func appendMessage(b []byte, level, kind int32, n int) (all, data []byte) {
	at := len(b)
	b = append(b, make([]byte, unix.CmsgSpace(n))...)
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[at]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(n))
	return b, b[at+unix.CmsgLen(0) : at+unix.CmsgLen(n)]
}
