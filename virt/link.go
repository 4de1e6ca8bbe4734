package virt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/bootlab/bootlab/internal/lab"
)

// A link is a connection to one hypervisor that is made when it is first needed, and again when it broke.
type link struct {
	uri   string
	slots chan struct{} // as many as calls may be under way

	mu sync.Mutex
	hv Hypervisor // nil: not connected

	failure atomic.Pointer[error] // why the hypervisor did not answer when it was last asked; nil: it did
}

// links are the connections of a Server. Calls into libvirt block and cannot be taken back, so each runs in a goroutine
// of its own, a few at a time for each hypervisor; a caller whose context ends leaves it behind.
type links struct {
	driver Driver
	limit  int

	mu     sync.Mutex
	byURI  map[string]*link
	closed bool
	calls  sync.WaitGroup
}

var errClosed = errors.New("the daemon is stopping")

// do runs fn with a connection to h and returns its error, or the context's when that ends first. fn must look at its
// context between steps.
func (ls *links) do(ctx context.Context, h *lab.Hypervisor, fn func(context.Context, Hypervisor) error) error {
	l, err := ls.open(h.URI)
	if err != nil {
		return err
	}
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		ls.calls.Done()
		return fmt.Errorf("%d calls are under way and none ends: %w", cap(l.slots), ctx.Err())
	}
	result := make(chan error, 1)
	go func() {
		defer ls.calls.Done()
		defer func() { <-l.slots }()
		result <- l.call(ctx, ls.driver, fn)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		err := fmt.Errorf("no answer from %s: %w", h.URI, ctx.Err())
		if errors.Is(err, context.DeadlineExceeded) { // else it is the caller who went away
			l.failure.Store(&err)
		}
		return err
	}
}

// Unreachable returns the hypervisors of the lab that did not answer when they were last asked, by name, and why.
func (s *Server) Unreachable() map[string]error {
	failed := map[string]error{}
	s.links.mu.Lock()
	defer s.links.mu.Unlock()
	for _, hv := range s.deps.Table().hypervisors {
		if l := s.links.byURI[hv.URI]; l != nil && l.failure.Load() != nil {
			failed[hv.Name] = *l.failure.Load()
		}
	}
	return failed
}

// open returns the link for a URI and counts one call, which ends with calls.Done.
func (ls *links) open(uri string) (*link, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return nil, errClosed
	}
	l := ls.byURI[uri]
	if l == nil {
		l = &link{uri: uri, slots: make(chan struct{}, ls.limit)}
		ls.byURI[uri] = l
	}
	ls.calls.Add(1)
	return l, nil
}

// call connects where that is needed and runs fn, turning a panic into an error.
func (l *link) call(ctx context.Context, d Driver, fn func(context.Context, Hypervisor) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("a defect of bootlab: %v", r)
		}
	}()
	hv, err := l.connect(d)
	if err != nil {
		err = fmt.Errorf("connect to %s: %w", l.uri, err)
		l.failure.Store(&err)
		return err
	}
	l.failure.Store(nil)
	if err := ctx.Err(); err != nil {
		return err
	}
	return fn(ctx, hv)
}

func (l *link) connect(d Driver) (Hypervisor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hv != nil && l.hv.Alive() {
		return l.hv, nil
	}
	if l.hv != nil {
		l.hv.Close()
		l.hv = nil
	}
	hv, err := d.Dial(l.uri)
	if err != nil {
		return nil, err
	}
	l.hv = hv
	return hv, nil
}

// close refuses new calls, waits until ctx ends for those under way, and closes every connection. It reports whether all
// calls had ended; if not, connections are left to the end of the process.
func (ls *links) close(ctx context.Context) bool {
	ls.mu.Lock()
	ls.closed = true
	ls.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		ls.calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return false
	}
	for _, l := range ls.byURI {
		if l.hv != nil {
			l.hv.Close()
		}
	}
	ls.driver.Close()
	return true
}
