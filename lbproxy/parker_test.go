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

// TestMemoryRelease: memory is given back once many directions are parked and their number grows no more, and again when as many come
// later, but not every second.
func TestMemoryRelease(t *testing.T) {
	t.Parallel()
	start := time.Now()
	var m memoryRelease
	for _, step := range []struct {
		after  time.Duration
		parked int
		want   bool
	}{
		{1, 1500, false},  // they come
		{2, 1500, false},  // too few
		{3, 8000, false},  // they come
		{4, 8100, true},   // all have come
		{5, 8100, false},  // nothing new
		{6, 20000, false}, // more
		{7, 20000, false}, // too early
		{30, 20000, true},
		{60, 100, false}, // they end
		{61, 100, false},
		{90, 5000, false},
		{91, 5000, true},
	} {
		if got := m.due(step.parked, start.Add(step.after*time.Second)); got != step.want {
			t.Errorf("%d parked after %d s: %v", step.parked, step.after, got)
		}
	}
}
