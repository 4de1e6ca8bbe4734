package leases

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// TestOffer: which address a machine is offered (RFC 2131 section 4.3.1), each case on a book of its own. Pools are small
// enough that the place of a machine in them does not matter.
func TestOffer(t *testing.T) {
	t.Parallel()
	runCases(t, []bookCase{
		{"a retransmission gets the same", func(d *testBook) {
			p := pool(10, 200)
			first, fresh, err := d.ask(1, p, "")
			if err != nil || !fresh {
				d.t.Fatalf("%s, fresh %v, %v", first, fresh, err)
			}
			d.clock.Advance(30 * time.Second)
			d.wantOffer(1, p, "10.0.0.77", first, false)
			d.clock.Advance(OfferHold - time.Second) // counted from the last request
			d.wantOffer(1, p, "", first, false)
		}, nil},
		{"the requested", func(d *testBook) {
			p := pool(10, 200)
			d.wantOffer(1, p, "10.0.0.77", "10.0.0.77", true)
			if got, _, _ := d.ask(2, p, "10.0.0.77"); got == "10.0.0.77" {
				d.t.Error("an offered address is offered again")
			}
			if got, _, _ := d.ask(3, p, "10.0.0.9"); got == "10.0.0.9" {
				d.t.Error("an address outside of the pool is offered")
			}
		}, nil},
		{"a lease comes before the requested", func(d *testBook) {
			d.lease(1, "10.0.0.20")
			d.wantOffer(1, pool(10, 200), "10.0.0.77", "10.0.0.20", false)
		}, nil},
		{"an expired lease too", func(d *testBook) {
			d.lease(1, "10.0.0.20")
			d.clock.Advance(48 * time.Hour)
			d.wantOffer(1, pool(10, 200), "10.0.0.77", "10.0.0.20", false)
		}, nil},
		{"a released one too, whatever others do", func(d *testBook) {
			p := pool(20, 23)
			d.lease(1, "10.0.0.20")
			d.release(1, "10.0.0.20")
			for n := 2; n <= 4; n++ {
				if got, _, _ := d.ask(n, p, ""); got == "10.0.0.20" {
					d.t.Errorf("machine %d is offered a remembered address while there are others", n)
				}
			}
			d.wantOffer(1, p, "", "10.0.0.20", false)
		}, nil},
		{"a lease of another subnet is none here", func(d *testBook) {
			d.lease(1, "10.0.0.20")
			p := NewPool(ip("10.1.0.20"), ip("10.1.0.20"), nil)
			a, fresh, err := d.Offer(Request{MAC: mac(1), Subnet: netip.MustParsePrefix("10.1.0.0/16"), Pool: p})
			if err != nil || a != ip("10.1.0.20") || !fresh {
				d.t.Errorf("offered %s, fresh %v, %v", a, fresh, err)
			}
		}, nil},
	})
}

// expired is a pool of three whose leases have ended, that of machine 1 on 10.0.0.21 first, of 2 on .22 next and of 3 on .20 last.
func (d *testBook) expired() *Pool {
	d.t.Helper()
	for n, addr := range []string{"10.0.0.21", "10.0.0.22", "10.0.0.20"} {
		d.lease(n+1, addr)
		d.clock.Advance(time.Minute)
	}
	d.clock.Advance(2 * time.Hour)
	return pool(20, 22)
}

// TestOfferWhenScarce: what a pool gives when all of it was leased once.
func TestOfferWhenScarce(t *testing.T) {
	t.Parallel()
	runCases(t, []bookCase{
		{"longest expired", func(d *testBook) {
			p := d.expired()
			d.wantOffer(4, p, "", "10.0.0.21", true)
			d.wantOffer(5, p, "", "10.0.0.22", true)
			d.wantOffer(6, p, "", "10.0.0.20", true)
		}, nil},
		{"an offered address comes back to its place", func(d *testBook) {
			p := d.expired()
			d.wantOffer(4, p, "", "10.0.0.21", true)
			d.Withdraw(mac(4))
			d.wantOffer(5, p, "", "10.0.0.21", true)
		}, nil},
		{"in the middle, too", func(d *testBook) {
			p := d.expired()
			d.wantOffer(2, p, "", "10.0.0.22", false)
			d.Withdraw(mac(2))
			d.wantOffer(4, p, "", "10.0.0.21", true)
			d.wantOffer(5, p, "", "10.0.0.22", true)
		}, nil},
		{"one conflict after the other ends", func(d *testBook) {
			p := pool(20, 21)
			d.Conflict(ip("10.0.0.20"), mac(9), d.clock.Now().Add(time.Minute))
			d.Conflict(ip("10.0.0.21"), mac(9), d.clock.Now().Add(2*time.Minute))
			for n := range 3 {
				d.wantUsage(p, 0, 0, n)
				d.clock.Advance(time.Minute)
			}
		}, nil},
		{"full", func(d *testBook) {
			p := pool(20, 21)
			d.lease(1, "10.0.0.20")
			d.clock.Advance(time.Second)
			d.lease(2, "10.0.0.21")
			if got, _, err := d.ask(3, p, ""); !errors.Is(err, ErrFull) {
				d.t.Errorf("offered %s, %v; want ErrFull", got, err)
			}
			d.clock.Advance(time.Hour)
			d.wantOffer(3, p, "", "10.0.0.20", true)
		}, nil},
	})
}

// TestOfferNever: what no machine is offered, and for how long.
func TestOfferNever(t *testing.T) {
	t.Parallel()
	runCases(t, []bookCase{
		{"blocked", func(d *testBook) {
			p := NewPool(ip("10.0.0.20"), ip("10.0.0.21"), func(a netip.Addr) bool { return a == ip("10.0.0.20") })
			d.lease(1, "10.0.0.20") // reserved later
			d.wantOffer(1, p, "10.0.0.20", "10.0.0.21", true)
			if d.Decide(mac(1), p, ip("10.0.0.20"), Selecting).Free {
				d.t.Error("may have a blocked address")
			}
		}, nil},
		{"declined", func(d *testBook) {
			p := pool(20, 21)
			d.wantOffer(1, p, "10.0.0.20", "10.0.0.20", true)
			d.decline(1, "10.0.0.20", 10*time.Minute)
			d.wantUsage(p, 0, 0, 1)
			d.wantOffer(1, p, "10.0.0.20", "10.0.0.21", true)
			d.Decide(mac(1), p, ip("10.0.0.21"), Selecting)
			if _, _, err := d.ask(2, p, "10.0.0.20"); !errors.Is(err, ErrFull) {
				d.t.Errorf("error is %v, want ErrFull", err)
			}
			d.clock.Advance(10 * time.Minute)
			d.wantOffer(2, p, "", "10.0.0.21", true) // that of machine 1 was kept 90 s
			d.wantOffer(3, p, "", "10.0.0.20", true)
		}, nil},
		{"in conflict", func(d *testBook) {
			p := pool(20, 21)
			d.wantOffer(1, p, "10.0.0.20", "10.0.0.20", true)
			d.Conflict(ip("10.0.0.20"), mac(9), d.clock.Now().Add(time.Hour))
			d.wantOffer(1, p, "10.0.0.20", "10.0.0.21", true)
			d.wantUsage(p, 0, 1, 0)
			if d.Decide(mac(2), p, ip("10.0.0.20"), Selecting).Free {
				d.t.Error("a machine may have an address that another was found at")
			}
			d.wantOffer(9, p, "10.0.0.20", "10.0.0.20", true) // it has it anyway
			d.Withdraw(mac(9))
			d.clock.Advance(time.Hour)
			d.wantUsage(p, 0, 0, 2)
			d.wantOffer(2, p, "10.0.0.20", "10.0.0.20", true)
		}, nil},
		{"seen in use", func(d *testBook) {
			p := pool(20, 22)
			d.lease(3, "10.0.0.21")
			d.clock.Advance(2 * time.Hour)
			seen := func(addrs ...string) func(netip.Addr) bool {
				return func(a netip.Addr) bool {
					for _, s := range addrs {
						if a == ip(s) {
							return true
						}
					}
					return false
				}
			}
			for _, tt := range []struct {
				inUse func(netip.Addr) bool
				want  string
			}{
				{seen("10.0.0.20"), "10.0.0.22"},
				{seen("10.0.0.20", "10.0.0.22"), "10.0.0.21"},
				{seen("10.0.0.20", "10.0.0.21"), "10.0.0.22"},
			} {
				a, _, err := d.Offer(Request{MAC: mac(1), Subnet: subnet, Pool: p, Requested: ip("10.0.0.20"), InUse: tt.inUse})
				if err != nil || a != ip(tt.want) {
					d.t.Errorf("offered %s, %v; want %s", a, err, tt.want)
				}
				d.Withdraw(mac(1))
			}
			q := Request{MAC: mac(1), Subnet: subnet, Pool: p, InUse: func(netip.Addr) bool { return true }}
			if a, _, err := d.Offer(q); !errors.Is(err, ErrFull) {
				d.t.Errorf("offered %s, %v; want ErrFull", a, err)
			}
		}, nil},
		{"a pool of nothing", func(d *testBook) {
			if _, _, err := d.ask(1, NewPool(netip.Addr{}, netip.Addr{}, nil), ""); !errors.Is(err, ErrFull) {
				d.t.Errorf("error is %v, want ErrFull", err)
			}
		}, nil},
		{"the clock is set back", func(d *testBook) {
			p := pool(20, 20)
			d.lease(1, "10.0.0.20")
			d.clock.Advance(2 * time.Hour)
			d.wantUsage(p, 0, 0, 1)
			d.clock.Advance(-90 * time.Minute)
			if got, _, err := d.ask(2, p, ""); !errors.Is(err, ErrFull) {
				d.t.Errorf("offered %s, %v; want ErrFull: machine 1 has it", got, err)
			}
			d.wantUsage(p, 1, 0, 0)
		}, nil},
	})
}

// A lost book gives a machine the address that it had: its place in the pool follows from its MAC, as in version 1.
func TestPlaceIsLasting(t *testing.T) {
	t.Parallel()
	p := pool(0, 255)
	m := lab.MAC{0x52, 0x54, 0, 0x2c, 1, 0x10}
	for range 2 {
		d := newTestBook(t)
		a, _, err := d.Offer(Request{MAC: m, Subnet: subnet, Pool: p})
		if want := ip("10.0.0.254"); err != nil || a != want {
			t.Errorf("offered %s, %v; want %s", a, err, want)
		}
	}
}

// TestFlood: machines that never request what they are offered keep no address from one that does, however many ask between
// its offer and its request.
func TestFlood(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	p := pool(10, 109)
	n := 0
	flood := func(times int) {
		t.Helper()
		for range times {
			n++
			if _, _, err := d.ask(n, p, ""); err != nil {
				t.Fatalf("made-up machine %d: %v", n, err)
			}
		}
	}
	flood(1000)
	d.wantUsage(p, 0, 100, 0)
	for i := range 100 {
		real := 1_000_000 + i
		a, fresh, err := d.ask(real, p, "")
		if err != nil || !fresh {
			t.Fatalf("real machine %d is offered %q, fresh %v, %v", i, a, fresh, err)
		}
		flood(1000)
		d.clock.Advance(4 * time.Second) // as long as firmware collects offers
		flood(1000)
		if !d.Decide(mac(real), p, ip(a), Selecting).Free {
			t.Fatalf("real machine %d requests %s, which it was offered, and may not have it", i, a)
		}
		d.lease(real, a)
	}
	d.wantUsage(p, 100, 0, 0)
	if err := d.check(); err != nil {
		t.Error(err)
	}
}

// TestFirstRequestGetsASharedAddress: of two machines that were offered the last address, the first to request it gets it, and
// the other one knows at once.
func TestFirstRequestGetsASharedAddress(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	p := pool(20, 20)
	d.wantOffer(1, p, "", "10.0.0.20", true)
	if d.Decide(mac(2), p, ip("10.0.0.20"), Selecting).Free {
		t.Error("a machine may have what is offered to another one alone")
	}
	d.wantOffer(2, p, "", "10.0.0.20", true)
	if !d.Decide(mac(1), p, ip("10.0.0.20"), Selecting).Free {
		t.Error("machine 1 may not have what it was offered first")
	}
	if d.Decide(mac(2), p, ip("10.0.0.20"), Selecting).Free {
		t.Error("machine 2 may have what machine 1 has requested")
	}
	if a, _, err := d.ask(3, p, ""); !errors.Is(err, ErrFull) {
		t.Errorf("machine 3 is offered %s, %v, while a commit is under way", a, err)
	}
	d.clock.Advance(commitHold) // it failed
	d.wantOffer(3, p, "", "10.0.0.20", true)
}

// TestUnverified: a lease of a machine that was never seen at its address may be ended by evidence, any other not; messages of DHCP are none.
func TestUnverified(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	p := pool(20, 29)
	want := func(addrs ...string) {
		t.Helper()
		var got []string
		for _, a := range d.Unverified(p, d.clock.Now().Add(-10*time.Second), 3) {
			got = append(got, a.String())
		}
		if !slices.Equal(got, addrs) {
			t.Errorf("unverified: %v, want %v", got, addrs)
		}
	}
	for n := 1; n <= 6; n++ {
		d.lease(n, fmt.Sprint("10.0.0.2", n))
		want()
	}
	d.lease(8, "10.1.0.20")
	d.SeenAt(mac(8), ip("10.1.0.20"))
	d.clock.Advance(10 * time.Second)
	d.lease(9, "10.0.0.29")
	d.lease(8, "10.0.0.28") // was seen elsewhere before
	want("10.0.0.21", "10.0.0.22", "10.0.0.23")
	d.lease(1, "10.0.0.21")
	d.clock.Advance(10 * time.Second)
	d.wantOffer(2, p, "", "10.0.0.22", false)
	want("10.0.0.21", "10.0.0.29", "10.0.0.22") // to repeat messages shows nothing
	for n, seen := range map[int]bool{1: true, 2: true, 3: true, 7: false} {
		if d.SeenAt(mac(n), ip(fmt.Sprint("10.0.0.2", n))) != seen || d.SeenAt(mac(n), ip("10.0.0.25")) {
			t.Errorf("machine %d is seen: want %v, and not at the address of another", n, seen)
		}
	}
	want("10.0.0.29", "10.0.0.24", "10.0.0.25")
	if d.IsVerified(mac(4), subnet) || !d.IsVerified(mac(1), subnet) {
		t.Error("IsVerified is wrong")
	}
	if n, err := d.EndSilent(t.Context(), []netip.Addr{ip("10.0.0.21"), ip("10.0.0.24"), ip("10.0.0.25"), ip("10.0.0.27")}); n != 2 || err != nil {
		t.Errorf("%d leases ended, %v; want 2", n, err)
	}
	want("10.0.0.29", "10.0.0.26")
	for addr, state := range map[string]State{"10.0.0.21": Active, "10.0.0.24": Released, "10.0.0.25": Released, "10.0.0.26": Active} {
		if l, _ := d.known(ip(addr)); l.State != state {
			t.Errorf("%s is %s, want %s", addr, l.State, state)
		}
	}
	d.wantOffer(4, p, "", "10.0.0.24", false) // its machine, should it return
	d.lease(4, "10.0.0.24")                   // it is as unverified as before
	imported := d.change(11, "10.0.0.27")
	imported.Exists = true
	d.commit(imported)
	d.clock.Advance(10 * time.Second)
	want("10.0.0.24", "10.0.0.29", "10.0.0.26")
	d.AskedAgain(mac(6), subnet, time.Minute) // too soon
	want("10.0.0.24", "10.0.0.29", "10.0.0.26")
	d.AskedAgain(mac(6), subnet, 5*time.Second)
	want("10.0.0.24", "10.0.0.29")
	d.reopen()
	want("10.0.0.24", "10.0.0.21", "10.0.0.29") // that 1 was seen was not stored yet
}

// TestStoreVerified: that machines were seen is stored, though their leases stay as they are, and a store that fails is tried again.
func TestStoreVerified(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	p := pool(20, 29)
	for n := 1; n <= 6; n++ {
		d.lease(n, fmt.Sprint("10.0.0.2", n))
	}
	d.clock.Advance(10 * time.Second)
	for n := 1; n <= 4; n++ {
		d.SeenAt(mac(n), ip(fmt.Sprint("10.0.0.2", n)))
		d.SeenAt(mac(n), ip(fmt.Sprint("10.0.0.2", n)))
	}
	before := d.All()
	d.store.FailCommits(errors.New("disk full"))
	if n, err := d.StoreVerified(t.Context(), 1); n != 1 || err == nil {
		t.Errorf("of %d machines, %v; want an error", n, err)
	}
	d.store.FailCommits(nil)
	for _, want := range []int{3, 1, 0} {
		if n, err := d.StoreVerified(t.Context(), 3); n != want || err != nil {
			t.Errorf("of %d machines, %v; want %d", n, err, want)
		}
	}
	d.reopen()
	if got := d.Unverified(p, d.clock.Now(), 9); !slices.Equal(got, []netip.Addr{ip("10.0.0.25"), ip("10.0.0.26")}) {
		t.Errorf("unverified: %v", got)
	}
	if after := d.All(); !slices.EqualFunc(before, after, func(x, y Lease) bool { return reflect.DeepEqual(x, y) }) {
		t.Errorf("leases have changed: %v, had %v", after, before)
	}
	d.release(1, "10.0.0.21")
	d.lease(1, "10.0.0.27")
	if !d.IsVerified(mac(1), subnet) {
		t.Error("machine 1 is not verified any more")
	}
}

// The oldest offer goes first; one that was requested again is not the oldest.
func TestOldestOfferFirst(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	p := pool(20, 22)
	for n, addr := range []string{"10.0.0.20", "10.0.0.21", "10.0.0.22"} {
		d.wantOffer(n+1, p, addr, addr, true)
		d.clock.Advance(2 * time.Second)
	}
	d.wantOffer(1, p, "", "10.0.0.20", false)
	d.clock.Advance(3 * time.Second)
	d.wantOffer(4, p, "", "10.0.0.21", true)
	if a, ok := d.OfferTo(mac(2)); ok {
		t.Errorf("machine 2 is still offered %s", a)
	}
	if !d.Decide(mac(4), p, ip("10.0.0.21"), Selecting).Free || d.Decide(mac(2), p, ip("10.0.0.21"), Selecting).Free {
		t.Error("machine 2 may have what machine 4 has requested since")
	}
}

// The memory of offers is bounded, and no machine is refused for it.
func TestOffersAreBounded(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	p := NewPool(ip("10.0.0.0"), ip("10.0.255.255"), nil)
	d.lease(1_000_000, "10.0.1.1")
	for n := range maxOffers + 5000 {
		if _, _, err := d.ask(n, p, ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, offered, _ := d.Usage(p); offered != maxOffers {
		t.Errorf("%d offered, want %d", offered, maxOffers)
	}
	d.wantOffer(1_000_000, p, "", "10.0.1.1", false)
	if got := d.offers.len(); got > maxOffers {
		t.Errorf("%d offers are kept, want at most %d", got, maxOffers)
	}
}

func TestOfferTo(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	p := pool(20, 29)
	if a, ok := d.OfferTo(mac(1)); ok {
		t.Errorf("held %s for a stranger", a)
	}
	d.wantOffer(1, p, "10.0.0.20", "10.0.0.20", true)
	if a, ok := d.OfferTo(mac(1)); !ok || a != ip("10.0.0.20") || !d.Remembers(mac(1), subnet) {
		t.Errorf("held %s, %v", a, ok)
	}
	if d.Decide(mac(2), p, ip("10.0.0.20"), Selecting).Free || !d.Decide(mac(1), p, ip("10.0.0.20"), Selecting).Free {
		t.Error("the wrong machine may have an offered address")
	}
	if !d.Decide(mac(1), p, ip("10.0.0.21"), Selecting).Free {
		t.Error("a machine may change its mind")
	}
	d.wantOffer(2, p, "10.0.0.20", "10.0.0.20", true)
	var offered []string
	for _, l := range d.Offers() {
		offered = append(offered, fmt.Sprintf("%s %s %s %s", l.Addr, l.MAC, l.State, l.Expiry.Sub(l.Start)))
	}
	want := []string{"10.0.0.20 " + mac(2).String() + " offered 1m30s", "10.0.0.21 " + mac(1).String() + " offered 1m30s"}
	if !slices.Equal(offered, want) {
		t.Errorf("offers are %q, want %q", offered, want)
	}
	d.Withdraw(mac(1))
	if a, ok := d.OfferTo(mac(1)); ok || d.Remembers(mac(1), subnet) {
		t.Errorf("held %s after it was withdrawn", a)
	}
	d.clock.Advance(OfferHold)
	if a, ok := d.OfferTo(mac(2)); ok {
		t.Errorf("held %s after %s", a, OfferHold)
	}
	if l := d.Offers(); len(l) != 0 {
		t.Errorf("offers after %s: %v", OfferHold, l)
	}
	d.wantOffer(3, p, "10.0.0.20", "10.0.0.20", true)
	d.wantUsage(p, 0, 1, 9)
}

func TestConflictsAreShownAndBounded(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	p := NewPool(ip("10.0.0.0"), ip("10.0.255.255"), nil)
	d.lease(1, "10.0.0.1")
	d.lease(2, "10.0.0.2")
	d.release(2, "10.0.0.2")
	end := d.clock.Now().Add(time.Minute)
	for _, a := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		d.Conflict(ip(a), mac(9), end)
	}
	d.Conflict(ip("10.0.0.4"), mac(9), d.clock.Now()) // over already
	type row struct {
		addr  string
		state State
	}
	var got []row
	for _, l := range d.All() {
		got = append(got, row{l.Addr.String(), l.State})
	}
	want := []row{{"10.0.0.1", Active}, {"10.0.0.1", Conflict}, {"10.0.0.2", Conflict}, {"10.0.0.3", Conflict}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] || got[3] != want[3] {
		t.Errorf("the book shows %v, want %v", got, want)
	}
	for n := range 2 * maxConflicts {
		d.Conflict(addrOf(10<<24|1<<12+uint32(n)), mac(9), end.Add(time.Hour))
	}
	if n := len(d.conflicts); n > maxConflicts {
		t.Errorf("%d conflicts are kept, want at most %d", n, maxConflicts)
	}
	d.clock.Advance(2 * time.Hour)
	d.Usage(p)
	d.wantUsage(p, 0, 0, p.Size())
	if n := len(d.conflicts); n != 0 {
		t.Errorf("%d conflicts are kept for ever", n)
	}
	if err := d.check(); err != nil {
		t.Error(err)
	}
}

// Offers returns the addresses that are offered to machines, by address. A machine that renews has an offer and a lease.
func (b *Book) Offers() []Lease {
	now := b.now().UnixMilli()
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]Lease, 0, b.offers.len())
	for i := uint32(1); i <= b.offers.last; i++ {
		if o := b.offers.at(i); o.addr != 0 && o.valid(now) {
			all = append(all, o.lease())
		}
	}
	slices.SortFunc(all, func(x, y Lease) int { return x.Addr.Compare(y.Addr) })
	return all
}
