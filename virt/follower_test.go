package virt

import (
	"strings"
	"testing"
)

// TestSlowFollower: a reader that does not read misses output, learns that at once and how much it was, and delays no other.
func TestSlowFollower(t *testing.T) {
	t.Parallel()
	slow, fast := make(chan ConsoleOutput, consoleFollowers), make(chan ConsoleOutput, consoleFollowers)
	c := &consoles{followers: map[string]map[chan ConsoleOutput]*follower{"h": {slow: {}, fast: {}}}}
	const parts, size = 5 * consoleFollowers, 100
	for range parts {
		c.tell("h", ConsoleOutput{Output: make([]byte, size)})
		if out := <-fast; len(out.Output) != size {
			t.Fatalf("the fast reader got %+v", out)
		}
	}
	got := 0
	read := func() (state string) {
		for len(slow) > 0 {
			out := <-slow
			got += len(out.Output)
			state = out.State
		}
		return state
	}
	if state := read(); state != consoleSkips {
		t.Errorf("the slow reader's last state is %q", state)
	}
	c.tell("h", ConsoleOutput{State: "the machine is off"})
	first := <-slow
	if last := read(); !strings.Contains(first.State, "bytes of output were skipped") || last != "the machine is off" {
		t.Errorf("the slow reader reads %q, then %q", first.State, last)
	}
	var skipped int
	for _, d := range strings.Fields(first.State)[0] {
		skipped = 10*skipped + int(d-'0')
	}
	if got+skipped != parts*size {
		t.Errorf("%d bytes read and %d skipped, want %d in all", got, skipped, parts*size)
	}
	for range 2 * consoleFollowers { // states alone never block
		c.tell("h", ConsoleOutput{State: "connected"})
		<-fast
	}
}
