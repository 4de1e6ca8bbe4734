package dhcpd

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
)

func (b *bench) decline(t *testing.T, m lab.MAC, addr string, more ...dhcpv4.Modifier) {
	t.Helper()
	more = append(more, withRequested(addr), withServer("10.77.0.1"))
	b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeDecline, m, nil, more...))
}

// A machine that declines every address, leased or only offered, has a few of them quarantined and then always gets the same
// one. Other machines get addresses, and an event is recorded.
func TestDeclineCannotExhaustPool(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, last string // of the pool
		most       int    // addresses in quarantine
		get        func(*bench, *testing.T, lab.MAC) string
	}{
		{"leases of a small pool", "10.77.0.203", 1, (*bench).take},
		{"leases", "10.77.0.250", maxQuarantined, (*bench).take},
		{"offers", "10.77.0.250", maxQuarantined, (*bench).ask},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			pool := b.smallPool(t, tt.last)
			bad, last := mac(t, other), ""
			for i := range 60 {
				addr := tt.get(b, t, bad)
				if addr == "" || i > tt.most && addr != last {
					t.Fatalf("question %d: got %q after %q, want the same address from number %d on", i, addr, last, tt.most)
				}
				last = addr
				b.decline(t, bad, addr)
				b.clock.Advance(10 * time.Millisecond)
			}
			if _, _, free := b.deps.Book.Usage(pool.addrs); free != pool.addrs.Usable()-tt.most-1 {
				t.Errorf("%d of %d addresses are left, want all but %d", free, pool.addrs.Usable(), tt.most+1)
			}
			recorded := b.kinds(event.DHCPDecline)
			for i, e := range recorded {
				if strings.Contains(e.Err, "no more") != (i >= tt.most) {
					t.Errorf("event %d of %d: %s; want %d quarantined addresses, and then no more", i, len(recorded), e.Err, tt.most)
				}
			}
			if b.take(t, madeUp(1)) == "" {
				t.Error("another machine gets no address")
			}
			b.clock.Advance(quarantineTime)
			last = tt.get(b, t, bad)
			b.decline(t, bad, last)
			if again := tt.get(b, t, bad); again == last || again == "" {
				t.Errorf("later it declines %s and gets %q, want another address", last, again)
			}
		})
	}
}

// A DHCPDECLINE without a requested address (option 50) changes nothing: made-up ones do not fill the table of declining
// clients, and a real one is honoured afterwards.
func TestDeclineWithoutAddress(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 50 {
		b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeDecline, madeUp(i), nil))
		b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeDecline, madeUp(i), nil, dhcpv4.WithClientIP(net.IPv4(10, 77, 0, 201))))
	}
	if recorded := b.kinds(event.DHCPDecline); len(recorded) != 0 {
		t.Errorf("events of declines without an address: %+v", recorded)
	}
	if n := len(b.quarantine.byClient); n != 0 {
		t.Errorf("%d clients in the quarantine's table, want none", n)
	}
}

// MACs are easily made up: the machines behind one port of a relay count as one; those behind other ports are not affected.
func TestDeclinesOfOneRelayPortCountTogether(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	quarantined := func(m lab.MAC, port string) bool {
		behind := []dhcpv4.Modifier{withGiaddr("10.78.0.254"), raw(82, "\x01\x02"+port)}
		send := func(kind dhcpv4.MessageType, more ...dhcpv4.Modifier) []packetOut {
			return b.exchange("lab0", 67, "10.78.0.254:67", message(t, kind, m, udhcpc, append(more, behind...)...))
		}
		out := send(dhcpv4.MessageTypeDiscover)
		if len(out) != 1 {
			t.Fatalf("%s is offered nothing", m)
		}
		addr := decode(t, out[0].data).YourIPAddr
		send(dhcpv4.MessageTypeDecline, withRequested(addr.String()), withServer("10.77.0.1"))
		return slices.ContainsFunc(b.deps.Book.All(), func(l leases.Lease) bool {
			return l.Addr == ip(addr.String()) && l.MAC == m && l.State == leases.Declined
		})
	}
	for i := range 2 * maxQuarantined {
		if got, want := quarantined(madeUp(i), "p7"), i < maxQuarantined; got != want {
			t.Errorf("the address that machine %d behind the port declines is quarantined: %v, want %v", i, got, want)
		}
	}
	if !quarantined(madeUp(100), "p8") {
		t.Error("the address of a machine behind another port is not quarantined")
	}
}

// The memory is bounded: addresses that further machines decline are not quarantined until there is room.
func TestDecliningClientsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	q := newDeclineQuarantine(func() time.Time { return now })
	allow := func(n int) bool {
		return q.add([]decliningClient{{network: "lab", mac: madeUp(n)}}, ip("10.77.0.201"), 1) == inQuarantine
	}
	for i := range maxDecliningClients + 10 {
		if got, want := allow(i), i < maxDecliningClients; got != want {
			t.Fatalf("address of client %d is quarantined: %v, want %v", i, got, want)
		}
	}
	if !allow(0) {
		t.Error("a retransmission counts twice")
	}
	now = now.Add(quarantineTime)
	if !allow(maxDecliningClients+1) || len(q.byClient) != 1 {
		t.Errorf("later there is no room, or %d expired clients are kept", len(q.byClient))
	}
}

// TestDeclinedAddressIsProbed: an address that is declined beyond the limit is probed. If a machine uses it, no client gets
// it.
func TestDeclinedAddressIsProbed(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	user := seg.NewClient(t, "02:00:00:00:00:99")
	l := startLive(t, seg)
	joinHere(t, seg)
	get := func() string {
		c, err := nclient4.New("vcl", nclient4.WithTimeout(2*time.Second), nclient4.WithRetry(10))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		lease, err := c.Request(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return lease.ACK.YourIPAddr.String()
	}
	decline := func(addr string) {
		conn, err := nclient4.NewRawUDPConn("vcl", 68)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		p := message(t, dhcpv4.MessageTypeDecline, mac(t, other), nil, withRequested(addr), withServer("10.77.0.1"))
		if _, err := conn.WriteTo(p, &net.UDPAddr{IP: net.IPv4bcast, Port: 67}); err != nil {
			t.Fatal(err)
		}
	}
	first := get()
	decline(first)
	l.seen(t, event.DHCPDecline)
	netns.WaitFor(t, "the address to be quarantined", func() bool { _, live := l.deps.Book.ByAddr(ip(first)); return !live })
	second := get()
	user.Run(t, "ip", "addr", "add", second+"/24", "dev", "eth0")
	decline(second)
	if e := l.seen(t, event.DHCPPoolConflict); e.MAC != mac(t, "02:00:00:00:00:99") || e.Addr != ip(second) {
		t.Errorf("conflict %+v, want the machine that uses %s", e, second)
	}
	if third := get(); third == first || third == second {
		t.Errorf("after %s and %s it got %s again", first, second, third)
	}
}

// fullOfDeclined serves a pool of 50 addresses, all of which made-up machines have declined. Another machine uses the first two.
func fullOfDeclined(t *testing.T) (*Server, *netns.Segment, *events) {
	t.Helper()
	seg := netns.NewSegment(t, "10.77.0.1/24")
	user := seg.NewClient(t, "02:00:00:00:00:99")
	b := newBench(t)
	b.smallPool(t, "10.77.0.250")
	table := Compile(onBridge(b.lab, seg.Bridge))
	s := newServer(t, func() *Table { return table }, b.store, b.events)
	serve(t, s)
	user.Run(t, "ip", "addr", "add", "10.77.0.201/24", "dev", "eth0")
	user.Run(t, "ip", "addr", "add", "10.77.0.202/24", "dev", "eth0")
	awaitInUse(t, s, segment.Path{Interface: seg.Bridge}, "10.77.0.201")
	for n := range 50 {
		addr, start := fmt.Sprint("10.77.0.", 201+n), s.deps.Now().Add(-time.Minute)
		if n < 2 {
			start = start.Add(-time.Minute) // these are probed first
		}
		c := &leases.Change{Lease: leases.Lease{Addr: ip(addr), MAC: madeUp(n), State: leases.Declined, Start: start, Expiry: start.Add(quarantineTime)}}
		if s.deps.Book.Commit(t.Context(), []*leases.Change{c}); c.Err != nil {
			t.Fatal(c.Err)
		}
	}
	return s, seg, b.events
}

// awaitInUse waits until a probe finds the machine at an address. From then on every address can be probed: a pool of which only some can be
// is not full any more once they are given back, and nothing says that it was flooded.
func awaitInUse(t *testing.T, s *Server, path segment.Path, addr string) {
	t.Helper()
	netns.WaitFor(t, "a probe to be answered", func() bool {
		result := make(chan segment.Result, 1)
		s.prober.Forget(ip(addr))
		s.prober.Probe(path, ip(addr), lab.MAC{}, func(r segment.Result) { result <- r })
		return (<-result).Use == segment.InUse
	})
}

// TestDeclinersThatDoNotExist: a new machine of a pool that made-up machines declined gets an address at which nobody answers ARP.
func TestDeclinersThatDoNotExist(t *testing.T) {
	netns.Need(t, "root", "udhcpc")
	_, seg, recorded := fullOfDeclined(t)
	out := seg.NewClient(t, other).Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", script(t, bindOnly))
	if !strings.Contains(out, "ip=10.77.0.2") || strings.Contains(out, "ip=10.77.0.201") || strings.Contains(out, "ip=10.77.0.202") {
		t.Errorf("a new machine gets no address, or one in use:\n%s", out)
	}
	for _, e := range recorded.take() {
		if e.Kind == event.DHCPRefused {
			t.Errorf("a new machine is refused: %s", e.Err)
		}
	}
}

// TestFloodOfDeclines: a pool that made-up machines declined does not stay full, also while no new machine asks, and the flood is
// reported once.
func TestFloodOfDeclines(t *testing.T) {
	netns.Need(t, "root")
	s, seg, recorded := fullOfDeclined(t)
	floods := 0
	netns.WaitFor(t, "the flood to be reported", func() bool {
		for _, e := range recorded.take() {
			if e.Kind == event.DHCPFlood {
				floods++
			}
		}
		return floods > 0
	})
	p := s.deps.Table().byIface[seg.Bridge][0].poolFor(&lab.Client{MAC: mac(t, other)})
	if use := s.Pools(s.deps.Table()); floods > 1 || !s.floods.on(p.Pool) || !slices.ContainsFunc(use, func(u PoolUse) bool { return u.Name == p.Name && u.Free > 0 }) {
		t.Errorf("%d floods reported, and pools %+v; want one, free addresses, and that new machines ask twice", floods, use)
	}
	for _, a := range []string{"10.77.0.201", "10.77.0.202"} {
		if s.deps.Book.EndDeclined(ip(a)) {
			t.Errorf("%s is not in conflict, which a machine uses", a)
		}
	}
}

// behindRelay serves a pool of 20 addresses behind dhcrelay. A machine there, whose namespace it returns, uses the first two. The network has an
// address, and no interface: ARP would find nobody.
func behindRelay(t *testing.T) (*Server, *netns.Client, *events) {
	t.Helper()
	netns.Need(t, "root", "udhcpc", "dhcrelay")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	router, host := seg.NewClient(t), seg.NewClient(t)
	netns.Run(t, "ip", "-n", host.Name, "link", "del", "eth0")
	netns.Run(t, "ip", "-n", router.Name, "link", "add", "far0", "type", "veth", "peer", "name", "eth0", "netns", host.Name)
	netns.Run(t, "ip", "-n", host.Name, "link", "set", "eth0", "address", other, "up")
	for _, args := range []string{"addr add 10.77.0.254/24 dev eth0", "addr add 10.78.0.254/16 dev far0", "link set far0 up"} {
		router.Run(t, "ip", strings.Fields(args)...)
	}
	router.Run(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	router.AwaitUp(t, "far0")
	host.AwaitUp(t, "eth0")
	for _, args := range []string{"addr add 10.78.1.1/16 dev eth0", "addr add 10.78.1.2/16 dev eth0", "route add default via 10.78.0.254"} {
		host.Run(t, "ip", strings.Fields(args)...)
	}
	netns.Run(t, "ip", "route", "add", "10.78.0.0/16", "via", "10.77.0.254")
	relay := router.Command(t.Context(), "dhcrelay", "-4", "-d", "-pf", t.TempDir()+"/pid", "-id", "far0", "-iu", "eth0", "10.77.0.1")
	if err := relay.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = relay.Process.Kill(); _ = relay.Wait() })

	b := newBench(t)
	far := b.lab.Networks[1]
	far.Address, far.Pools[0].Range.Last = ip("10.78.0.1"), ip("10.78.1.20")
	table := Compile(onBridge(b.lab, seg.Bridge))
	s := newServer(t, func() *Table { return table }, b.store, b.events)
	serve(t, s)
	awaitInUse(t, s, segment.Path{Interface: seg.Bridge, Relay: true}, "10.78.1.1")
	return s, host, b.events
}

// TestDeclinersBehindARelay: as on the segment, a new machine behind a relay gets a declined address at which nobody answers a ping.
func TestDeclinersBehindARelay(t *testing.T) {
	s, host, recorded := behindRelay(t)
	for n := range 20 {
		start := s.deps.Now().Add(time.Duration(n-60) * time.Second) // the first two, which a machine uses, are probed first
		c := &leases.Change{Lease: leases.Lease{Addr: ip(fmt.Sprint("10.78.1.", 1+n)), MAC: madeUp(n), State: leases.Declined, Start: start, Expiry: start.Add(quarantineTime)}}
		if s.deps.Book.Commit(t.Context(), []*leases.Change{c}); c.Err != nil {
			t.Fatal(c.Err)
		}
	}
	netns.WaitFor(t, "the flood to be reported", func() bool {
		return slices.ContainsFunc(recorded.take(), func(e event.Event) bool { return e.Kind == event.DHCPFlood })
	})
	for _, a := range []string{"10.78.1.1", "10.78.1.2"} {
		if s.deps.Book.EndDeclined(ip(a)) {
			t.Errorf("%s is not in conflict, which a machine uses", a)
		}
	}
	out := host.Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", script(t, bindOnly))
	if !strings.Contains(out, "ip=10.78.1.") || strings.Contains(out, "ip=10.78.1.1\n") || strings.Contains(out, "ip=10.78.1.2\n") {
		t.Errorf("a new machine gets no address, or one in use:\n%s", out)
	}
}
