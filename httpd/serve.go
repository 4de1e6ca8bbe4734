package httpd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/connlimit"
	"github.com/bootlab/bootlab/internal/observe/panics"
)

// A binding is a listener and its handler.
type binding struct {
	listener net.Listener
	handler  http.Handler
}

// A runner serves some bindings until its context ends.
type runner struct {
	limits  Limits
	conns   *connlimit.Set // Limits.Connections, of all listeners of the server
	log     *slog.Logger
	evicted prometheus.Counter // connections closed because there were Limits.Connections
}

// run serves until ctx ends, lets transfers finish for Limits.Drain, closes the remaining connections, waits for their
// handlers and returns nil. It closes no listener. Requests run under base, which may outlive ctx.
func (r runner) run(ctx, base context.Context, bindings []binding) error {
	var open sync.WaitGroup
	var servers []*http.Server
	group, ctx := errgroup.WithContext(ctx)
	for _, b := range bindings {
		s := r.server(base, b.handler, &open)
		servers = append(servers, s)
		group.Go(func() error {
			if err := s.Serve(&listener{Listener: b.listener, conns: r.conns, evicted: r.evicted}); !errors.Is(err, http.ErrServerClosed) {
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

func (r runner) server(base context.Context, h http.Handler, open *sync.WaitGroup) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: r.limits.Header,
		IdleTimeout:       r.limits.Idle,
		MaxHeaderBytes:    maxHeader,
		Protocols:         protocols,
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, conn)
		},
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed, http.StateHijacked:
				open.Done()
			}
		},
	}
}

// A listener accepts as many connections as its set has room for.
type listener struct {
	net.Listener
	conns   *connlimit.Set
	evicted prometheus.Counter
}

// Accept implements net.Listener. It closes connections that the set refuses.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		evict := func() {
			l.evicted.Inc()
			_ = conn.Close() // the goroutine that reads or writes it gets an error
		}
		if slot := l.conns.Add(connlimit.Client(conn), evict); slot != nil {
			return &connection{Conn: conn, limit: slot}, nil
		}
		evict()
	}
}

// Close implements net.Listener for http.Server. The socket refuses connections from now on and Accept returns, but its owner
// closes it.
func (l *listener) Close() error {
	if u, ok := l.Listener.(*net.UnixListener); ok { // its path first: who finds a socket that refuses takes it for stale, and makes one of its own there
		_ = os.Remove(u.Addr().String())
		u.SetUnlinkOnClose(false)
	}
	socket, ok := l.Listener.(interface {
		syscall.Conn
		SetDeadline(t time.Time) error
	})
	if !ok {
		return l.Listener.Close()
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	err = raw.Control(func(fd uintptr) { refused = unix.Shutdown(int(fd), unix.SHUT_RD) })
	return errors.Join(err, refused, socket.SetDeadline(time.Unix(1, 0))) // shutdown alone does not wake Accept of a Unix socket
}

// A connection is a client's. Its requests arrive one after the other and find it in their context.
type connection struct {
	net.Conn
	limit *connlimit.Conn
	again time.Time // when to set the write deadline again
}

// ReadFrom lets net/http use sendfile(2).
func (c *connection) ReadFrom(src io.Reader) (int64, error) { return io.Copy(c.Conn, src) }

// Close implements net.Conn.
func (c *connection) Close() error {
	c.limit.Remove()
	return c.Conn.Close()
}

type connectionKey struct{}

// connectionOf returns the connection that a request came on, nil in a test without one.
func connectionOf(q *http.Request) *connection {
	c, _ := q.Context().Value(connectionKey{}).(*connection)
	return c
}

// An awaited body clears the read deadline with its last byte: from then on net/http reads to notice that the client closes
// the connection, and would take a deadline for that.
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
func guard(contained *panics.Server, w *reply, secret string, h func()) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares so, too
			panic(p)
		}
		contained.Note(p, secret)
		if w.code != 0 {
			panic(http.ErrAbortHandler)
		}
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
	}()
	h()
}

// since returns the time since start, for metrics and events.
func since(now func() time.Time, start time.Time) time.Duration { return now().Sub(start) }

// The keys of log attributes.
const (
	keyAddr   = "addr"
	keyMAC    = "mac"
	keyErr    = "err"
	keyDur    = "dur"
	keyMethod = "method"
	keyPath   = "path" // redacted: never with a token
	keyStatus = "status"
	keyBytes  = "bytes"
)
