package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lbBackendCommand is the argument that makes this program the backends of a balancer.
const lbBackendCommand = "lb-backends"

// runLBBackends answers requests on lbBackend with 1 KiB, and those on lbBackendBig with as many bytes as the argument says.
func runLBBackends(ctx context.Context) error {
	body, err := strconv.ParseInt(flag.Arg(1), 10, 64)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- answerAll(netip.MustParseAddrPort(lbBackend)) }()
	go func() { failed <- sendLarge(ctx, body) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// sendLarge answers each connection's first request with a body from a file, by sendfile(2).
func sendLarge(ctx context.Context, body int64) error {
	fd, err := unix.MemfdCreate("body", unix.MFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "body")
	defer f.Close()
	if err := f.Truncate(body); err != nil {
		return err
	}
	if _, err := io.CopyN(f, zeros{}, body); err != nil { // so that its pages exist
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", lbBackendBig)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			part, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd)) // a position of its own
			if err != nil {
				return
			}
			defer part.Close()
			if _, _, err := readHeader(conn); err == nil {
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", body)
				_, _ = io.Copy(conn, part)
			}
		}()
	}
}

// zeros is an endless source.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// answers are what answerAll sends: for a connection that persists, and for one that ends.
func answers() (persistent, last []byte) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1024/16)
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n"
	return append([]byte(head+"\r\n"), content...), append([]byte(head+"Connection: close\r\n\r\n"), content...)
}

// answerAll answers every request on one thread, by epoll(7) and by system calls of which the Go runtime does not know: a server of the
// standard library would need more CPU than the balancers that it is there to measure. It expects a request in one piece, as the load sends it.
func answerAll(at netip.AddrPort) error {
	runtime.LockOSThread()
	listener, err := listenRaw(at)
	if err != nil {
		return err
	}
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	watch := func(fd int) error {
		return unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	}
	if err := watch(listener); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	persistent, last := answers()
	events, buf := make([]unix.EpollEvent, 256), make([]byte, 16<<10)
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(poll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		if n == 0 {
			n, _, errno = unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(poll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), ^uintptr(0), 0, 0)
		}
		if errno == unix.EINTR {
			continue
		} else if errno != 0 {
			return os.NewSyscallError("epoll_pwait", errno)
		}
		for _, e := range events[:n] {
			fd := int(e.Fd)
			if fd == listener {
				if conn, _, err := unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC); err == nil {
					_ = unix.SetsockoptInt(conn, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
					_ = watch(conn)
				}
				continue
			}
			n, errno := rawCall(unix.SYS_READ, fd, buf)
			ends := n <= 0 && errno != unix.EAGAIN || bytes.Contains(buf[:max(n, 0)], []byte("Connection: close"))
			switch {
			case n > 0 && ends:
				_, _ = rawCall(unix.SYS_WRITE, fd, last)
			case n > 0:
				_, _ = rawCall(unix.SYS_WRITE, fd, persistent)
			}
			if ends {
				_ = unix.Close(fd)
			}
		}
	}
}

// rawCall reads from a descriptor that does not block, or writes to it; n is negative after an error.
func rawCall(call uintptr, fd int, b []byte) (n int, errno syscall.Errno) {
	r, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return int(r), errno
}

func listenRaw(at netip.AddrPort) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		return 0, fmt.Errorf("bind %s: %w", at, err)
	}
	return fd, os.NewSyscallError("listen", unix.Listen(fd, 4096))
}
