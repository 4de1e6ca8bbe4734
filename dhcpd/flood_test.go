package dhcpd

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/clock"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
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
	b, table := smallPoolOn(t, seg, "10.77.0.250")
	s := newServer(t, table, b.store, b.events)
	serve(t, s)
	p := table().byIface[seg.Bridge][0].poolFor(&lab.Client{MAC: mac(t, other)})
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

// TestFloodBehindARelay: a pool behind a relay is full of leases of made-up machines. A new machine gets an address at which nobody answers a
// ping, and the machine that answers at the first two keeps them.
func TestFloodBehindARelay(t *testing.T) {
	s, host, recorded := behindRelay(t)
	for n := range 20 {
		s.fillLease(t, fmt.Sprint("10.78.1.", 1+n), n)
	}
	out := host.Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", script(t, bindOnly))
	if !strings.Contains(out, "ip=10.78.1.") || strings.Contains(out, "ip=10.78.1.1\n") || strings.Contains(out, "ip=10.78.1.2\n") {
		t.Errorf("a new machine gets no address, or one in use:\n%s", out)
	}
	floods := 0
	for _, e := range recorded.take() {
		if e.Kind == event.DHCPFlood {
			floods++
		}
	}
	if floods != 1 {
		t.Errorf("%d floods are reported, want 1", floods)
	}
	for n := range 2 {
		if !s.deps.Book.Has(madeUp(n), ip(fmt.Sprint("10.78.1.", 1+n))) {
			t.Errorf("machine %d, which answers pings, has lost its lease", n)
		}
	}
}

// TestFloodBeforeARestart: a pool is full of leases of made-up machines, all of which asked again, and of two that were seen, and the server
// starts again. A new machine gets an address, and not one of those two.
func TestFloodBeforeARestart(t *testing.T) {
	netns.Need(t, "root", "udhcpc")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	b, table := smallPoolOn(t, seg, "10.77.0.230")
	before := newServer(t, table, b.store, b.events)
	for n := range 30 {
		before.fillLease(t, fmt.Sprint("10.77.0.", 201+n), n)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- before.Serve(ctx) }()
	quiet := map[string]lab.MAC{"10.77.0.201": madeUp(0), "10.77.0.230": madeUp(29)}
	for n := range 30 {
		before.deps.Book.Decide(madeUp(n), nil, ip(fmt.Sprint("10.77.0.", 201+n)), leases.Selecting)
	}
	for addr, m := range quiet {
		before.arpReceived(ip(addr), m, true)
	}
	before.arpReceived(ip("10.77.0.202"), madeUp(1), false) // another machine says so
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	after := newServer(t, table, b.store, b.events)
	serve(t, after)
	out := seg.NewClient(t).Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", script(t, bindOnly))
	if !strings.Contains(out, "ip=10.77.0.2") {
		t.Errorf("a new machine gets no address:\n%s", out)
	}
	for addr, m := range quiet {
		if !after.deps.Book.Has(m, ip(addr)) {
			t.Errorf("%s, which was seen, has lost %s", m, addr)
		}
	}
}

// TestNotOffered: a new machine that requests an address which it was not offered gets a DHCPNAK, but for the time in which its offer may be one
// of before a restart.
func TestNotOffered(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.smallPool(t, "10.77.0.250")
	request := func(n int) dhcpv4.MessageType {
		t.Helper()
		out := b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeRequest, madeUp(n), udhcpc, withRequested("10.77.0.210"), withServer("10.77.0.1")))
		if len(out) != 1 {
			t.Fatalf("%d replies", len(out))
		}
		return decode(t, out[0].data).MessageType()
	}
	b.clock.Advance(leases.OfferHold)
	if got := request(1); got != dhcpv4.MessageTypeNak {
		t.Errorf("an address that was not offered: %s", got)
	}
	b.take(t, madeUp(2))
	b.reopen(t)
	if got := request(1); got != dhcpv4.MessageTypeAck {
		t.Errorf("after a restart: %s", got)
	}
}

// TestFloodWherePingsAreDropped: behind a relay past which no machine answers a ping, though some asked again, no lease is ended.
func TestFloodWherePingsAreDropped(t *testing.T) {
	s, _, _ := behindRelay(t)
	for n := 2; n < 20; n++ {
		s.fillLease(t, fmt.Sprint("10.78.1.", 1+n), n)
	}
	for n := 2; n < 2+minKnown; n++ {
		s.deps.Book.AskedAgain(madeUp(n), netip.MustParsePrefix("10.78.0.0/16"), seenAgain)
	}
	s.endSilent(t.Context(), fullPool{s.farPool(), segment.Path{Interface: s.deps.Table().Interfaces()[0], Relay: true}})
	if live := s.deps.Book.CountLive(netip.MustParsePrefix("10.78.0.0/16"))[0]; live != 18 {
		t.Errorf("%d of 18 leases are left", live)
	}
}

// farPool returns the pool of network far.
func (s *Server) farPool() *pool {
	for _, sc := range s.deps.Table().scopes {
		if sc.network.Name == "far" {
			return sc.pools[0]
		}
	}
	panic("testdata/lab.yaml has no network far")
}

// fillLease leases an address to a made-up machine, so long ago that its silence is evidence.
func (s *Server) fillLease(t *testing.T, addr string, n int) {
	t.Helper()
	start := s.deps.Now().Add(-2 * silentAge)
	c := &leases.Change{Subnet: netip.PrefixFrom(ip(addr), 16), Lease: leases.Lease{Addr: ip(addr), MAC: madeUp(n), State: leases.Active, Start: start, Expiry: start.Add(time.Hour)}}
	if s.deps.Book.Commit(t.Context(), []*leases.Change{c}); c.Err != nil {
		t.Fatal(c.Err)
	}
}

// TestRequestsOfUnknownMachines: a machine that names no server and of which the book knows nothing gets no reply and no lease, also where the
// address is free: on the segment and through a relay. One that had the address gets it.
func TestRequestsOfUnknownMachines(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, from, addr string
		more             []dhcpv4.Modifier
	}{
		{"INIT-REBOOT", client0, "10.77.0.201", []dhcpv4.Modifier{withRequested("10.77.0.201")}},
		{"INIT-REBOOT through a relay", "10.78.0.254:67", "10.78.1.9", []dhcpv4.Modifier{withRequested("10.78.1.9"), withGiaddr("10.78.0.254")}},
		{"REBINDING", "10.77.0.201:68", "10.77.0.201", []dhcpv4.Modifier{dhcpv4.WithClientIP(net.IPv4(10, 77, 0, 201))}},
		{"REBINDING through a relay", "10.78.0.254:67", "10.78.1.9", []dhcpv4.Modifier{dhcpv4.WithClientIP(net.IPv4(10, 78, 1, 9)), withGiaddr("10.78.0.254")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			for range 2 {
				if out := b.exchange("lab0", 67, tt.from, message(t, dhcpv4.MessageTypeRequest, madeUp(1), udhcpc, tt.more...)); len(out) != 0 {
					t.Fatalf("an unknown machine is answered: %s", decode(t, out[0].data).Summary())
				}
			}
			_, offered := b.deps.Book.OfferTo(madeUp(1))
			if all := b.deps.Book.All(); len(all) != 0 || offered {
				t.Errorf("it has %v", all)
			}
			b.fillLease(t, tt.addr, 2)
			b.clock.Advance(2 * time.Hour)
			out := b.exchange("lab0", 67, tt.from, message(t, dhcpv4.MessageTypeRequest, madeUp(2), udhcpc, tt.more...))
			if len(out) != 1 || decode(t, out[0].data).MessageType() != dhcpv4.MessageTypeAck {
				t.Error("a machine whose lease has ended does not get its address again")
			}
		})
	}
}

// TestRequestsInAFlood: while a pool is full of made-up machines, a machine that requests an address without having asked for one gets none.
func TestRequestsInAFlood(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pool := b.smallPool(t, "10.77.0.250")
	selecting := func(n int) []packetOut {
		return b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeRequest, madeUp(n), udhcpc, withRequested(fmt.Sprint("10.77.0.", 201+n)), withServer("10.77.0.1")))
	}
	b.ask(t, madeUp(1))
	b.deps.Book.Withdraw(madeUp(1)) // as for another one that asks
	b.floods.begin(pool.Pool)
	b.floods.askedBefore(madeUp(1))
	b.clock.Advance(askAgain)
	if len(selecting(1)) != 1 {
		t.Error("a machine that was offered an address does not get it")
	}
	if len(selecting(2)) != 0 {
		t.Error("a machine that never asked gets an address")
	}
}

// TestRenewalsAfterALoss: a book that was lost is made again by the machines that renew, if a probe finds them at their addresses.
func TestRenewalsAfterALoss(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	user := seg.NewClient(t, "02:00:00:00:00:99")
	user.Run(t, "ip", "addr", "add", "10.77.0.201/24", "dev", "eth0")
	l := startLive(t, seg)
	awaitInUse(t, l.Server, segment.Path{Interface: seg.Bridge}, "10.77.0.201")
	joinHere(t, seg)
	renew := func(m lab.MAC, addr string) {
		conn, err := nclient4.NewRawUDPConn("vcl", 68)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		p := message(t, dhcpv4.MessageTypeRequest, m, nil, dhcpv4.WithClientIP(net.ParseIP(addr).To4()))
		if _, err := conn.WriteTo(p, &net.UDPAddr{IP: net.IPv4bcast, Port: 67}); err != nil {
			t.Fatal(err)
		}
	}
	for n, addr := range []string{"10.77.0.202", "10.77.0.201"} { // the second is in use, by another machine
		netns.WaitFor(t, "an unknown machine to be dropped", func() bool { renew(madeUp(1+n), addr); return counted(l.m.dropped[dropNotOurs]) > n })
	}
	netns.WaitFor(t, "the machine that uses the address to be acknowledged", func() bool {
		renew(mac(t, "02:00:00:00:00:99"), "10.77.0.201")
		_, ok := l.deps.Book.ByAddr(ip("10.77.0.201"))
		return ok
	})
	if all := l.deps.Book.All(); len(all) != 1 {
		t.Errorf("leases %v, want one", all)
	}
}
