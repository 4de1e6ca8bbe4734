package lbproxy

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMain(m *testing.M) { netns.Main(m) }

var addrs atomic.Uint32

// addr returns a loopback address and port that no other test uses.
func addr(t testing.TB) netip.AddrPort {
	t.Helper()
	n := addrs.Add(1)
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 78, byte(n >> 8), byte(n)}), 8000)
}

// A recorder keeps events.
type recorder struct {
	mu  sync.Mutex
	all []event.Event
}

func (n *recorder) Record(e event.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, e)
}

func (n *recorder) of(kind event.Kind) []event.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []event.Event
	for _, e := range n.all {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// A testServer is a Server that serves.
type testServer struct {
	*Server
	recorder *recorder
	reg      *prometheus.Registry
	stop     func()
}

// compile compiles balancers with the defaults of the lab file, but timeouts that a busy machine does not miss.
func compile(_ testing.TB, bs ...*lab.Balancer) *Table {
	for _, b := range bs {
		b.Mode, b.Balance = cmp.Or(b.Mode, lab.ModeTCP), cmp.Or(b.Balance, lab.RoundRobin)
		b.Check = withDefaults(b.Check)
		b.Timeouts.Connect, b.Timeouts.Idle = cmp.Or(b.Timeouts.Connect, time.Minute), cmp.Or(b.Timeouts.Idle, 10*time.Minute)
	}
	return Compile(&lab.Lab{Balancers: bs})
}

func withDefaults(c lab.Check) lab.Check {
	return lab.Check{
		Kind: cmp.Or(c.Kind, lab.CheckTCP), Name: c.Name, Path: cmp.Or(c.Path, "/"), Port: c.Port, Silence: c.Silence, Expect: c.Expect, Host: c.Host, SNI: c.SNI, CAFile: c.CAFile,
		FastInterval: c.FastInterval, Interval: cmp.Or(c.Interval, 5*time.Second), Timeout: cmp.Or(c.Timeout, time.Minute), Rise: cmp.Or(c.Rise, 2), Fall: cmp.Or(c.Fall, 3),
	}
}

func newTestServer(t testing.TB, cfg Config, bs ...*lab.Balancer) *testServer {
	t.Helper()
	return newTestServerWith(t, cfg, Deps{}, bs...)
}

func newTestServerWith(t testing.TB, cfg Config, deps Deps, bs ...*lab.Balancer) *testServer {
	t.Helper()
	r := &testServer{recorder: &recorder{}, reg: prometheus.NewRegistry()}
	table := compile(t, bs...)
	deps.Events, deps.Registerer, deps.Now = r.recorder, r.reg, time.Now
	deps.Log = cmp.Or(deps.Log, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if testing.Verbose() && os.Getenv("LBPROXY_LOG") != "" {
		deps.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if cfg.Drain == 0 {
		cfg.Drain = 100 * time.Millisecond
	}
	deps.AccessLog = cmp.Or(deps.AccessLog, deps.Log)
	s, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	r.Server = s
	staged, err := s.Stage(table)
	if err != nil {
		t.Fatal(err)
	}
	staged.Commit()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve = %v, want nil when its context ends", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("Serve does not return")
		}
	})
	t.Cleanup(func() {
		r.stop()
		if got := testutil.ToFloat64(s.metrics.rejected.WithLabelValues("", string(rejectPanic))); got != 0 {
			t.Errorf("%v handlers panicked", got)
		}
	})
	return r
}

// errOf returns the error of a change.
func errOf(_ []BackendStatus, err error) error { return err }

// apply stages and commits another table.
func (r *testServer) apply(t testing.TB, bs ...*lab.Balancer) {
	t.Helper()
	staged, err := r.Stage(compile(t, bs...))
	if err != nil {
		t.Fatal(err)
	}
	staged.Commit()
}

// waitHealth waits until a backend has that health.
func (r *testServer) waitHealth(t testing.TB, backend netip.AddrPort, want Health) {
	t.Helper()
	netns.WaitFor(t, fmt.Sprintf("backend %s %s", backend, want), func() bool {
		for _, b := range r.Status() {
			for _, m := range b.Backends {
				if m.Addr == backend && m.Health == want {
					return true
				}
			}
		}
		return false
	})
}

// waitEnded waits until no request and no connection is in progress at the backends of a balancer: a client has its answer before the
// connection to the backend is idle.
func (r *testServer) waitEnded(t testing.TB, balancer string) {
	t.Helper()
	netns.WaitFor(t, "the end of all requests of "+balancer, func() bool {
		for _, b := range r.Status() {
			for _, m := range b.Backends {
				if b.Name == balancer && m.Connections > 0 {
					return false
				}
			}
		}
		return true
	})
}

// balancer returns a balancer with backends that are not checked.
func balancer(name string, listen netip.AddrPort, backends ...netip.AddrPort) *lab.Balancer {
	b := &lab.Balancer{
		Pos: lab.Pos{File: "lab.yaml", Line: len(name)}, Name: name, Listen: lab.BindTo(listen),
		Check: lab.Check{Kind: lab.CheckNone},
	}
	for _, a := range backends {
		b.Backends = append(b.Backends, lab.Backend{Name: a.String(), Addr: a})
	}
	return b
}

// listenOf returns where a balancer with one address and port listens.
func listenOf(b *lab.Balancer) netip.AddrPort {
	return netip.AddrPortFrom(b.Listen[0].Addr, b.Listen[0].First)
}

// with returns b after the change.
func with(b *lab.Balancer, change func(*lab.Balancer)) *lab.Balancer {
	change(b)
	return b
}

// serveTCP runs handle for every connection to a new address until the test ends.
func serveTCP(t testing.TB, handle func(net.Conn)) netip.AddrPort {
	t.Helper()
	at := addr(t)
	serveTCPAt(t, at, handle)
	return at
}

// serveTCPAt is serveTCP at an address. stop closes the listener and its connections.
func serveTCPAt(t testing.TB, at netip.AddrPort, handle func(net.Conn)) (stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	var mu sync.Mutex
	open := make(map[net.Conn]bool)
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			tasks.Go(func() {
				defer func() {
					_ = c.Close()
					mu.Lock()
					delete(open, c)
					mu.Unlock()
				}()
				handle(c)
			})
		}
	})
	stop = sync.OnceFunc(func() {
		_ = l.Close()
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		tasks.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// nameServer returns a handler that sends a name as the first line, then echoes what it receives.
func nameServer(name string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.WriteString(c, name+"\n")
		_, _ = io.Copy(c, c)
	}
}

func dial(t testing.TB, to fmt.Stringer) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", to.String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c.(*net.TCPConn)
}

// readLine reads one line.
func readLine(t testing.TB, c net.Conn) string {
	t.Helper()
	var out []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatalf("read a line: %v (had %q)", err, out)
		}
		if b[0] == '\n' {
			return string(out)
		}
		out = append(out, b[0])
	}
}

// readAll connects and reads to the end. A reset may arrive before connect returns.
func readAll(from fmt.Stringer) ([]byte, error) {
	c, err := net.DialTimeout("tcp", from.String(), time.Minute)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return io.ReadAll(c)
}
