package diskhealth

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestFlappingStoreIsLoggedOnceAMinute: of a problem that comes and goes every second the log has its begin and its end once a minute, and how
// often it came. Each loss is logged, whatever else is.
func TestFlappingStoreIsLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	w := &Watch{log: slog.New(slog.NewTextHandler(&text, nil))}
	now := time.Unix(1_000_000_000, 0)
	full := problem{cause: causeSpace, text: "free some"}
	for i := range 600 {
		var ps []problem
		if i%2 == 0 {
			ps = append(ps, full)
		}
		w.report(now, ps)
		now = now.Add(time.Second)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 20 {
		t.Fatalf("%d lines in 10 minutes, want 20:\n%s", len(lines), text.String())
	}
	for i, want := range []string{`msg="state store is degraded" cause="little free space" detail="free some" times=1`, `msg="state store: a problem has ended" cause="little free space"`, "times=30", "ended"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d: %s, want %s", i, lines[i], want)
		}
	}
	text.Reset()
	lost := []problem{{cause: causeLost, since: now, text: "first"}, {cause: causeLost, since: now.Add(time.Second), text: "second"}}
	w.report(now, lost[:1])
	w.report(now, lost)
	w.report(now, lost[1:])
	if got := text.String(); strings.Count(got, "degraded") != 2 || strings.Count(got, "has ended") != 1 {
		t.Errorf("two losses, one of which was accepted:\n%s", got)
	}
	text.Reset()
	w.report(now.Add(time.Hour), []problem{full})
	w.report(now.Add(2*time.Hour), []problem{full})
	if got := text.String(); strings.Count(got, `cause="little free space"`) != 1 {
		t.Errorf("a problem that lasts:\n%s", got)
	}
	if w.report(now.Add(3*time.Hour), nil); len(w.reported) != 0 {
		t.Errorf("%d problems are remembered an hour after their end", len(w.reported))
	}
}
