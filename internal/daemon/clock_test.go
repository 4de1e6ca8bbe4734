package daemon

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/daemon/leaseadmin"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// TestClockNote: a jump of the system clock is a note of the DHCP server until the last lease from before has ended, and leases are
// shown with the times of the new clock.
func TestClockNote(t *testing.T) {
	t.Parallel()
	wall, passed := time.Date(1970, 1, 1, 0, 0, 30, 0, time.UTC), 30*time.Second
	c, err := leases.OpenClock(t.Context(), storetest.Memory(), leases.Host{
		Wall: func() time.Time { return wall }, Mono: func() time.Duration { return passed }, Boot: func() time.Duration { return passed },
	})
	if err != nil {
		t.Fatal(err)
	}
	end := c.Now().Add(12 * time.Hour)
	check := func() string {
		if _, err := c.Check(t.Context(), func() time.Time { return end }); err != nil {
			t.Fatal(err)
		}
		return clockNote(c)
	}
	if note := check(); note != "" {
		t.Errorf("a note before the jump: %s", note)
	}
	wall = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	note := check()
	for _, want := range []string{"set forward by 498", "leases from before keep the time", wall.Add(12 * time.Hour).In(time.Local).Format(time.DateTime)} {
		if !strings.Contains(note, want) {
			t.Errorf("the note lacks %q: %s", want, note)
		}
	}
	l := leases.Lease{Start: c.Now(), Expiry: end}
	c.OnWall(&l)
	if !l.Start.Equal(wall) || !l.Expiry.Equal(wall.Add(12*time.Hour)) {
		t.Errorf("a lease is shown from %v to %v", l.Start, l.Expiry)
	}
	never := leases.Lease{State: leases.Active, Start: c.Now(), Expiry: leases.Forever}
	c.OnWall(&never)
	if shown := leaseadmin.Lease(&lab.Lab{}, nil, &never, wall); !shown.Expires.IsZero() || shown.State != api.LeaseActive {
		t.Errorf("a lease that never ends is %s and ends %v", shown.State, shown.Expires)
	}
	wall, passed = wall.Add(12*time.Hour), passed+12*time.Hour
	if note := check(); note != "" {
		t.Errorf("a note after the last lease has ended: %s", note)
	}
}

// TestInstallOverAJump: the system clock is set by two days, either way, and the daemon restarted while a machine installs. Five minutes after its
// script its installer still gets its document. If it has it, and its next boot is the only sign that it is done, that boot is from its disk: it
// is not installed again.
func TestInstallOverAJump(t *testing.T) {
	t.Parallel()
	h := &lab.Host{Name: "w0", MACs: []lab.MAC{{2, 0, 0, 0, 0, 1}}, Profile: &lab.Profile{Name: "p", Install: lab.InstallOnce, InstallTo: "/dev/vda", Config: "c", InstallTimeout: time.Hour}}
	for _, jump := range []time.Duration{48 * time.Hour, -48 * time.Hour} {
		for _, document := range []bool{false, true} {
			s, ctx := storetest.Memory(), t.Context()
			host, before := leases.SystemHost(), time.Now().Add(-5*time.Minute)
			up := host.Boot() - 5*time.Minute
			host.Boot = func() time.Duration { return up }
			host.Wall = func() time.Time { return before.Add(-jump) }
			clock, err := leases.OpenClock(ctx, s, host)
			if err != nil {
				t.Fatal(err)
			}
			if err := clock.Save(ctx); err != nil {
				t.Fatal(err)
			}
			bus := event.NewBus(event.BusConfig{Now: time.Now})
			installs, err := install.Open(ctx, install.Config{}, install.Deps{Store: s, Events: bus, Now: host.Wall})
			if err != nil {
				t.Fatal(err)
			}
			request := install.Request{NIC: h.MACs[0], Prepare: func() (install.Signals, error) { return install.NextBoot, nil }}
			decision, err := installs.Boot(ctx, h, request)
			if err == nil {
				err = installs.Received(ctx, h, decision)
			}
			if err == nil && document {
				err = installs.ConfigRead(ctx, h, decision.Token)
			}
			if err != nil {
				t.Fatal(err)
			}

			quiet := slog.New(slog.DiscardHandler)
			d := &Daemon{log: quiet, serverLog: quiet, bus: bus}
			l, err := d.openPersistentState(ctx, s)
			if err != nil {
				t.Fatal(err)
			}
			if since := l.installs.Status(h).Since; since.Sub(before).Abs() > time.Minute {
				t.Errorf("jump %s: the install is shown since %s, want %s", jump, since, before)
			}
			if !document {
				if err := l.installs.Authorize(h, decision.Token, 1); err != nil {
					t.Errorf("jump %s: the document: %v", jump, err)
				}
				continue
			}
			if err := l.installs.Expire(ctx, func(string) *lab.Host { return h }); err != nil || l.installs.Status(h).State != install.Installing {
				t.Errorf("jump %s: %v, and the install is %s, want that it goes on", jump, err, l.installs.Status(h).State)
			}
			if again, err := l.installs.Boot(ctx, h, request); err != nil || !again.LocalBoot || again.Held {
				t.Errorf("jump %s: the next boot gets %+v, %v, want the disk", jump, again, err)
			}
		}
	}
}
