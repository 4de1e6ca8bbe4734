package timeline_test

import (
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/timeline"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// TestOneKeyForAMachine: a machine without a host has one timeline, before and after a pool gives it an address and the name of its MAC with
// hyphens. What an earlier version stored under that name is read.
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
	var ops []store.Op
	for _, prefix := range []string{"timelines/", "timeline/"} {
		if err := mem.Scan(t.Context(), prefix, func(key string, value []byte) error {
			ops = append(ops, store.Op{Key: strings.Replace(key, mac.String(), mac.Hyphens(), 1), Value: append([]byte(nil), value...)}, store.Op{Key: key, Delete: true})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := mem.Commit(t.Context(), store.Txn{Then: ops}); err != nil {
		t.Fatal(err)
	}
	want(newRig(t, timeline.Config{}, mem))
	want(newRig(t, timeline.Config{}, mem)) // it was renamed
	for _, prefix := range []string{"timelines/", "timeline/"} {
		if err := mem.Scan(t.Context(), prefix+mac.Hyphens(), func(key string, _ []byte) error { t.Errorf("left: %s", key); return nil }); err != nil {
			t.Fatal(err)
		}
	}
}
