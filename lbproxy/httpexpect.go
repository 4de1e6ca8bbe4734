package lbproxy

import (
	"context"
	"net/http/httptrace"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/lbproxy/h1"
)

// continueWait is how long a client that expects 100 (Continue) waits for it where the backend speaks HTTP/2. Curl sends its body
// after the same time; a backend need not send 100 (RFC 9110 section 10.1.1).
const continueWait = time.Second

// An expectation is of a client that sends no body before it gets 100 (Continue).
type expectation struct {
	client *httpConn
	wanted chan struct{} // closed when the backend has sent 100
	ended  chan struct{} // closed when nobody reads the body any more
	want   func()        // closes wanted
	end    func()        // closes ended

	mu   sync.Mutex
	done bool // 100 was sent, or the final response begins
}

// expects returns the expectation of a request; nil: it has none, or has sent some of its body.
func (x *exchange) expects() *expectation {
	c, ok := x.client.(*httpConn) // net/http answers for HTTP/2
	if !ok || x.req.Minor == 0 || x.reqFraming == h1.NoBody || c.in.Buffered() > 0 || !slices.ContainsFunc(x.req.Fields, func(f h1.Field) bool {
		return h1.KindOf(f.Name) == h1.FieldExpect && h1.EqualFold(f.Value, "100-continue")
	}) {
		return nil
	}
	e := &expectation{client: c, wanted: make(chan struct{}), ended: make(chan struct{})}
	e.want, e.end = sync.OnceFunc(func() { close(e.wanted) }), sync.OnceFunc(func() { close(e.ended) })
	return e
}

// trace lets the backend's 100 (Continue) reach e.
func (e *expectation) trace(ctx context.Context) context.Context {
	if e == nil {
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got100Continue: e.want})
}

// wait waits until the backend wants the body, and sends 100 (Continue).
func (e *expectation) wait() {
	if e == nil || e.isDone() {
		return
	}
	select {
	case <-e.wanted:
	case <-time.After(continueWait):
	case <-e.ended:
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.done {
		e.done = true
		e.client.out = append(e.client.out, "HTTP/1.1 100 Continue\r\n\r\n"...)
		_ = e.client.flush() // reading the body fails next
	}
}

func (e *expectation) isDone() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done
}

// over says that the final response begins: 100 (Continue) is not sent any more.
func (e *expectation) over() {
	if e == nil {
		return
	}
	e.end()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.done = true
}
