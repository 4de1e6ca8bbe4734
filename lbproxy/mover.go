package lbproxy

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	readSize = 32 << 10 // of a read; one that is filled is followed by splice(2)
	// A splice that moves less than this is followed by reads, which cost less for a few bytes.
	fewBytes = 8 << 10

	pipeSize  = 512 << 10
	pipesMost = 128 // with data at one time; an unprivileged user may have 64 MiB of pipes (fs.pipe-user-pages-soft)
	pipesIdle = 16  // kept for the next data
)

// A mover moves bytes from one TCP connection to another. While there are none it holds neither a buffer nor a pipe: an
// idle connection costs its two sockets.
type mover struct {
	in, out syscall.RawConn // nil: of a relay, whose loop calls fill and drain
	pipes   *pipePool
	bulk    bool  // splice
	pipe    *pipe // nil: none
	piped   int   // bytes in pipe
	buffer  *readBuffer
	bytes   []byte // of buffer, not yet written
	reads   int
	inquire bool        // TCP_INQ is set: a read says whether more has come
	moved   int64       // bytes written
	begun   atomic.Bool // a byte was read
	eof     bool
	err     error
}

var readBuffers = sync.Pool{New: func() any { return new(readBuffer) }}

// newMover returns a mover from src to dst; nil: one of them is not TCP.
func newMover(dst, src net.Conn, pipes *pipePool) *mover {
	to, toTCP := dst.(*net.TCPConn)
	from, fromTCP := src.(*net.TCPConn)
	if !toTCP || !fromTCP {
		return nil
	}
	m := &mover{pipes: pipes}
	m.in, _ = from.SyscallConn() // an error is only of a nil connection
	m.out, _ = to.SyscallConn()
	return m
}

// run moves bytes until src ends, and returns how many it has moved.
func (m *mover) run() (int64, error) {
	defer m.release()
	try := m.tryDrain // once, not for each call
	fill, drain := func(fd uintptr) bool { return m.fill(fd) && !m.passedOn(try) }, m.drain
	for {
		if err := errors.Join(m.in.Read(fill), m.err); err != nil || m.eof {
			return m.moved, err
		}
		if err := errors.Join(m.out.Write(drain), m.err); err != nil {
			return m.moved, err
		}
		m.release()
	}
}

// passedOn reports whether all that had come was written, so that fill has to wait for more: to read again, only to find
// nothing, costs a connection of many small messages a quarter of its system calls.
func (m *mover) passedOn(try func(uintptr) bool) bool {
	if m.buffer == nil || !m.buffer.last || m.eof || m.err != nil {
		return false
	}
	if m.out.Write(try) != nil || m.err != nil || len(m.bytes) > 0 {
		return false
	}
	m.release()
	return true
}

// tryDrain is drain that never waits.
func (m *mover) tryDrain(fd uintptr) (done bool) {
	m.drain(fd)
	return true
}

// release gives back what holds bytes.
func (m *mover) release() {
	if m.pipe != nil {
		m.pipes.put(m.pipe, m.piped == 0)
		m.pipe, m.piped = nil, 0
	}
	if m.buffer != nil {
		readBuffers.Put(m.buffer)
		m.buffer, m.bytes = nil, nil
	}
}

// fill reads what is there. It returns false if nothing is, and then holds nothing.
func (m *mover) fill(fd uintptr) (done bool) {
	m.reads++
	if m.bulk {
		if m.pipe = m.pipes.get(); m.pipe != nil {
			return m.spliceIn(int(fd))
		}
		m.bulk = false
	}
	m.buffer = readBuffers.Get().(*readBuffer)
	if m.reads == inquireFrom && m.in != nil {
		m.inquire = unix.SetsockoptInt(int(fd), unix.SOL_TCP, unix.TCP_INQ, 1) == nil
	}
	n, err := retry(func() (int, error) { return m.buffer.read(int(fd), m.inquire) })
	if err == unix.EAGAIN {
		m.release()
		return false
	}
	m.bytes = m.buffer.bytes[:max(n, 0)]
	m.bulk = n == readSize
	m.ended(n, "read", err)
	return true
}

func (m *mover) spliceIn(fd int) (done bool) {
	n, err := splice(fd, m.pipe.w, pipeSize)
	switch {
	case err == unix.EAGAIN:
		m.release()
		return false
	case err == unix.EINVAL: // a socket that cannot
		m.release()
		m.pipes, m.bulk = &noPipes, false
		return m.fill(uintptr(fd))
	}
	m.piped = max(n, 0)
	m.bulk = n >= fewBytes
	m.ended(n, "splice", err)
	return true
}

// ended notes that a read found the end or an error.
func (m *mover) ended(n int, call string, err error) {
	m.err = os.NewSyscallError(call, err)
	m.eof = n <= 0
	if n > 0 && !m.begun.Load() {
		m.begun.Store(true)
	}
}

// drain writes what fill has read. It returns false if the socket takes no more.
func (m *mover) drain(fd uintptr) (done bool) {
	for m.piped > 0 {
		n, err := splice(m.pipe.r, int(fd), m.piped)
		if err != nil {
			return m.wrote("splice", err)
		}
		m.piped -= n
		m.moved += int64(n)
	}
	for len(m.bytes) > 0 {
		n, err := retry(func() (int, error) { return writeSocket(int(fd), m.bytes) })
		if err != nil {
			return m.wrote("write", err)
		}
		m.bytes = m.bytes[n:]
		m.moved += int64(n)
	}
	return true
}

func (m *mover) wrote(call string, err error) (done bool) {
	if err == unix.EAGAIN {
		return false
	}
	m.err = os.NewSyscallError(call, err)
	return true
}

func splice(from, to, n int) (int, error) {
	return retry(func() (int, error) {
		moved, err := unix.Splice(from, nil, to, nil, n, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		return int(moved), err
	})
}

// retry calls a system call until no signal interrupts it.
func retry(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); err != unix.EINTR {
			return n, err
		}
	}
}

// A pipe holds bytes between two sockets.
type pipe struct{ r, w int }

func (p *pipe) close() {
	_ = unix.Close(p.r)
	_ = unix.Close(p.w)
}

// A pipePool are the pipes of a server.
type pipePool struct {
	most int // open at one time

	mu   sync.Mutex
	open int
	idle []*pipe
}

// noPipes has none.
var noPipes pipePool

// get returns an empty pipe; nil: there are as many as there may be.
func (l *pipePool) get() *pipe {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.idle); n > 0 {
		p := l.idle[n-1]
		l.idle = l.idle[:n-1]
		return p
	}
	if l.open >= l.most {
		return nil
	}
	p := openPipe()
	if p != nil {
		l.open++
	}
	return p
}

// put gives a pipe back.
func (l *pipePool) put(p *pipe, empty bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if empty && len(l.idle) < pipesIdle {
		l.idle = append(l.idle, p)
		return
	}
	l.open--
	p.close()
}

// close closes the idle pipes. Nobody uses the others any more.
func (l *pipePool) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.idle {
		p.close()
	}
	l.open -= len(l.idle)
	l.idle = nil
}

// openPipe returns a new pipe; nil: the user has no memory for pipes left, and copying is faster than a small one.
func openPipe() *pipe {
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC) != nil {
		return nil
	}
	p := &pipe{r: fds[0], w: fds[1]}
	if _, err := unix.FcntlInt(uintptr(p.w), unix.F_SETPIPE_SZ, pipeSize); err == nil {
		return p
	}
	if size, err := unix.FcntlInt(uintptr(p.w), unix.F_GETPIPE_SZ, 0); err == nil && size >= readSize {
		return p
	}
	p.close()
	return nil
}

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
