package neighbour_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/link/neighbour"
	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

var (
	host, second = lab.MAC{2, 0, 0, 0, 0, 0x10}, lab.MAC{2, 0, 0, 0, 0, 0x11}
	spy          = lab.MAC{2, 0, 0, 0, 0, 0x66}
)

// A rig is a segment with the host, a neighbour and this machine.
type rig struct {
	t         *testing.T
	seg       *netns.Segment
	host, spy *netns.Client
	addr      netip.Addr
	*neighbour.Resolver
}

func newRig(t *testing.T, n int) *rig {
	t.Helper()
	subnet := fmt.Sprintf("10.78.%d", n)
	r := &rig{t: t, seg: netns.NewSegment(t, subnet+".1/24"), addr: netip.MustParseAddr(subnet + ".10")}
	r.host, r.spy = r.seg.NewClient(t, host.String()), r.seg.NewClient(t, spy.String())
	r.ip(r.host, "addr", "add", r.addr.String()+"/24", "dev", "eth0")
	r.ip(r.spy, "addr", "add", subnet+".66/24", "dev", "eth0")
	var err error
	if r.Resolver, err = neighbour.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func (r *rig) ip(c *netns.Client, args ...string) {
	r.t.Helper()
	netns.Run(r.t, "ip", append([]string{"-n", c.Name}, args...)...)
}

// entry sets the kernel's entry for the host.
func (r *rig) entry(mac lab.MAC) {
	r.t.Helper()
	netns.Run(r.t, "ip", "neigh", "replace", r.addr.String(), "lladdr", mac.String(), "dev", r.seg.Bridge, "nud", "reachable")
}

func (r *rig) want(v neighbour.User, mac lab.MAC, both ...bool) (silent bool) {
	r.t.Helper()
	found, err := r.Find(r.addr, []lab.MAC{host, second})
	silent = found.Silent
	found.Silent = false
	if want := (neighbour.Found{User: v, MAC: mac, Both: len(both) > 0}); err != nil || found != want {
		r.t.Errorf("found %v, %v; want %v\n%s", found, err, want, netns.Run(r.t, "ip", "neigh"))
	}
	return silent
}

func TestFind(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "ip")
	take := func(r *rig) { r.ip(r.spy, "addr", "add", r.addr.String()+"/24", "dev", "eth0") }
	off := func(r *rig) { r.ip(r.host, "link", "set", "eth0", "down") }
	for i, tt := range []struct {
		name  string
		setUp func(r *rig)
		want  neighbour.User
		mac   lab.MAC
		both  []bool
	}{
		{"the host, for the first time", func(*rig) {}, neighbour.Own, host, nil},
		{"the host, known", func(r *rig) { r.entry(host) }, neighbour.Own, host, nil},
		{"another NIC of it", func(r *rig) { r.ip(r.host, "link", "set", "eth0", "address", second.String()) }, neighbour.Own, second, nil},
		{"the host answers no ARP", func(r *rig) { r.ip(r.host, "link", "set", "eth0", "arp", "off"); r.entry(host) }, neighbour.Own, host, nil},
		{"none", off, neighbour.None, lab.MAC{}, nil},
		{"a neighbour, while the host is off", func(r *rig) { off(r); take(r) }, neighbour.Foreign, spy, nil},
		{"a neighbour, while the host is off and its entry is old", func(r *rig) { r.entry(host); off(r); take(r) }, neighbour.Foreign, spy, nil},
		{"a neighbour that has sent gratuitous ARP", func(r *rig) { r.entry(spy) }, neighbour.Foreign, spy, []bool{true}},
		{"a neighbour that has sent gratuitous ARP, while the host is off", func(r *rig) { r.entry(spy); off(r) }, neighbour.Foreign, spy, nil},
		{"the host, while a neighbour has its address too", func(r *rig) { r.entry(host); take(r) }, neighbour.Own, host, nil},
		{"behind a router", func(r *rig) {
			netns.Run(t, "ip", "route", "add", r.addr.String()+"/32", "via", strings.Replace(r.addr.String(), ".10", ".66", 1))
			take(r)
		}, neighbour.Elsewhere, lab.MAC{}, nil},
		{"this machine", func(r *rig) { netns.Run(t, "ip", "addr", "add", r.addr.String()+"/32", "dev", r.seg.Bridge) }, neighbour.Elsewhere, lab.MAC{}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, 100+i)
			tt.setUp(r)
			if silent := r.want(tt.want, tt.mac, tt.both...); silent != (tt.name == "the host answers no ARP") {
				t.Errorf("silent: %t", silent)
			}
		})
	}
}

// TestFindIPv6: who uses an IPv6 address is asked by neighbour solicitation, and what the kernel knows is no more than that.
func TestFindIPv6(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "ip", "ipv6")
	off := func(r *rig) { r.ip(r.host, "link", "set", "eth0", "down") }
	take := func(r *rig) { r.ip(r.spy, "addr", "add", r.addr.String()+"/64", "dev", "eth0", "nodad") }
	for i, tt := range []struct {
		name  string
		setUp func(r *rig)
		want  neighbour.User
		mac   lab.MAC
		both  []bool
	}{
		{"the host, for the first time", func(*rig) {}, neighbour.Own, host, nil},
		{"the host, known", func(r *rig) { r.entry(host) }, neighbour.Own, host, nil},
		{"none", off, neighbour.None, lab.MAC{}, nil},
		{"a neighbour, while the host is off", func(r *rig) { off(r); take(r) }, neighbour.Foreign, spy, nil},
		{"a neighbour, while the host is off and its entry is old", func(r *rig) { r.entry(host); off(r); take(r) }, neighbour.Foreign, spy, nil},
		{"a neighbour that has sent an advertisement", func(r *rig) { r.entry(spy) }, neighbour.Foreign, spy, []bool{true}},
		{"a neighbour that has sent an advertisement, while the host is off", func(r *rig) { r.entry(spy); off(r) }, neighbour.Foreign, spy, nil},
		{"the host, while a neighbour has its address too", func(r *rig) { r.entry(host); take(r) }, neighbour.Own, host, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, 200+i)
			r.addr = netip.MustParseAddr(fmt.Sprintf("fd00:78:%d::10", i))
			netns.Run(t, "ip", "addr", "add", r.addr.Prev().String()+"/64", "dev", r.seg.Bridge, "nodad")
			r.ip(r.host, "addr", "add", r.addr.String()+"/64", "dev", "eth0", "nodad")
			tt.setUp(r)
			if silent := r.want(tt.want, tt.mac, tt.both...); silent {
				t.Error("it did not answer")
			}
		})
	}
}

// TestForgedAnswer: an answer that names another MAC than its frame was sent from says nothing, of the host's as of another one.
func TestForgedAnswer(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "ip")
	for i, tt := range []struct {
		name        string
		named, from lab.MAC
		want        neighbour.User
	}{
		{"a neighbour names the host", host, spy, neighbour.None},
		{"the host names a neighbour", spy, host, neighbour.None},
		{"the host names itself", host, host, neighbour.Own},
	} {
		for version, addrs := range [][2]string{{"10.78.%d.1", "10.78.%d.99"}, {"fd00:79:%d::1", "fd00:79:%d::99"}} {
			n := 70 + 2*i + version
			t.Run(fmt.Sprintf("%s, %s", tt.name, []string{"ARP", "ND"}[version]), func(t *testing.T) {
				r := newRig(t, n)
				ours := netip.MustParseAddr(fmt.Sprintf(addrs[0], n))
				r.addr = netip.MustParseAddr(fmt.Sprintf(addrs[1], n))
				if version == 1 {
					netns.Need(t, "ipv6")
					netns.Run(t, "ip", "addr", "add", ours.String()+"/64", "dev", r.seg.Bridge, "nodad")
				}
				stop := r.forge(n, ours, tt.named, tt.from)
				defer stop()
				found, err := r.Find(r.addr, []lab.MAC{host})
				if found.User != tt.want || err != nil {
					t.Errorf("found %+v, %v; want %s", found, err, tt.want)
				}
			})
		}
	}
}

// forge sends answers of one MAC that name another one to this machine, by a port of the bridge, until stop is called.
func (r *rig) forge(n int, ours netip.Addr, named, from lab.MAC) (stop func()) {
	r.t.Helper()
	near, far := fmt.Sprintf("forge%d", n), fmt.Sprintf("forged%d", n)
	netns.Run(r.t, "ip", "link", "add", near, "type", "veth", "peer", "name", far)
	netns.Run(r.t, "ip", "link", "set", far, "master", r.seg.Bridge, "up")
	netns.Run(r.t, "ip", "link", "set", near, "arp", "off", "up")
	netns.AwaitUp(r.t, near, far)
	bridge, err := net.InterfaceByName(r.seg.Bridge)
	if err != nil {
		r.t.Fatal(err)
	}
	port, err := net.InterfaceByName(near)
	if err != nil {
		r.t.Fatal(err)
	}
	protocol, frame := uint16(unix.ETH_P_ARP), []byte(nil)
	if to := lab.MAC(bridge.HardwareAddr); ours.Is4() {
		f := arp.Request(named, r.addr, to, ours)
		f[21] = byte(arp.OpReply)
		frame = f[:]
	} else {
		protocol, frame = unix.ETH_P_IPV6, advertise(named, r.addr, to, ours)
	}
	copy(frame[6:12], from[:])
	socket, err := packet.Open(protocol, arp.Filter())
	if err != nil {
		r.t.Fatal(err)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer socket.Close()
		for pause.For(r.t.Context(), time.Millisecond) == nil {
			select {
			case <-done:
				return
			default:
				_ = socket.Send(port.Index, frame)
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// advertise returns a solicited neighbour advertisement.
func advertise(mac lab.MAC, addr netip.Addr, to lab.MAC, ours netip.Addr) []byte {
	message, err := (&icmp.Message{Type: ipv6.ICMPTypeNeighborAdvertisement, Body: &icmp.RawBody{
		Data: slices.Concat([]byte{0x60, 0, 0, 0}, addr.AsSlice(), []byte{2, 1}, mac[:]),
	}}).Marshal(icmp.IPv6PseudoHeader(addr.AsSlice(), ours.AsSlice()))
	if err != nil {
		panic(err)
	}
	head := []byte{0x60, 0, 0, 0, 0, byte(len(message)), unix.IPPROTO_ICMPV6, 255}
	return slices.Concat(to[:], mac[:], []byte{0x86, 0xdd}, head, addr.AsSlice(), ours.AsSlice(), message)
}

// TestSender: the frame of a request by TFTP shows who sent it, whatever its address says.
func TestSender(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "ip", "bash", "nc")
	r := newRig(t, 52)
	at := netip.AddrPortFrom(r.addr, 2070)
	own := []lab.MAC{second, host}
	want := func(user neighbour.User, mac lab.MAC, from netip.AddrPort, since time.Time) {
		t.Helper()
		if found, err := r.Sender(from, own, since); err != nil || found != (neighbour.Found{User: user, MAC: mac}) {
			t.Errorf("from %s: found %+v, %v; want %s %s", from, found, err, user, mac)
		}
	}
	request := func(by *netns.Client, payload string) {
		t.Helper()
		by.Run(t, "bash", "-c", "printf '"+payload+"' | nc -u -w1 -s "+at.Addr().String()+" -p 2070 10.78.52.1 69 || true")
	}
	const rrq, ack = `\000\001boot/x/boot.ipxe\000octet\000`, `\000\004\000\001`
	start := time.Now()
	want(neighbour.None, lab.MAC{}, at, start)
	request(r.host, rrq)
	want(neighbour.Own, host, at, start)
	want(neighbour.None, lab.MAC{}, netip.AddrPortFrom(r.addr, 2071), start)
	want(neighbour.None, lab.MAC{}, at, time.Now().Add(time.Hour)) // it was for another transfer
	r.ip(r.spy, "addr", "add", r.addr.String()+"/24", "dev", "eth0")
	request(r.spy, ack)
	want(neighbour.Own, host, at, start)
	request(r.spy, rrq)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if found, _ := r.Sender(at, own, start); found.User == neighbour.Foreign {
			break
		}
	}
	want(neighbour.Foreign, spy, at, start)
	want(neighbour.Elsewhere, lab.MAC{}, netip.MustParseAddrPort("[fd00::1]:2070"), start)
}

// TestRequester: of the machines that send from an address and port, the one that the kernel sends to is known by the request.
func TestRequester(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "ip", "bash", "nc")
	r := newRig(t, 53)
	at := netip.AddrPortFrom(r.addr, 2070)
	r.entry(host)
	want := func(user neighbour.User, from netip.AddrPort, request string, since time.Time) {
		t.Helper()
		if got, err := r.Requester(from, request, since); err != nil || got != user {
			t.Errorf("%q from %s: %s, %v; want %s", request, from, got, err, user)
		}
	}
	send := func(by *netns.Client, payload string) {
		t.Helper()
		by.Run(t, "bash", "-c", "printf '"+payload+"' | nc -u -w1 -s "+at.Addr().String()+" -p 2070 10.78.53.1 69 || true")
	}
	const x, y, z = `\000\001x\000octet\000`, `\000\001yy\000octet\000blksize\0001468\000`, `\000\001z\000octet\000`
	const sentX, sentY, sentZ = "\x00\x01x\x00octet\x00", "\x00\x01yy\x00octet\x00blksize\x001468\x00", "\x00\x01z\x00octet\x00"
	start := time.Now()
	want(neighbour.None, at, sentX, start)
	send(r.host, x)
	want(neighbour.Own, at, sentX, start)
	want(neighbour.None, at, sentX, time.Now())
	want(neighbour.None, at, sentY, start)
	want(neighbour.None, netip.AddrPortFrom(r.addr, 2071), sentX, start)
	r.ip(r.spy, "addr", "add", r.addr.String()+"/24", "dev", "eth0")
	send(r.spy, x) // which makes ARP of the spy the kernel's entry
	send(r.spy, y)
	r.entry(host)
	want(neighbour.Own, at, sentX, start)
	want(neighbour.Foreign, at, sentY, start)
	send(r.host, z)
	r.entry(host)
	want(neighbour.Own, at, sentZ, start)
	want(neighbour.Elsewhere, netip.MustParseAddrPort("[fd00::1]:2070"), sentX, start)
}

// TestFindTogether: many requests at once share the answer.
func TestFindTogether(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "ip")
	r := newRig(t, 51)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if found, err := r.Find(r.addr, []lab.MAC{host}); err != nil || found.User != neighbour.Own {
				t.Errorf("found %v, %v", found, err)
			}
		})
	}
	wg.Wait()
}

// TestWithoutPacketSocket: without CAP_NET_RAW the kernel's table is all that is known.
func TestWithoutPacketSocket(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "ip")
	r := newRig(t, 52)
	r.Resolver = neighbour.WithoutSockets()
	r.want(neighbour.None, lab.MAC{})
	// The kernel learns the MAC when it has something to send.
	conn, err := net.Dial("udp4", r.addr.String()+":9")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	netns.WaitFor(t, "the kernel to know the host", func() bool {
		_, _ = conn.Write([]byte("x")) // the port is closed
		found, err := r.Find(r.addr, []lab.MAC{host})
		time.Sleep(10 * time.Millisecond)
		return err == nil && found.User == neighbour.Own
	})
}

// TestEntry: the kernel's entry alone decides, and no machine is asked.
func TestEntry(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, 9)
	find := func(want neighbour.User) {
		t.Helper()
		if found, err := r.Entry(r.addr, []lab.MAC{host, second}); err != nil || found.User != want {
			t.Errorf("%+v, %v, want %v", found, err, want)
		}
	}
	find(neighbour.None) // though the host would answer
	r.entry(host)
	find(neighbour.Own)
	r.entry(spy)
	find(neighbour.Foreign)
}
