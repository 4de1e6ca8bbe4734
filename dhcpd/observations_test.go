package dhcpd

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
)

// TestAddressConflictsAreForgotten: another machine is new once, until it was silent for ten minutes; and no flood of them is kept.
func TestAddressConflictsAreForgotten(t *testing.T) {
	t.Parallel()
	r := observations[netip.Addr, otherUser]{keep: conflictTime, most: maxAddressConflicts}
	start := time.Unix(1_700_000_000, 0)
	at := func(m int) time.Time { return start.Add(time.Duration(m) * time.Minute) }
	addr, mac := netip.MustParseAddr("10.77.0.21"), lab.MAC{2}
	for _, tt := range []struct {
		at    int
		mac   lab.MAC
		isNew bool
	}{{0, mac, true}, {9, mac, false}, {18, mac, false}, {19, lab.MAC{4}, true}, {20, mac, true}, {30, mac, true}} {
		if isNew := r.note(addr, otherUser{Owner{Host: "a"}, tt.mac}, at(tt.at)); isNew != tt.isNew {
			t.Errorf("%s after %d minutes is new: %t", tt.mac, tt.at, isNew)
		}
	}
	if x, ok := r.at(addr, at(39)); !ok || x != (observation[otherUser]{value: otherUser{Owner{Host: "a"}, mac}, since: at(30), last: at(30)}) {
		t.Errorf("%+v, %t", x, ok)
	}
	if x, ok := r.at(addr, at(40)); ok || len(r.fresh(at(40))) > 0 {
		t.Errorf("%+v after ten silent minutes", x)
	}
	for i := range 2 * maxAddressConflicts {
		r.note(netip.AddrFrom4([4]byte{10, 77, byte(i >> 8), byte(i)}), otherUser{Owner{Host: "a"}, mac}, at(50))
	}
	if n := len(r.fresh(at(50))); n != maxAddressConflicts {
		t.Errorf("%d are kept, want %d", n, maxAddressConflicts)
	}
}

// TestRogueServersAreForgotten: a server is reported since its first reply, until it was silent for an hour; and no flood of them is kept.
func TestRogueServersAreForgotten(t *testing.T) {
	t.Parallel()
	now, start := time.Time{}, time.Unix(1_700_000_000, 0)
	s := &Server{rogues: observations[rogueKey, struct{}]{keep: rogueFor, most: maxRogues}, deps: Deps{Now: func() time.Time { return now }}}
	at := func(m int) time.Time { return start.Add(time.Duration(m) * time.Minute) }
	addr, mac := netip.MustParseAddr("10.77.0.66"), lab.MAC{2}
	same := cmp.Comparer(func(x, y netip.Addr) bool { return x == y })
	want := func(at time.Time, want ...RogueServer) {
		t.Helper()
		now = at
		if diff := cmp.Diff(want, s.RogueServers(), same); diff != "" {
			t.Errorf("after %v (-want +got):\n%s", now.Sub(start), diff)
		}
	}
	want(at(0))
	s.rogues.note(rogueKey{"br0", addr, mac}, struct{}{}, at(0))
	s.rogues.note(rogueKey{"br0", addr, mac}, struct{}{}, at(50))
	want(at(100), RogueServer{"br0", addr, mac, at(0), at(50)})
	want(at(110))
	s.rogues.note(rogueKey{"br0", addr, mac}, struct{}{}, at(200))
	want(at(200), RogueServer{"br0", addr, mac, at(200), at(200)})
	for i := range 2 * maxRogues {
		s.rogues.note(rogueKey{"br0", addr, lab.MAC{2, byte(i)}}, struct{}{}, at(200))
	}
	if n := len(s.rogues.fresh(at(201))); n != maxRogues {
		t.Errorf("%d are kept, want %d", n, maxRogues)
	}
}
