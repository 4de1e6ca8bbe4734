package dhcpd

import (
	"net"
	"strings"
	"testing"
	"time"

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

// A machine that declines every address, leased or only offered, has a few of them set aside and then always gets the same
// one. Everybody else gets addresses, and people are told.
func TestDecliningEverythingEmptiesNoPool(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, last string // of the pool
		aside      int
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
				if addr == "" || i > tt.aside && addr != last {
					t.Fatalf("question %d: got %q after %q, want the same address from number %d on", i, addr, last, tt.aside)
				}
				last = addr
				b.decline(t, bad, addr)
				b.clock.advance(10 * time.Millisecond)
			}
			if _, _, free := b.deps.Book.Usage(pool.addrs); free != pool.addrs.Usable()-tt.aside-1 {
				t.Errorf("%d of %d addresses are left, want all but %d", free, pool.addrs.Usable(), tt.aside+1)
			}
			told := b.kinds(event.DHCPDecline)
			if len(told) != tt.aside+1 || !strings.Contains(told[tt.aside].Err, "no more") {
				t.Errorf("told %d times, want %d and once that it is enough: %+v", len(told), tt.aside, told)
			}
			if b.take(t, madeUp(1)) == "" {
				t.Error("another machine gets no address")
			}
			b.clock.advance(quarantineTime)
			last = tt.get(b, t, bad)
			b.decline(t, bad, last)
			if again := tt.get(b, t, bad); again == last || again == "" {
				t.Errorf("later it declines %s and gets %q, want another address", last, again)
			}
		})
	}
}

// Hardware addresses are easily made up: the machines behind one port of a relay count as one, their neighbours do not pay.
func TestDeclinesBehindOnePortCountTogether(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	aside := func(m lab.MAC, port string) bool {
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
		l, ok := b.deps.Book.Known(ip(addr.String()))
		return ok && l.MAC == m
	}
	for i := range 2 * maxQuarantined {
		if got, want := aside(madeUp(i), "p7"), i < maxQuarantined; got != want {
			t.Errorf("what machine %d behind the port declines is set aside: %v, want %v", i, got, want)
		}
	}
	if !aside(madeUp(100), "p8") {
		t.Error("a machine behind another port is not believed")
	}
}

// Machines without number cost no memory: those beyond the bound are not believed until there is room.
func TestDeclinersAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	a := newDeclineQuarantine(func() time.Time { return now })
	allow := func(n int) bool {
		return a.add([]decliningClient{{network: "lab", mac: madeUp(n)}}, ip("10.77.0.201"), 1)
	}
	for i := range maxDecliningClients + 10 {
		if got, want := allow(i), i < maxDecliningClients; got != want {
			t.Fatalf("decliner %d is believed: %v, want %v", i, got, want)
		}
	}
	if !allow(0) {
		t.Error("a message that comes twice counts twice")
	}
	now = now.Add(quarantineTime)
	if !allow(maxDecliningClients+1) || len(a.byClient) != 1 {
		t.Errorf("later there is no room, or %d are remembered that are over", len(a.byClient))
	}
}

// TestDeclinedInVain: what a machine declines beyond what it is believed is looked at on the wire. If somebody is there,
// nobody gets that address.
func TestDeclinedInVain(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	squatter := seg.NewClient(t, "02:00:00:00:00:99")
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
	netns.WaitFor(t, "the address to be set aside", func() bool { _, live := l.deps.Book.ByAddr(ip(first)); return !live })
	second := get()
	squatter.Run(t, "ip", "addr", "add", second+"/24", "dev", "eth0")
	decline(second)
	if e := l.seen(t, event.DHCPConflict); e.MAC != mac(t, "02:00:00:00:00:99") || e.Addr != ip(second) {
		t.Errorf("conflict %+v, want the squatter on %s", e, second)
	}
	if third := get(); third == first || third == second {
		t.Errorf("after %s and %s it got %s again", first, second, third)
	}
}
