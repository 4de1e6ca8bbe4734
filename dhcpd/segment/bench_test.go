package segment

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/host/socket/datagram"
	"github.com/bootlab/bootlab/test/support/netns"
)

var batches = []int{1, 8, 32}

// BenchmarkReceive takes packets out of a full socket buffer: what batching gives under load. Putting them in is not timed.
func BenchmarkReceive(b *testing.B) {
	netns.Need(b, "root")
	seg := netns.NewSegment(b, "10.77.0.1/24")
	s := open(b, seg.Bridge)
	pair(b, seg, "bench0")
	ifi, err := net.InterfaceByName("bench0")
	if err != nil {
		b.Fatal(err)
	}
	client, err := packet.OpenOn(ifi.Index, 0, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	sender := &Socket{iface: "bench0", index: ifi.Index, server: s.server, raw: client}
	sender.setMAC(alice) // a bridge drops frames without a source
	d := Dest{Source: ip("10.77.0.9"), Port: PortClient, To: netip.MustParseAddrPort("255.255.255.255:67"), MAC: arp.Broadcast}
	frame := append(make([]byte, FrameHeadroom), make([]byte, 300)...)
	for _, size := range batches {
		b.Run(fmt.Sprint("batch=", size), func(b *testing.B) {
			in, out := datagram.NewReceiver(size, receiveSpace), NewSender(32, func(_ *Socket, _ Dest, err error) { b.Error(err) })
			b.ReportAllocs()
			for left, queued := b.N, 0; left > 0; {
				if queued == 0 {
					b.StopTimer()
					for queued < min(left, 256) {
						out.Queue(sender, d, append(out.Frame(), frame[FrameHeadroom:]...))
						queued++
					}
					out.Flush()
					b.StartTimer()
				}
				n, err := s.Receive(PortServer, in)
				if err != nil {
					b.Fatal(err)
				}
				for i := range n {
					if len(in.Message(i).Data) != 300 {
						b.Fatal("not the packet that was sent")
					}
				}
				queued -= n
				left -= n
			}
		})
	}
}

// BenchmarkSend sends over a bridge to a namespace whose kernel drops the packets: as raw frames and by UDP.
func BenchmarkSend(b *testing.B) {
	netns.Need(b, "root")
	seg := netns.NewSegment(b, "10.77.0.1/24")
	s := open(b, seg.Bridge)
	client := seg.NewClient(b, "02:00:00:00:00:09")
	run := func(args ...string) { netns.Run(b, "ip", append([]string{"-n", client.Name}, args...)...) }
	run("addr", "add", "10.77.0.9/24", "dev", "eth0")
	netns.Run(b, "ip", "neigh", "replace", "10.77.0.9", "lladdr", "02:00:00:00:00:09", "dev", seg.Bridge)
	udp := Dest{Source: ip("10.77.0.1"), Port: PortServer, To: netip.MustParseAddrPort("10.77.0.9:68")}
	raw := udp
	raw.MAC = mac(b, "02:00:00:00:00:09")
	message := make([]byte, 300)
	for _, kind := range []struct {
		name string
		dest Dest
	}{{"raw", raw}, {"udp", udp}} {
		for _, size := range batches {
			b.Run(fmt.Sprint(kind.name, "/batch=", size), func(b *testing.B) {
				out := NewSender(size, func(_ *Socket, _ Dest, err error) { b.Error(err) })
				b.ReportAllocs()
				for b.Loop() {
					out.Queue(s, kind.dest, append(out.Frame(), message...))
				}
				out.Flush()
			})
		}
	}
}
