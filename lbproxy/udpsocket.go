package lbproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"

	"github.com/bootlab/bootlab/internal/host/datagram"

	"golang.org/x/sys/unix"
)

// A udpSocket is one address and port of a balancer of mode udp.
type udpSocket struct {
	conn PacketConn
	addr netip.AddrPort
	fd   fileDescriptor // of conn; only udpProxy closes it
}

// ListenPacketFree opens a UDP socket at an address that no interface needs to have yet, as ListenFree does for TCP.
func ListenPacketFree(ctx context.Context, addr netip.AddrPort) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: func(network, _ string, c syscall.RawConn) error {
		var err error
		if cerr := c.Control(func(fd uintptr) { err = freeBind(int(fd), network == "udp6") }); cerr != nil {
			return cerr
		}
		return err
	}}
	conn, err := lc.ListenPacket(ctx, "udp", addr.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

// A PacketConn is a UDP socket.
type PacketConn interface {
	syscall.Conn
	io.Closer
}

// newUDPSocket prepares a socket, also one of the process before: replies leave from the address that the client has sent to.
func newUDPSocket(conn PacketConn, addr netip.AddrPort) (*udpSocket, error) {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = datagram.Prepare(raw)
	}
	if err != nil {
		return nil, err
	}
	s := &udpSocket{conn: conn, addr: addr}
	err = raw.Control(func(fd uintptr) { s.fd = fileDescriptor(fd) })
	return s, err
}

// connectUDP returns a socket that receives from a backend alone, and its ICMP errors.
func connectUDP(to netip.AddrPort) (fileDescriptor, error) {
	fd, err := openSocket(to, unix.SOCK_DGRAM)
	if err != nil {
		return 0, err
	}
	if err := connectSocket(fd, to); err != nil {
		_ = closeSocket(fd)
		return 0, err
	}
	return fileDescriptor(fd), nil
}

// errWouldBlock says that a socket has nothing to receive, or no room to send.
var errWouldBlock = errors.New("would block")

// A fileDescriptor is a socket of one goroutine that never waits for it.
type fileDescriptor int

// Control implements syscall.RawConn.
func (fd fileDescriptor) Control(f func(uintptr)) error { f(uintptr(fd)); return nil }

// Read implements syscall.RawConn. It fails with errWouldBlock instead of waiting.
func (fd fileDescriptor) Read(f func(uintptr) bool) error {
	if !f(uintptr(fd)) {
		return errWouldBlock
	}
	return nil
}

// Write implements syscall.RawConn. It fails with errWouldBlock instead of waiting.
func (fd fileDescriptor) Write(f func(uintptr) bool) error { return fd.Read(f) }

func (fd fileDescriptor) close() { _ = closeSocket(int(fd)) }
