package lbproxy

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestParkedConnections have no goroutines, and go on as if they had: with bytes from either side, a half-close, the end of
// one side, an eviction and the end of the server.
func TestParkedConnections(t *testing.T) {
	t.Parallel()
	b := balancer("b", addr(t), serveTCP(t, nameServer("b")))
	r := newTestServer(t, Config{Sweep: 20 * time.Millisecond, Drain: time.Millisecond}, b)
	parked := func(directions int) {
		t.Helper()
		netns.WaitFor(t, "parked", func() bool { return r.parker.len() == directions })
	}
	one, two := dial(t, b.Listen), dial(t, b.Listen)
	readLine(t, one)
	readLine(t, two)
	for range 3 {
		parked(4)
		_, _ = io.WriteString(one, "again\n")
		if got := readLine(t, one); got != "again" {
			t.Fatalf("read %q from a connection that was parked", got)
		}
	}
	parked(4)
	_ = one.CloseWrite()
	if rest, err := io.ReadAll(one); err != nil || len(rest) > 0 {
		t.Errorf("after a half-close: %q, %v", rest, err)
	}
	parked(2)
	netns.WaitFor(t, "one connection", func() bool { return r.States()[0].Connections == 1 && r.limit.Len() == 1 })
	r.stop()
	if _, err := two.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read = %v after the end of the server, want the end", err)
	}
	if n := r.parker.len(); n > 0 {
		t.Errorf("%d directions are parked after the end", n)
	}
}
