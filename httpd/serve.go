package httpd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// A binding is a listener and what is said on it.
type binding struct {
	listener net.Listener
	handler  http.Handler
}

// A runner serves some bindings until its context ends.
type runner struct {
	limits Limits
	log    *slog.Logger
	cut    prometheus.Counter // connections that were cut for want of room
}

// run serves until ctx ends, lets transfers finish for Limits.Drain, closes what is left and waits for its handlers. It
// closes the listeners. It returns nil when ctx ended. Requests run under base, which may outlive ctx.
func (r runner) run(ctx, base context.Context, bindings []binding) error {
	var open sync.WaitGroup
	var servers []*http.Server
	crowd := newCrowd(r.limits.Connections, r.cut)
	group, ctx := errgroup.WithContext(ctx)
	for _, b := range bindings {
		s := r.server(base, b.handler, crowd, &open)
		servers = append(servers, s)
		group.Go(func() error {
			if err := s.Serve(b.listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve http on %s: %w", b.listener.Addr(), err)
			}
			return nil
		})
	}
	<-ctx.Done()
	r.stop(servers)
	err := group.Wait() // no connection is accepted any more: open only counts down
	open.Wait()
	return err
}

func (r runner) server(base context.Context, h http.Handler, crowd *crowd, open *sync.WaitGroup) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           r.awaitBodies(h, crowd),
		ReadHeaderTimeout: r.limits.Header,
		IdleTimeout:       r.limits.Idle,
		MaxHeaderBytes:    maxHeader,
		Protocols:         protocols,
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       crowd.enter,
		ConnState: func(conn net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed, http.StateHijacked:
				crowd.leave(conn)
				open.Done()
			}
		},
	}
}

// awaitBodies gives the body that a request promises Limits.Stall to come. net/http has no limit of its own, and waits for
// the rest of a body even where no handler reads it: a connection that never keeps its promise would stay for ever.
func (r runner) awaitBodies(h http.Handler, crowd *crowd) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		l := linkOf(q)
		l.busy.Store(true)
		defer crowd.answered(l)
		if q.Body != http.NoBody {
			control := http.NewResponseController(w)
			_ = control.SetReadDeadline(time.Now().Add(r.limits.Stall))
			q.Body = &awaited{ReadCloser: q.Body, control: control}
		}
		h.ServeHTTP(w, q)
	})
}

// An awaited body takes its deadline away with its last byte: from then on net/http reads to hear that the client hangs up,
// and would take the deadline for that.
type awaited struct {
	io.ReadCloser
	control *http.ResponseController
}

// Read implements io.Reader.
func (a *awaited) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	if errors.Is(err, io.EOF) {
		_ = a.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

func (r runner) stop(servers []*http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), r.limits.Drain)
	defer cancel()
	var wg sync.WaitGroup
	for _, s := range servers {
		wg.Go(func() {
			if s.Shutdown(ctx) != nil {
				_ = s.Close()
			}
		})
	}
	wg.Wait()
}

// guard turns a panic of h into a 500 where the answer has not begun, and into a broken connection where it has: a
// request must never end the process, nor look complete when it is not. secret is kept out of the log.
func guard(log *slog.Logger, w *reply, secret string, h func()) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares so, too
			panic(p)
		}
		log.Error("handler panicked", keyPanic, redact(fmt.Sprint(p), secret), keyStack, string(debug.Stack()))
		if w.code != 0 {
			panic(http.ErrAbortHandler)
		}
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
	}()
	h()
}

// since returns the time gone by, for metrics and events.
func since(now func() time.Time, start time.Time) time.Duration { return now().Sub(start) }
