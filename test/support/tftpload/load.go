package tftpload

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A Wait is how a client waits for packets.
type Wait int

// The ways to wait.
const (
	Spin  Wait = iota // look again and again
	Sleep             // let the kernel wake us
)

// A Config says what to fetch, and from where. Server, Name and Want must be set.
type Config struct {
	Server  netip.AddrPort // IPv4
	Name    string
	Want    []byte        // what the file holds
	Block   int           // blksize to ask for, at most 9,000; 0: none
	Window  int           // windowsize to ask for; 0: none
	Clients int           // at once; 0: 1
	Lose    int64         // a block that is lost when it comes first, in every client; 0: none
	Wait    Wait          // how the clients wait
	Timeout time.Duration // of silence until a client's last packet is sent again; 0: 1 s
}

// A Result is what the clients saw.
type Result struct {
	Took     time.Duration // from the first request to the last block of the last client
	Done     int           // clients that have the whole file
	Failed   int           // clients that have not
	Why      string        // why the first of these failed
	Bytes    int64         // of the file, over all clients
	Block    int           // as agreed with the last client
	Window   int           // as agreed with the last client
	Resent   int           // packets that were sent again after silence
	Repeated int           // blocks that came again
	Stall    time.Duration // the longest that a client got nothing new
}

// PerSecond returns bytes.
func (r *Result) PerSecond() float64 {
	if r.Took <= 0 {
		return 0
	}
	return float64(r.Bytes) / r.Took.Seconds()
}

const (
	maxSends = 6                     // of one packet, before its client gives up
	look     = 20 * time.Millisecond // between looks for who heard nothing
)

// Load has all clients fetch the file. It ends when each has it or has given up, or with ctx; those that are not done then have
// failed. The error is that it could not be tried.
func Load(ctx context.Context, cfg Config) (Result, error) {
	l, err := newLoad(cfg)
	if err != nil {
		return Result{}, err
	}
	defer l.close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := time.Now()
	l.now, l.looked = start, start
	for _, c := range l.clients {
		c.progress = start
		l.say(c, c.last)
	}
	err = l.run(ctx)
	l.seen.Took = l.now.Sub(start)
	for _, c := range l.clients {
		l.fail(c, ctx.Err())
	}
	return l.seen, err
}

// A load is all clients of one Load.
type load struct {
	cfg     Config
	clients []*client
	open    int
	epoll   int // -1: one client that spins
	events  []unix.EpollEvent
	ready   []*client
	in      *inbox
	now     time.Time
	looked  time.Time
	seen    Result
}

func newLoad(cfg Config) (*load, error) {
	if !cfg.Server.Addr().Is4() || cfg.Block > longest-headerLen {
		return nil, fmt.Errorf("tftpload: want an IPv4 address and blocks of at most %d bytes", longest-headerLen)
	}
	cfg.Clients = max(cfg.Clients, 1)
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Second
	}
	l := &load{cfg: cfg, epoll: -1, in: newInbox(), events: make([]unix.EpollEvent, batch), ready: make([]*client, 0, batch)}
	for i := range cfg.Clients {
		s, err := newSocket(cfg.Server)
		if err != nil {
			l.close()
			return nil, err
		}
		l.clients = append(l.clients, &client{fetch: newFetch(&l.cfg), socket: s})
		if cfg.Clients == 1 && cfg.Wait == Spin {
			break
		}
		if err := l.watch(s.fd, i); err != nil {
			l.close()
			return nil, err
		}
	}
	l.open = len(l.clients)
	return l, nil
}

func (l *load) watch(fd, i int) (err error) {
	if l.epoll < 0 {
		if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
			return fmt.Errorf("tftpload: %w", err)
		}
	}
	err = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)})
	if err != nil {
		return fmt.Errorf("tftpload: %w", err)
	}
	return nil
}

func (l *load) close() {
	for _, c := range l.clients {
		c.close()
	}
	if l.epoll >= 0 {
		_ = unix.Close(l.epoll)
	}
}

func (l *load) run(ctx context.Context) error {
	for l.open > 0 && ctx.Err() == nil {
		ready, err := l.wait()
		if err != nil {
			return err
		}
		l.now = time.Now()
		for _, c := range ready {
			l.hear(c)
		}
		if l.now.Sub(l.looked) >= look {
			l.looked = l.now
			l.again()
		}
	}
	return nil
}

// wait returns the clients that may have got something.
func (l *load) wait() ([]*client, error) {
	if l.epoll < 0 {
		return l.clients, nil
	}
	n, err := unix.EpollWait(l.epoll, l.events, l.patience())
	if err != nil && !errors.Is(err, unix.EINTR) {
		return nil, fmt.Errorf("tftpload: %w", err)
	}
	l.ready = l.ready[:0]
	for _, e := range l.events[:max(n, 0)] {
		l.ready = append(l.ready, l.clients[e.Fd])
	}
	return l.ready, nil
}

// hear takes what came for a client.
func (l *load) hear(c *client) {
	if c.done {
		return
	}
	n, err := c.receive(l.in, min(batch, c.window+1))
	if err != nil {
		l.fail(c, err)
		return
	}
	for i := range n {
		was := c.next
		answer, err := c.take(l.in.packet(i))
		if err != nil {
			l.fail(c, err)
			return
		}
		if c.next > was {
			l.seen.Stall = max(l.seen.Stall, l.now.Sub(c.progress))
			c.progress = l.now
		}
		if answer != nil {
			c.sends = 0
			l.say(c, answer)
		}
		if c.done {
			l.finish(c)
			return
		}
	}
	if n > 0 {
		c.heard = l.now
	}
}

func (l *load) finish(c *client) {
	l.open--
	l.seen.Done++
	l.seen.Bytes += int64(len(l.cfg.Want))
	l.seen.Block, l.seen.Window = c.block, c.window
	l.seen.Repeated += c.repeated
	l.forget(c)
}

// fail counts a client that has not finished as failed.
func (l *load) fail(c *client, err error) {
	if c.done {
		return
	}
	c.done = true
	l.open--
	l.seen.Failed++
	if l.seen.Why == "" && err != nil {
		l.seen.Why = fmt.Sprintf("at block %d: %v", c.next, err)
	}
	l.forget(c)
}

// forget keeps a client that has ended from waking us.
func (l *load) forget(c *client) {
	if l.epoll >= 0 {
		_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, c.fd, nil)
	}
}

// say sends a packet. One that does not go counts as lost on the way.
func (l *load) say(c *client, b []byte) {
	c.sends++
	c.heard = l.now
	_ = c.send(b)
}

// again sends what had no answer for a while.
func (l *load) again() {
	for _, c := range l.clients {
		switch {
		case c.done || l.now.Sub(c.heard) < l.cfg.Timeout:
		case c.sends >= maxSends:
			l.fail(c, errors.New("no answer"))
		default:
			l.seen.Resent++
			l.say(c, c.last)
		}
	}
}

// patience is how long epoll waits, in milliseconds.
func (l *load) patience() int {
	if l.cfg.Wait == Spin {
		return 0
	}
	return int(look / time.Millisecond)
}
