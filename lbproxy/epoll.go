package lbproxy

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// loopsMost is how many event loops there are at most, else one for each processor.
const loopsMost = 8

// loops are the event loops of a server. Each is opened when it is needed first.
type loops struct {
	handle func(*stream, uint32) // an event of a stream

	tasks sync.WaitGroup
	mu    sync.Mutex
	next  int
	all   []*loop // none after close
	self  *stream // an eventfd(2) that all wait for: alive asks through it; nil: there is no loop yet
	ended bool
}

// get returns one of the loops, in turn.
func (p *loops) get() (*loop, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil, net.ErrClosed
	}
	if n := len(p.all); n < min(runtime.GOMAXPROCS(0), loopsMost) {
		l, err := p.openLocked()
		if err != nil {
			return nil, fmt.Errorf("open an event loop: %w", err)
		}
		p.all = append(p.all, l)
		p.tasks.Go(l.run)
		return l, nil
	}
	p.next++
	return p.all[p.next%len(p.all)], nil
}

// openLocked opens one that answers itself.
func (p *loops) openLocked() (*loop, error) {
	if p.self == nil {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return nil, os.NewSyscallError("eventfd", err)
		}
		p.self = &stream{fd: fd}
	}
	l, err := openLoop(p.handle)
	if err != nil {
		return nil, err
	}
	if err := l.add(&stream{fd: p.self.fd, notify: l.answered}); err != nil {
		_ = l.epoll.Close()
		return nil, err
	}
	return l, nil
}

// close ends the loops. No relay is left.
func (p *loops) close() {
	p.mu.Lock()
	p.ended = true
	for _, l := range p.all {
		_ = l.epoll.Close()
	}
	p.mu.Unlock()
	p.tasks.Wait()
	if p.self != nil {
		_ = p.self.Close()
	}
}

// A loop waits for the streams of many connections and moves their bytes, on one goroutine: two goroutines for each connection
// cost a short one half as much CPU again. It never blocks.
type loop struct {
	handle func(*stream, uint32)
	fd     int      // of epoll(7)
	epoll  *os.File // the same, in the epoll of package net: to wait takes no thread
	raw    syscall.RawConn
	events [128]unix.EpollEvent
	ready  []readyStream
	again  []*direction // have more to move than their turn allows
	spare  []*direction

	handshakes handshakes
	answered   chan struct{} // holds one value after a question of alive
	ended      chan struct{} // closed when the loop is

	mu         sync.Mutex
	generation uint32
	streams    []*stream // by descriptor
}

type readyStream struct {
	stream *stream
	events uint32
}

func openLoop(handle func(*stream, uint32)) (*loop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	l := &loop{handle: handle, fd: fd, epoll: os.NewFile(uintptr(fd), "epoll of balanced connections"), answered: make(chan struct{}, 1), ended: make(chan struct{})}
	if l.raw, err = l.epoll.SyscallConn(); err != nil {
		_ = l.epoll.Close()
		return nil, err
	}
	return l, nil
}

// loopEvents are what a loop waits for, edge-triggered.
const loopEvents = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLPRI | unix.EPOLLET

// add lets the loop wait for a stream, whose events go to handle from now on.
func (l *loop) add(st *stream) (err error) {
	if !st.control(func(fd uintptr) {
		l.mu.Lock()
		l.generation++
		st.loop, st.generation = l, l.generation
		if at := int(fd); at >= len(l.streams) {
			l.streams = append(l.streams, make([]*stream, at+1-len(l.streams))...)
		}
		l.streams[fd] = st
		l.mu.Unlock()
		err = l.wait(unix.EPOLL_CTL_ADD, st)
	}) {
		return net.ErrClosed
	}
	return err
}

// awaitWritable lets the loop wait until the stream is writable, too.
func (l *loop) awaitWritable(st *stream) error {
	if st.writable {
		return nil
	}
	st.writable = true
	return l.wait(unix.EPOLL_CTL_MOD, st)
}

func (l *loop) wait(op int, st *stream) error {
	wanted := unix.EpollEvent{Events: loopEvents, Fd: int32(st.fd), Pad: int32(st.generation)}
	if st.writable {
		wanted.Events |= unix.EPOLLOUT
	}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(l.fd, op, st.fd, &wanted))
}

// forget drops a stream that is about to be closed, which ends the kernel's interest in it.
func (l *loop) forget(fd int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams[fd] = nil
}

// run handles events until the loop is closed.
func (l *loop) run() {
	defer close(l.ended)
	_ = l.raw.Read(func(epoll uintptr) bool {
		for {
			n := pollEvents(epoll, l.events[:])
			l.dispatch(l.events[:n])
			if n < len(l.events) && len(l.again) == 0 {
				return false // the next event comes as an edge
			}
			runtime.Gosched()
		}
	})
}

func (l *loop) dispatch(events []unix.EpollEvent) {
	l.mu.Lock()
	for i := range events {
		if st := l.streams[events[i].Fd]; st != nil && st.generation == uint32(events[i].Pad) {
			l.ready = append(l.ready, readyStream{st, events[i].Events})
		}
	}
	l.mu.Unlock()
	for _, r := range l.ready {
		l.handle(r.stream, r.events)
	}
	clear(l.ready)
	l.ready = l.ready[:0]
	l.again, l.spare = l.spare[:0], l.again
	for _, d := range l.spare {
		l.handle(d.src, 0)
	}
	clear(l.spare)
}

// handshakes are the connects of relays whose last packet, an acknowledgement, waits for the client's first bytes: it leaves with them,
// and the kernel goes on to save acknowledgements of that connection. One in four packets to the backend of a short connection is saved, as
// by HAProxy's tcp-smart-connect. A client that waits for the backend's first bytes sends none, so that each is ended after handshakeDelay.
type handshakes struct {
	mu    sync.Mutex
	timer *time.Timer // nil: there were none yet
	open  []*relay
}

// handshakeDelay is longer than a client in the same building takes.
const handshakeDelay = time.Millisecond

func (h *handshakes) add(r *relay) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = append(h.open, r)
	switch {
	case h.timer == nil:
		h.timer = time.AfterFunc(handshakeDelay, h.end)
	case len(h.open) == 1:
		h.timer.Reset(handshakeDelay)
	}
}

// end ends those whose clients are silent.
func (h *handshakes) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.open {
		if r.session.turn.Load() == 0 {
			r.down.src.control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) })
		}
	}
	clear(h.open)
	h.open = h.open[:0]
}
