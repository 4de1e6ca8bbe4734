package install

import (
	"context"
	"sync"
)

// turns let each host make one transition at a time, commit included. Transitions of different hosts run at the same time, so that the
// store commits them in groups, and no host waits for the disk on behalf of another.
type turns struct {
	mu     sync.Mutex
	byHost map[string]*turn // hosts with a transition under way or waiting
}

// A turn is one host's.
type turn struct {
	taken chan struct{} // of capacity 1: full while a transition is under way
	users int           // the one under way and those that wait
}

// take waits for the transition of host that is under way. The caller calls end after its own. The error is that ctx ended before.
func (t *turns) take(ctx context.Context, host string) (end func(), err error) {
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

func (t *turns) join(host string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.byHost[host]
	if one == nil {
		one = &turn{taken: make(chan struct{}, 1)}
		if t.byHost == nil {
			t.byHost = map[string]*turn{}
		}
		t.byHost[host] = one
	}
	one.users++
	return one
}

func (t *turns) leave(host string, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.byHost, host)
	}
}
