package packet_test

import (
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/arp"
	"github.com/bootlab/bootlab/internal/host/packet"
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

func link(t *testing.T, name string) *net.Interface {
	t.Helper()
	i, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return i
}
