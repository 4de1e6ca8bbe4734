package lbproxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// dialFrom connects from a given client address.
func dialFrom(t testing.TB, from string, to netip.AddrPort) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0)), Timeout: time.Minute}
	c, err := d.DialContext(t.Context(), "tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// connectAndReset connects and waits for the reset, which may arrive before connect returns.
func connectAndReset(to netip.AddrPort) {
	if c, err := net.Dial("tcp", to.String()); err == nil {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.ReadAll(c)
		_ = c.Close()
	}
}

// TestConnectionLimitIsShared: at the connection limit, of which each client has one, new connections of every balancer wait until others end,
// in whatever way.
func TestConnectionLimitIsShared(t *testing.T) {
	t.Parallel()
	tcp := balancer("tcp", addr(t), serveTCP(t, nameServer("tcp")))
	web := httpBalancer("web", addr(t), serveHTTP(t, respond("web")))
	shared := with(balancer("shared", addr(t), serveTCP(t, nameServer("shared"))), func(b *lab.Balancer) { b.Match.SNI = []string{"*.lab"} })
	refused := with(balancer("refused", addr(t), addr(t)), func(b *lab.Balancer) { b.Timeouts.Connect = 100 * time.Millisecond }) // its backend refuses
	r := newTestServer(t, Config{Connections: 4, Peek: 100 * time.Millisecond}, tcp, web, shared, refused)
	var held []net.Conn
	for i := range 4 {
		c := dialFrom(t, fmt.Sprintf("127.0.0.%d", 10+i), listenOf(tcp))
		readLine(t, c)
		held = append(held, c)
	}
	waiting := map[string]net.Conn{"tcp": dialFrom(t, "127.0.0.20", listenOf(tcp)), "web": dialFrom(t, "127.0.0.21", listenOf(web))}
	_, _ = io.WriteString(waiting["web"], "GET / HTTP/1.0\r\n\r\n")
	netns.WaitFor(t, "two delayed connections", func() bool { return testutil.ToFloat64(r.metrics.delayed) == 2 })
	if n := r.limit.Len(); n != 4 {
		t.Errorf("%d connections are open, want 4", n)
	}
	for _, c := range held {
		_ = c.Close()
	}
	if got := readLine(t, waiting["tcp"]); got != "tcp" {
		t.Errorf("%q below the limit, want tcp", got)
	}
	if body, err := io.ReadAll(waiting["web"]); err != nil || len(body) == 0 {
		t.Errorf("%q, %v below the limit, want a response", body, err)
	}
	_ = waiting["tcp"].Close()
	for range 6 {
		for _, b := range []*lab.Balancer{refused, shared} { // to shared it sends no first bytes
			connectAndReset(listenOf(b))
			netns.WaitFor(t, "no open connections", func() bool { return r.limit.Len() == 0 }) // a client sees the reset before
		}
	}
	if got := testutil.ToFloat64(r.metrics.evicted); got != 0 {
		t.Errorf("%v connections were evicted though no client had more than others", got)
	}
}

// TestFloodIsEvicted: a client that holds every connection of the limit locks no other client out.
func TestFloodIsEvicted(t *testing.T) {
	t.Parallel()
	const limit = 20
	b := balancer("b", addr(t), serveTCP(t, nameServer("b")))
	r := newTestServer(t, Config{Connections: limit}, b)
	for range limit {
		readLine(t, dialFrom(t, "127.0.0.66", listenOf(b)))
	}
	for i := range limit / 2 {
		if got := readLine(t, dialFrom(t, fmt.Sprintf("127.0.0.%d", 100+i), listenOf(b))); got != "b" {
			t.Fatalf("client %d got %q", i, got)
		}
	}
	if got := testutil.ToFloat64(r.metrics.evicted); got != limit/2 {
		t.Errorf("%v connections were evicted, want one for each other client", got)
	}
}

// TestGreedyClients: clients that take all connections they get leave some to the next one, which costs no other client a connection.
func TestGreedyClients(t *testing.T) {
	t.Parallel()
	const limit, greedy = 64, 7
	b := balancer("b", addr(t), serveTCP(t, nameServer("b")))
	r := newTestServer(t, Config{Connections: limit}, b)
	for range limit {
		for i := range greedy {
			readLine(t, dialFrom(t, fmt.Sprintf("127.0.0.%d", 60+i), listenOf(b)))
		}
	}
	netns.WaitFor(t, "an eighth for each", func() bool { return r.limit.Len() == limit*greedy/(greedy+1) })
	before := testutil.ToFloat64(r.metrics.evicted)
	for range limit / (greedy + 1) / 2 {
		if got := readLine(t, dialFrom(t, "127.0.0.100", listenOf(b))); got != "b" {
			t.Fatalf("another client got %q", got)
		}
	}
	if got := testutil.ToFloat64(r.metrics.evicted) - before; got != 0 {
		t.Errorf("%v connections were evicted for another client", got)
	}
}

// TestFilesPerConnection counts the file descriptors that internal/host/process/descriptors assumes. It does not run in parallel.
func TestFilesPerConnection(t *testing.T) {
	const conns = 40
	b := balancer("b", addr(t), serveTCP(t, func(c net.Conn) { _, _ = io.Copy(c, c) }))
	r := newTestServer(t, Config{}, b)
	before := openFiles(t)
	bulk := make([]byte, 4*readSize)
	for range conns {
		c := dial(t, b.Listen)
		_, _ = io.WriteString(c, "x\n")
		readLine(t, c)
		_, _ = c.Write(bulk)
		_, _ = io.ReadFull(c, make([]byte, len(bulk)))
	}
	after := openFiles(t)
	// The other ends of both sockets are in this process too, and the backend's echo may have a pipe, which stays open for a
	// while for reuse. Ours are in a pool.
	const sockets, pipes = 2, 2 * pipesIdle
	if n := after["socket"]; n < 2*sockets*conns || n-before["socket"] > 2*sockets*conns {
		t.Errorf("%d connections have %d sockets open after %d, want %d each, and as many in the test", conns, n, before["socket"], sockets)
	}
	if n := after["pipe"]; n-before["pipe"] > pipes+2*conns {
		t.Errorf("%d idle connections have %d ends of pipes open after %d, want %d of all, and up to 2 each in the test", conns, n, before["pipe"], pipes)
	}
	r.pipes.mu.Lock()
	defer r.pipes.mu.Unlock()
	if r.pipes.open == 0 {
		t.Error("nothing was spliced")
	}
}

// openFiles counts the open files of this process by kind.
func openFiles(t testing.TB) map[string]int {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, name := range all {
		if what, err := os.Readlink(name); err == nil { // not the folder that Glob read, which is closed
			kind, _, _ := strings.Cut(what, ":")
			n[kind]++
		}
	}
	return n
}

// TestEvictedConnectionsCount: connections that lose their place count until they are closed, as they have their descriptors as long: a burst
// of one client opens no more than the limit and those that may wait.
func TestEvictedConnectionsCount(t *testing.T) {
	t.Parallel()
	dial := func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	b := balancer("b", addr(t), addr(t))
	r := newTestServerWith(t, Config{Connections: 8, Waiting: 4, Hedge: time.Second}, Deps{Dial: dial}, b)
	var most int64
	for range 100 {
		c, err := net.Dial("tcp", listenOf(b).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		most = max(most, r.before.Load())
	}
	if most > 8+4 {
		t.Errorf("%d connections were open, want at most the limit of 8, and 4 that wait", most)
	}
}
