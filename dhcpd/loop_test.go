package dhcpd

import (
	"encoding/binary"
	"testing"
	"time"

	"bootlab/internal/lab"
)

func TestLoopGuard(t *testing.T) {
	t.Parallel()
	type step struct {
		after    time.Duration
		again    bool // a retransmission
		progress bool // the operating system speaks first
	}
	rounds := func(n int, s step) (steps []step) {
		for range n {
			steps = append(steps, s)
		}
		return steps
	}
	for _, tt := range []struct {
		name  string
		steps []step
		want  int // the round that closes the loop, from 1; 0: none
	}{
		{"a script that fails at once", rounds(20, step{after: time.Second}), loopCount},
		{"a virtual machine without a disk", rounds(20, step{after: 6 * time.Second}), loopCount},
		{"a machine that is rebooted by hand", rounds(20, step{after: 40 * time.Second}), 0},
		{"retransmissions", append(rounds(1, step{}), rounds(50, step{after: time.Second, again: true})...), 0},
		{"a machine that comes up each time", rounds(20, step{after: time.Second, progress: true}), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(1000, 0)
			g := newLoopGuard(func() time.Time { return now })
			mac := lab.MAC{2, 0, 0, 0, 0, 1}
			var xid [4]byte
			got := 0
			for i, s := range tt.steps {
				now = now.Add(s.after)
				if s.progress {
					g.progress(mac)
				}
				if !s.again {
					binary.BigEndian.PutUint32(xid[:], uint32(i))
				}
				if g.round(mac, xid) {
					got = i + 1
					break
				}
			}
			if got != tt.want {
				t.Fatalf("the loop closes in round %d, want %d", got, tt.want)
			}
			if g.held(mac) != (tt.want > 0) || g.held(lab.MAC{2, 0, 0, 0, 0, 2}) {
				t.Error("held, or not held, against what was found")
			}
			now = now.Add(loopHold)
			if g.held(mac) {
				t.Error("still held after its time")
			}
		})
	}
}

func TestLoopGuardIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	g := newLoopGuard(func() time.Time { return now })
	for i := range 3 * maxLoops {
		g.round(lab.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}, [4]byte{1})
	}
	if len(g.machines) > maxLoops {
		t.Errorf("%d machines are watched, want at most %d", len(g.machines), maxLoops)
	}
}
