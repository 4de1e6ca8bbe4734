package lbproxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"

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
	pipes  *pipePool
	bulk   bool  // splice
	pipe   *pipe // nil: none
	piped  int   // bytes in pipe
	buffer *[readSize]byte
	bytes  []byte // of buffer, not yet written
	moved  int64  // bytes written
	eof    bool
	err    error
}

var readBuffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// tunnel moves bytes from src to dst until src ends, as a relay does, and closes dst for writing. It returns how many it moved.
func (p *pipePool) tunnel(dst, src net.Conn) (n int64, err error) {
	to, toTCP := dst.(*net.TCPConn)
	from, fromTCP := src.(*net.TCPConn)
	if toTCP && fromTCP {
		n, err = p.moveAll(to, from)
	} else {
		n, err = io.Copy(dst, src)
	}
	if half, ok := dst.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite()
	}
	return n, err
}

func (p *pipePool) moveAll(to, from *net.TCPConn) (int64, error) {
	m := &mover{pipes: p}
	defer m.release()
	in, _ := from.SyscallConn() // an error is only of a nil connection
	out, _ := to.SyscallConn()
	fill, drain := m.fill, m.drain // once, not for each call
	for {
		if err := errors.Join(in.Read(fill), m.err); err != nil || m.eof {
			return m.moved, err
		}
		if err := errors.Join(out.Write(drain), m.err); err != nil {
			return m.moved, err
		}
		m.release()
	}
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
	if m.bulk {
		if m.pipe = m.pipes.get(); m.pipe != nil {
			return m.spliceIn(int(fd))
		}
		m.bulk = false
	}
	m.buffer = readBuffers.Get().(*[readSize]byte)
	n, err := retry(func() (int, error) { return readSocket(int(fd), m.buffer[:]) })
	if err == unix.EAGAIN {
		m.release()
		return false
	}
	m.bytes = m.buffer[:max(n, 0)]
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
