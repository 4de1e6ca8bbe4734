package bootloop

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

var (
	mac   = lab.MAC{2, 0, 0, 0, 0, 1}
	other = lab.MAC{2, 0, 0, 0, 0, 2}
)

// A boot is what a guard is told of one boot of a machine.
type boot struct {
	takes   time.Duration
	leases  int  // DHCP exchanges
	again   int  // retransmissions of the last
	scripts int  // fetched
	speaks  bool // its system
}

// run tells g of boots until it holds the machine, and returns the boot in which it does, from 1; 0: none.
func run(g *Guard, now *time.Time, boots int, b boot) (held int) {
	var xid [4]byte
	for i := range boots {
		for n := range b.leases {
			binary.BigEndian.PutUint32(xid[:], uint32(100*i+n))
			for range 1 + b.again {
				if g.Leased(mac, xid) {
					return i + 1
				}
			}
		}
		for range b.scripts {
			if g.Scripted(mac) {
				return i + 1
			}
		}
		if b.speaks {
			g.Release(mac)
		}
		*now = now.Add(b.takes)
	}
	return 0
}

func TestGuard(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		boot       boot
		want       int  // the boot that is one too many
		unscripted bool // it never fetches its script
	}{
		{"an iPXE that cannot fetch its script", boot{takes: 6 * time.Second, leases: 1}, MaxLeases, true},
		{"retransmissions", boot{takes: time.Second, leases: 1, again: 50}, MaxLeases, true},
		{"a script that loads itself", boot{takes: 14 * time.Millisecond, scripts: 1}, MaxScripts, false},
		{"a script that fails at once", boot{takes: 2 * time.Second, leases: 1, scripts: 1}, MaxScripts, false},
		{"a machine that is reset, with an iPXE that does DHCP twice", boot{takes: 7 * time.Second, leases: 2, scripts: 1}, 0, false},
		{"a machine that is rebooted by hand", boot{takes: 40 * time.Second, leases: 2, scripts: 3}, 0, false},
		{"a script that tells of its failure, waits, and reboots", boot{takes: 16 * time.Second, leases: 2, scripts: 2}, 0, false},
		{"a machine that comes up each time", boot{takes: time.Second, leases: 1, scripts: 1, speaks: true}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(1000, 0)
			g := New(func() time.Time { return now })
			if got := run(g, &now, 50, tt.boot); got != tt.want {
				t.Fatalf("held in boot %d, want %d", got, tt.want)
			}
			if got := g.Unscripted(mac); got != tt.unscripted {
				t.Errorf("unscripted %t, want %t", got, tt.unscripted)
			}
			rescripted := tt.want != 0 && !tt.unscripted
			if got := g.Scripted(mac); got != rescripted {
				t.Errorf("rescripted %t, want %t", got, rescripted)
			}
			if g.Unscripted(other) || g.Scripted(other) {
				t.Error("another machine pays for it")
			}
			now = now.Add(Hold)
			if g.Unscripted(mac) || g.Scripted(mac) {
				t.Error("it is never let go")
			}
		})
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]func(*Guard){
		"by its address": func(g *Guard) { g.Release(other, mac) },
		"of all":         (*Guard).ReleaseAll,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(1000, 0)
			g := New(func() time.Time { return now })
			if run(g, &now, MaxScripts, boot{scripts: 1}) == 0 {
				t.Fatal("it is not held")
			}
			release(g)
			if g.Scripted(mac) {
				t.Error("still held")
			}
		})
	}
}

// TestBounded: a flood of made-up addresses does not fill the memory.
func TestBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	g := New(func() time.Time { return now })
	for i := range 3 * maxMachines {
		g.Leased(lab.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}, [4]byte{1})
	}
	if len(g.machines) > maxMachines {
		t.Errorf("%d machines are watched, want at most %d", len(g.machines), maxMachines)
	}
}
