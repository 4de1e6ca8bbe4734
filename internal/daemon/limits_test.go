package daemon

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"testing"
)

// TestLimitsAreLogged: the log says at the start that no memory limit is known, and that a limit is low.
func TestLimitsAreLogged(t *testing.T) {
	t.Parallel()
	const unknown, low = `level=INFO msg="no memory limit of a control group is known`, `level=WARN msg="the limit of open files, or of memory, is low`
	for _, tt := range []struct {
		name         string
		limit        int
		bytes        int64
		unknown, low int
	}{
		{"unlimited", 4096, math.MaxInt64, 1, 0},
		{"few files", 256, math.MaxInt64, 1, 1},
		{"little memory", 256, 4 << 20, 0, 1},
		{"limited", 4096, 1 << 30, 0, 0},
	} {
		var log bytes.Buffer
		logLimits(slog.New(slog.NewTextHandler(&log, nil)), tt.limit, 600, tt.bytes)
		if text := log.String(); strings.Count(text, unknown) != tt.unknown || strings.Count(text, low) != tt.low {
			t.Errorf("%s: %s", tt.name, text)
		}
	}
}
