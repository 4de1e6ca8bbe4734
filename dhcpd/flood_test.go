package dhcpd

import (
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/clock"
)

// TestAskTwiceInAFlood: while made-up machines fill a pool, a new client is answered at its second DISCOVER, and a machine
// that is known at its first.
func TestAskTwiceInAFlood(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pool := b.smallPool(t, "10.77.0.250")
	known, other := madeUp(1), madeUp(2)
	addr := b.take(t, known)
	if !b.floods.begin(pool.Pool) || b.floods.begin(pool.Pool) {
		t.Error("the flood is not new, or new twice")
	}
	if got := b.ask(t, known); got != addr {
		t.Errorf("a known machine is offered %q, want %s", got, addr)
	}
	for range 2 {
		if b.ask(t, other) != "" {
			t.Error("a new client is answered at its first DISCOVER, or at a copy of it")
		}
	}
	b.clock.Advance(askAgain)
	if b.take(t, other) == "" {
		t.Error("a new client gets no address at its second DISCOVER")
	}
	if b.ask(t, mac(t, master0)) != "10.77.0.21" {
		t.Error("a reservation is not served")
	}
	b.clock.Advance(floodLasts)
	if b.ask(t, madeUp(3)) == "" {
		t.Error("the flood is over, and a new client has to ask twice")
	}
}

// TestAskedBeforeIsBounded: a flood costs bounded memory, and a client is remembered long enough to ask again.
func TestAskedBeforeIsBounded(t *testing.T) {
	t.Parallel()
	c := clock.New(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC))
	f := newFloods(c.Now)
	client := func(n int) lab.MAC { return lab.MAC{2, 1, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)} }
	n := 0
	flood := func(times int) {
		for range times {
			n++
			f.askedBefore(client(n))
		}
	}
	flood(maxAsked / 2)
	if f.askedBefore(lab.MAC{2}) {
		t.Error("a client that never asked")
	}
	flood(maxAsked)
	c.Advance(time.Second)
	if !f.askedBefore(lab.MAC{2}) {
		t.Error("a client that asked before is forgotten")
	}
	flood(10 * maxAsked)
	if n := len(f.asked) + len(f.old); n > 2*maxAsked {
		t.Errorf("%d clients are remembered, want at most %d", n, 2*maxAsked)
	}
}
