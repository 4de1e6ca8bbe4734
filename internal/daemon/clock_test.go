package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
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
	(&learned{clock: c}).onWall(&l)
	if !l.Start.Equal(wall) || !l.Expiry.Equal(wall.Add(12*time.Hour)) {
		t.Errorf("a lease is shown from %v to %v", l.Start, l.Expiry)
	}
	never := leases.Lease{State: leases.Active, Start: c.Now(), Expiry: leases.Forever}
	(&learned{clock: c}).onWall(&never)
	if shown := leaseOf(&lab.Lab{}, &never, wall); !shown.Expires.IsZero() || shown.State != api.LeaseActive {
		t.Errorf("a lease that never ends is %s and ends %v", shown.State, shown.Expires)
	}
	wall, passed = wall.Add(12*time.Hour), passed+12*time.Hour
	if note := check(); note != "" {
		t.Errorf("a note after the last lease has ended: %s", note)
	}
}
