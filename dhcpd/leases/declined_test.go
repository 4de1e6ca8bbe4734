package leases

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestDeclinedIsGivenAgain: a full pool gives declined addresses again that were found unused, those declined longest ago first,
// and after all others.
func TestDeclinedIsGivenAgain(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	p := pool(1, 5)
	for n, addr := range []string{"10.0.0.3", "10.0.0.1", "10.0.0.2"} {
		d.decline(n, addr, time.Hour)
		d.clock.Advance(time.Minute)
	}
	d.lease(5, "10.0.0.5")
	d.Conflict(ip("10.0.0.1"), mac(9), d.clock.Now().Add(time.Hour)) // a machine answers there
	d.wantUsage(p, 1, 0, 1)
	if got := d.Declined(p, 9); !slices.Equal(got, []netip.Addr{ip("10.0.0.3"), ip("10.0.0.2")}) {
		t.Errorf("declined: %v, want those at which no machine was found, the oldest first", got)
	}
	if got := d.Declined(p, 9); got != nil {
		t.Errorf("%v are returned twice within a second", got)
	}
	d.clock.Advance(time.Second)
	if got := d.Declined(p, 1); !slices.Equal(got, []netip.Addr{ip("10.0.0.3")}) {
		t.Errorf("declined: %v, want the oldest", got)
	}
	if !d.EndDeclined(ip("10.0.0.3")) || d.EndDeclined(ip("10.0.0.3")) || d.EndDeclined(ip("10.0.0.1")) || d.EndDeclined(ip("10.0.0.5")) {
		t.Error("the quarantine of 10.0.0.3 is ended once, and no other")
	}
	d.wantUsage(p, 1, 0, 2)
	if got := d.Declined(p, 9); !slices.Equal(got, []netip.Addr{ip("10.0.0.2")}) {
		t.Errorf("declined: %v, want the one that is left", got)
	}
	d.wantOffer(10, p, "", "10.0.0.4", true) // first the one that nobody declined
	d.lease(10, "10.0.0.4")
	d.wantOffer(11, p, "", "10.0.0.3", true)
	d.lease(11, "10.0.0.3")
	d.wantUsage(p, 3, 0, 0)
	if got, _, err := d.ask(12, p, ""); err == nil {
		t.Errorf("a quarantined address is offered: %s", got)
	}
	d.decline(11, "10.0.0.3", time.Hour)
	d.wantUsage(p, 2, 0, 0) // again
	d.EndDeclined(ip("10.0.0.3"))
	d.wantUsage(p, 2, 0, 1)
	d.clock.Advance(2 * time.Hour)
	d.reopen()
	d.wantUsage(p, 0, 0, 5)
}
