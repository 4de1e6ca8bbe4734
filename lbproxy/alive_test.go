package lbproxy

import (
	"context"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestAlive: a server answers itself, makes no connection for it, and says which of its goroutines is stuck.
func TestAlive(t *testing.T) {
	t.Parallel()
	accepted := make(chan struct{}, 100)
	backend := serveTCP(t, func(c net.Conn) {
		accepted <- struct{}{}
		nameServer("alive")(c)
	})
	tcp, udp := addr(t), addr(t)
	datagrams := with(balancer("datagrams", udp, backend), func(b *lab.Balancer) { b.Mode, b.Responses = lab.ModeUDP, 1 })
	s := newTestServer(t, Config{Sweep: 10 * time.Millisecond}, balancer("streams", tcp, backend), datagrams)
	first := dial(t, tcp)
	_ = readLine(t, first)
	for range 2 * min(runtime.GOMAXPROCS(0), loopsMost) { // one for each loop
		_ = readLine(t, dial(t, tcp))
	}
	for range 3 {
		if err := s.Alive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n, want := len(accepted), 1+2*min(runtime.GOMAXPROCS(0), loopsMost); n != want {
		t.Errorf("the backend has %d connections, want %d", n, want)
	}

	// stuck waits until the server names everything in want, and nothing in never.
	stuck := func(want []string, never ...string) {
		t.Helper()
		netns.WaitFor(t, "no answer", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := s.Alive(ctx)
			if err == nil {
				return false
			}
			for _, part := range want {
				if !strings.Contains(err.Error(), part+" does not answer") {
					return false
				}
			}
			for _, part := range never {
				if strings.Contains(err.Error(), part) {
					return false
				}
			}
			return true
		})
	}
	s.sessions.mu.Lock() // which a loop needs for the end of a connection, the listener for a new one, and the sweep for all
	_ = first.Close()
	second := dial(t, tcp)
	stuck([]string{"of mode tcp", "the listener on " + tcp.String(), "the sweep of idle connections"}, "udp", "http")
	s.sessions.mu.Unlock()
	_ = readLine(t, second)
	s.udp.mu.Lock()
	stuck([]string{"the loop of mode udp"}, "tcp", "listener", "sweep", "http")
	s.udp.mu.Unlock()
	s.http.deadlines.mu.Lock()
	stuck([]string{"the timer of mode http"}, "tcp", "listener", "sweep", "udp")
	s.http.deadlines.mu.Unlock()
	if err := s.Alive(t.Context()); err != nil {
		t.Errorf("free again: %v", err)
	}
	s.stop()
	if err := s.Alive(t.Context()); err != nil {
		t.Errorf("after the end: %v", err)
	}
}
