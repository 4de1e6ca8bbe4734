package bolt

import (
	"context"
	"slices"
	"sync"

	"github.com/bootlab/bootlab/internal/store"
)

const (
	// maxGroup and maxGroupSize bound how many calls and how many bytes share one sync, and so the time that the first of
	// them waits.
	maxGroup     = 1024
	maxGroupSize = 512 << 10
)

// A request is one call on its way to the disk.
type request struct {
	ctx      context.Context // ends the wait in the queue, never the commit
	txns     []store.Txn
	outcomes []error       // one each
	size     int           // of its record, at most
	wake     chan struct{} // of one: the outcomes are set, or it leads
	leads    bool          // guarded by queue.mu
	done     bool          // set before wake

	txn     [1]store.Txn // of a single one
	outcome [1]error
}

// A queue makes groups of the calls that come while the disk syncs. The first caller that finds nobody at work leads: it
// commits all that wait, its own among them, and then passes the lead to the first of those that came meanwhile. So a
// lone caller meets no other goroutine at all.
type queue struct {
	mu      sync.Mutex
	waiting []*request
	group   []*request // the leader's
	leading bool
	closed  bool
	idle    sync.Cond // of mu: nobody leads
	pool    sync.Pool // of *request
}

func (q *queue) init() {
	q.idle.L = &q.mu
	q.pool.New = func() any { return &request{wake: make(chan struct{}, 1)} }
}

// enter queues r and waits until it leads or is done. An error says that r was not taken up.
func (q *queue) enter(r *request) error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return store.ErrClosed
	}
	q.waiting = append(q.waiting, r)
	alone := !q.leading
	q.leading = true
	q.mu.Unlock()
	if alone {
		return nil
	}
	select {
	case <-r.wake:
		return nil
	case <-r.ctx.Done():
		if q.leave(r) {
			return r.ctx.Err()
		}
		<-r.wake
		return nil
	}
}

// leave takes r back unless a leader has taken it up or it leads.
func (q *queue) leave(r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, r)
	if i < 0 || r.leads {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return true
}

// take returns the leader's next group, at least one request.
func (q *queue) take() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := 0, 0
	for n < min(len(q.waiting), maxGroup) && (n == 0 || size+q.waiting[n].size <= maxGroupSize) {
		size += q.waiting[n].size
		n++
	}
	q.group = append(q.group[:0], q.waiting[:n]...)
	q.waiting = slices.Delete(q.waiting, 0, n)
	return q.group
}

// release tells everybody but the leader, and passes the lead.
func (q *queue) release(leader *request) {
	for _, r := range q.group {
		if r != leader {
			r.done = true
			r.wake <- struct{}{}
		}
	}
	clear(q.group)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.leading = false
		q.idle.Broadcast()
		return
	}
	q.waiting[0].leads = true
	q.waiting[0].wake <- struct{}{}
}

// shut lets nobody in any more and waits for those inside.
func (q *queue) shut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for q.leading {
		q.idle.Wait()
	}
}

func (q *queue) get(ctx context.Context) *request {
	r := q.pool.Get().(*request)
	r.ctx = ctx
	return r
}

func (q *queue) put(r *request) {
	*r = request{wake: r.wake}
	q.pool.Put(r)
}
