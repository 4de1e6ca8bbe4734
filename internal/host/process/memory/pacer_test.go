package memory

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestPercentFor(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{0: 800, 1 << 20: 800, 2 << 20: 800, 3 << 20: 400, 4 << 20: 400, 8 << 20: 200, 12 << 20: 100, 1 << 30: 100} {
		if got := percentFor(live); got != want {
			t.Errorf("%d bytes: %d %%, want %d", live, got, want)
		}
	}
}

// TestPacer: collections are rare during the start, and later with a small heap, unless the operator has set GOGC.
func TestPacer(t *testing.T) {
	for _, tt := range []struct {
		name, gogc           string
		before, start, later int
	}{
		{"default", "", 100, mostPercent, defaultPercent},
		{"operator's", "50", 50, 50, 50},
		{"operator's, off", "off", -1, -1, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer debug.SetGCPercent(debug.SetGCPercent(tt.before))
			t.Setenv("GOGC", tt.gogc)
			p := NewPacer()
			if got := debug.SetGCPercent(tt.start); got != tt.start {
				t.Errorf("during the start it is %d, want %d", got, tt.start)
			}
			large := make([]byte, leastGarbage)
			runtime.GC()
			p.Look()
			runtime.KeepAlive(large)
			if got := debug.SetGCPercent(tt.later); got != tt.later {
				t.Errorf("with a large heap it is %d, want %d", got, tt.later)
			}
		})
	}
}
