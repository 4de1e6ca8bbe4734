package api

import "testing"

// TestHealthy: a backend that nothing checks counts among the healthy; one whose first check has not ended takes connections, and does not.
func TestHealthy(t *testing.T) {
	b := Balancer{Backends: []Backend{{State: BackendUp}, {State: BackendUnchecked}, {State: BackendUnknown}, {State: BackendDown}, {State: BackendDraining}}}
	if healthy, unknown := b.Healthy(), b.Unknown(); healthy != 2 || unknown != 1 {
		t.Errorf("%d of 5 healthy, want 2; %d not checked yet, want 1", healthy, unknown)
	}
}

// TestBalancerHealthText holds what people read of a balancer.
func TestBalancerHealthText(t *testing.T) {
	for want, h := range map[string]BalancerHealth{
		"redirects":                                    {},
		"2 of 2 healthy":                               {Up: 2},
		"2 of 3 healthy, 1 not checked yet":            {Up: 3, Unknown: 1},
		"0 of 2 healthy, 2 not checked yet":            {Up: 2, Unknown: 2},
		"1 of 3 healthy, 1 not checked yet, 1 drained": {Up: 2, Unknown: 1, Drained: 1},
		"0 of 2 healthy, none has been healthy yet":    {New: 2},
		"0 of 2 healthy":                               {New: 1, Down: 1},
		"0 of 2 healthy, 1 drained":                    {New: 1, Drained: 1},
	} {
		if got := h.String(); got != want || h.Empty() != (h.Up == 0 && want != "redirects") {
			t.Errorf("%+v: %q, empty %v, want %q", h, got, h.Empty(), want)
		}
	}
}
