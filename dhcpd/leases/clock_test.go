package leases

import (
	"context"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/storetest"
)

// A machine has the clocks of a computer, as a test sets them.
type machine struct {
	wall     time.Time
	up, mono time.Duration
	boot     string
	store    *storetest.Mem
}

func newMachine() *machine {
	return &machine{wall: time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC), up: time.Hour, boot: "a", store: storetest.Memory()}
}

func (m *machine) pass(d time.Duration) { m.wall, m.up, m.mono = m.wall.Add(d), m.up+d, m.mono+d }

// restart is a new process, on a machine that was started again or not.
func (m *machine) restart() { m.mono, m.store = 0, m.store.Reopen() }

// reboot is a new start of the machine 20 seconds ago; its clock shows now.
func (m *machine) reboot(now time.Time) {
	m.restart()
	m.wall, m.up, m.boot = now, 20*time.Second, m.boot+"a"
}

// open is a start of the daemon, and its first check.
func (m *machine) open(t *testing.T) (*testBook, *Clock, Jump) {
	t.Helper()
	c, err := OpenClock(t.Context(), m.store, Host{
		Wall: func() time.Time { return m.wall }, Mono: func() time.Duration { return m.mono }, Boot: func() time.Duration { return m.up }, BootID: m.boot,
	})
	if err != nil {
		t.Fatal(err)
	}
	if j := c.Last(); j.By != 0 {
		t.Errorf("before Check returns it, the last jump is %+v", j)
	}
	d := &testBook{t: t, Book: openBook(t, m.store, c.Now), store: m.store}
	return d, c, check(t, d, c)
}

func check(t *testing.T, d *testBook, c *Clock) Jump {
	t.Helper()
	j, err := c.Check(t.Context(), d.LastEnd)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestLeasesSurviveAJump: ten of twenty addresses are leased for twelve hours when the wall clock is set. None of them is given
// to another machine, also after a restart of the daemon or of the machine, and all are when their time is over.
func TestLeasesSurviveAJump(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	start := newMachine().wall
	for _, tt := range []struct {
		name string
		do   func(*machine)
		jump time.Duration // that is noticed
		// How long the leases last, after what do did; the wall clock is trusted for an hour of a machine that was off.
		last time.Duration
	}{
		{"nothing", func(m *machine) { m.pass(time.Hour) }, 0, 11 * time.Hour},
		{"forward by a day", func(m *machine) { m.wall = m.wall.Add(day) }, day, 12 * time.Hour},
		{"NTP after a start in 1970", func(m *machine) { m.wall = m.wall.Add(56 * 365 * day) }, 56 * 365 * day, 12 * time.Hour},
		{"back by a day", func(m *machine) { m.pass(time.Hour); m.wall = m.wall.Add(-day) }, -day, 11 * time.Hour},
		{"a little", func(m *machine) { m.wall = m.wall.Add(3 * time.Second) }, 0, 12 * time.Hour},
		{"restart of the daemon", func(m *machine) { m.restart(); m.pass(time.Hour) }, 0, 11 * time.Hour},
		{"forward while the daemon is off", func(m *machine) { m.restart(); m.pass(time.Hour); m.wall = m.wall.Add(day) }, day, 11 * time.Hour},
		{"reboot", func(m *machine) { m.reboot(start.Add(30 * time.Minute)) }, 0, 11*time.Hour + 30*time.Minute},
		{"reboot into 1970", func(m *machine) { m.reboot(time.Unix(0, 0)) }, time.Unix(0, 0).Sub(start) - 20*time.Second, 12*time.Hour - 20*time.Second},
		{"reboot into the next year", func(m *machine) { m.reboot(start.Add(365 * day)) }, 365*day - time.Hour - 20*time.Second, 11*time.Hour - 20*time.Second},
		{"suspended", func(m *machine) { m.pass(time.Hour); m.mono -= time.Hour }, 0, 11 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, p := newMachine(), pool(20, 39)
			d, clock, _ := m.open(t)
			lease := func(n int) {
				a, _, err := d.ask(n, p, "")
				if err != nil {
					t.Fatal(err)
				}
				now := clock.Now()
				c := &Change{Subnet: subnet, Lease: Lease{Addr: ip(a), MAC: mac(n), State: Active, Start: now, Expiry: now.Add(12 * time.Hour)}}
				if d.Commit(context.Background(), []*Change{c}); c.Err != nil {
					t.Fatal(c.Err)
				}
			}
			for n := range 10 {
				lease(n)
			}
			before := m.store
			tt.do(m)
			var got Jump
			if m.store != before {
				d, clock, got = m.open(t)
			} else {
				got = check(t, d, clock)
			}
			if got.By != tt.jump {
				t.Errorf("noticed a jump of %v, want %v", got.By, tt.jump)
			}
			if again := check(t, d, clock); again.By != 0 {
				t.Errorf("noticed it again: %v", again)
			}
			if last := clock.Last(); last != got {
				t.Errorf("the last jump is %+v, want %+v", last, got)
			}
			d.wantUsage(p, 10, 0, 10)
			for n := range 10 {
				l, ok := d.ByMAC(mac(n))
				if !ok || clock.Wall(l.Expiry).Sub(m.wall).Round(10*time.Second) != tt.last.Round(10*time.Second) {
					t.Fatalf("machine %d has %+v, and ends in %v on the wall clock; want %v", n, l, clock.Wall(l.Expiry).Sub(m.wall), tt.last)
				}
			}
			if tt.jump != 0 && got.Until.Sub(clock.Now()).Round(time.Minute) != tt.last.Round(time.Minute) {
				t.Errorf("leases from before end in %v, want %v", got.Until.Sub(clock.Now()), tt.last)
			}
			m.pass(tt.last - time.Minute)
			check(t, d, clock)
			for n := 100; n < 110; n++ {
				lease(n) // the ten others
			}
			if a, _, err := d.ask(200, p, ""); err == nil {
				t.Errorf("%s is given to another machine before its lease ends", a)
			}
			m.pass(2 * time.Minute)
			d.wantUsage(p, 10, 0, 10)
			if _, _, err := d.ask(200, p, ""); err != nil {
				t.Errorf("an address is not free although its lease has ended: %v", err)
			}
		})
	}
}
