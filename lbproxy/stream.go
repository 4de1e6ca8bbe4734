package lbproxy

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/socket/sockaddr"
)

// A stream is a TCP socket of mode tcp, which an event loop waits for. Package net would register it with an epoll of its own,
// and make six system calls for options and addresses that nobody needs. One goroutine at a time owns a stream: it reads,
// writes and closes. Others only look at the socket and reset it.
type stream struct {
	net.Conn                 // nil: it is one only for functions that take either
	relay      *relay        // before a loop has the stream
	notify     chan struct{} // instead of relay: holds one value after an event
	generation uint32        // distinguishes it from an earlier one with the same descriptor; of the loop, as the rest
	fin        bool          // the peer's end has come
	failed     bool          // an error has come, such as a reset: a read returns it after the last bytes
	urgent     bool          // the peer sends urgent data
	writable   bool          // the loop waits until it is, too

	mu   sync.Mutex // held to close it, and by others while they use fd
	fd   int        // -1: closed
	loop *loop      // nil: none waits for it
}

// connectStream begins to connect. An error of the backend may come now or later.
func connectStream(to netip.AddrPort) (*stream, error) {
	fd, err := openSocket(to, unix.SOCK_STREAM)
	if err != nil {
		return nil, dialFailure(to, err)
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0) // see handshakes; a failure costs a packet
	if err := connectSocket(fd, to); err != nil {
		_ = closeSocket(fd)
		return nil, dialFailure(to, err)
	}
	return &stream{fd: fd}, nil
}

// dialFailure is the error of package net.
func dialFailure(to netip.AddrPort, err error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: err}
}

// connectError returns why a connect failed; nil: it did not.
func (st *stream) connectError() error {
	n, err := unix.GetsockoptInt(st.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	if n == 0 {
		return nil
	}
	return os.NewSyscallError("connect", unix.Errno(n))
}

// detach takes the socket of a connection away from package net. conn is closed.
func detach(conn *net.TCPConn) (*stream, error) {
	defer func() { _ = conn.Close() }()
	fd, err := -1, error(nil)
	if !control(conn, func(of int) { fd, err = unix.FcntlInt(uintptr(of), unix.F_DUPFD_CLOEXEC, 0) }) {
		return nil, net.ErrClosed
	}
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &stream{fd: fd}, nil
}

// streamOf returns the connection as a stream, taken away from package net.
func streamOf(conn net.Conn) (*stream, error) {
	switch c := conn.(type) {
	case *stream:
		return c, nil
	case *net.TCPConn:
		return detach(c)
	}
	return nil, fmt.Errorf("%T is no TCP connection", conn)
}

// netConn gives the socket to package net. The stream is closed.
func (st *stream) netConn() (net.Conn, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	file := os.NewFile(uintptr(st.fd), "")
	st.fd = -1
	defer func() { _ = file.Close() }()
	return net.FileConn(file)
}

func (st *stream) localAddr() (addr netip.AddrPort) {
	st.control(func(fd uintptr) { addr = socketAddr(int(fd)) })
	return addr
}

// control calls f with the descriptor; false: the stream is closed.
func (st *stream) control(f func(fd uintptr)) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.fd < 0 {
		return false
	}
	f(uintptr(st.fd))
	return true
}

// reset ends the connection for both sides with a reset, for those that do not own it: connect(2) to no address does that and
// leaves the descriptor open. Its owner gets an error.
func (st *stream) reset() {
	none := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	st.control(func(fd uintptr) {
		unix.RawSyscall(unix.SYS_CONNECT, fd, uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(none))
	})
}

// Close implements net.Conn. Only the owner may call it.
func (st *stream) Close() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.fd < 0 {
		return net.ErrClosed
	}
	if st.loop != nil {
		st.loop.forget(st.fd)
	}
	fd := st.fd
	st.fd = -1
	return os.NewSyscallError("close", closeSocket(fd))
}

// abort closes the stream with a reset. Only the owner may call it.
func (st *stream) abort() {
	st.control(func(fd uintptr) {
		_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
	_ = st.Close()
}

// The system calls of sockets that do not block. They bypass the Go scheduler: it would run other goroutines on another thread while
// a call takes over 20 µs, as connect(2) often does, and switch back afterwards.

// openSocket returns a socket of unix.SOCK_STREAM or unix.SOCK_DGRAM for the family of an address.
func openSocket(to netip.AddrPort, kind int) (int, error) {
	family := unix.AF_INET
	if to.Addr().Unmap().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	return fd, os.NewSyscallError("socket", err)
}

// connectSocket connects a socket, or begins to.
func connectSocket(fd int, to netip.AddrPort) error {
	var at sockaddr.Raw
	size := at.Set(unmap(to))
	err := failure(unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(at.Pointer())), uintptr(size)))
	if err == unix.EINPROGRESS || err == unix.EINTR {
		return nil
	}
	return os.NewSyscallError("connect", err)
}

// acceptSocket accepts a connection of a listening socket.
func acceptSocket(listener int) (fd int, from netip.AddrPort, err error) {
	var at sockaddr.Raw
	size := uint32(sockaddr.Size)
	n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), uintptr(unsafe.Pointer(at.Pointer())), uintptr(unsafe.Pointer(&size)),
		unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, from, errno
	}
	return int(n), unmap(at.AddrPort()), nil
}

// socketAddr returns the address of our side; none: the socket has no connection.
func socketAddr(fd int) netip.AddrPort {
	var at sockaddr.Raw
	size := uint32(sockaddr.Size)
	if _, _, err := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(at.Pointer())), uintptr(unsafe.Pointer(&size))); err != 0 {
		return netip.AddrPort{}
	}
	return unmap(at.AddrPort())
}

func readSocket(fd int, p []byte) (int, error) {
	n, _, err := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return result(n, err)
}

func writeSocket(fd int, p []byte) (int, error) {
	n, _, err := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return result(n, err)
}

// shutdownSocket ends a direction: unix.SHUT_RD or unix.SHUT_WR. An error says that the connection has ended already.
func shutdownSocket(fd, how int) {
	_, _, _ = unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), uintptr(how), 0)
}

func closeSocket(fd int) error {
	return failure(unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0))
}

func failure(_, _ uintptr, err syscall.Errno) error {
	if err != 0 {
		return err
	}
	return nil
}

func result(n uintptr, err syscall.Errno) (int, error) {
	if err != 0 {
		return -1, err
	}
	return int(n), nil
}

// pollEvents returns how many events of epoll(7) have come. It does not wait for one.
func pollEvents(epoll uintptr, events []unix.EpollEvent) int {
	n, _, err := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, epoll, uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if err != 0 {
		return 0
	}
	return int(n)
}
