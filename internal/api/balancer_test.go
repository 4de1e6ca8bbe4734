package api

import "testing"

// TestUncheckedIsHealthy: a backend that nothing checks, or has checked yet, takes connections, and counts among the healthy everywhere.
func TestUncheckedIsHealthy(t *testing.T) {
	b := Balancer{Backends: []Backend{{State: BackendUp}, {State: BackendUnchecked}, {State: BackendUnknown}, {State: BackendDown}, {State: BackendDraining}}}
	if got := b.Healthy(); got != 3 {
		t.Errorf("%d of 5 healthy, want 3", got)
	}
}
