package lbproxy

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
)

// A deadline ends the blocked calls of one connection. To move it costs one atomic store, where net.Conn's own costs a
// timer each time; it ends within deadlineTick of its time.
type deadline struct {
	conn  net.Conn
	write bool // ends blocked writes as well as reads
	at    atomic.Int64
}

const (
	deadlineTick    = 250 * time.Millisecond
	deadlineExpired = -1
)

var epoch = time.Now()

// set lets the deadline expire after d. One that has expired stays so.
func (d *deadline) set(after time.Duration) {
	d.store(int64(time.Since(epoch) + after))
}

// clear ends the deadline.
func (d *deadline) clear() { d.store(0) }

func (d *deadline) store(at int64) {
	for {
		old := d.at.Load()
		if old == deadlineExpired || d.at.CompareAndSwap(old, at) {
			return
		}
	}
}

// expired reports whether the deadline has ended the connection's calls.
func (d *deadline) expired() bool { return d.at.Load() == deadlineExpired }

// deadlines are the deadlines of all connections in HTTP mode.
type deadlines struct {
	heartbeat heartbeat

	mu   sync.Mutex
	open map[*deadline]struct{}
}

func (t *deadlines) add(d *deadline) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[*deadline]struct{})
	}
	t.open[d] = struct{}{}
}

func (t *deadlines) remove(d *deadline) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, d)
}

// run expires deadlines until ctx ends, and calls tick about once a second.
func (t *deadlines) run(ctx context.Context, tick func()) {
	defer t.heartbeat.Store(0)
	for n := 0; pause.For(ctx, deadlineTick) == nil; n++ {
		t.heartbeat.Add(1)
		t.expire(int64(time.Since(epoch)))
		if n%4 == 0 {
			tick()
		}
	}
}

func (t *deadlines) expire(now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for d := range t.open {
		at := d.at.Load()
		if at <= 0 || at > now || !d.at.CompareAndSwap(at, deadlineExpired) {
			continue
		}
		_ = d.conn.SetReadDeadline(time.Unix(1, 0))
		if d.write {
			_ = d.conn.SetWriteDeadline(time.Unix(1, 0))
		}
	}
}
