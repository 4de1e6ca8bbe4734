package dhcpd

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestAlive: a server answers itself on every packet loop, counts nothing for it, goes on to serve clients, and says which loop
// is stuck.
func TestAlive(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "udhcpc", "busybox")
	seg := netns.NewSegment(t, "10.0.0.1/24")
	b := newBench(t)
	table := Compile(onBridge(b.lab, seg.Bridge))
	var stuck atomic.Pointer[chan struct{}]
	s := newServer(t, func() *Table {
		if wait := stuck.Load(); wait != nil {
			<-*wait
		}
		return table
	}, b.store, b.events)
	if err := s.Alive(t.Context()); err != nil {
		t.Errorf("before it serves: %v", err)
	}
	stop := serve(t, s)
	netns.WaitFor(t, "two loops", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.loops) >= 2 })
	for range 100 {
		if err := s.Alive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range s.m.received {
		if n := testutil.ToFloat64(c); n != 0 {
			t.Errorf("%v packets of its own were counted", n)
		}
	}
	for reason, c := range s.m.dropped {
		if dropReason(reason) == dropNone {
			continue
		}
		if n := testutil.ToFloat64(c); n != 0 {
			t.Errorf("%v packets of its own were dropped: %s", n, dropReason(reason))
		}
	}
	c := seg.NewClient(t)
	if out := c.Run(t, "busybox", "udhcpc", "-f", "-n", "-q", "-i", "eth0", "-s", "/bin/true", "-t", "30", "-T", "1"); !strings.Contains(out, " obtained") {
		t.Errorf("a client: %s", out)
	}

	wait := make(chan struct{})
	stuck.Store(&wait)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := s.Alive(ctx)
	stuck.Store(nil)
	close(wait)
	if err == nil || !strings.Contains(err.Error(), `the packet loop of interface "`+seg.Bridge+`", port 67, does not answer`) {
		t.Errorf("stuck: %v", err)
	}
	if err := s.Alive(t.Context()); err != nil {
		t.Errorf("free again: %v", err)
	}
	stop()
	if err := s.Alive(t.Context()); err != nil {
		t.Errorf("after the end: %v", err)
	}
}
