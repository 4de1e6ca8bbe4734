package webserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/client/connlimit"
)

// maxHeader is how much a request's header may have: Anaconda sends one header a NIC; no client sends 16 KiB.
const maxHeader = 16 << 10

// A Server serves HTTP on listeners. Conns, Header, Idle, Drain and Log are required.
type Server struct {
	Conns *connlimit.Set // of all listeners

	Header  time.Duration // to send a request's header
	Request time.Duration // to send the whole request; 0: any
	Idle    time.Duration // between two requests of a connection
	Drain   time.Duration // for requests in progress when the server stops

	Evicted func()      // is called for each connection that Conns closes or refuses; may be nil
	TLS     *tls.Config // nil: plain
	Log     *slog.Logger
}

// A Binding is a listener and its handler.
type Binding struct {
	Listener net.Listener
	Handler  http.Handler
}

// Run serves until ctx ends, lets requests in progress finish for Drain, closes the remaining connections, waits for their
// handlers and returns nil. It closes no listener. Requests run under base, which may outlive ctx.
func (s *Server) Run(ctx, base context.Context, bindings ...Binding) error {
	var open sync.WaitGroup
	var servers []*http.Server
	group, ctx := errgroup.WithContext(ctx)
	for _, b := range bindings {
		server := s.server(base, b.Handler, &open)
		servers = append(servers, server)
		var l net.Listener = &listener{Listener: b.Listener, server: s}
		if s.TLS != nil {
			l = tls.NewListener(l, s.TLS)
		}
		group.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve http on %s: %w", b.Listener.Addr(), err)
			}
			return nil
		})
	}
	<-ctx.Done()
	s.stop(servers)
	err := group.Wait() // no connection is accepted any more: open only counts down
	open.Wait()
	return err
}

func (s *Server) server(base context.Context, h http.Handler, open *sync.WaitGroup) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			slot := Of(r).slot
			slot.Begin()
			defer slot.End()
			h.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: s.Header,
		ReadTimeout:       s.Request,
		IdleTimeout:       s.Idle,
		MaxHeaderBytes:    maxHeader,
		Protocols:         protocols,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			if t, ok := conn.(*tls.Conn); ok {
				conn = t.NetConn()
			}
			return context.WithValue(ctx, connKey{}, conn)
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

func (s *Server) stop(servers []*http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), s.Drain)
	defer cancel()
	var wg sync.WaitGroup
	for _, server := range servers {
		wg.Go(func() {
			if server.Shutdown(ctx) != nil {
				_ = server.Close()
			}
		})
	}
	wg.Wait()
}

// A listener accepts as many connections as its server has slots for.
type listener struct {
	net.Listener
	server *Server
}

// Accept implements net.Listener. It closes connections that are refused.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		evict := func() {
			if l.server.Evicted != nil {
				l.server.Evicted()
			}
			_ = conn.Close() // the goroutine that reads or writes it gets an error
		}
		if slot := l.server.Conns.Add(connlimit.Client(conn), evict); slot != nil {
			c := &Conn{Conn: conn, slot: slot}
			slot.Measure(c.taken)
			return c, nil
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
