// Package packet sends and receives Ethernet frames of one protocol (packet(7)): on all interfaces, those that are made later too, or on one.
//
//	s, err := packet.Open(unix.ETH_P_ARP, arp.Filter()) // needs CAP_NET_RAW
//	go s.Receive(arp.Size, func(f packet.Frame) { … })  // until Close
//	err = s.Send(index, frame)
//
// It parses nothing but the addresses of frames. Sum is for checksums of what is in them.
package packet

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// sizeMAC is the length of an Ethernet address.
const sizeMAC = 6

// A Socket is safe for concurrent use.
type Socket struct {
	file     *os.File
	raw      syscall.RawConn
	protocol uint16 // big endian
}

// A Frame is one that this machine received.
type Frame struct {
	Link  int    // the index of the interface
	Host  bool   // it is for this machine alone, and no multicast or broadcast
	Bytes []byte // from the Ethernet header on; valid until the function that got them returns
}

// Source returns the MAC that sent the frame.
func (f Frame) Source() (mac [sizeMAC]byte) {
	copy(mac[:], f.Bytes[min(sizeMAC, len(f.Bytes)):])
	return mac
}

// Open opens a socket for frames of an Ethernet type (such as unix.ETH_P_ARP) that pass a filter, on all interfaces.
func Open(protocol uint16, filter []bpf.RawInstruction) (*Socket, error) {
	return OpenOn(0, protocol, filter)
}

// OpenOn is Open on the interface of that index. A socket of protocol 0 only sends; without a filter all frames pass.
func OpenOn(link int, protocol uint16, filter []bpf.RawInstruction) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // no protocol: nothing is received yet
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &Socket{file: os.NewFile(uintptr(fd), "packet"), protocol: binary.NativeEndian.Uint16([]byte{byte(protocol >> 8), byte(protocol)})}
	if err = attach(fd, filter); err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: s.protocol, Ifindex: link}))
	}
	if err == nil {
		s.raw, err = s.file.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

// attach makes the kernel drop what does not pass the filter.
func attach(fd int, filter []bpf.RawInstruction) error {
	if len(filter) == 0 {
		return nil
	}
	program := make([]unix.SockFilter, 0, len(filter))
	for _, i := range filter {
		program = append(program, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	return os.NewSyscallError("setsockopt", err)
}

// Receive calls received for each frame that another machine sent, until the socket is closed. Of a frame, size bytes are read at most. Other
// errors, such as that of an interface that goes down, are of one frame.
func (s *Socket) Receive(size int, received func(Frame)) {
	b := make([]byte, size)
	for {
		var n int
		var from unix.Sockaddr
		var err error
		closed := s.raw.Read(func(fd uintptr) bool {
			n, from, err = unix.Recvfrom(int(fd), b, 0)
			return !errors.Is(err, unix.EAGAIN)
		})
		if closed != nil {
			return
		}
		at, ok := from.(*unix.SockaddrLinklayer)
		if err == nil && ok && at.Pkttype != unix.PACKET_OUTGOING {
			received(Frame{Link: at.Ifindex, Host: at.Pkttype == unix.PACKET_HOST, Bytes: b[:n]})
		}
	}
}

// Read waits for a frame, which this machine may have sent if the protocol is ETH_P_ALL. Its errors are os.ErrDeadlineExceeded, os.ErrClosed,
// and those of the interface, after which it can be called again. It does not allocate.
func (s *Socket) Read(b []byte) (n int, err error) { return s.file.Read(b) }

// ReadNow reads a frame that has arrived; ok is false if none has.
func (s *Socket) ReadNow(b []byte) (n int, ok bool) {
	var err error
	closed := s.raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), b) })
	return max(n, 0), closed == nil && err == nil
}

// SetReadDeadline makes Read return os.ErrDeadlineExceeded from that time on; zero: never.
func (s *Socket) SetReadDeadline(t time.Time) error { return s.file.SetReadDeadline(t) }

// Stats returns how many frames passed the filter since it was called last, and how many of them found no room.
func (s *Socket) Stats() (stats *unix.TpacketStats, err error) {
	closed := s.raw.Control(func(fd uintptr) {
		stats, err = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	})
	return stats, errors.Join(closed, err)
}

// Conn returns the descriptor, for further options and for batches of frames.
func (s *Socket) Conn() syscall.RawConn { return s.raw }

// Send sends a frame now or not at all, by the interface of that index. Its first bytes are the MAC that it is for.
func (s *Socket) Send(link int, frame []byte) error {
	to := &unix.SockaddrLinklayer{Protocol: s.protocol, Ifindex: link, Halen: sizeMAC}
	copy(to.Addr[:], frame[:sizeMAC])
	var err error
	if closed := s.raw.Control(func(fd uintptr) { err = unix.Sendto(int(fd), frame, unix.MSG_DONTWAIT, to) }); closed != nil {
		return closed
	}
	return os.NewSyscallError("sendto", err)
}

// Close ends Receive.
func (s *Socket) Close() { _ = s.file.Close() }

// Sum adds b to a ones' complement sum (RFC 1071). Words of four bytes give the same sum once their carries are folded.
func Sum(sum uint16, b []byte) uint16 {
	s := uint64(sum)
	for ; len(b) >= 4; b = b[4:] {
		s += uint64(binary.BigEndian.Uint32(b))
	}
	if len(b) >= 2 {
		s += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}
