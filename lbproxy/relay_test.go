package lbproxy

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"
)

// TestIdleConnections have no goroutines, and go on as if they had: with bytes from either side, a half-close, the end of one
// side and the end of the server.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	b := balancer("b", addr(t), serveTCP(t, nameServer("b")))
	r := newTestServer(t, Config{Sweep: 20 * time.Millisecond, Drain: time.Millisecond}, b)
	one, two := dial(t, b.Listen), dial(t, b.Listen)
	readLine(t, one)
	readLine(t, two)
	for range 3 {
		_, _ = io.WriteString(one, "again\n")
		if got := readLine(t, one); got != "again" {
			t.Fatalf("read %q from a connection that was idle", got)
		}
	}
	_ = one.CloseWrite()
	if rest, err := io.ReadAll(one); err != nil || len(rest) > 0 {
		t.Errorf("after a half-close: %q, %v", rest, err)
	}
	netns.WaitFor(t, "one connection", func() bool { return r.Status()[0].Connections == 1 && r.limit.Len() == 1 })
	r.stop()
	if _, err := two.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read = %v after the end of the server, want the end", err)
	}
	if n := len(r.sessions.all()); n > 0 {
		t.Errorf("%d sessions after the end", n)
	}
}

// TestIdleGoroutines: 500 idle connections have no goroutines. Their backend's connections stay in its backlog, without any either. Not
// parallel: those of other tests would count.
func TestIdleGoroutines(t *testing.T) {
	const clients, others = 500, 50 // event loops, timers
	at := addr(t)
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	b := balancer("b", addr(t), at)
	r := newTestServer(t, Config{Sweep: 20 * time.Millisecond, Drain: time.Millisecond}, b)
	before := runtime.NumGoroutine()
	for range clients {
		dial(t, b.Listen)
	}
	netns.WaitFor(t, "all connections with their backend", func() bool {
		connected := 0
		for _, ses := range r.sessions.all() {
			if ses.relay.phase.Load() == moving {
				connected++
			}
		}
		return connected == clients
	})
	netns.WaitFor(t, "no goroutine for each connection", func() bool { return runtime.NumGoroutine() < before+others })
}

// TestHandshakes: the last packet of a handshake waits for the client's first bytes, and not for those of a client that waits for the
// backend's.
func TestHandshakes(t *testing.T) {
	t.Parallel()
	to := serveTCP(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	var h handshakes
	waited := 0
	for range 10 { // the kernel waits for 200 ms at most
		st, err := connectStream(to)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		if info, ok := tcpInfo(st); ok && info.State == unix.BPF_TCP_ESTABLISHED && info.Segs_out == 1 {
			waited++
		}
		r := &relay{}
		r.down.src = st
		h.add(r)
		netns.WaitFor(t, "the end of the wait", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.open) == 0
		})
		if info, ok := tcpInfo(st); !ok || info.Segs_out != 2 {
			t.Errorf("%d packets of a handshake were sent, want 2", info.Segs_out)
		}
	}
	if waited == 0 {
		t.Error("no handshake waits for the client's first bytes")
	}
}

// TestSilentClient: the handshake with its backend is one that is ended.
func TestSilentClient(t *testing.T) {
	t.Parallel()
	b := balancer("b", addr(t), serveTCP(t, nameServer("b")))
	r := newTestServer(t, Config{}, b)
	readLine(t, dial(t, b.Listen))
	all := r.sessions.all()
	if len(all) != 1 {
		t.Fatalf("%d connections, want one", len(all))
	}
	h := &all[0].relay.loop.handshakes
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer == nil {
		t.Error("nothing ends the handshake")
	}
}

// TestUrgentData: a read ends at urgent data, and what follows it arrives as well.
func TestUrgentData(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	b := balancer("b", addr(t), serveTCP(t, func(c net.Conn) {
		all, _ := io.ReadAll(c)
		got <- string(all)
	}))
	newTestServer(t, Config{}, b)
	c := dial(t, b.Listen)
	_, _ = io.WriteString(c, "before")
	control(c, func(fd int) {
		if err := unix.Sendto(fd, []byte("!"), unix.MSG_OOB, nil); err != nil {
			t.Error(err)
		}
	})
	_, _ = io.WriteString(c, "after")
	_ = c.CloseWrite()
	select {
	case all := <-got:
		if all != "beforeafter" {
			t.Errorf("the backend got %q", all)
		}
	case <-time.After(time.Minute):
		t.Error("what follows urgent data does not arrive")
	}
}

// TestModeChanges: the connection that a listener waits for when its balancer's mode changes is served in the new mode.
func TestModeChanges(t *testing.T) {
	t.Parallel()
	at, web := addr(t), serveHTTP(t, respond("web"))
	r := newTestServer(t, Config{}, balancer("b", at, serveTCP(t, nameServer("tcp"))))
	if got := readLine(t, dial(t, at)); got != "tcp" {
		t.Fatalf("read %q in mode tcp", got)
	}
	for range 2 {
		r.apply(t, httpBalancer("b", at, web))
		if got := say(t, at, "GET / HTTP/1.0\r\n\r\n"); !strings.HasSuffix(got, "web") {
			t.Errorf("read %q in mode http", got)
		}
		r.apply(t, balancer("b", at, serveTCP(t, nameServer("tcp"))))
		if got := readLine(t, dial(t, at)); got != "tcp" {
			t.Errorf("read %q in mode tcp again", got)
		}
	}
}

// TestSlowAccept has a backend that leaves a connect unanswered for longer than the hedge: its queue is full. The client gets the other.
func TestSlowAccept(t *testing.T) {
	t.Parallel()
	full := fullListener(t)
	b := balancer("b", addr(t), full, serveTCP(t, nameServer("alive")))
	r := newTestServer(t, Config{Hedge: 20 * time.Millisecond, Ejection: time.Hour, Sweep: time.Hour}, b)
	for range 4 {
		if got := readLine(t, dial(t, b.Listen)); got != "alive" {
			t.Fatalf("answered by %q", got)
		}
	}
	if got := testutil.ToFloat64(r.metrics.retries.WithLabelValues("b")); got == 0 {
		t.Error("no client was sent to another backend")
	}
	netns.WaitFor(t, "no connects left", func() bool { return r.Status()[0].Backends[0].Connections == 0 })
}

// fullListener returns an address whose kernel answers no connect: as many wait to be accepted as may.
func fullListener(t *testing.T) netip.AddrPort {
	t.Helper()
	at := addr(t)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		t.Cleanup(func() { _ = unix.Close(fd) })
		err = errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}), unix.Listen(fd, 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	for { // until one waits
		st, err := connectStream(at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		ready := []unix.PollFd{{Fd: int32(st.fd), Events: unix.POLLOUT}}
		if n, _ := unix.Poll(ready, 500); n == 0 {
			return at
		}
	}
}

// TestNoDelay: a message does not wait for the acknowledgement of the one before it (Nagle's algorithm), on either side.
func TestNoDelay(t *testing.T) {
	t.Parallel()
	b := balancer("b", addr(t), serveTCP(t, nameServer("b")))
	r := newTestServer(t, Config{}, b)
	c := dial(t, b.Listen)
	readLine(t, c)
	for range 2 {
		_, _ = io.WriteString(c, "x\n")
		readLine(t, c)
	}
	for _, ses := range r.sessions.all() {
		for _, side := range []net.Conn{ses.client, ses.backend} {
			control(side, func(fd int) {
				if on, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY); on != 1 || err != nil {
					t.Errorf("TCP_NODELAY %d, %v", on, err)
				}
			})
		}
	}
}
