package memory

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
)

// resident returns VmRSS of this process in bytes.
func resident(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// TestRelease: garbage goes back to the system once the process is quiet, and not while it is busy.
func TestRelease(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // what is garbage stays
	var used time.Duration
	r, start := NewReleaser(), time.Now()
	r.processor = func() time.Duration { return used }
	for _, step := range []struct {
		name        string
		garbage     bool
		after, used time.Duration // since the step before
		want        bool
	}{
		{"the first look", true, 0, 0, false},
		{"too soon for a measurement", false, 100 * time.Millisecond, 0, false},
		{"busy", false, time.Second, 200 * time.Millisecond, false},
		{"quiet", false, time.Second, 50 * time.Millisecond, true},
		{"nothing to release", false, time.Minute, 0, false},
		{"again", true, time.Minute, 0, true},
		{"soon after", true, time.Second, 0, false},
	} {
		if step.garbage {
			for range 32 {
				clear(make([]byte, 1<<20))
			}
		}
		start, used = start.Add(step.after), used+step.used
		before := resident(t)
		r.Look(start)
		if got := r.released.Equal(start) && resident(t) < before-releaseFrom; got != step.want {
			t.Errorf("%s: released %t, want %t; resident %d bytes before, %d after", step.name, got, step.want, before, resident(t))
		}
	}
}
