package daemon

import (
	"runtime/debug"
	"testing"
)

// TestCollectLess: during the start the garbage collector waits for more garbage, unless the operator has set GOGC; then as before.
func TestCollectLess(t *testing.T) {
	for _, tt := range []struct {
		name, gogc   string
		before, want int
	}{
		{"default", "", 100, startGCPercent},
		{"operator's", "50", 50, 50},
		{"operator's, off", "off", -1, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer debug.SetGCPercent(debug.SetGCPercent(tt.before))
			t.Setenv("GOGC", tt.gogc)
			d := &Daemon{}
			d.collectLess()
			if got := debug.SetGCPercent(tt.want); got != tt.want {
				t.Errorf("during the start it is %d, want %d", got, tt.want)
			}
			d.collectAgain()
			if got := debug.SetGCPercent(tt.before); got != tt.before {
				t.Errorf("after the start it is %d, want %d", got, tt.before)
			}
		})
	}
}
