package vip

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/lab"
)

// A packetSocket sends and receives the frames of one protocol on all interfaces, those that are made later too.
type packetSocket struct {
	file     *os.File
	raw      syscall.RawConn
	protocol uint16 // big endian
}

// openPacket opens a socket for frames of an Ethernet type that pass a filter.
func openPacket(protocol uint16, filter []bpf.RawInstruction) (*packetSocket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // no protocol: nothing is received yet
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &packetSocket{file: os.NewFile(uintptr(fd), "packet"), protocol: protocol<<8 | protocol>>8}
	program := make([]unix.SockFilter, 0, len(filter))
	for _, i := range filter {
		program = append(program, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: s.protocol})
	}
	if err == nil {
		s.raw, err = s.file.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

// receive calls heard for each claim until the socket is closed. Other errors, such as that of an interface that goes down, are of one
// frame.
func (s *packetSocket) receive(parse func([]byte) (claim, bool), heard func(claim)) {
	frame := make([]byte, maxFrame)
	for {
		var n int
		var from unix.Sockaddr
		var err error
		closed := s.raw.Read(func(fd uintptr) bool {
			n, from, err = unix.Recvfrom(int(fd), frame, 0)
			return !errors.Is(err, unix.EAGAIN)
		})
		if closed != nil {
			return
		}
		at, ok := from.(*unix.SockaddrLinklayer)
		if err != nil || !ok || at.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if c, ok := parse(frame[:n]); ok {
			c.link = at.Ifindex
			heard(c)
		}
	}
}

// send sends a frame, whose first bytes are the MAC that it is for.
func (s *packetSocket) send(index int, frame []byte) error {
	to := &unix.SockaddrLinklayer{Protocol: s.protocol, Ifindex: index, Halen: uint8(len(lab.MAC{}))}
	copy(to.Addr[:], frame[:len(lab.MAC{})])
	var err error
	if closed := s.raw.Control(func(fd uintptr) { err = unix.Sendto(int(fd), frame, unix.MSG_DONTWAIT, to) }); closed != nil {
		return closed
	}
	return err
}

func (s *packetSocket) close() { _ = s.file.Close() }
