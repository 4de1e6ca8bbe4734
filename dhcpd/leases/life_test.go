package leases

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLookups(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	put := func(n int, name string) {
		c := d.change(n, fmt.Sprintf("10.0.0.%d", n))
		c.Hostname = name
		d.clock.Advance(time.Second)
		d.commit(c)
	}
	want := func(name, addr string) {
		t.Helper()
		l, ok := d.ByHostname(name)
		if got := l.Addr.String(); ok != (addr != "") || ok && got != addr {
			t.Errorf("%s is at %s, %v; want %q", name, got, ok, addr)
		}
	}
	put(1, "laptop")
	put(2, "laptop")
	want("laptop", "10.0.0.1") // of two the one that came first
	d.reopen()
	want("laptop", "10.0.0.1")
	put(1, "laptop")
	put(2, "laptop")
	put(1, "") // as firmware does
	want("laptop", "10.0.0.1")
	d.reopen()
	want("laptop", "10.0.0.1")
	put(1, "desktop")
	want("desktop", "10.0.0.1")
	want("laptop", "") // until machine 2 asks again
	want("unknown", "")
	want("", "")
	if d.Named(ip("10.0.0.2"), "laptop") {
		t.Error("machine 2 needs no commit for a name that is free now")
	}
	put(2, "desktop")
	if !d.Named(ip("10.0.0.2"), "desktop") {
		t.Error("machine 2 needs a commit for a name that another has")
	}
	if l, _ := d.ByAddr(ip("10.0.0.2")); l.Hostname != "desktop" || !l.Unnamed {
		t.Errorf("machine 2 has %+v, want its host name, which is no DNS name", l)
	}
	if !d.Named(ip("10.0.0.1"), "desktop") || d.Named(ip("10.0.0.1"), "laptop") || d.Named(ip("10.0.0.9"), "") {
		t.Error("Named is wrong about desktop")
	}
	if !d.Has(mac(1), ip("10.0.0.1")) || d.Has(mac(2), ip("10.0.0.1")) || d.Has(mac(1), netip.Addr{}) {
		t.Error("Has is wrong about machine 1")
	}
	elsewhere := d.change(1, "10.1.0.1")
	elsewhere.Subnet = netip.MustParsePrefix("10.1.0.0/16")
	d.clock.Advance(time.Second)
	d.commit(elsewhere)
	if l, ok := d.ByMAC(mac(1)); !ok || l.Addr != elsewhere.Addr {
		t.Errorf("machine 1 is at %s, want its youngest lease", l.Addr)
	}
	if l, ok := d.Bound(mac(1), subnet); !ok || l.Addr != ip("10.0.0.1") {
		t.Errorf("machine 1 is bound to %s in %s", l.Addr, subnet)
	}
	if got := d.CountLive(subnet, elsewhere.Subnet, netip.MustParsePrefix("10.2.0.0/16")); !cmp.Equal(got, []int{2, 1, 0}) {
		t.Errorf("live leases of three networks: %v, want 2, 1, 0", got)
	}
	d.clock.Advance(2 * time.Hour)
	want("desktop", "")
	if _, ok := d.ByMAC(mac(1)); ok || d.Has(mac(1), ip("10.0.0.1")) {
		t.Error("an expired lease is live")
	}
	if l, ok := d.known(ip("10.0.0.1")); !ok || l.Hostname != "desktop" || !d.Remembers(mac(1), subnet) {
		t.Errorf("an expired lease is forgotten: %+v", l)
	}
}

// TestRenewal: early renewals need no commit, and get the time that is left (RFC 2131 section 4.3.2 leaves both to us).
func TestRenewal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		n     int
		addr  string
		after time.Duration
		want  time.Duration
		left  time.Duration // 0: a commit is needed
	}{
		{"at once", 1, "10.0.0.20", 0, time.Hour, time.Hour},
		{"within the same boot", 1, "10.0.0.20", time.Minute, time.Hour, 59 * time.Minute},
		{"not quite a quarter", 1, "10.0.0.20", 15*time.Minute - time.Second, time.Hour, 45*time.Minute + time.Second},
		{"a quarter", 1, "10.0.0.20", 15 * time.Minute, time.Hour, 0},
		{"over", 1, "10.0.0.20", 2 * time.Hour, time.Hour, 0},
		{"before it began", 1, "10.0.0.20", -time.Minute, time.Hour, 0},
		{"another lease time", 1, "10.0.0.20", time.Minute, 2 * time.Hour, 0},
		{"another machine", 2, "10.0.0.20", 0, time.Hour, 0},
		{"another address", 1, "10.0.0.21", 0, time.Hour, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newTestBook(t)
			d.lease(1, "10.0.0.20")
			d.clock.Advance(tt.after)
			left, ok := d.Decide(mac(tt.n), nil, ip(tt.addr), Selecting).Renewal(tt.want)
			if left != tt.left || ok != (tt.left > 0) {
				t.Errorf("left %s, %v; want %s", left, ok, tt.left)
			}
		})
	}
}

// TestRequestBesideALease: a machine with a lease gets another address only if it was offered that, or cannot keep its own.
func TestRequestBesideALease(t *testing.T) {
	t.Parallel()
	d, p := newTestBook(t), pool(10, 20)
	d.Serve(p)
	d.lease(1, "10.0.0.10")
	want := func(when, addr, other string) {
		t.Helper()
		got := d.Decide(mac(1), p, ip(addr), Selecting)
		if has := got.Other; got.Free != (other == "") || has.IsValid() != (other != "") || has.IsValid() && has != ip(other) {
			t.Errorf("%s: a request for %s finds free %t, and a lease of %s; want %q", when, addr, got.Free, has, other)
		}
	}
	want("another one", "10.0.0.11", "10.0.0.10")
	want("again", "10.0.0.11", "10.0.0.10") // the first request was no offer
	want("its own", "10.0.0.10", "")
	d.Withdraw(mac(1))
	d.wantOffer(1, p, "10.0.0.11", "10.0.0.10", false)
	d.Conflict(ip("10.0.0.10"), mac(9), d.clock.Now().Add(time.Hour))
	d.wantOffer(1, p, "10.0.0.11", "10.0.0.11", true)
	want("what was offered", "10.0.0.11", "")
	d.Withdraw(mac(1))
	want("while another machine uses its own", "10.0.0.12", "")
	d.Withdraw(mac(1))
	d.clock.Advance(2 * time.Hour)
	want("after its lease", "10.0.0.13", "")
}

// TestReclaim: what ended long ago leaves the store and the book, in batches; what ended lately, and what runs, stays.
func TestReclaim(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	p := pool(10, 109)
	d.Serve(p)
	for n := range 100 {
		d.lease(n, fmt.Sprintf("10.0.0.%d", 10+n))
		d.lease(1000+n, fmt.Sprintf("10.0.1.%d", n)) // reservations
	}
	d.clock.Advance(remembered / 2)
	d.lease(7, "10.0.0.17")
	d.release(8, "10.0.0.18")
	d.decline(9, "10.0.0.19", time.Minute)
	d.clock.Advance(remembered/2 + time.Hour + time.Minute)
	d.lease(6, "10.0.0.16")
	total := 0
	for range 100 {
		n, err := d.Reclaim(t.Context(), 30)
		if err != nil || n > 30 {
			t.Fatal(n, err)
		}
		if total += n; n < 30 {
			break
		}
	}
	if total != 196 {
		t.Errorf("%d leases are reclaimed, want 196", total)
	}
	d.wantUsage(p, 1, 0, 99)
	d.wantRows("10.0.0.16 6 active", "10.0.0.17 7 active", "10.0.0.18 8 released", "10.0.0.19 9 declined")
}

// Memory is bounded by the addresses there are, whoever comes and goes.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	p := pool(10, 109)
	for n := range 5000 {
		a, _, err := d.ask(n, p, "")
		if err != nil {
			t.Fatalf("machine %d: %v", n, err)
		}
		d.lease(n, a)
		d.clock.Advance(time.Minute)
	}
	if n := len(d.All()); n != 100 {
		t.Errorf("%d leases for 100 addresses", n)
	}
	if d.slots.last > 101 {
		t.Errorf("%d slots were made", d.slots.last)
	}
	if err := d.check(); err != nil {
		t.Error(err)
	}
}

// TestServe: pools come, go and change with the lab; leases and offers stay, and are counted where they belong.
func TestServe(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	one, two := pool(10, 19), pool(20, 29)
	d.Serve(one, two)
	for n := range 10 {
		c := d.change(n, fmt.Sprintf("10.0.0.%d", 15+n))
		c.RelayPort = "port-1"
		d.commit(c)
	}
	d.release(1, "10.0.0.16")
	d.wantOffer(50, one, "10.0.0.10", "10.0.0.10", true)
	step := func(name string, p *Pool, live, offered, free, behind int) {
		t.Helper()
		t.Log(name)
		d.wantUsage(p, live, offered, free)
		if got := d.LiveOnRelayPort(p, "port-1"); got != behind {
			t.Errorf("%d behind port-1, want %d", got, behind)
		}
		if err := d.check(); err != nil {
			t.Error(err)
		}
	}
	step("as it began", one, 4, 1, 5, 4)
	step("the other", two, 5, 0, 5, 5)
	same := pool(10, 19)
	d.Serve(same, two)
	step("the same again", same, 4, 1, 5, 4)
	step("under its old name", one, 4, 1, 5, 4)
	wide := pool(5, 40)
	d.Serve(wide)
	step("one for both", wide, 9, 1, 26, 9)
	d.wantOffer(50, wide, "", "10.0.0.10", false)
	reserved := NewPool(ip("10.0.0.10"), ip("10.0.0.29"), func(a netip.Addr) bool { return a == ip("10.0.0.17") || a == ip("10.0.0.10") })
	step("a pool not served yet, with reservations", reserved, 8, 0, 10, 8)
	early := NewPool(ip("10.0.0.10"), ip("10.0.0.29"), func(a netip.Addr) bool { return a == ip("10.0.0.16") || a == ip("10.0.0.18") })
	d.Serve(early)
	step("other reservations", early, 8, 0, 10, 8)
	d.Serve(reserved)
	d.wantOffer(50, reserved, "10.0.0.11", "10.0.0.11", true)
	step("the first again, and a offer", reserved, 8, 1, 9, 8)
	d.Serve()
	step("none", reserved, 8, 1, 9, 8)
	if a, ok := d.OfferTo(mac(50)); !ok || a != ip("10.0.0.11") {
		t.Errorf("the offer is lost: %s, %v", a, ok)
	}
}

// An address of a pool that was not used yet is reserved.
func TestServeUntouched(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	d.Serve(pool(10, 19))
	p := NewPool(ip("10.0.0.10"), ip("10.0.0.19"), func(a netip.Addr) bool { return a == ip("10.0.0.12") })
	d.Serve(p)
	d.wantUsage(p, 0, 0, 9)
	if err := d.check(); err != nil {
		t.Error(err)
	}
	d.wantOffer(1, p, "10.0.0.19", "10.0.0.19", true)
	d.Serve(pool(10, 19))
	d.wantUsage(pool(10, 19), 0, 1, 9)
	if err := d.check(); err != nil {
		t.Error(err)
	}
}

func TestHolders(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	p := pool(20, 29)
	for n := range 10 {
		d.lease(n, fmt.Sprintf("10.0.0.%d", 29-n))
		d.clock.Advance(time.Minute)
	}
	d.lease(20, "10.0.0.99") // not of the pool
	d.release(3, "10.0.0.26")
	d.decline(50, "10.0.0.26", time.Minute)
	var got []string
	for _, l := range d.Holders(p, 3) {
		got = append(got, fmt.Sprint(l.Addr, " ", l.State))
	}
	if want := []string{"10.0.0.26 declined", "10.0.0.29 active", "10.0.0.28 active"}; !cmp.Equal(got, want) {
		t.Errorf("holders are %v, want %v", got, want)
	}
	d.release(0, "10.0.0.29")
	if n := len(d.Holders(p, 3)); n != 3 {
		t.Errorf("%d holders, want the three of just now", n)
	}
	if n := len(d.Holders(p, 100)); n != 9 {
		t.Errorf("%d holders, want 9", n)
	}
	d.clock.Advance(holdersKept)
	if l := d.Holders(p, 2); len(l) != 2 || l[1].Addr != ip("10.0.0.28") {
		t.Errorf("holders are %v", l)
	}
	if l := d.Holders(p, 0); len(l) != 0 {
		t.Errorf("holders are %v, want none", l)
	}
}

func TestFreeAddrs(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	p := pool(20, 24)
	d.lease(1, "10.0.0.20")
	d.release(1, "10.0.0.20")
	d.lease(2, "10.0.0.21")
	d.wantOffer(3, p, "10.0.0.22", "10.0.0.22", true)
	for most, want := range [][]netip.Addr{nil, {ip("10.0.0.23")}, {ip("10.0.0.23"), ip("10.0.0.24")}, {ip("10.0.0.23"), ip("10.0.0.24"), ip("10.0.0.20")}} {
		if got := d.FreeAddrs(p, most); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d free addresses: %v, want %v", most, got, want)
		}
	}
}

// crowd is a pool with twice as many leases as one look goes through; all of them end in the same second.
func (d *testBook) manyLeases() *Pool {
	d.t.Helper()
	p := NewPool(ip("10.0.0.0"), ip("10.0.127.255"), nil)
	var changes []*Change
	for n := range 2 * sweepBudget {
		changes = append(changes, d.change(n, addrOf(p.first+uint32(n)).String()))
	}
	d.commit(changes...)
	return p
}

// A day's leases that end in one second are found a few at a time, and none is lost when the clock jumps over weeks.
func TestManyEndAtOnce(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	p := d.manyLeases()
	d.wantUsage(p, 2*sweepBudget, 0, p.Size()-2*sweepBudget)
	d.clock.Advance(3 * 7 * 24 * time.Hour)
	live, _, _ := d.Usage(p)
	if want := sweepBudget - tickBudget; live != want {
		t.Errorf("one look finds all but %d, want %d", live, want)
	}
	for range 3 {
		d.Usage(p)
	}
	d.wantUsage(p, 0, 0, p.Size())
	if err := d.check(); err != nil {
		t.Error(err)
	}
}

// A lease that is renewed while the leases of its second are looked at does not hide those behind it.
func TestRenewedAsItEnds(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	p := d.manyLeases()
	d.clock.Advance(2 * time.Hour)
	d.Usage(p)
	next := d.wheel.cursor
	if next == 0 {
		t.Fatal("the wheel is done; it should have more to do")
	}
	l := d.slots.at(next)
	c := &Change{Subnet: subnet, Lease: Lease{
		Addr: addrOf(l.addr), MAC: l.mac, State: Active, Start: d.clock.Now(), Expiry: d.clock.Now().Add(time.Hour),
	}}
	d.commit(c)
	d.Usage(p)
	d.wantUsage(p, 1, 0, p.Size()-1)
	if err := d.check(); err != nil {
		t.Error(err)
	}
}

// TestClockJump: a computer without a clock battery starts in 1970. The time to find the ended leases is BenchmarkClockJump's.
func TestClockJump(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	d.clock.Set(time.Unix(10, 0))
	d.reopen()
	p := pool(20, 29)
	d.lease(1, "10.0.0.20")
	d.clock.Advance(56 * 365 * 24 * time.Hour)
	d.wantUsage(p, 0, 0, 10)
	if err := d.check(); err != nil {
		t.Error(err)
	}
}

// TestFirstHasName: the first machine with a lease has a DNS name, whatever others send, and whoever comes with it in one batch. One that ends
// its lease leaves the name to the next that asks.
func TestFirstHasName(t *testing.T) {
	t.Parallel()
	d := newTestBook(t)
	named := func(n int, name string) *Change {
		c := d.change(n, fmt.Sprintf("10.0.0.%d", n))
		c.Hostname = name
		return c
	}
	want := func(when string, n int, taken ...*Change) {
		t.Helper()
		if l, ok := d.ByHostname("web"); ok != (n != 0) || ok && l.MAC != mac(n) {
			t.Errorf("%s web is %+v, want machine %d", when, l, n)
		}
		for _, c := range taken {
			if c.Err != nil || !c.Unnamed || c.NameConflict.MAC != mac(n) {
				t.Errorf("%s machine %s: %v, unnamed %t, the name is that of %s; want machine %d", when, c.MAC, c.Err, c.Unnamed, c.NameConflict.MAC, n)
			}
		}
	}
	ofLab := named(9, "web")
	ofLab.Unnamed = true
	d.commit(ofLab)
	want("of a host of the lab", 0)
	all := []*Change{named(1, "web"), named(2, "web"), named(3, "web")}
	d.commit(all...)
	want("in one batch", 1, all[1:]...)
	again := named(2, "web")
	d.commit(again)
	if want("again", 1); !again.Unnamed || again.NameConflict.Addr.IsValid() {
		t.Errorf("a machine that was told is told again: %+v", again)
	}
	d.clock.Advance(time.Minute)
	released := named(2, "web")
	released.State, released.Expiry = Released, released.Start
	d.commit(released)
	want("after the release of another", 1)
	d.release(1, "10.0.0.1")
	want("after the release", 0)
	if err := d.check(); err != nil {
		t.Error(err)
	}
	d.commit(named(3, "web"))
	want("for the next", 3)
	d.clock.Advance(2 * time.Hour)
	want("after its end", 0)
	d.commit(named(1, "web"))
	want("for the one that came first then", 1)
}
