package timeline_test

import (
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/timeline"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// TestOneKeyForAMachine: a machine without a host has one timeline, before and after a pool gives it an address and the name of its MAC with
// hyphens, and after a restart.
func TestOneKeyForAMachine(t *testing.T) {
	t.Parallel()
	mem := storetest.Memory()
	r := newRig(t, timeline.Config{}, mem)
	r.record(0, "", event.DHCPDiscover, "pxe")
	r.record(time.Second, mac.Hyphens(), event.DHCPOffer, "pxe")
	r.save(t)
	want := func(r *rig) {
		t.Helper()
		if all := r.All(); len(all) != 1 || all[0].Key != mac.String() {
			t.Errorf("machines: %+v", all)
		}
		for _, key := range []string{mac.String(), mac.Hyphens()} {
			boots, err := r.Boots(t.Context(), key)
			if err != nil || len(boots) != 1 || len(boots[0].Events) != 2 || boots[0].Events[0].Kind != event.DHCPDiscover || boots[0].Host != "" {
				t.Errorf("%s: %v, %+v", key, err, boots)
			}
		}
	}
	want(r)
	want(newRig(t, timeline.Config{}, mem))
}
