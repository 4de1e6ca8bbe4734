package virt

import (
	"context"
	"errors"
	"sync"

	"github.com/bootlab/bootlab/internal/lab"
)

// connections are the hypervisors of a Server, by URI: each has one connection for all that is done on it.
type connections struct {
	driver  Driver
	changed func(hv *lab.Hypervisor, uuids []string)

	mu     sync.Mutex
	byURI  map[string]Hypervisor
	closed bool
	calls  sync.WaitGroup // operations in progress
}

var errClosed = errors.New("the daemon is stopping")

// use calls fn with a hypervisor, unless the server is stopping.
func (cs *connections) use(h *lab.Hypervisor, fn func(Hypervisor) error) error {
	cs.mu.Lock()
	if cs.closed {
		cs.mu.Unlock()
		return errClosed
	}
	hv := cs.byURI[h.URI]
	if hv == nil {
		hv = cs.driver.Open(h.URI, func(uuids []string) { cs.changed(h, uuids) })
		cs.byURI[h.URI] = hv
	}
	cs.calls.Add(1)
	cs.mu.Unlock()
	defer cs.calls.Done()
	return fn(hv)
}

// keep closes the connections to the hypervisors that are no longer in the lab.
func (cs *connections) keep(hypervisors []*lab.Hypervisor) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	named := map[string]bool{}
	for _, h := range hypervisors {
		named[h.URI] = true
	}
	for uri, hv := range cs.byURI {
		if !named[uri] {
			hv.Close()
			delete(cs.byURI, uri)
		}
	}
}

// close refuses new operations, waits for the others until ctx ends, and closes every connection, which ends the rest. It reports
// whether all had ended by themselves.
func (cs *connections) close(ctx context.Context) bool {
	cs.mu.Lock()
	cs.closed = true
	cs.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		cs.calls.Wait()
		close(ended)
	}()
	quiet := true
	select {
	case <-ended:
	case <-ctx.Done():
		quiet = false
	}
	for _, hv := range cs.byURI {
		hv.Close()
	}
	<-ended
	return quiet
}
