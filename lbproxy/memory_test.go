package lbproxy

import (
	"testing"
	"time"
)

// TestMemoryRelease: memory is given back once many sockets are open and their number grows no more, and again when as many come
// later, but not every second.
func TestMemoryRelease(t *testing.T) {
	t.Parallel()
	start := time.Now()
	var m memoryRelease
	for _, step := range []struct {
		after time.Duration
		open  int
		want  bool
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
		if got := m.due(step.open, start.Add(step.after*time.Second)); got != step.want {
			t.Errorf("%d open after %d s: %v", step.open, step.after, got)
		}
	}
}
