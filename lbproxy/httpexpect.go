package lbproxy

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/lbproxy/h1"
)

// continueWait is how long a client that expects 100 (Continue) waits for it where it or the backend speaks HTTP/2. Curl sends its body
// after the same time; a backend need not send 100 (RFC 9110 section 10.1.1).
const continueWait = time.Second

// An expectation is of a client that sends no body before it gets 100 (Continue).
type expectation struct {
	client *httpConn     // nil: net/http sends it 100 when the body is read
	wanted chan struct{} // closed when the backend has sent 100
	ended  chan struct{} // closed when nobody reads the body any more
	want   func()        // closes wanted
	end    func()        // closes ended

	mu    sync.Mutex
	done  bool // 100 was sent, or the final response begins
	reads bool // it was 100
}

// expects returns the expectation of a request; nil: it has none, or has sent some of its body.
func (x *exchange) expects() *expectation {
	c, _ := x.client.(*httpConn)
	if x.req.Minor == 0 || x.reqFraming == h1.NoBody || c != nil && c.in.Buffered() > 0 || !slices.ContainsFunc(x.req.Fields, func(f h1.Field) bool {
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

// wait waits until the backend wants the body, and sends 100 (Continue). It returns false if the final response begins before.
func (e *expectation) wait() bool {
	if e == nil {
		return true
	}
	if done, reads := e.state(); done {
		return reads
	}
	select {
	case <-e.wanted:
	case <-time.After(continueWait):
	case <-e.ended:
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done {
		return e.reads
	}
	e.done, e.reads = true, true
	if e.client != nil {
		e.client.out = append(e.client.out, "HTTP/1.1 100 Continue\r\n\r\n"...)
		_ = e.client.flush() // reading the body fails next
	}
	return true
}

func (e *expectation) state() (done, reads bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done, e.reads
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

// expects100 reports whether a request in HTTP/2 has Expect: 100-continue. net/http takes the field away and says so nowhere else.
func expects100(r *http.Request) bool {
	body := reflect.Indirect(reflect.ValueOf(r.Body))
	if body.Kind() != reflect.Struct {
		return false
	}
	needs := body.FieldByName("needsContinue")
	return needs.Kind() == reflect.Bool && needs.Bool()
}
