package virt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/panics"
)

// A connection is to one hypervisor. It is opened at the first call, and again after it broke.
type connection struct {
	uri   string
	slots chan struct{} // one for each call in progress

	mu sync.Mutex
	hv Hypervisor // nil: not connected

	failure atomic.Pointer[error] // why the hypervisor did not answer when it was last asked; nil: it did
}

// connections are the hypervisor connections of a Server. Calls to libvirt block and cannot be cancelled, so each runs in
// its own goroutine, a few at a time for each hypervisor. When a context ends, its caller returns and the call goes on.
type connections struct {
	driver Driver
	panics *panics.Server
	limit  int

	mu     sync.Mutex
	byURI  map[string]*connection
	closed bool
	calls  sync.WaitGroup
}

var errClosed = errors.New("the daemon is stopping")

// do runs fn with a connection to h and returns its error, or the context's when that ends first. fn must check its
// context between steps.
func (cs *connections) do(ctx context.Context, h *lab.Hypervisor, fn func(context.Context, Hypervisor) error) error {
	c, err := cs.open(h.URI)
	if err != nil {
		return err
	}
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		cs.calls.Done()
		return fmt.Errorf("%d calls are in progress: %w", cap(c.slots), ctx.Err())
	}
	result := make(chan error, 1)
	go func() {
		defer cs.calls.Done()
		defer func() { <-c.slots }()
		result <- c.call(ctx, cs, fn)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		err := fmt.Errorf("no answer from %s: %w", h.URI, ctx.Err())
		if errors.Is(err, context.DeadlineExceeded) { // not if the caller went away
			c.failure.Store(&err)
		}
		return err
	}
}

// Unreachable returns the hypervisors that gave no answer when they were last asked, by name, and the error. It does not wait.
func (s *Server) Unreachable() map[string]error {
	failed := map[string]error{}
	for _, hv := range s.deps.Table().hypervisors {
		if _, _, since, err := s.observe(hv).state(hv); err != nil && !since.IsZero() {
			failed[hv.Name] = err
		} else if err := s.connections.failure(hv.URI); err != nil {
			failed[hv.Name] = err
		}
	}
	return failed
}

// failure returns why the hypervisor did not answer the last call; nil: it did.
func (cs *connections) failure(uri string) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.byURI[uri]; c != nil && c.failure.Load() != nil {
		return *c.failure.Load()
	}
	return nil
}

// open returns the connection for a URI and counts a call. The caller calls calls.Done.
func (cs *connections) open(uri string) (*connection, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		return nil, errClosed
	}
	c := cs.byURI[uri]
	if c == nil {
		c = &connection{uri: uri, slots: make(chan struct{}, cs.limit)}
		cs.byURI[uri] = c
	}
	cs.calls.Add(1)
	return c, nil
}

// call connects if needed and runs fn. A panic becomes an error.
func (c *connection) call(ctx context.Context, cs *connections, fn func(context.Context, Hypervisor) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			cs.panics.Note(r)
			err = fmt.Errorf("%w: %v", panics.ErrPanic, r)
		}
	}()
	hv, err := c.connect(cs.driver)
	if err != nil {
		err = fmt.Errorf("connect to %s: %w", c.uri, err)
		c.failure.Store(&err)
		return err
	}
	c.failure.Store(nil)
	if err := ctx.Err(); err != nil {
		return err
	}
	return fn(ctx, hv)
}

func (c *connection) connect(d Driver) (Hypervisor, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hv != nil && c.hv.Alive() {
		return c.hv, nil
	}
	if c.hv != nil {
		c.hv.Close()
		c.hv = nil
	}
	hv, err := d.Dial(c.uri)
	if err != nil {
		return nil, err
	}
	c.hv = hv
	return hv, nil
}

// close refuses new calls, waits for the others until ctx ends, and closes every connection. It reports whether all calls
// have ended; if not, the connections stay open.
func (cs *connections) close(ctx context.Context) bool {
	cs.mu.Lock()
	cs.closed = true
	cs.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		cs.calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return false
	}
	for _, c := range cs.byURI {
		if c.hv != nil {
			c.hv.Close()
		}
	}
	cs.driver.Close()
	return true
}
