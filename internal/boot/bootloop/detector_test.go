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

// A boot is what the servers report of one boot of a machine.
type boot struct {
	takes   time.Duration
	program bool // it receives a boot program before its first lease
	leases  int  // DHCP exchanges
	again   int  // retransmissions of the last
	scripts int  // requested
	started bool // its operating system sends a DHCP message
}

// run reports boots until a remedy begins, and returns the number of that boot, from 1; 0: none.
func run(d *Detector, now *time.Time, boots int, b boot) (found int) {
	var xid [4]byte
	for i := range boots {
		if b.program {
			d.ProgramReceived(mac)
		}
		for n := range b.leases {
			binary.BigEndian.PutUint32(xid[:], uint32(100*i+n))
			for range 1 + b.again {
				if d.BootFileSent(mac, xid) != None {
					return i + 1
				}
			}
		}
		for range b.scripts {
			if d.ScriptLoops(mac) {
				return i + 1
			}
			d.ScriptReceived(mac)
		}
		if b.started {
			d.Release(mac)
		}
		*now = now.Add(b.takes)
	}
	return 0
}

func TestDetector(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		boot   boot
		want   int // the boot that begins a remedy
		remedy Remedy
	}{
		{"an iPXE that cannot fetch its script", boot{takes: 6 * time.Second, leases: 1}, MaxLeases, Program},
		{"retransmissions", boot{takes: time.Second, leases: 1, again: 50}, MaxLeases, Program},
		{"a boot program that cannot fetch its script", boot{takes: 6 * time.Second, program: true, leases: 1}, MaxLeases, NoFile},
		{"a boot program that does DHCP twice", boot{takes: 6 * time.Second, program: true, leases: 2}, MaxLeases, NoFile},
		{"a script that loads itself", boot{takes: 14 * time.Millisecond, scripts: 1}, MaxScripts + 1, None},
		{"a script that fails at once", boot{takes: 2 * time.Second, leases: 1, scripts: 1}, MaxScripts + 1, None},
		{"a machine that is reset, with an iPXE that does DHCP twice", boot{takes: 7 * time.Second, leases: 2, scripts: 1}, 0, None},
		{"a machine that is rebooted by hand", boot{takes: 40 * time.Second, leases: 2, scripts: 3}, 0, None},
		{"a script that shows its error, waits, and reboots", boot{takes: 16 * time.Second, leases: 2, scripts: 2}, 0, None},
		{"a machine that comes up each time", boot{takes: time.Second, leases: 1, scripts: 1, started: true}, 0, None},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(1000, 0)
			d := New(func() time.Time { return now })
			if got := run(d, &now, 50, tt.boot); got != tt.want {
				t.Fatalf("remedy in boot %d, want %d", got, tt.want)
			}
			if got := d.Remedy(mac); got != tt.remedy {
				t.Errorf("remedy %v, want %v", got, tt.remedy)
			}
			scriptHeld := tt.want != 0 && tt.remedy == None
			if got := d.ScriptLoops(mac); got != scriptHeld {
				t.Errorf("scriptHeld %t, want %t", got, scriptHeld)
			}
			if d.Remedy(other) != None || d.ScriptLoops(other) {
				t.Error("another machine gets a remedy")
			}
			now = now.Add(RemedyTime)
			if d.Remedy(mac) != None || d.ScriptLoops(mac) {
				t.Error("the remedy does not end")
			}
		})
	}
}

// TestForgedLeases: however many leases a neighbour forges, the machine gets its boot program, and after that its script.
func TestForgedLeases(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	d := New(func() time.Time { return now })
	run(d, &now, 100, boot{takes: time.Millisecond, leases: 1})
	for range 100 {
		d.BootFileSent(mac, [4]byte{byte(now.UnixNano())})
		now = now.Add(1)
		if got := d.Remedy(mac); got != Program {
			t.Fatalf("remedy %v, want the boot program", got)
		}
	}
	d.ProgramReceived(mac)
	if got := d.Remedy(mac); got != None || d.BootFileSent(mac, [4]byte{200}) != None {
		t.Errorf("once it has received its boot program: remedy %v, want its script", got)
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]func(*Detector){
		"by its address": func(d *Detector) { d.Release(other, mac) },
		"of all":         (*Detector).ReleaseAll,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(1000, 0)
			d := New(func() time.Time { return now })
			if run(d, &now, MaxScripts+1, boot{scripts: 1}) == 0 {
				t.Fatal("it gets no remedy")
			}
			release(d)
			if d.ScriptLoops(mac) {
				t.Error("it still gets a remedy")
			}
		})
	}
}

// TestBounded: a flood of made-up addresses does not fill the memory.
func TestBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	d := New(func() time.Time { return now })
	for i := range 3 * maxMachines {
		d.BootFileSent(lab.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}, [4]byte{1})
	}
	if len(d.machines) > maxMachines {
		t.Errorf("%d machines are watched, want at most %d", len(d.machines), maxMachines)
	}
}
