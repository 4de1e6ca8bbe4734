package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/link/links"
	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/host/socket/datagram"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"golang.org/x/sys/unix"
)

// giveOne answers DISCOVER and REQUEST with one address, as a server would: in the packet loop, by batches.
func giveOne(s *Socket, in *datagram.Receiver, out *Sender, self, addr netip.Addr) {
	for {
		n, err := s.Receive(PortServer, in)
		if err != nil {
			return
		}
		for i := range n {
			p := in.Message(i)
			if len(p.Data) < bootpFixed+7 {
				continue
			}
			reply, to := append(out.Frame(), p.Data[:bootpFixed]...), addr.As4()
			m := reply[FrameHeadroom:]
			m[0] = 2
			copy(m[16:], to[:])
			kind := byte(Offer)
			if bytes.Contains(p.Data[bootpFixed:], []byte{53, 1, 3}) {
				kind = byte(Ack)
			}
			id := self.As4()
			reply = append(reply, 0x63, 0x82, 0x53, 0x63, 53, 1, kind, 54, 4, id[0], id[1], id[2], id[3], 51, 4, 0, 0, 14, 16, 1, 4, 255, 255, 255, 0, 255)
			out.Queue(s, Dest{Source: self, Port: PortServer, To: netip.AddrPortFrom(addr, PortClient), MAC: lab.MAC(m[28:34])}, reply)
		}
		out.Flush()
	}
}

const receiveSpace = 2048

const hook = `[ "$1" = bound ] && echo "ip=$ip"; exit 0`

func ask(t *testing.T, c *netns.Client, want string) {
	t.Helper()
	out := c.Run(t, "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "30", "-T", "1", "-s", script(t, hook))
	if !strings.Contains(out, want) {
		t.Errorf("want %s…, got:\n%s", want, out)
	}
}

// serveOne gives one address on an interface through all its lives.
func serveOne(t *testing.T, iface string, first *Socket, self, addr string) {
	t.Helper()
	background(t, func(ctx context.Context) {
		KeepServing(ctx, iface, first, Listen, func(error) {}, slog.New(slog.DiscardHandler), func(_ context.Context, s *Socket) {
			giveOne(s, datagram.NewReceiver(8, receiveSpace), NewSender(8, nil), ip(self), ip(addr))
		})
	})
}

// TestRawReply: BusyBox, without the broadcast flag, hears the raw unicast reply: also where the interface has several
// addresses and is a VLAN.
func TestRawReply(t *testing.T) {
	netns.Need(t, "root", "udhcpc")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	netns.Run(t, "ip", "addr", "add", "10.78.0.1/24", "dev", seg.Bridge)
	serveOne(t, seg.Bridge, open(t, seg.Bridge), "10.78.0.1", "10.78.0.9")
	ask(t, seg.NewClient(t), "ip=10.78.0.9")
}

func TestVLAN(t *testing.T) {
	netns.Need(t, "root", "udhcpc")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	if out, err := exec.Command("ip", "link", "add", "link", seg.Bridge, "name", "vlan100", "type", "vlan", "id", "100").CombinedOutput(); err != nil {
		t.Skipf("this kernel has no VLAN interfaces, and no installed program adds them: %s", out)
	}
	netns.Run(t, "ip", "addr", "add", "10.79.0.1/24", "dev", "vlan100")
	netns.Run(t, "ip", "link", "set", "vlan100", "up")
	serveOne(t, seg.Bridge, open(t, seg.Bridge), "10.77.0.1", "10.77.0.9")
	serveOne(t, "vlan100", open(t, "vlan100"), "10.79.0.1", "10.79.0.9")
	client := seg.NewClient(t)
	ask(t, client, "ip=10.77.0.9")
	client.Run(t, "ip", "link", "set", "eth0", "down")
	client.Run(t, "ip", "link", "set", "eth0", "name", "trunk")
	client.Run(t, "ip", "link", "set", "trunk", "up")
	client.Run(t, "ip", "link", "add", "link", "trunk", "name", "eth0", "type", "vlan", "id", "100")
	client.Run(t, "ip", "link", "set", "eth0", "up")
	ask(t, client, "ip=10.79.0.9")
}

// TestPortInUse: a second server on the same interface fails and says why; on another interface it does not.
func TestPortInUse(t *testing.T) {
	netns.Need(t, "root")
	one, two := netns.NewSegment(t, "10.77.0.1/24"), netns.NewSegment(t, "10.78.0.1/24")
	first := open(t, one.Bridge)
	if _, err := Listen(one.Bridge); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("second server on the same interface: got %v, want EADDRINUSE", err)
	}
	open(t, two.Bridge)
	if err := first.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	open(t, one.Bridge)
	if _, err := Listen("nosuch0"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("an interface that is not there: got %v, want ENODEV", err)
	}
	if _, err := Listen("lo"); err == nil {
		t.Errorf("lo is no Ethernet, and was opened")
	}
}

// TestBesideDnsmasq: a dnsmasq on another bridge, started as libvirt does, is no clash, whoever starts first.
func TestBesideDnsmasq(t *testing.T) {
	netns.Need(t, "root", "dnsmasq", "udhcpc")
	for _, first := range []string{"we", "they"} {
		t.Run(first+" start first", func(t *testing.T) {
			ours, theirs := netns.NewSegment(t, "10.77.0.1/24"), netns.NewSegment(t, "192.168.122.1/24")
			if first == "we" {
				serveOne(t, ours.Bridge, open(t, ours.Bridge), "10.77.0.1", "10.77.0.9")
			}
			netns.LibvirtDnsmasq(t, theirs.Bridge)
			ask(t, theirs.NewClient(t), "ip=192.168.122.")
			if first == "they" {
				serveOne(t, ours.Bridge, open(t, ours.Bridge), "10.77.0.1", "10.77.0.9")
			}
			ask(t, ours.NewClient(t), "ip=10.77.0.9")
		})
	}
}

// TestFlappingInterface: down and up, and away and back, do not end the service.
func TestFlappingInterface(t *testing.T) {
	netns.Need(t, "root", "udhcpc")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	first := open(t, seg.Bridge)
	serveOne(t, seg.Bridge, first, "10.77.0.1", "10.77.0.9")
	netns.Run(t, "ip", "link", "set", seg.Bridge, "down")
	if err := first.Check(); !errors.Is(err, ErrDown) {
		t.Errorf("the interface is down: %v", err)
	}
	netns.Run(t, "ip", "link", "set", seg.Bridge, "up")
	client := seg.NewClient(t)
	ask(t, client, "ip=10.77.0.9")
	if err := first.Check(); err != nil {
		t.Errorf("after down and up: %v", err)
	}
	netns.Run(t, "ip", "link", "del", seg.Bridge)
	if err := first.Check(); !errors.Is(err, ErrNoInterface) {
		t.Errorf("the interface is deleted: %v", err)
	}
	netns.Run(t, "ip", "link", "add", seg.Bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0")
	netns.Run(t, "ip", "addr", "add", "10.77.0.1/24", "dev", seg.Bridge)
	netns.Run(t, "ip", "link", "set", seg.Bridge, "up")
	netns.Run(t, "ip", "link", "set", client.NIC, "master", seg.Bridge)
	ask(t, client, "ip=10.77.0.9")
}

// TestReplacedIsNoticed: an interface that is deleted and made again is noticed by the kernel's notifications, without looking now and
// then, and is served with a new socket.
func TestReplacedIsNoticed(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	changes, err := links.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(changes.Close)
	served, reports := make(chan *Socket), make(chan error, 100)
	background(t, func(ctx context.Context) {
		k := keeper{changed: changes.Changed(), every: time.Hour}
		k.keepServing(ctx, seg.Bridge, open(t, seg.Bridge), Listen, func(err error) { reports <- err }, func(ctx context.Context, s *Socket) {
			select {
			case served <- s:
				<-ctx.Done()
			case <-ctx.Done():
			}
		})
	})
	until := func(what string, want error) {
		t.Helper()
		for timeout := time.After(time.Minute); ; {
			select {
			case err := <-reports:
				if errors.Is(err, want) {
					return
				}
			case <-timeout:
				t.Fatal(what + ": not noticed")
			}
		}
	}
	first := <-served
	for range 3 {
		until("it is served", nil)
		netns.Run(t, "ip", "link", "del", seg.Bridge)
		until("it is deleted", ErrNoInterface)
		netns.Run(t, "ip", "link", "add", seg.Bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0")
		until("it is down", ErrDown)
		netns.Run(t, "ip", "link", "set", seg.Bridge, "up")
		select {
		case second := <-served:
			if second == first {
				t.Error("the same socket serves")
			}
			first = second
		case <-time.After(time.Minute):
			t.Fatal("not served again")
		}
	}
}

// TestAdvertiseAfterReplacement: who asks for a router and has no address yet is answered on the interface as it is now. Package
// net remembers for a minute which interface had a name, which such an answer must not rely on.
func TestAdvertiseAfterReplacement(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	for _, life := range []string{"one", "two"} {
		if life == "two" {
			netns.Run(t, "ip", "link", "del", seg.Bridge)
			netns.Run(t, "ip", "link", "add", seg.Bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0")
			netns.Run(t, "ip", "link", "set", seg.Bridge, "up")
		}
		pair(t, seg, "v"+life)
		s := open(t, seg.Bridge)
		netns.WaitFor(t, life+"'s answer to leave", func() bool { return advertise(s, &net.IPAddr{IP: net.IPv6unspecified}) == nil })
	}
}

// TestInterfaceComesLater starts before somebody else, such as libvirt, has made the bridge.
func TestInterfaceComesLater(t *testing.T) {
	netns.Need(t, "root", "udhcpc")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	netns.Run(t, "ip", "link", "del", seg.Bridge)
	serveOne(t, seg.Bridge, nil, "10.77.0.1", "10.77.0.9")
	netns.Run(t, "ip", "link", "add", seg.Bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0")
	netns.Run(t, "ip", "addr", "add", "10.77.0.1/24", "dev", seg.Bridge)
	netns.Run(t, "ip", "link", "set", seg.Bridge, "up")
	ask(t, seg.NewClient(t), "ip=10.77.0.9")
}

// TestBridgeTakesAnotherMAC: without an address of its own a bridge has the lowest of its ports'.
func TestBridgeTakesAnotherMAC(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	s := open(t, seg.Bridge)
	before := s.MAC()
	pair(t, seg, "low0")
	netns.Run(t, "ip", "link", "set", "low0p", "nomaster")
	netns.Run(t, "ip", "link", "set", "low0p", "address", "02:00:00:00:00:01")
	netns.Run(t, "ip", "link", "set", "low0p", "master", seg.Bridge)
	if s.Check() != nil || s.MAC() == before || s.MAC() != mac(t, "02:00:00:00:00:01") {
		t.Errorf("MAC %s, was %s, want that of the port", s.MAC(), before)
	}
}

// TestBatches: what came while nobody looked is received at once, in order, and cut-off packets have no data; on any
// interface it is known where they arrived.
func TestBatches(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	netns.Run(t, "ip", "addr", "add", "10.77.0.2/24", "dev", seg.Bridge)
	s := open(t, "")
	conn, err := net.Dial("udp4", "10.77.0.2:4011")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, m := range []string{"a", "bb", strings.Repeat("c", receiveSpace+1), "", "dd"} {
		if _, err := conn.Write([]byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	in := datagram.NewReceiver(4, receiveSpace)
	var got []string
	for _, want := range []int{4, 1} {
		n, err := s.Receive(PortPXE, in)
		if err != nil || n != want {
			t.Fatalf("received %d, %v, want %d", n, err, want)
		}
		for i := range n {
			p := in.Message(i)
			got = append(got, string(p.Data))
			if p.From.String() != conn.LocalAddr().String() || p.Local != ip("10.77.0.2") || p.Interface == 0 {
				t.Errorf("packet from %s to %s on interface %d", p.From, p.Local, p.Interface)
			}
		}
	}
	if strings.Join(got, ",") != "a,bb,,,dd" {
		t.Errorf("received %q", got)
	}
	out := NewSender(2, func(_ *Socket, _ Dest, err error) { t.Error(err) })
	for _, m := range []string{"x", "y", "z"} { // more than it holds
		out.Queue(s, Dest{Source: ip("10.77.0.2"), Port: PortPXE, To: in.Message(0).From}, append(out.Frame(), m...))
	}
	out.Flush()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	for _, want := range []string{"x", "y", "z"} {
		buf := make([]byte, 9)
		if n, err := conn.Read(buf); err != nil || string(buf[:n]) != want { // connected: it hears nobody but 10.77.0.2:4011
			t.Errorf("got %q, %v, want %q", buf[:n], err, want)
		}
	}
	_ = s.Close()
	if _, err := s.Receive(PortPXE, in); !errors.Is(err, net.ErrClosed) {
		t.Errorf("receive from a closed socket: %v", err)
	}
}

// TestBroadcastOnAnyInterface: where a packet went to everybody, our address is that of the interface.
func TestBroadcastOnAnyInterface(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	pair(t, seg, "all0")
	s := open(t, "")
	bridge, err := net.InterfaceByName(seg.Bridge)
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.InterfaceByName("all0")
	if err != nil {
		t.Fatal(err)
	}
	tap, err := packet.OpenOn(client.Index, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	frame := append(make([]byte, FrameHeadroom), "hello"...)
	d := Dest{Source: ip("10.77.0.9"), Port: PortClient, To: netip.AddrPortFrom(broadcastIP, PortServer), MAC: arp.Broadcast}
	putHeaders(frame, alice, &d)
	if err := tap.Send(client.Index, frame); err != nil {
		t.Fatal(err)
	}
	in := datagram.NewReceiver(4, receiveSpace)
	if n, err := s.Receive(PortServer, in); err != nil || n != 1 {
		t.Fatalf("received %d, %v", n, err)
	}
	if p := in.Message(0); p.Local != ip("10.77.0.1") || p.Interface != bridge.Index || p.From.String() != "10.77.0.9:68" {
		t.Errorf("from %s to %s on interface %d, want 10.77.0.1 on %d", p.From, p.Local, p.Interface, bridge.Index)
	}
}

// TestFailuresStaySingle: what cannot be sent does not keep the rest of the batch from being sent.
func TestFailuresStaySingle(t *testing.T) {
	netns.Need(t, "root")
	one, two := netns.NewSegment(t, "10.77.0.1/24"), netns.NewSegment(t, "10.78.0.1/24")
	pair(t, one, "fail0")
	good, down := open(t, one.Bridge), open(t, two.Bridge)
	hear := hearClient(t, "fail0")
	netns.Run(t, "ip", "link", "set", two.Bridge, "down")
	var failed []string
	out := NewSender(8, func(s *Socket, d Dest, err error) {
		failed = append(failed, fmt.Sprintf("%s %s: %s", s.Interface(), d.To, err))
	})
	raw := Dest{Source: ip("10.77.0.1"), Port: PortServer, To: netip.MustParseAddrPort("10.77.0.9:68"), MAC: arp.Broadcast}
	loud := Dest{Source: ip("10.77.0.1"), Port: PortServer, To: netip.AddrPortFrom(broadcastIP, PortClient)}
	moved, lost := loud, loud
	moved.Source = ip("10.99.0.1")                   // not ours any more: sent from another address
	lost.To = netip.MustParseAddrPort("10.77.0.9:0") // no such port
	for _, m := range []struct {
		s *Socket
		d Dest
		m string
	}{{good, lost, "lost"}, {good, raw, "raw1"}, {down, raw, "down"}, {good, moved, "moved"}, {good, lost, "lost"}, {good, raw, "raw2"}, {good, loud, "loud"}} {
		out.Queue(m.s, m.d, append(out.Frame(), m.m...))
	}
	out.Flush()
	if len(failed) != 3 || !strings.Contains(strings.Join(failed, "\n"), two.Bridge+" ") {
		t.Errorf("failed: %q, want two for port 0 and one on %s", failed, two.Bridge)
	}
	want := map[string]bool{"raw1": true, "raw2": true, "moved": true, "loud": true}
	for len(want) > 0 {
		m, ok := hear()
		if !ok {
			t.Fatalf("not heard: %v", want)
		}
		delete(want, m)
	}
}

// hearClient returns a function that returns the next datagram for port 68 that arrives at an interface.
func hearClient(t *testing.T, iface string) func() (string, bool) {
	t.Helper()
	ifi, err := net.InterfaceByName(iface)
	if err != nil {
		t.Fatal(err)
	}
	tap, err := packet.OpenOn(ifi.Index, unix.ETH_P_IP, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tap.Close)
	_ = tap.SetReadDeadline(time.Now().Add(time.Minute))
	buf := make([]byte, 2048)
	return func() (string, bool) {
		n, err := tap.Read(buf)
		return string(buf[min(FrameHeadroom, n):n]), err == nil
	}
}

// TestRouterSolicitation: a client that asks for a router learns at once that there is none.
func TestRouterSolicitation(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	s := open(t, seg.Bridge)
	var answered atomic.Int32
	var asked atomic.Pointer[lab.MAC]
	background(t, func(ctx context.Context) {
		if err := Advertise(ctx, s, func(m lab.MAC) bool { asked.Store(&m); return true }, func(error) { answered.Add(1) }); err != nil {
			t.Error(err)
		}
	})
	pair(t, seg, "vcl")
	got := netns.SolicitRouter(t, "vcl")
	if nic, err := net.InterfaceByName("vcl"); err != nil || asked.Load() == nil || lab.MAC(nic.HardwareAddr) != *asked.Load() {
		t.Errorf("it is taken for %v, want %v (%v)", asked.Load(), nic, err)
	}
	if len(got) != 24 || got[0] != 134 || got[5] != 0 || got[6] != 0 || got[7] != 0 || got[16] != 1 || lab.MAC(got[18:24]) != s.MAC() {
		t.Errorf("advertisement % x: want type 134 without flags and lifetime, and our link address", got)
	}
	netns.WaitFor(t, "the answer to be counted", func() bool { return answered.Load() > 0 })
}

// TestBridgeWithoutPorts: a bridge whose last port left has no MAC. It is served, and answers with its MAC once a port joins.
func TestBridgeWithoutPorts(t *testing.T) {
	netns.Need(t, "root", "udhcpc")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	c := seg.NewClient(t)
	netns.Run(t, "ip", "link", "add", "gone0", "type", "veth", "peer", "name", "gone1")
	netns.Run(t, "ip", "link", "add", "bare0", "type", "bridge")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "bare0").Run() })
	netns.Run(t, "ip", "link", "set", "gone0", "master", "bare0")
	netns.Run(t, "ip", "link", "set", "bare0", "up")
	netns.Run(t, "ip", "link", "del", "gone0")
	if mac := netns.Run(t, "ip", "-o", "link", "show", "bare0"); !strings.Contains(mac, "00:00:00:00:00:00") {
		t.Skipf("the kernel gives a bridge without ports a MAC: %s", mac)
	}
	s := open(t, "bare0")
	if err := s.Check(); err != nil || !s.MAC().IsZero() {
		t.Errorf("MAC %s, %v", s.MAC(), err)
	}
	netns.Run(t, "ip", "addr", "add", "10.79.0.1/24", "dev", "bare0")
	serveOne(t, "bare0", s, "10.79.0.1", "10.79.0.9")
	link := netns.Run(t, "ip", "-o", "link", "show", "master", seg.Bridge)
	_, link, _ = strings.Cut(link, ": ")
	link, _, _ = strings.Cut(link, "@")
	netns.Run(t, "ip", "link", "set", link, "master", "bare0")
	ask(t, c, "ip=10.79.0.9")
	netns.WaitFor(t, "the MAC of the bridge to be noticed", func() bool { return !s.MAC().IsZero() })
}
