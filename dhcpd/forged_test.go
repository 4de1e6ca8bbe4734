package dhcpd

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestReleaseComesFromItsAddress: a DHCPRELEASE counts only from the address that it releases, unless it is relayed to the machine's network,
// which then is behind a relay.
func TestReleaseComesFromItsAddress(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, iface, from, giaddr string
		far, ends                 bool
	}{
		{name: "its own", iface: "lab0", from: "ADDR:68", ends: true},
		{name: "a neighbour's", iface: "lab0", from: "10.77.0.66:68"},
		{name: "without an address", iface: "lab0", from: client0},
		{name: "a neighbour's that looks relayed", iface: "lab0", from: "10.77.0.66:67", giaddr: "10.77.0.66"},
		{name: "behind a relay, its own", iface: "lab0", from: "ADDR:68", far: true, ends: true},
		{name: "behind a relay, another machine's", iface: "lab0", from: "10.77.0.66:68", far: true},
		{name: "relayed", iface: "lab0", from: "10.78.0.254:67", giaddr: "10.78.0.254", far: true, ends: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			m := madeUp(1)
			take := func(kind dhcpv4.MessageType, more ...dhcpv4.Modifier) []packetOut {
				if !tt.far {
					return b.exchange("lab0", 67, client0, message(t, kind, m, udhcpc, more...))
				}
				return b.exchange("lab0", 67, "10.78.0.254:67", message(t, kind, m, udhcpc, append(more, withGiaddr("10.78.0.254"))...))
			}
			addr := decode(t, take(dhcpv4.MessageTypeDiscover)[0].data).YourIPAddr.String()
			take(dhcpv4.MessageTypeRequest, withRequested(addr), withServer("10.77.0.1"))
			if _, live := b.deps.Book.ByAddr(ip(addr)); !live {
				t.Fatal("no lease")
			}
			b.events.take()
			release := []dhcpv4.Modifier{withCiaddr(addr)}
			if tt.giaddr != "" {
				release = append(release, withGiaddr(tt.giaddr))
			}
			b.exchange(tt.iface, 67, strings.Replace(tt.from, "ADDR", addr, 1), message(t, dhcpv4.MessageTypeRelease, m, nil, release...))
			if _, live := b.deps.Book.ByAddr(ip(addr)); live == tt.ends {
				t.Errorf("the lease is live: %v, want %v", live, !tt.ends)
			}
			if dropped := testutil.ToFloat64(b.m.dropped[dropForged]) == 1; dropped == tt.ends {
				t.Errorf("counted as forged: %v, want %v", dropped, !tt.ends)
			}
			all := b.events.take()
			if claimed := len(all) == 1 && all[0].Kind == event.AddressConflict && all[0].Claimed && all[0].Forgeable() && all[0].MAC == m; claimed == tt.ends {
				t.Errorf("events %+v", all)
			}
		})
	}
}

const hostPooled = "02:00:00:00:77:01" // pooled of lab.yaml: a host without ip

// A liar sends frames from vcl with any addresses.
type liar struct {
	t    *testing.T
	conn *packet.Socket
	link int
}

func newLiar(t *testing.T, seg *netns.Segment) liar {
	t.Helper()
	joinHere(t, seg)
	ifi, err := net.InterfaceByName("vcl")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := packet.OpenOn(ifi.Index, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	netns.AwaitUp(t, "vcl", "vbr")
	return liar{t, conn, ifi.Index}
}

// send sends a DHCP message to all.
func (l liar) send(sender lab.MAC, from netip.Addr, payload []byte) {
	l.t.Helper()
	src := from.As4()
	ip := append([]byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}, src[:]...)
	ip = append(ip, 255, 255, 255, 255, 0, 68, 0, 67, 0, 0, 0, 0)
	size := len(ip) + len(payload)
	ip[2], ip[3] = byte(size>>8), byte(size)
	ip[24], ip[25] = byte((size-20)>>8), byte(size-20)
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(ip[i])<<8 | uint32(ip[i+1])
	}
	sum = sum&0xffff + sum>>16
	sum = ^(sum&0xffff + sum>>16)
	ip[10], ip[11] = byte(sum>>8), byte(sum)
	frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, sender[:]...)
	frame = append(append(append(frame, 8, 0), ip...), payload...)
	if err := l.conn.Send(l.link, frame); err != nil {
		l.t.Fatal(err)
	}
}

// TestNeighbourCannotEndLease: no DHCPRELEASE or DHCPDECLINE of a neighbour in the name of a machine that runs ends the machine's lease: not
// from the machine's IP address either, nor, for a DHCPDECLINE, from its MAC. Each is counted and recorded as claimed.
func TestNeighbourCannotEndLease(t *testing.T) {
	netns.Need(t, "root", "udhcpc")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	l := startLive(t, seg)
	victim := seg.NewClient(t, hostPooled)
	victim.Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s",
		script(t, `[ "$1" = bound ] && ip addr replace $ip/24 dev eth0; exit 0`))
	lease, ok := l.deps.Book.ByMAC(mac(t, hostPooled))
	if !ok {
		t.Fatal("no lease")
	}
	spy, me, addr := newLiar(t, seg), mac(t, hostPooled), lease.Addr.String()
	release := func(more ...dhcpv4.Modifier) []byte {
		return message(t, dhcpv4.MessageTypeRelease, me, nil, append(more, withCiaddr(addr), withServer("10.77.0.1"))...)
	}
	decline := message(t, dhcpv4.MessageTypeDecline, me, nil, withRequested(addr), withServer("10.77.0.1"))
	for _, tt := range []struct {
		name string
		mac  string
		from string
		data []byte
		why  string
	}{
		{"release", other, "10.77.0.66", release(), "10.77.0.66"},
		{"release from its address", other, addr, release(), other + " sent it"},
		{"release that looks relayed", other, addr, release(withGiaddr("10.77.0.66")), "relay"},
		{"decline", other, "0.0.0.0", decline, other + " sent it"},
		{"decline that looks relayed", other, "10.77.0.66", message(t, dhcpv4.MessageTypeDecline, me, nil, withRequested(addr), withGiaddr("10.77.0.66")), "relay"},
		{"decline from its MAC", hostPooled, "0.0.0.0", decline, "answers ARP"},
	} {
		l.events.take()
		before := testutil.ToFloat64(l.m.dropped[dropForged])
		spy.send(mac(t, tt.mac), ip(tt.from), tt.data)
		ended := func() bool {
			b, ok := l.deps.Book.ByAddr(lease.Addr)
			return !ok || b.State != leases.Active
		}
		netns.WaitFor(t, tt.name+": an answer", func() bool { return ended() || testutil.ToFloat64(l.m.dropped[dropForged]) > before })
		if ended() {
			t.Fatalf("%s: the lease has ended", tt.name)
		}
		if e := l.seen(t, event.AddressConflict); !e.Claimed || e.Host != "pooled" || e.MAC != me || !strings.Contains(e.Err, tt.why) {
			t.Errorf("%s: event %+v, want %q", tt.name, e, tt.why)
		}
	}
}
