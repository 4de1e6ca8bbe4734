package lbproxy

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A parker waits for bytes on behalf of idle directions, which have no goroutine meanwhile: an idle connection costs some
// two KiB, and the stacks of two goroutines would be another twelve.
type parker struct {
	resume func(*direction) // does not block

	tasks  sync.WaitGroup
	mu     sync.Mutex
	closed bool
	epoll  *os.File // opened for the first direction
	raw    syscall.RawConn
	byFD   map[int32]*direction
	byConn map[net.Conn]*direction
}

func newParker(resume func(*direction)) *parker {
	return &parker{resume: resume, byFD: make(map[int32]*direction), byConn: make(map[net.Conn]*direction)}
}

func (p *parker) openLocked() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	epoll := os.NewFile(uintptr(fd), "epoll of idle connections")
	raw, err := epoll.SyscallConn()
	if err != nil {
		_ = epoll.Close()
		return err
	}
	p.epoll, p.raw = epoll, raw
	p.tasks.Go(func() { p.run(raw) })
	return nil
}

// close ends run. Nothing is parked any more.
func (p *parker) close() {
	p.mu.Lock()
	p.closed = true
	if p.epoll != nil {
		_ = p.epoll.Close()
	}
	p.mu.Unlock()
	p.tasks.Wait()
}

// park keeps a direction until its source has bytes, ends or is woken. It returns false if it does not keep it.
func (p *parker) park(d *direction) bool {
	_ = d.src.SetReadDeadline(time.Time{})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.epoll == nil && p.openLocked() != nil {
		return false
	}
	parked := false
	_ = p.raw.Control(func(epoll uintptr) {
		_ = d.mover.in.Control(func(fd uintptr) { // nothing if it is closed
			wanted := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: int32(fd)}
			err := unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, int(fd), &wanted)
			if err == unix.EEXIST {
				err = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_MOD, int(fd), &wanted)
			}
			parked, d.fd = err == nil, int32(fd)
		})
	})
	if parked {
		d.running.Store(false)
		p.byFD[d.fd], p.byConn[d.src] = d, d
	}
	return parked
}

// wake resumes the direction of a connection that was closed, which no event reports.
func (p *parker) wake(src net.Conn) {
	p.mu.Lock()
	d := p.byConn[src]
	p.removeLocked(d)
	p.mu.Unlock()
	if d != nil {
		p.resume(d)
	}
}

func (p *parker) removeLocked(d *direction) {
	if d != nil {
		delete(p.byFD, d.fd)
		delete(p.byConn, d.src)
	}
}

const (
	freeFrom  = 2000 // more directions than the last time are parked when memory is given back
	freeEvery = 20 * time.Second
)

// A memoryRelease gives memory back to the system after many connections became idle: their stacks, and what they used to connect.
// Without it a daemon without new connections keeps that for minutes.
type memoryRelease struct {
	parked int       // directions at the last look
	freed  int       // and when memory was given back, or fewer
	at     time.Time // when that was
}

// due reports whether memory is to be given back, with that many directions parked: as soon as their number grows no more.
func (m *memoryRelease) due(parked int, now time.Time) bool {
	grows := parked-m.parked > parked/16
	m.parked, m.freed = parked, min(m.freed, parked)
	if grows || parked-m.freed < freeFrom || now.Sub(m.at) < freeEvery {
		return false
	}
	m.freed, m.at = parked, now
	return true
}

// len returns how many directions are parked.
func (p *parker) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.byFD)
}

// run resumes directions whose source has bytes or has ended, until close.
func (p *parker) run(raw syscall.RawConn) {
	events := make([]unix.EpollEvent, 128)
	for {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, _ = retry(func() (int, error) { return unix.EpollWait(int(fd), events, 0) })
			return n > 0
		})
		if err != nil {
			return
		}
		for _, e := range events[:n] {
			p.mu.Lock()
			d := p.byFD[e.Fd]
			p.removeLocked(d)
			p.mu.Unlock()
			if d != nil {
				p.resume(d)
			}
		}
	}
}
