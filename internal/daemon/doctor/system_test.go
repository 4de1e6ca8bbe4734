package doctor

import (
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

// TestNoWriteToBadDisk: while the daemon reports a problem of its disk, nothing is written there: a process that waits for a frozen disk cannot
// be killed.
func TestNoWriteToBadDisk(t *testing.T) {
	t.Parallel()
	m := &Machine{Lab: &lab.Lab{Appliance: lab.Appliance{State: t.TempDir()}}, Serving: true}
	if got := state(t.Context(), m); len(got) == 0 {
		t.Error("a good disk is not looked at")
	}
	m.Status.Store = api.Store{Problems: []string{"disk does not respond"}}
	if got := state(t.Context(), m); len(got) > 0 {
		t.Errorf("%+v, want nothing", got)
	}
}
