package packet_test

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// TestReceive: what goes out by one end of a cable that is laid after the socket was opened arrives once, at the other end; Close ends
// Receive.
func TestReceive(t *testing.T) {
	netns.Need(t, "root", "ip")
	s, err := packet.Open(unix.ETH_P_ARP, arp.Filter())
	if err != nil {
		t.Fatal(err)
	}
	links, macs := make(chan int, 8), make(chan bool, 8)
	var wg sync.WaitGroup
	wg.Go(func() {
		s.Receive(arp.Size, func(f packet.Frame) {
			if _, _, _, ok := arp.Parse(f.Bytes); !ok {
				t.Errorf("not the frame that was sent: %x", f.Bytes)
			}
			links <- f.Link
			macs <- f.Host
		})
	})
	netns.Run(t, "ip", "link", "add", "near", "type", "veth", "peer", "name", "far")
	defer netns.Run(t, "ip", "link", "del", "near")
	netns.Run(t, "ip", "link", "set", "near", "up")
	netns.Run(t, "ip", "link", "set", "far", "up")
	netns.AwaitUp(t, "near", "far")
	near, far := link(t, "near"), link(t, "far")
	for _, to := range []lab.MAC{arp.Broadcast, lab.MAC(far.HardwareAddr), arp.Broadcast} {
		frame := arp.Request(lab.MAC(near.HardwareAddr), netip.MustParseAddr("10.88.0.1"), to, netip.MustParseAddr("10.88.0.2"))
		if err := s.Send(near.Index, frame[:]); err != nil {
			t.Fatal(err)
		}
		select {
		case at := <-links:
			if host := <-macs; at != far.Index || host != (to != arp.Broadcast) {
				t.Errorf("frame to %s: received on %d, for this machine alone: %t; want %d", to, at, host, far.Index)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no frame to %s", to)
		}
	}
	s.Close()
	wg.Wait()
	if len(links) > 0 {
		t.Errorf("%d further frames", len(links))
	}
}

// TestOneInterface: a socket of one interface gets the frames of that one; a deadline and Close end Read.
func TestOneInterface(t *testing.T) {
	netns.Need(t, "root", "ip")
	netns.Run(t, "ip", "link", "add", "one", "type", "veth", "peer", "name", "two")
	defer netns.Run(t, "ip", "link", "del", "one")
	netns.Run(t, "ip", "link", "set", "one", "up")
	netns.Run(t, "ip", "link", "set", "two", "up")
	netns.AwaitUp(t, "one", "two")
	one, two := link(t, "one"), link(t, "two")
	var sockets [3]*packet.Socket
	for i, protocol := range []uint16{unix.ETH_P_ARP, unix.ETH_P_ARP, 0} {
		on := []*net.Interface{two, one, two}[i]
		var err error
		if sockets[i], err = packet.OpenOn(on.Index, protocol, nil); err != nil {
			t.Fatal(err)
		}
		defer sockets[i].Close()
	}
	s, other, none := sockets[0], sockets[1], sockets[2]
	frame := arp.Request(lab.MAC(one.HardwareAddr), netip.MustParseAddr("10.88.0.1"), arp.Broadcast, netip.MustParseAddr("10.88.0.2"))
	b := make([]byte, 128)
	for _, read := range []func() bool{
		func() bool { n, err := s.Read(b); return err == nil && bytes.Equal(b[:n], frame[:]) },
		func() bool { n, ok := s.ReadNow(b); return ok && bytes.Equal(b[:n], frame[:]) },
	} {
		if err := none.Send(one.Index, frame[:]); err != nil {
			t.Fatal(err)
		}
		if !read() {
			t.Errorf("read %x, want %x", b, frame)
		}
	}
	for _, silent := range []*packet.Socket{s, other, none} {
		if _, ok := silent.ReadNow(b); ok {
			t.Errorf("a further frame: %x", b)
		}
	}
	if stats, err := s.Stats(); err != nil || stats.Packets != 2 || stats.Drops != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
	if err := s.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	if err := s.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { _, err := s.Read(b); ended <- err }()
	s.Close()
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func link(t *testing.T, name string) *net.Interface {
	t.Helper()
	i, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return i
}
