package memory

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestPercentFor(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{0: 1000, 2 << 20: 1000, 4 << 20: 900, 8 << 20: 400, 16 << 20: 150, 20 << 20: 100, 40 << 20: 100, 1 << 30: 100} {
		if got := percentFor(live); got != want {
			t.Errorf("%d bytes: %d %%, want %d", live, got, want)
		}
	}
}

// TestPacer: collections are rare during the start, and later follow the heap, unless the operator has set GOGC.
func TestPacer(t *testing.T) {
	for _, tt := range []struct {
		name, gogc                  string
		before, start, small, large int
	}{
		{"default", "", 100, startPercent, mostPercent, leastPercent},
		{"operator's", "50", 50, 50, 50, 50},
		{"operator's, off", "off", -1, -1, -1, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer debug.SetGCPercent(debug.SetGCPercent(tt.before))
			t.Setenv("GOGC", tt.gogc)
			p := NewPacer()
			defer p.Stop()
			if got := percent(); got != tt.start {
				t.Errorf("during the start it is %d, want %d", got, tt.start)
			}
			p.Follow()
			collectUntil(t, tt.small)
			large := make([]byte, leastHeap)
			collectUntil(t, tt.large)
			runtime.KeepAlive(large)
		})
	}
}

// collectUntil collects garbage until the GC percent is what is wanted: cleanups run some time after a collection.
func collectUntil(t *testing.T, want int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		if percent() == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the GC percent is %d, want %d", percent(), want)
		}
	}
}

// percent returns the GC percent; -1: off.
func percent() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	if v := sample[0].Value.Uint64(); v <= math.MaxInt32 {
		return int(v)
	}
	return -1
}
