package tftpload

import (
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	batch    = 64   // packets per system call
	longest  = 9216 // bytes of a packet
	receives = 4 << 20
)

// A socket is a UDP socket that never blocks. It is the server's alone once that has answered.
type socket struct {
	fd        int
	server    unix.SockaddrInet4
	connected bool
}

func newSocket(server netip.AddrPort) (socket, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return socket{}, fmt.Errorf("tftpload: open a socket: %w", err)
	}
	// A window must fit. More than the administrator allows is for root; what others get is enough for a window of 16.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receives)
	return socket{fd: fd, server: unix.SockaddrInet4{Port: int(server.Port()), Addr: server.Addr().As4()}}, nil
}

func (s *socket) close() { _ = unix.Close(s.fd) }

func (s *socket) send(b []byte) error {
	if !s.connected {
		return unix.Sendto(s.fd, b, 0, &s.server)
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// A message is the kernel's struct mmsghdr.
type message struct {
	header unix.Msghdr
	length uint32
	_      uint32
}

// An inbox is room for a batch of packets.
type inbox struct {
	messages [batch]message
	vectors  [batch]unix.Iovec
	buffers  [batch][longest]byte
}

func newInbox() *inbox {
	in := &inbox{}
	for i := range in.messages {
		in.vectors[i].Base = &in.buffers[i][0]
		in.vectors[i].SetLen(longest)
		in.messages[i].header.Iov = &in.vectors[i]
		in.messages[i].header.SetIovlen(1)
	}
	return in
}

// packet returns the i-th packet that was received last.
func (in *inbox) packet(i int) []byte { return in.buffers[i][:in.messages[i].length] }

// receive takes what there is, at most n packets.
func (s *socket) receive(in *inbox, n int) (int, error) {
	if !s.connected {
		return s.first(in)
	}
	got, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&in.messages[0])), uintptr(n), unix.MSG_DONTWAIT, 0, 0)
	switch errno {
	case 0:
		return int(got), nil
	case unix.EAGAIN, unix.EINTR:
		return 0, nil
	}
	return 0, errno
}

// first takes the first answer, whose port is the transfer's (RFC 1350 section 4).
func (s *socket) first(in *inbox) (int, error) {
	n, from, err := unix.Recvfrom(s.fd, in.buffers[0][:], unix.MSG_DONTWAIT)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return 0, nil
	case err != nil:
		return 0, err
	}
	in.messages[0].length = uint32(n)
	s.connected = true
	return 1, unix.Connect(s.fd, from)
}
