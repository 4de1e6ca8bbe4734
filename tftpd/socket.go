package tftpd

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"github.com/bootlab/bootlab/internal/host/datagram"

	"golang.org/x/sys/unix"
)

// A port is a transfer's own socket, whose number is its transfer identifier (RFC 1350 section 4). It makes its system calls
// itself: in lock-step each block waits for them, and package net's make three where two do.
type socket struct {
	conn    *net.UDPConn
	raw     syscall.RawConn
	fd      uintptr // good until close
	batch   batcher
	busy    busyPoll
	held    []byte    // what ask left to receive
	armed   time.Time // the deadline that the socket has
	look    func() bool
	wake    func(fd uintptr) bool // these two are p.peek and p.awake, made once
	unwatch func() bool
	client  address
	joined  bool    // the socket is connected to it
	from    address // of the packet that came last
	out     unix.Msghdr
	vector  unix.Iovec
	cut     []byte // the control message of the segment size
	size    int    // that cut was made for
	in      [512]byte
	got     int // bytes in it
	err     syscall.Errno

	unknownTIDs int
}

// maxUnknownTIDs is how many packets of strangers one transfer answers.
const maxUnknownTIDs = 16

// newSocket opens the port of one transfer, on that address of ours. The end of ctx wakes whoever reads. busy says how many transfers
// there are.
func newSocket(ctx context.Context, local netip.Addr, client netip.AddrPort, busy func() int) (*socket, error) {
	conn, err := dial(local, client.Addr())
	if err != nil {
		return nil, err
	}
	p := &socket{conn: conn, client: addressOf(client), busy: busyPoll{busy: busy}}
	p.batch.to, p.look, p.wake = p, p.peek, p.awake
	p.raw, err = conn.SyscallConn()
	if err == nil {
		err = p.raw.Control(func(fd uintptr) { p.fd = fd })
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	p.unwatch = context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	return p, nil
}

func (p *socket) close() {
	p.unwatch()
	_ = p.conn.Close()
}

// An address is one as the kernel takes it: sockaddr_in or sockaddr_in6.
type address struct {
	raw    unix.RawSockaddrInet6
	length uint32
}

func addressOf(a netip.AddrPort) address {
	s := address{length: unix.SizeofSockaddrInet6}
	if a.Addr().Is4() {
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
		in.Family, in.Addr = unix.AF_INET, a.Addr().As4()
		s.length = unix.SizeofSockaddrInet4
	} else {
		s.raw.Family, s.raw.Addr = unix.AF_INET6, a.Addr().As16()
		if card, err := net.InterfaceByName(a.Addr().Zone()); err == nil {
			s.raw.Scope_id = uint32(card.Index)
		}
	}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&s.raw.Port))[:], a.Port()) // at one place in both
	return s
}

func (s *address) addrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&s.raw.Port))[:])
	if s.raw.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw)).Addr), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(s.raw.Addr), port)
}

// same reports whether two are of one peer.
func (s *address) same(o *address) bool {
	if s.raw.Family == unix.AF_INET {
		a, b := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw)), (*unix.RawSockaddrInet4)(unsafe.Pointer(&o.raw))
		return a.Family == b.Family && a.Port == b.Port && a.Addr == b.Addr
	}
	return s.raw.Family == o.raw.Family && s.raw.Port == o.raw.Port && s.raw.Addr == o.raw.Addr
}

func (p *socket) send(b []byte, size int) error { return p.mean(p.batch.send(b, size)) }

// ask leaves the packet to receive, which sends it when it can hear the answer.
func (p *socket) ask(b []byte) error {
	p.held = b
	return nil
}

// write implements writer.
func (p *socket) write(b []byte, segment int) error {
	if err := p.try(b, segment); err != unix.EAGAIN {
		return errnoOf(err)
	}
	return p.patient(b, segment)
}

// patient sends once there is room in the socket.
func (p *socket) patient(b []byte, segment int) error {
	var err syscall.Errno
	if e := p.raw.Write(func(uintptr) bool { err = p.try(b, segment); return err != unix.EAGAIN }); e != nil {
		return e
	}
	return errnoOf(err)
}

// try sends without waiting for room.
func (p *socket) try(b []byte, segment int) syscall.Errno {
	if segment == 0 {
		return p.sendto(b)
	}
	if p.size != segment {
		p.cut, p.size = datagram.AppendSegmentSize(p.cut[:0], segment), segment
	}
	p.vector.Base = &b[0]
	p.vector.SetLen(len(b))
	p.out.Iov = &p.vector
	p.out.SetIovlen(1)
	p.out.Name, p.out.Namelen = (*byte)(unsafe.Pointer(&p.client.raw)), p.client.length
	p.out.Control = &p.cut[0]
	p.out.SetControllen(len(p.cut))
	_, _, err := unix.RawSyscall(unix.SYS_SENDMSG, p.fd, uintptr(unsafe.Pointer(&p.out)), sendFlags)
	return err
}

const sendFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL

// sendto sends one packet, to where the socket is connected if it is.
func (p *socket) sendto(b []byte) syscall.Errno {
	var to unsafe.Pointer
	length := uint32(0)
	if !p.joined {
		to, length = unsafe.Pointer(&p.client.raw), p.client.length
	}
	_, _, err := unix.RawSyscall6(unix.SYS_SENDTO, p.fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), sendFlags, uintptr(to), uintptr(length))
	return err
}

// join connects the socket to the client, which saves the kernel a tenth of its work for each packet. Strangers are turned away by the
// kernel then, with ICMP in place of ERROR 5, so it is done in a crowd only.
func (p *socket) join() {
	_, _, err := unix.RawSyscall(unix.SYS_CONNECT, p.fd, uintptr(unsafe.Pointer(&p.client.raw)), uintptr(p.client.length))
	p.joined = err == 0
}

// errnoOf keeps 0 from becoming an error.
func errnoOf(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// receive implements line. Strangers are told that they are.
func (p *socket) receive(ctx context.Context, deadline time.Time) (reply, error) {
	for {
		if err := p.next(ctx, deadline); err != nil {
			return reply{}, err
		}
		switch {
		case p.joined:
		case !p.from.same(&p.client):
			p.rejectUnknownTID()
			continue
		case p.busy.crowd():
			p.join()
		}
		if r, ok := parseReply(p.in[:p.got]); ok {
			return r, nil
		}
	}
}

// rejectUnknownTID answers a stranger with ERROR 5 (RFC 1350 section 4), without disturbing the transfer.
func (p *socket) rejectUnknownTID() {
	if p.unknownTIDs++; p.unknownTIDs <= maxUnknownTIDs {
		_, _ = p.conn.WriteToUDPAddrPort(appendError(nil, CodeUnknownTID, "unknown transfer"), p.from.addrPort())
	}
}

// next reads the next packet, whoever sent it.
func (p *socket) next(ctx context.Context, deadline time.Time) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if p.busy.fits() {
		if err := p.flush(); err != nil {
			return p.mean(err)
		}
		if p.busy.poll(p.look) {
			return p.mean(errnoOf(p.err))
		}
	}
	for {
		if err := p.arm(ctx, deadline); err != nil {
			return err
		}
		err := p.raw.Read(p.wake)
		switch {
		case err == nil:
			return p.mean(errnoOf(p.err))
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(deadline):
			return err
		}
		p.armed = time.Time{}
	}
}

// tooEarly is how much sooner than it should a read may end. To set a deadline costs as much as a tenth of a block, so one that is
// not too early stays: whoever it wakes looks at the clock.
const tooEarly = minWait / 2

// arm makes reads end at the deadline or before. It sees to it that the end of ctx is not missed.
func (p *socket) arm(ctx context.Context, deadline time.Time) error {
	if early := deadline.Sub(p.armed); early >= 0 && early < tooEarly {
		return nil
	}
	p.armed = deadline
	if err := p.conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	if ctx.Err() != nil { // its own deadline may have been set before this one
		return context.Cause(ctx)
	}
	return nil
}

// flush sends what ask has left.
func (p *socket) flush() error {
	if p.held == nil {
		return nil
	}
	b := p.held
	p.held = nil
	return p.write(b, 0)
}

// awake is called when there may be something to read, and before: what ask has left goes then. The answer cannot come sooner,
// so there is no need to look for it.
func (p *socket) awake(uintptr) bool {
	if p.held != nil {
		b := p.held
		p.held = nil
		p.err = p.sendto(b)
		return p.err != 0
	}
	return p.peek()
}

// peek reads a packet if there is one, and reports whether there was, or an error.
func (p *socket) peek() bool {
	var from, length unsafe.Pointer
	if !p.joined {
		p.from.length = unix.SizeofSockaddrInet6
		from, length = unsafe.Pointer(&p.from.raw), unsafe.Pointer(&p.from.length)
	}
	n, _, err := unix.RawSyscall6(unix.SYS_RECVFROM, p.fd, uintptr(unsafe.Pointer(&p.in[0])), uintptr(len(p.in)), unix.MSG_DONTWAIT,
		uintptr(from), uintptr(length))
	p.got, p.err = int(n), err
	return err != unix.EAGAIN && err != unix.EINTR
}

// mean turns the kernel's word that a port is closed into what that means.
func (p *socket) mean(err error) error {
	switch {
	case !errors.Is(err, unix.ECONNREFUSED):
		return err
	case p.unknownTIDs > 0:
		return errPortClosed
	}
	return errGone
}
