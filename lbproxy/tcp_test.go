package lbproxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"
)

func TestSpliceBothDirections(t *testing.T) {
	t.Parallel()
	back := serveTCP(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	frontend := addr(t)
	r := newTestServer(t, Config{}, balancer("echo", frontend, back))

	c := dial(t, frontend)
	sent := make([]byte, 3<<20)
	_, _ = rand.Read(sent)
	go func() {
		_, _ = c.Write(sent)
		_ = c.CloseWrite() // the echo ends only when the half-close arrives
	}()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back, different from the %d sent", len(got), len(sent))
	}
	for _, direction := range []string{"in", "out"} {
		netns.WaitFor(t, "bytes counted "+direction, func() bool {
			return testutil.ToFloat64(r.metrics.bytes.WithLabelValues("echo", direction)) == float64(len(sent))
		})
	}
	netns.WaitFor(t, "connection gone", func() bool { return r.Status()[0].Connections == 0 && r.Status()[0].Backends[0].Connections == 0 })
}

func TestBackendHalfClose(t *testing.T) {
	t.Parallel()
	rest := make(chan string, 1)
	back := serveTCP(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "bye")
		_ = c.(*net.TCPConn).CloseWrite()
		got, _ := io.ReadAll(c)
		rest <- string(got)
	})
	frontend := addr(t)
	newTestServer(t, Config{}, balancer("half", frontend, back))
	c := dial(t, frontend)
	if got, err := io.ReadAll(c); string(got) != "bye" || err != nil {
		t.Fatalf("read %q, %v, want bye and a clean end", got, err)
	}
	_, _ = io.WriteString(c, "still here")
	_ = c.CloseWrite()
	if got := <-rest; got != "still here" {
		t.Errorf("backend read %q after its half-close, want %q", got, "still here")
	}
}

func TestBackendResetReachesClient(t *testing.T) {
	t.Parallel()
	back := serveTCP(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "half of an ans")
		time.Sleep(20 * time.Millisecond) // time to arrive: a reset drops what is queued
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	frontend := addr(t)
	newTestServer(t, Config{}, balancer("reset", frontend, back))
	if got, err := io.ReadAll(dial(t, frontend)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("client read %q, %v, want a reset: a clean end would look like a complete response", got, err)
	}
}

func TestEarlyAnswerToUpload(t *testing.T) {
	t.Parallel()
	read := make(chan struct{})
	back := serveTCP(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 1000))
		_, _ = io.WriteString(c, "too large")
		_ = c.(*net.TCPConn).CloseWrite()
		<-read // then it closes with bytes unread, which resets
	})
	frontend := addr(t)
	newTestServer(t, Config{}, balancer("upload", frontend, back))
	c := dial(t, frontend)
	go func() {
		chunk := make([]byte, 64<<10)
		for range 100 {
			if _, err := c.Write(chunk); err != nil {
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	got := make([]byte, len("too large"))
	_, _ = io.ReadFull(c, got)
	close(read)
	rest, _ := io.ReadAll(c)
	if got := string(got) + string(rest); got != "too large" {
		t.Errorf("client read %q, want %q", got, "too large")
	}
}

// TestAnswerToSlowReader: a backend ends its answer, and closes although the client still sends. What of the answer is on its
// way to a client that reads slowly is not lost, though bytes for the backend can no longer be written.
func TestAnswerToSlowReader(t *testing.T) {
	t.Parallel()
	answer := bytes.Repeat([]byte("answer, "), 6<<10)
	back := serveTCP(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 1000))
		_, _ = c.Write(answer)
		_ = c.(*net.TCPConn).CloseWrite()
		netns.WaitFor(t, "the answer is received", func() bool { return unacknowledged(c) == 0 })
	})
	frontend := addr(t)
	newTestServer(t, Config{}, balancer("upload", frontend, back))
	tries := 5 // uploadTimeout may end while the machine stands still
	for try := range tries {
		got, err := uploadAndRead(t, frontend)
		if bytes.Equal(got, answer) {
			return
		}
		t.Logf("try %d: the client read %d bytes of %d: %v", try, len(got), len(answer), err)
	}
	t.Error("the client lost a part of the answer each time")
}

// uploadAndRead sends for a while before it reads what came, with a small receive buffer.
func uploadAndRead(t *testing.T, to netip.AddrPort) ([]byte, error) {
	dialer := net.Dialer{Timeout: time.Minute, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10) })
	}}
	c, err := dialer.DialContext(t.Context(), "tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	for range 100 {
		if _, err := c.Write(make([]byte, 2<<10)); err != nil {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	return io.ReadAll(c)
}

// unacknowledged returns how many bytes of a connection the other side has not received.
func unacknowledged(c net.Conn) (n int) {
	control(c.(*net.TCPConn), func(fd int) { n, _ = unix.IoctlGetInt(fd, unix.SIOCOUTQ) })
	return n
}

// TestClientResetReachesBackend: also of a client that sends something before, whose bytes and reset are one event.
func TestClientResetReachesBackend(t *testing.T) {
	t.Parallel()
	const clients = 300
	ends := make(chan error, clients)
	at := serveTCP(t, func(c net.Conn) {
		_, err := io.Copy(io.Discard, c)
		ends <- err
	})
	b := balancer("b", addr(t), at)
	newTestServer(t, Config{Hedge: time.Minute}, b) // a connect that another replaces ends in order, without a byte
	for range clients {
		c := dial(t, b.Listen)
		_, _ = io.WriteString(c, "hi\n")
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	orderly := 0
	for range clients {
		if err := <-ends; err == nil {
			orderly++
		}
	}
	if orderly > 0 {
		t.Errorf("%d of %d resets reached the backend as an orderly end", orderly, clients)
	}
}

func TestNoBackendResets(t *testing.T) {
	t.Parallel()
	closed := addr(t)
	tests := []struct {
		name string
		b    *lab.Balancer
		want reason
	}{
		{"no backends", balancer("b", addr(t)), rejectNoBackend},
		{"refused", with(balancer("b", addr(t), closed), func(b *lab.Balancer) { b.Timeouts.Connect = 500 * time.Millisecond }), rejectConnect},
		{"down by its check", with(balancer("b", addr(t), closed), func(b *lab.Balancer) { b.Check.Kind = lab.CheckTCP }), rejectNoBackend},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newTestServer(t, Config{}, test.b)
			if test.b.Check.Kind == lab.CheckTCP {
				r.waitHealth(t, closed, Down)
			}
			if got, err := readAll(test.b.Listen); !errors.Is(err, syscall.ECONNRESET) || len(got) > 0 {
				t.Errorf("client read %q, %v, want a reset and no bytes", got, err)
			}
			netns.WaitFor(t, "rejection counted", func() bool {
				return testutil.ToFloat64(r.metrics.rejected.WithLabelValues("b", string(test.want))) == 1
			})
		})
	}
}

func TestRefusingBackendIsSkipped(t *testing.T) {
	t.Parallel()
	gone, alive := addr(t), serveTCP(t, nameServer("alive"))
	frontend := addr(t)
	r := newTestServer(t, Config{Ejection: time.Hour, Hedge: time.Minute}, balancer("b", frontend, gone, alive))
	for range 10 {
		if got := readLine(t, dial(t, frontend)); got != "alive" {
			t.Fatalf("answered by %q", got)
		}
	}
	r.waitHealth(t, gone, Down)
	events := r.recorder.of(event.BackendDown)
	if len(events) != 1 || !strings.Contains(events[0].Err, "refused") || events[0].Balancer != "b" || events[0].Backend != gone.String() {
		t.Errorf("events = %+v, want one with the error connection refused", events)
	}
	if got := testutil.ToFloat64(r.metrics.retries.WithLabelValues("b")); got != ejectRefused {
		t.Errorf("%v retries, want %d: the backend is down after that", got, ejectRefused)
	}
}

// TestRestartingBackend: a client of the only backend waits while that refuses, and is connected once it accepts again, as by HAProxy's retries.
func TestRestartingBackend(t *testing.T) {
	t.Parallel()
	for _, mode := range []lab.BalanceMode{lab.ModeTCP, lab.ModeHTTP} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			back := addr(t)
			b := with(balancer("b", addr(t), back), func(b *lab.Balancer) { b.Mode = mode })
			r := newTestServer(t, Config{}, b)
			c := dial(t, b.Listen)
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			netns.WaitFor(t, "two rounds", func() bool { return testutil.ToFloat64(r.metrics.retries.WithLabelValues("b")) >= 2 })
			serveTCPAt(t, back, func(c net.Conn) {
				_, _ = c.Read(make([]byte, 512))
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			})
			if got := readLine(t, c); got != "HTTP/1.1 200 OK\r" {
				t.Errorf("%q once the backend accepts", got)
			}
		})
	}
}

func TestEjectedBackendComesBack(t *testing.T) {
	t.Parallel()
	flaky, alive := addr(t), serveTCP(t, nameServer("alive"))
	frontend := addr(t)
	r := newTestServer(t, Config{Ejection: 50 * time.Millisecond}, balancer("b", frontend, flaky, alive))
	for range 4 {
		readLine(t, dial(t, frontend))
	}
	netns.WaitFor(t, "ejected", func() bool { return len(r.recorder.of(event.BackendDown)) > 0 })
	serveTCPAt(t, flaky, nameServer("flaky"))
	netns.WaitFor(t, "used again", func() bool { return readLine(t, dial(t, frontend)) == "flaky" })
}

func TestSilentBackendIsHedged(t *testing.T) {
	t.Parallel()
	silent, alive := addr(t), serveTCP(t, nameServer("alive"))
	deps := Deps{Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		if to == silent {
			<-ctx.Done() // as behind a cut cable
			return nil, ctx.Err()
		}
		return dialTCP(ctx, to)
	}}
	frontend := addr(t)
	b := with(balancer("b", frontend, silent, alive), func(b *lab.Balancer) { b.Timeouts.Connect = time.Hour })
	r := newTestServerWith(t, Config{Hedge: 20 * time.Millisecond, Ejection: time.Hour}, deps, b)
	for range 8 { // without the hedge a client would wait for the connect timeout
		if got := readLine(t, dial(t, frontend)); got != "alive" {
			t.Fatalf("answered by %q", got)
		}
	}
	netns.WaitFor(t, "the silent backend ejected", func() bool {
		readLine(t, dial(t, frontend))
		return r.Status()[0].Backends[0].Health == Down
	})
	if got := r.Status()[0].Backends[0].Connections; got != 0 {
		t.Errorf("the silent backend has %d connections", got)
	}
}

func TestAllSilentResets(t *testing.T) {
	t.Parallel()
	deps := Deps{Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	b := with(balancer("b", addr(t), addr(t), addr(t), addr(t)), func(b *lab.Balancer) { b.Timeouts.Connect = 100 * time.Millisecond })
	r := newTestServerWith(t, Config{Hedge: 10 * time.Millisecond}, deps, b)
	if _, err := readAll(b.Listen); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("client saw %v, want a reset", err)
	}
	for _, m := range r.Status()[0].Backends {
		if m.Connections != 0 {
			t.Errorf("backend %s has %d connections", m.Addr, m.Connections)
		}
	}
}

// TestIdleConnectionEnds: traffic keeps a connection open for longer than the idle timeout, and without traffic it ends.
func TestIdleConnectionEnds(t *testing.T) {
	t.Parallel()
	const idle = 2 * time.Second
	back := serveTCP(t, nameServer("b"))
	b := with(balancer("b", addr(t), back), func(b *lab.Balancer) { b.Timeouts.Idle = idle })
	newTestServer(t, Config{Sweep: 20 * time.Millisecond}, b)
	var c net.Conn
	var last time.Time // when the last traffic began
	netns.WaitFor(t, "no pause as long as the timeout", func() (ok bool) {
		c, last, ok = keepActive(t, listenOf(b), idle)
		return ok
	})
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read = %v on an idle connection, want its end", err)
	}
	if took := time.Since(last); took < idle-100*time.Millisecond {
		t.Errorf("an idle connection lived %s, want at least %s", took, idle)
	}
}

// keepActive exchanges a line every 200 ms for one and a half idle timeouts. ok is false if this process was so slow that
// the connection was idle for the timeout and ended.
func keepActive(t *testing.T, to netip.AddrPort, idle time.Duration) (c net.Conn, last time.Time, ok bool) {
	t.Helper()
	c = dial(t, to)
	last = time.Now()
	buf := make([]byte, 2)
	_, err := io.ReadFull(c, buf) // the name of the backend
	for began := last; err == nil && time.Since(began) < idle+idle/2; {
		time.Sleep(200 * time.Millisecond)
		now := time.Now()
		if _, err = io.WriteString(c, "x\n"); err == nil {
			_, err = io.ReadFull(c, buf)
		}
		if err == nil {
			last = now
		}
	}
	if pause := time.Since(last); err != nil && pause < idle {
		t.Fatalf("a connection ended %s after traffic, with an idle timeout of %s: %v", pause, idle, err)
	}
	return c, last, err == nil
}

func TestLongConnectionIsCountedWhileItRuns(t *testing.T) {
	t.Parallel()
	back := serveTCP(t, nameServer("b"))
	b := balancer("b", addr(t), back)
	r := newTestServer(t, Config{Sweep: 10 * time.Millisecond}, b)
	c := dial(t, b.Listen)
	readLine(t, c)
	_, _ = c.Write(make([]byte, 1000))
	_, _ = io.ReadFull(c, make([]byte, 1000))
	netns.WaitFor(t, "bytes seen by a sweep", func() bool {
		return testutil.ToFloat64(r.metrics.bytes.WithLabelValues("b", "in")) >= 1000
	})
	_ = c.CloseWrite()
	_, _ = io.ReadAll(c)
	netns.WaitFor(t, "ended", func() bool { return r.Status()[0].Connections == 0 })
	if got := testutil.ToFloat64(r.metrics.bytes.WithLabelValues("b", "in")); got > 1001 {
		t.Errorf("%v bytes counted, want 1000: nothing twice", got)
	}
}

func TestMaxConnectionsWait(t *testing.T) {
	t.Parallel()
	b := with(balancer("b", addr(t), serveTCP(t, nameServer("b"))), func(b *lab.Balancer) { b.MaxConnections = 2 })
	r := newTestServer(t, Config{}, b)
	one, two := dial(t, b.Listen), dial(t, b.Listen)
	readLine(t, one)
	readLine(t, two)
	three := dial(t, b.Listen) // the kernel takes it into the backlog
	_ = three.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := three.Read(make([]byte, 8)); err == nil {
		t.Fatalf("the third connection got %d bytes while two are open", n)
	}
	_ = one.Close()
	_ = three.SetReadDeadline(time.Now().Add(time.Minute))
	if got := readLine(t, three); got != "b" {
		t.Errorf("the third connection got %q after the first had ended", got)
	}
	four := dial(t, b.Listen)
	r.apply(t, with(balancer("b", listenOf(b), b.Backends[0].Addr), func(b *lab.Balancer) { b.MaxConnections = 3 }))
	if got := readLine(t, four); got != "b" {
		t.Errorf("the fourth connection got %q after the limit was raised", got)
	}
}

func TestReloadKeepsStreams(t *testing.T) {
	t.Parallel()
	const streams = 100
	back, other := serveTCP(t, nameServer("back")), serveTCP(t, nameServer("other"))
	frontend, second := addr(t), addr(t)
	r := newTestServer(t, Config{Drain: 5 * time.Second}, balancer("keep", frontend, back), balancer("go", second, back))
	before := r.sockets[frontend]

	stop := make(chan struct{})
	var tasks sync.WaitGroup
	var conns []*net.TCPConn
	for i := range streams { // all connect before the first one is busy
		c := dial(t, []netip.AddrPort{frontend, second}[i%2])
		readLine(t, c)
		conns = append(conns, c)
	}
	for i, c := range conns {
		tasks.Go(func() {
			buf := make([]byte, 1000)
			for rounds := 0; ; rounds++ {
				if _, err := c.Write(buf); err != nil {
					t.Errorf("stream %d broke after %d rounds: %v", i, rounds, err)
					return
				}
				if _, err := io.ReadFull(c, buf); err != nil {
					t.Errorf("stream %d broke after %d rounds: %v", i, rounds, err)
					return
				}
				select {
				case <-stop:
					_ = c.CloseWrite()
					if _, err := io.ReadAll(c); err != nil {
						t.Errorf("stream %d did not end well: %v", i, err)
					}
					return
				default:
				}
			}
		})
	}
	for range 20 {
		r.apply(t, balancer("keep", frontend, back)) // "go" is removed, its connections stay
		r.apply(t, balancer("keep", frontend, back, other), balancer("go", second, other))
	}
	r.apply(t, balancer("keep", frontend, other))
	if r.sockets[frontend] != before {
		t.Error("the listener of an unchanged address was replaced")
	}
	if c, err := net.Dial("tcp", second.String()); err == nil {
		_ = c.Close()
		t.Error("the listener of a removed balancer still accepts")
	}
	if got := readLine(t, dial(t, frontend)); got != "other" {
		t.Errorf("a new connection went to %q, want the backend of the new table", got)
	}
	close(stop)
	tasks.Wait()
}

func TestStateSurvivesReload(t *testing.T) {
	t.Parallel()
	gone, alive := addr(t), serveTCP(t, nameServer("alive"))
	frontend := addr(t)
	newBalancer := func() *lab.Balancer {
		return with(balancer("b", frontend, gone, alive), func(b *lab.Balancer) { b.Check = lab.Check{Kind: lab.CheckTCP, Interval: time.Hour} })
	}
	r := newTestServer(t, Config{}, newBalancer())
	r.waitHealth(t, gone, Down)
	r.waitHealth(t, alive, Up)
	if _, err := r.Drain(t.Context(), "b", alive.String()); err != nil {
		t.Fatal(err)
	}
	want := r.Status()
	for range 3 {
		r.apply(t, newBalancer(), balancer("new", addr(t), alive))
	}
	if diff := cmp.Diff(want[0], r.Status()[0], cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{})); diff != "" {
		t.Errorf("state changed by a reload (-want +got):\n%s", diff)
	}
}

func TestPortInUseNamesBalancer(t *testing.T) {
	t.Parallel()
	taken, free := addr(t), addr(t)
	serveTCPAt(t, taken, nameServer("other"))
	r := newTestServer(t, Config{}, balancer("old", addr(t)))
	_, err := r.Stage(compile(t, balancer("a-free", free), balancer("b-taken", taken)))
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "balancer b-taken: listen on "+taken.String()) {
		t.Errorf("Stage = %v, want EADDRINUSE with balancer and address", err)
	}
	if c, err := net.Dial("tcp", free.String()); err == nil {
		_ = c.Close()
		t.Error("Stage failed and left a listener open")
	}
	if got := len(r.Status()); got != 1 {
		t.Errorf("%d active balancers, want the old one", got)
	}
	staged, err := r.Stage(compile(t, balancer("a-free", free)))
	if err != nil {
		t.Fatal(err)
	}
	staged.Discard()
	staged.Commit() // after Discard it does nothing
	if _, err := net.Dial("tcp", free.String()); err == nil {
		t.Error("Discard left a listener open")
	}
}

func TestListenOnAddressWithoutInterface(t *testing.T) {
	t.Parallel()
	l, err := ListenFree(t.Context(), netip.MustParseAddrPort("192.0.2.77:8443"))
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

func TestDrainKeepsConnections(t *testing.T) {
	t.Parallel()
	b := balancer("b", addr(t), serveTCP(t, nameServer("b")))
	r := newTestServer(t, Config{Drain: time.Hour}, b)
	c := dial(t, b.Listen)
	readLine(t, c)
	stopped := make(chan struct{})
	go func() { defer close(stopped); r.stop() }()
	netns.WaitFor(t, "draining", r.draining.Load)
	if got := readLine(t, dial(t, b.Listen)); got != "b" {
		t.Errorf("a new connection got %q while draining", got)
	}
	if _, err := io.WriteString(c, "during\n"); err != nil {
		t.Fatal(err)
	}
	if got := readLine(t, c); got != "during" {
		t.Errorf("read %q while draining", got)
	}
	_ = c.Close()
	<-stopped // without waiting for Config.Drain, as no connection is left
}

// TestRestartRefusesNobody hands the listening socket to the next server, as systemd does, while clients connect, one of
// them for long. None is refused or reset.
func TestRestartRefusesNobody(t *testing.T) {
	t.Parallel()
	b := balancer("b", addr(t), serveTCP(t, nameServer("b")))
	deps := keptSocket(t, listenOf(b))
	r := newTestServerWith(t, Config{Drain: 5 * time.Second}, deps, b)
	long := dial(t, b.Listen)
	readLine(t, long)
	stop := make(chan struct{})
	var clients tally
	for range 8 { // a few at one time: those that come while a server stops have a second from when it accepts no more
		clients.tasks.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				clients.note(exchangeLine(listenOf(b)))
			}
		})
	}
	for range 3 {
		old := long
		time.AfterFunc(500*time.Millisecond, func() { _ = old.Close() })
		r.stop()
		r = newTestServerWith(t, Config{Drain: 5 * time.Second}, deps, b)
		long = dial(t, b.Listen)
		readLine(t, long)
	}
	close(stop)
	clients.tasks.Wait()
	if clients.failed.Load() > 0 {
		t.Errorf("three restarts: %s", &clients)
	}
}

// TestRestartRefusesNoRequest is TestRestartRefusesNobody in mode http, with clients that keep their connections.
func TestRestartRefusesNoRequest(t *testing.T) {
	t.Parallel()
	b := httpBalancer("b", addr(t), serveHTTP(t, respond("ok")))
	deps := keptSocket(t, listenOf(b))
	r := newTestServerWith(t, Config{Drain: 5 * time.Second}, deps, b)
	stop := make(chan struct{})
	var clients tally
	for range 8 {
		client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
		t.Cleanup(client.CloseIdleConnections)
		clients.tasks.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				clients.note(getOK(client, "http://"+listenOf(b).String()+"/"))
			}
		})
	}
	for range 3 {
		time.Sleep(300 * time.Millisecond) // clients are served
		r.stop()
		r = newTestServerWith(t, Config{Drain: 5 * time.Second}, deps, b)
	}
	close(stop)
	clients.tasks.Wait()
	if clients.failed.Load() > 0 || clients.made.Load() == 0 {
		t.Errorf("three restarts: %s", &clients)
	}
}

// getOK makes a request whose answer is "ok".
func getOK(client *http.Client, url string) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || string(body) != "ok") {
		err = fmt.Errorf("status %s: %q", resp.Status, body)
	}
	return err
}

// keptSocket returns dependencies of servers that have the same listening socket, one after the other.
func keptSocket(t *testing.T, at netip.AddrPort) Deps {
	t.Helper()
	kept, err := ListenFree(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() })
	return Deps{Listen: func(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
		if addr != at {
			return ListenFree(ctx, addr)
		}
		file, err := kept.(*net.TCPListener).File()
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		return net.FileListener(file)
	}}
}

// exchangeLine sends and reads a line on a new connection.
func exchangeLine(at netip.AddrPort) error {
	c, err := net.DialTimeout("tcp", at.String(), time.Minute)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "x\n"); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, len("b\nx\n")))
	return err
}

func TestDrainAbortsConnectionsAtItsEnd(t *testing.T) {
	t.Parallel()
	const drain = 200 * time.Millisecond
	b := balancer("b", addr(t), serveTCP(t, nameServer("b")))
	r := newTestServer(t, Config{Drain: drain}, b)
	c := dial(t, b.Listen)
	readLine(t, c)
	began := time.Now()
	r.stop()
	if took := time.Since(began); took < drain {
		t.Errorf("drained for %s, want at least %s", took, drain)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read = %v after the drain, want the end of the connection", err)
	}
}

// TestConnectionsDoNotRunOutOfPorts has ten local ports and 20 connections to five destinations. A port that is bound before
// connect is in use for every destination; a port that connect chooses, for one.
func TestConnectionsDoNotRunOutOfPorts(t *testing.T) {
	netns.Need(t, "root")
	const file = "/proc/sys/net/ipv4/ip_local_port_range" // of this network namespace
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("40000 40009"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(file, before, 0o600) })
	for range 5 {
		back := serveTCP(t, nameServer("b"))
		for i := range 4 {
			c, err := dialTCP(t.Context(), back)
			if err != nil {
				t.Fatalf("connection %d to %s: %v", i, back, err)
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}
}
