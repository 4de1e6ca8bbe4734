package lbproxy

import (
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

// dialFrom connects from a client's address of its own.
func dialFrom(t testing.TB, from string, to netip.AddrPort) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0)), Timeout: 20 * time.Second}
	c, err := d.DialContext(t.Context(), "tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// turnedAway is a client that is reset, maybe before it knows that it is connected.
func turnedAway(by netip.AddrPort) {
	if c, err := net.Dial("tcp", by.String()); err == nil {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.ReadAll(c)
		_ = c.Close()
	}
}

// TestAllBalancersShareTheRoom: newcomers of any balancer wait while all together have the most connections, of which no
// client has more than half, and come in as others end, whatever way they end.
func TestAllBalancersShareTheRoom(t *testing.T) {
	t.Parallel()
	tcp := balancer("tcp", addr(t), serveTCP(t, namer("tcp")))
	web := httpBalancer("web", addr(t), serveHTTP(t, says("web")))
	shared := with(balancer("shared", addr(t), serveTCP(t, namer("shared"))), func(b *lab.Balancer) { b.Match.SNI = []string{"*.lab"} })
	nobody := balancer("nobody", addr(t), addr(t)) // its backend refuses
	r := newRig(t, Config{Connections: 4, Peek: 100 * time.Millisecond}, tcp, web, shared, nobody)
	inside := func() int {
		r.room.mu.Lock()
		defer r.room.mu.Unlock()
		return r.room.n
	}
	var held []net.Conn
	for i := range 4 {
		c := dialFrom(t, fmt.Sprintf("127.0.0.%d", 10+i/2), tcp.Listen)
		line(t, c)
		held = append(held, c)
	}
	waiting := map[string]net.Conn{"tcp": dialFrom(t, "127.0.0.20", tcp.Listen), "web": dialFrom(t, "127.0.0.21", web.Listen)}
	_, _ = io.WriteString(waiting["web"], "GET / HTTP/1.0\r\n\r\n")
	netns.WaitFor(t, "two wait", func() bool { return testutil.ToFloat64(r.metrics.waits) == 2 })
	if n := inside(); n != 4 {
		t.Errorf("%d connections are inside, want 4", n)
	}
	for _, c := range held {
		_ = c.Close()
	}
	if got := line(t, waiting["tcp"]); got != "tcp" {
		t.Errorf("%q once there is room, want tcp", got)
	}
	if body, err := io.ReadAll(waiting["web"]); err != nil || len(body) == 0 {
		t.Errorf("%q, %v once there is room, want an answer", body, err)
	}
	_ = waiting["tcp"].Close()
	for range 6 {
		turnedAway(nobody.Listen)
		turnedAway(shared.Listen) // it says nothing, and is cut off
	}
	netns.WaitFor(t, "all places to be free again", func() bool { return inside() == 0 })
	if got := testutil.ToFloat64(r.metrics.cut); got != 0 {
		t.Errorf("%v connections were cut though nobody had more than half", got)
	}
}

// TestFloodMakesRoom: a client that holds every connection there may be keeps nobody out.
func TestFloodMakesRoom(t *testing.T) {
	t.Parallel()
	const most = 20
	b := balancer("b", addr(t), serveTCP(t, namer("b")))
	r := newRig(t, Config{Connections: most}, b)
	for range most {
		line(t, dialFrom(t, "127.0.0.66", b.Listen))
	}
	for i := range most / 2 {
		if got := line(t, dialFrom(t, fmt.Sprintf("127.0.0.%d", 100+i), b.Listen)); got != "b" {
			t.Fatalf("client %d got %q", i, got)
		}
	}
	if got := testutil.ToFloat64(r.metrics.cut); got != most/2 {
		t.Errorf("%v connections were cut, want one for each newcomer", got)
	}
}

// TestRoomTellsNowAndThen: a flood does not fill the log.
func TestRoomTellsNowAndThen(t *testing.T) {
	t.Parallel()
	var r room
	now, told := time.Unix(1000, 0), 0
	for range 150 {
		if r.news(now) {
			told++
		}
		now = now.Add(time.Second)
	}
	if told != 3 {
		t.Errorf("told %d times in two minutes and a half, want 3", told)
	}
}

// TestDescriptorsOfAConnection counts what the bound reckons with. It runs alone.
func TestDescriptorsOfAConnection(t *testing.T) {
	const conns = 40
	b := balancer("b", addr(t), serveTCP(t, func(c net.Conn) { _, _ = io.Copy(c, c) }))
	newRig(t, Config{}, b)
	before := openFiles(t)
	for range conns {
		c := dial(t, b.Listen)
		_, _ = io.WriteString(c, "x\n")
		line(t, c) // both directions have their pipes by now
	}
	after := openFiles(t)
	// The other end of both sockets is here, too, and the backend's echo may have a pipe. Pipes of earlier connections are kept
	// for a while and used again.
	const sockets, pipes = 2, descriptors - 2
	if n := after["socket"]; n < 2*sockets*conns || n-before["socket"] > 2*sockets*conns {
		t.Errorf("%d connections have %d sockets open after %d, want %d each, and as many of the test's", conns, n, before["socket"], sockets)
	}
	if n := after["pipe"]; n < pipes*conns || n-before["pipe"] > (pipes+2)*conns {
		t.Errorf("%d connections have %d ends of pipes open after %d, want %d each, and up to 2 of the test's", conns, n, before["pipe"], pipes)
	}
}

// openFiles counts the files that this process has open, by kind.
func openFiles(t testing.TB) map[string]int {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, name := range all {
		if what, err := os.Readlink(name); err == nil { // the folder's own is gone again
			kind, _, _ := strings.Cut(what, ":")
			n[kind]++
		}
	}
	return n
}
