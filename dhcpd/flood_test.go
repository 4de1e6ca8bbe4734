package dhcpd

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/clock"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestAskTwiceInAFlood: while made-up machines fill a pool, a new client is answered at its second DISCOVER, and a machine
// that is known at its first.
func TestAskTwiceInAFlood(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pool := b.smallPool(t, "10.77.0.250")
	known, other := madeUp(1), madeUp(2)
	addr := b.take(t, known)
	if !b.floods.begin(pool.Pool) || b.floods.begin(pool.Pool) {
		t.Error("the flood is not new, or new twice")
	}
	if got := b.ask(t, known); got != addr {
		t.Errorf("a known machine is offered %q, want %s", got, addr)
	}
	for range 2 {
		if b.ask(t, other) != "" {
			t.Error("a new client is answered at its first DISCOVER, or at a copy of it")
		}
	}
	b.clock.Advance(askAgain)
	if b.take(t, other) == "" {
		t.Error("a new client gets no address at its second DISCOVER")
	}
	if b.ask(t, mac(t, master0)) != "10.77.0.21" {
		t.Error("a reservation is not served")
	}
	b.clock.Advance(floodLasts)
	if b.ask(t, madeUp(3)) == "" {
		t.Error("the flood is over, and a new client has to ask twice")
	}
}

// TestAskedBeforeIsBounded: a flood costs bounded memory, and a client is remembered long enough to ask again.
func TestAskedBeforeIsBounded(t *testing.T) {
	t.Parallel()
	c := clock.New(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC))
	f := newFloods(c.Now)
	client := func(n int) lab.MAC { return lab.MAC{2, 1, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)} }
	n := 0
	flood := func(times int) {
		for range times {
			n++
			f.askedBefore(client(n))
		}
	}
	flood(maxAsked / 2)
	if f.askedBefore(lab.MAC{2}) {
		t.Error("a client that never asked")
	}
	flood(maxAsked)
	c.Advance(time.Second)
	if !f.askedBefore(lab.MAC{2}) {
		t.Error("a client that asked before is forgotten")
	}
	flood(10 * maxAsked)
	if n := len(f.asked) + len(f.old); n > 2*maxAsked {
		t.Errorf("%d clients are remembered, want at most %d", n, 2*maxAsked)
	}
}

// TestSilentMachines: leases of a full pool are ended where so many of their machines do not answer ARP that they were made up, and not where
// a few are switched off.
func TestSilentMachines(t *testing.T) {
	netns.Need(t, "root", "ip")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	b := newBench(t)
	b.smallPool(t, "10.77.0.250")
	table := Compile(onBridge(b.lab, seg.Bridge))
	s := newServer(t, func() *Table { return table }, b.store, b.events)
	serve(t, s)
	p := table.byIface[seg.Bridge][0].poolFor(&lab.Client{MAC: mac(t, other)})
	lease := func(n int) netip.Addr {
		t.Helper()
		addr, start := ip(fmt.Sprint("10.77.0.", 201+n)), s.deps.Now().Add(-2*silentAge)
		c := &leases.Change{Subnet: netip.MustParsePrefix("10.77.0.0/24"), Lease: leases.Lease{
			Addr: addr, MAC: madeUp(n), State: leases.Active, Start: start, Expiry: start.Add(time.Hour),
		}}
		if s.deps.Book.Commit(t.Context(), []*leases.Change{c}); c.Err != nil {
			t.Fatal(c.Err)
		}
		return addr
	}
	held := func() (n int) {
		for _, l := range s.deps.Book.All() {
			if l.Live(s.deps.Now()) {
				n++
			}
		}
		return n
	}
	user := seg.NewClient(t)
	for n := range 10 { // these answer
		netns.Run(t, "ip", "-n", user.Name, "addr", "add", lease(n).String()+"/24", "dev", "eth0")
	}
	const evidence = 50 / silentShare
	for n := range evidence - 1 {
		lease(10 + n)
	}
	s.endSilent(t.Context(), fullPool{p, segment.Path{Interface: seg.Bridge}})
	if n := held(); n != 10+evidence-1 || len(b.kinds(event.DHCPFlood)) != 0 || s.floods.on(p.Pool) {
		t.Errorf("%d of %d leases are left, or it counts as a flood, although only %d machines are silent", n, 10+evidence-1, evidence-1)
	}
	lease(10 + evidence - 1)
	s.endSilent(t.Context(), fullPool{p, segment.Path{Interface: seg.Bridge}})
	if n := held(); n != 10 || len(b.kinds(event.DHCPFlood)) != 1 || !s.floods.on(p.Pool) {
		t.Errorf("%d leases are left, want the 10 of machines that answer, and one event", n)
	}
}
