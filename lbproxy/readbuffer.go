package lbproxy

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inquireFrom is the read of a connection from which on TCP_INQ is used: it costs a system call, which short connections save.
const inquireFrom = 3

// A readBuffer holds what was read from a socket.
type readBuffer struct {
	bytes   [readSize]byte
	last    bool // nothing more had come; false if it is not known
	control [32]byte
	iov     unix.Iovec
	message unix.Msghdr
}

// read reads from a socket that does not block. With TCP_INQ the kernel says how much is left (linux/tcp.h, TCP_CM_INQ);
// after a FIN it says that there is more.
func (b *readBuffer) read(fd int, inquire bool) (int, error) {
	b.last = false
	if !inquire {
		return readSocket(fd, b.bytes[:])
	}
	b.iov.Base = &b.bytes[0]
	b.iov.SetLen(readSize)
	b.message = unix.Msghdr{Iov: &b.iov, Iovlen: 1, Control: &b.control[0]}
	b.message.SetControllen(len(b.control))
	n, _, err := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.message)), 0)
	if header := (*unix.Cmsghdr)(unsafe.Pointer(&b.control[0])); err == 0 && b.message.Controllen >= unix.SizeofCmsghdr+4 &&
		header.Level == unix.SOL_TCP && header.Type == unix.TCP_CM_INQ {
		b.last = binary.NativeEndian.Uint32(b.control[unix.SizeofCmsghdr:]) == 0
	}
	return result(n, err)
}
