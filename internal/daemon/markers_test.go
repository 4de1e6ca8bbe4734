package daemon_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/store/identity"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestRemovedMarker: a marker that is removed while the daemon serves is logged once, and shown by /readyz, status and metrics until it is written
// again.
func TestRemovedMarker(t *testing.T) {
	netns.Need(t, "root", "ip")
	const addr = "10.54.2.1"
	r := newRig(t, addr)
	r.withState()
	r.start()
	marker := identity.BesideLab(r.lab)
	shown := func() bool {
		s := r.status()
		i := slices.IndexFunc(s.Conditions, func(c api.Condition) bool { return c.Kind == api.ConditionMarker && c.Name == marker && !c.OK })
		return i >= 0 && strings.Contains(s.Conditions[i].Problem, "was removed: without it, a lost state may not be noticed: restart bootlab") &&
			strings.Contains(r.get("http://"+addr+":9680/readyz"), "\nmarkers: failed: ") &&
			strings.Contains(r.get("http://"+addr+":9680/metrics"), "\nbootlab_conditions{condition=\"marker\",state=\"failed\"} 1\n")
	}
	const logged, ended = `level=WARN msg="state marker was removed: without it, a lost state may not be noticed"`, `level=INFO msg="state marker is written again"`
	if s := r.get("http://" + addr + ":9680/readyz"); strings.Contains(s, "markers:") {
		t.Errorf("before:\n%s", s)
	}
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	r.until("it is shown", shown)
	r.until("it is logged", func() bool { return strings.Contains(r.log.String(), logged) })
	if _, err := r.client.MarkInstalled(t.Context(), "a"); err != nil { // the markers follow it
		t.Fatal(err)
	}
	r.until("that it is written again is logged", func() bool { return strings.Contains(r.log.String(), ended) })
	if s := r.get("http://" + addr + ":9680/readyz"); strings.Contains(s, "markers:") {
		t.Errorf("afterwards:\n%s", s)
	}
	if n := strings.Count(r.log.String(), logged); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
}
