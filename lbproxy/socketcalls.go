package lbproxy

import (
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"github.com/bootlab/bootlab/internal/host/sockaddr"

	"golang.org/x/sys/unix"
)

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
