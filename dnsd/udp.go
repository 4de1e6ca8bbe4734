package dnsd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	udpBatch  = 64   // messages that one system call takes
	udpBuffer = 1280 // octets of a query and of its reply, which takes its place
	ctlBuffer = 64
)

// An mmsg is the kernel's struct mmsghdr.
type mmsg struct {
	hdr unix.Msghdr
	n   uint32
}

// A udpReader reads, answers and sends a socket's messages in batches, in place. What has to wait for the forwarder leaves
// it as a copy.
type udpReader struct {
	s    *Server
	conn *net.UDPConn
	raw  syscall.RawConn
	req  request
	wg   *sync.WaitGroup
	ctx  context.Context // of Serve: for the questions that leave the reader

	in, out [udpBatch]mmsg
	iov     [udpBatch]unix.Iovec
	from    [udpBatch]unix.RawSockaddrInet6 // the larger of both families
	ctl     [udpBatch][ctlBuffer]byte
	buf     []byte // udpBuffer octets for each message

	n     int // messages read, or to be sent
	sent  int
	errno syscall.Errno
}

func (s *Server) serveUDP(ctx context.Context, conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = askDestination(raw)
	}
	if err != nil {
		return fmt.Errorf("prepare socket %s: %w", conn.LocalAddr(), err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	u := &udpReader{s: s, conn: conn, raw: raw, wg: &wg, ctx: ctx, buf: make([]byte, udpBatch*udpBuffer)}
	read, write := u.recv, u.send // once: a method value allocates
	for {
		u.reset()
		err := raw.Read(read)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && u.errno == 0:
		case err == nil && transient(u.errno):
			continue
		default:
			return fmt.Errorf("receive on %s: %w", conn.LocalAddr(), errors.Join(err, errnoError(u.errno)))
		}
		u.answerAll()
		for u.sent < u.n {
			if err := raw.Write(write); err != nil {
				break
			}
		}
	}
}

// transient reports whether a socket works again after an error. An ICMP message, say, shows as an error of a socket.
func transient(e syscall.Errno) bool {
	return e != unix.EBADF && e != unix.ENOTSOCK && e != unix.EINVAL && e != unix.EFAULT
}

func errnoError(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// askDestination makes the kernel tell the address that each message was sent to, so that the reply leaves from there: on a
// wildcard socket the kernel would choose another.
func askDestination(raw syscall.RawConn) error {
	var inner error
	err := raw.Control(func(fd uintptr) {
		domain, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
		switch {
		case err != nil:
			inner = err
		case domain == unix.AF_INET6:
			inner = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		default:
			inner = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		}
	})
	return errors.Join(err, inner)
}

// reset makes all messages ready to be received. Only those that the last batch used have changed.
func (u *udpReader) reset() {
	for i := range u.in {
		u.iov[i].Base = &u.buf[i*udpBuffer]
		u.iov[i].SetLen(udpBuffer)
		h := &u.in[i].hdr
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&u.from[i])), unix.SizeofSockaddrInet6
		h.Iov = &u.iov[i]
		h.SetIovlen(1)
		h.Control = &u.ctl[i][0]
		h.SetControllen(ctlBuffer)
		h.Flags = 0
	}
	u.n, u.sent = 0, 0
}

// recv is called by the poller when there may be something to read; false waits.
func (u *udpReader) recv(fd uintptr) bool {
	n, errno := uintptr(0), unix.EINTR
	for errno == unix.EINTR {
		n, _, errno = unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&u.in)), udpBatch, unix.MSG_DONTWAIT, 0, 0)
	}
	if errno == unix.EAGAIN {
		return false
	}
	if u.errno = errno; errno == 0 {
		u.n = int(n)
	}
	return true
}

// send is called by the poller when there may be room; false waits. A message that cannot be sent is passed over.
func (u *udpReader) send(fd uintptr) bool {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&u.out[u.sent])), uintptr(u.n-u.sent), unix.MSG_DONTWAIT, 0, 0)
	switch errno {
	case 0:
		u.sent += int(n)
	case unix.EAGAIN:
		return false
	case unix.EINTR: // again, by the caller's loop
	default:
		u.sent++
	}
	return true
}

// answerAll answers the messages of a batch and lines the replies up in out.
func (u *udpReader) answerAll() {
	received := u.n
	u.n = 0
	for i := range received {
		if u.answer(i) {
			u.out[u.n].hdr = u.in[i].hdr
			u.n++
		}
	}
}

// answer answers message i and reports whether there is a reply to be sent with the batch.
func (u *udpReader) answer(i int) bool {
	defer u.s.tookPanic()
	m := &u.in[i]
	if m.hdr.Flags&unix.MSG_TRUNC != 0 || m.n < headerLen {
		u.s.metrics.dropped[dropMalformed].Inc()
		return false
	}
	r := &u.req
	r.from = u.addr(i).Unmap()
	r.w.b = u.buf[i*udpBuffer : i*udpBuffer+int(m.n) : (i+1)*udpBuffer]
	if len(r.w.b) > maxUDP {
		r.w.b = r.w.b[:maxUDP]
	}
	u.keepDestination(i)
	switch u.s.handle(r) {
	case ready:
		u.iov[i].SetLen(len(r.w.b))
		return true
	case pending:
		return u.handOn(i)
	default:
		u.s.metrics.dropped[dropMalformed].Inc()
	}
	return false
}

// handOn hands the question on, with all that its reply needs, and reports whether there is a reply without.
func (u *udpReader) handOn(i int) bool {
	switch u.s.waiting.enter(u.req.from) {
	case noTurn:
		u.s.metrics.dropped[dropBusy].Inc() // the client asks again
		return false
	case tooMany:
		u.s.turnAway(&u.req)
		u.iov[i].SetLen(len(u.req.w.b))
		return true
	}
	r := u.req.clone()
	to := netip.AddrPortFrom(u.addr(i), u.port(i))
	oob := append([]byte(nil), u.ctl[i][:int(u.in[i].hdr.Controllen)]...)
	u.wg.Go(func() {
		defer u.s.waiting.leave(r.from)
		defer u.s.tookPanic()
		u.s.await(u.ctx, r)
		_, _, _ = u.conn.WriteMsgUDPAddrPort(r.w.b, oob, to) // a client that is gone is no error of ours
	})
	return false
}

// addr returns whom message i is from.
func (u *udpReader) addr(i int) netip.Addr {
	sa := &u.from[i]
	if sa.Family == unix.AF_INET {
		return netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(sa)).Addr)
	}
	a := netip.AddrFrom16(sa.Addr)
	if a.IsLinkLocalUnicast() && !a.Is4In6() {
		return a.WithZone(strconv.FormatUint(uint64(sa.Scope_id), 10))
	}
	return a
}

// port returns the port that message i is from.
func (u *udpReader) port(i int) uint16 {
	p := (*[2]byte)(unsafe.Pointer(&u.from[i].Port)) // in both families at the same place
	return binary.BigEndian.Uint16(p[:])
}

// keepDestination makes the destination of message i the source of its reply. The interface is left to routing, as the way
// back need not be the way in, except for link-local addresses.
func (u *udpReader) keepDestination(i int) {
	h := &u.in[i].hdr
	n := int(h.Controllen)
	h.SetControllen(0)
	if n < unix.CmsgLen(unix.SizeofInet4Pktinfo) {
		return
	}
	c := (*unix.Cmsghdr)(unsafe.Pointer(&u.ctl[i]))
	data := unsafe.Pointer(&u.ctl[i][unix.CmsgLen(0)])
	switch {
	case c.Level == unix.IPPROTO_IP && c.Type == unix.IP_PKTINFO:
		(*unix.Inet4Pktinfo)(data).Ifindex = 0
		h.SetControllen(unix.CmsgSpace(unix.SizeofInet4Pktinfo))
	case c.Level == unix.IPPROTO_IPV6 && c.Type == unix.IPV6_PKTINFO && n >= unix.CmsgLen(unix.SizeofInet6Pktinfo):
		info := (*unix.Inet6Pktinfo)(data)
		dst := netip.AddrFrom16(info.Addr)
		if dst.IsMulticast() {
			return
		}
		if !dst.IsLinkLocalUnicast() {
			info.Ifindex = 0
		}
		h.SetControllen(unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	}
}
