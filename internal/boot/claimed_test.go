package boot_test

import (
	"net/netip"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// TestOthersAreMarked: every event of a request in another machine's name is marked as claimed.
func TestOthersAreMarked(t *testing.T) {
	t.Parallel()
	for what, ask := range map[string]func(*rig) error{
		"script": func(r *rig) error { _, err := r.Script(t.Context(), mac, intrud, lab.ScriptName); return err },
		"config": func(r *rig) error { _, err := r.Config(t.Context(), mac, "", "", intrud); return err },
		"done":   func(r *rig) error { return r.Done(t.Context(), mac, "", intrud) },
		"report": func(r *rig) error { return r.Report(t.Context(), mac, "", intrud) },
		"answer": func(r *rig) error { _, err := r.Answer(t.Context(), []lab.MAC{mac}, intrud); return err },
	} {
		r := newRig(t)
		if err := ask(r); err == nil {
			t.Errorf("%s: not refused", what)
		} else if e := r.events[len(r.events)-1]; !e.Claimed || e.MAC != mac {
			t.Errorf("%s: %+v, want an event that it was claimed", what, e)
		}
	}
}

// TestClaimed: a refusal reports whether the request came from the machine's address or from another.
func TestClaimed(t *testing.T) {
	t.Parallel()
	leased := netip.MustParseAddr("192.168.16.200")
	for _, tt := range []struct {
		name string
		held netip.Addr // by the machine
		from netip.Addr
		mac  lab.MAC
		want bool
	}{
		{"from its own address", addr, addr, mac, false},
		{"from what is reserved for it", netip.Addr{}, addr, mac, false},
		{"from another's address", addr, intrud, mac, true},
		{"before it has one", netip.Addr{}, intrud, mac, true},
		{"pool machine, its own address", leased, leased, lab.MAC{2}, false},
		{"pool machine without a lease", netip.Addr{}, intrud, lab.MAC{2}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.leases = map[lab.MAC]netip.Addr{}
			if tt.held.IsValid() {
				r.leases[tt.mac] = tt.held
			}
			if _, err := r.Config(t.Context(), tt.mac, "guess", "worker.cfg", tt.from); err == nil {
				t.Fatal("a guess at a token is not refused")
			}
			if e := r.events[len(r.events)-1]; e.Kind != event.ConfigRefused || e.Claimed != tt.want {
				t.Errorf("claimed %v, want %v: %+v", e.Claimed, tt.want, e)
			}
		})
	}
}
