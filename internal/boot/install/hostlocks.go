package install

import (
	"context"
	"sync"
)

// hostLocks let each host make one transition at a time, commit included. Transitions of different hosts run at the same time, so that the
// store commits them in groups, and no host waits for the disk on behalf of another.
type hostLocks struct {
	mu     sync.Mutex
	byHost map[string]*hostLock // hosts with a transition under way or waiting
}

// A hostLock is the lock of one host.
type hostLock struct {
	taken chan struct{} // of capacity 1: full while a transition is under way
	users int           // the one under way and those that wait
}

// take waits for the transition of host that is under way. The caller calls end after its own. The error is that ctx ended before.
func (t *hostLocks) take(ctx context.Context, host string) (end func(), err error) {
	one := t.join(host)
	select {
	case one.taken <- struct{}{}:
	case <-ctx.Done():
		t.leave(host, one)
		return nil, ctx.Err()
	}
	return func() {
		<-one.taken
		t.leave(host, one)
	}, nil
}

func (t *hostLocks) join(host string) *hostLock {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.byHost[host]
	if one == nil {
		one = &hostLock{taken: make(chan struct{}, 1)}
		if t.byHost == nil {
			t.byHost = map[string]*hostLock{}
		}
		t.byHost[host] = one
	}
	one.users++
	return one
}

func (t *hostLocks) leave(host string, one *hostLock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.byHost, host)
	}
}
