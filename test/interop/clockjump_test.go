package interop

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/test/support/netns"
)

// setsClockVar is set where a test may set the system clock, which no namespace has of its own: in an emulated machine.
const setsClockVar = "BOOTLAB_SETS_CLOCK"

// TestClockJump: the system clock is set two days forward. The only two addresses of a pool stay with the machines that have leased them for
// twelve hours, although these do not answer ARP, also after a restart; an install goes on over both.
func TestClockJump(t *testing.T) {
	t.Parallel()
	if os.Getenv(setsClockVar) == "" {
		t.Skip("sets the system clock: TestClockJump of test/e2e runs this one in an emulated machine")
	}
	l := newLab(t, "10.106.21")
	l.lan = "    pools: {two: {range: NET.100-NET.101}}\n"
	l.write()
	d := start(t, l)
	host := d.machine(t, hostMAC)
	if addr := host.lease(t); addr != l.net+".10" {
		t.Fatalf("w0 got %q", addr)
	}
	config, done, err := host.script(l.net+".10", hostHyphens)
	if err != nil {
		t.Fatal(err)
	}
	silent := func(mac string) (lease func() string) {
		m := d.machine(t, mac)
		return func() string {
			addr := m.lease(t)
			if addr != "" {
				m.get(addr, "/") // its ARP is seen: one that never was loses its address when the pool is full, whatever the clock says
			}
			netns.Run(t, "ip", "-n", m.Name, "addr", "flush", "dev", "eth0")
			return addr
		}
	}
	first := silent("02:00:00:00:aa:01")
	a := first()
	if !strings.HasPrefix(a, l.net+".10") {
		t.Fatalf("the first machine got %q", a)
	}
	forward(t, 48*time.Hour)
	second := silent("02:00:00:00:aa:02")
	b := second()
	if !strings.HasPrefix(b, l.net+".10") || b == a {
		t.Fatalf("the second machine got %q, the first has %q", b, a)
	}
	third := silent("02:00:00:00:aa:03")
	kept := func(when string) {
		t.Helper()
		if c := third(); c != "" {
			t.Errorf("%s, a third machine got %s; %s and %s are leased", when, c, a, b)
		}
		if again := first(); again != a {
			t.Errorf("%s, the first machine got %q, and had %s", when, again, a)
		}
	}
	kept("after the jump")
	d.until("the jump is counted", func() bool { return d.metric(`bootlab_events_total{kind="clock_jumped"}`) == 1 })
	d.logged("clock_jumped")
	d.shows("the system clock was set forward by 48h", "status")
	d.kill()
	d.start()
	if status, body := host.get(l.net+".10", config); status != http.StatusOK || !strings.Contains(body, "treasure-of-w0") {
		t.Errorf("after jump and restart, the document: status %d", status)
	}
	if status, _ := host.get(l.net+".10", done); status != http.StatusOK {
		t.Errorf("after jump and restart, done: status %d", status)
	}
	d.shows("installed", "hosts")
	kept("after a restart")
}

// forward sets the system clock.
func forward(t *testing.T, by time.Duration) {
	t.Helper()
	ts := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		t.Fatal(err)
	}
}
