package dhcpd

import (
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// Events name all machines of a rack, and the first ones of a flood.
func TestEventLimiter(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := newEventLimiter(func() time.Time { return now })
	recorded := func(from, n int) (got int) {
		for i := range n {
			m := from + i
			if l.allow(event.DHCPRefused, lab.MAC{2, 0, 0, byte(m >> 16), byte(m >> 8), byte(m)}) {
				got++
			}
		}
		return got
	}
	for _, tt := range []struct {
		what          string
		from, n, want int
		later         time.Duration
	}{
		{"a rack", 0, eventBurst / 2, eventBurst / 2, 0},
		{"the same machines again", 0, eventBurst / 2, 0, 0},
		{"a flood", 1000, 10_000, eventBurst - eventBurst/2, 0},
		{"it goes on", 20_000, 10_000, 10 * eventRate, 10 * time.Second},
		{"the rack, after a minute", 0, eventBurst / 2, eventBurst / 2, eventInterval},
	} {
		now = now.Add(tt.later)
		if got := recorded(tt.from, tt.n); got != tt.want {
			t.Errorf("%s: %d events, want %d", tt.what, got, tt.want)
		}
	}
	if !l.allow(event.DHCPNak, lab.MAC{2}) {
		t.Error("a flood of one kind silences another")
	}
}
