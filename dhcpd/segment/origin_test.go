package segment

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/host/socket/datagram"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

// ending is the frame of a message to a server, with these options.
func ending(sender lab.MAC, xid byte, options ...byte) []byte {
	m := make([]byte, bootpFixed)
	m[0], m[1], m[2], m[7] = 1, 1, 6, xid
	copy(m[28:], alice[:])
	f := append(make([]byte, FrameHeadroom), m...)
	f = append(append(f, 0x63, 0x82, 0x53, 0x63), options...)
	putHeaders(f, sender, &Dest{Source: ip("10.77.0.20"), Port: PortClient, To: netip.AddrPortFrom(broadcastIP, PortServer), MAC: arp.Broadcast})
	return f
}

// TestSender: once Receive has returned a DHCPRELEASE or DHCPDECLINE, the MAC that sent its frame is known, each once.
func TestSender(t *testing.T) {
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	pair(t, seg, "spy0")
	s := open(t, seg.Bridge)
	ifi, err := net.InterfaceByName("spy0")
	if err != nil {
		t.Fatal(err)
	}
	spy, err := packet.OpenOn(ifi.Index, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer spy.Close()
	in, from := datagram.NewReceiver(1, receiveSpace), ip("10.77.0.20")
	for i, tt := range []struct {
		name    string
		options []byte
		sender  lab.MAC
		seen    bool
	}{
		{"release", []byte{53, 1, 7, 255}, alice, true},
		{"release of a neighbour", []byte{53, 1, 7, 255}, bob, true},
		{"decline", []byte{53, 1, 4, 50, 4, 10, 77, 0, 20, 255}, bob, true},
		{"type after others", []byte{54, 4, 10, 77, 0, 1, 61, 3, 1, 2, 3, 12, 0, 53, 1, 7, 255}, bob, true},
		{"type after too many", []byte{12, 0, 12, 0, 12, 0, 12, 0, 12, 0, 12, 0, 12, 0, 53, 1, 7, 255}, bob, false},
		{"discover", []byte{53, 1, 1, 255}, bob, false},
		{"no options", nil, bob, false},
		{"option past the end", []byte{61, 200, 53, 1, 7}, bob, false},
	} {
		xid := [4]byte{3: byte(i)}
		if err := spy.Send(ifi.Index, ending(tt.sender, byte(i), tt.options...)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Receive(PortServer, in); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.Sender(xid, bob, from); ok {
			t.Errorf("%s: the sender of another client's message is known", tt.name)
		}
		if got, ok := s.Sender(xid, alice, from); ok != tt.seen || ok && got != tt.sender {
			t.Errorf("%s: %s sent it, %v; want %s, %v", tt.name, got, ok, tt.sender, tt.seen)
		}
		if _, ok := s.Sender(xid, alice, from); ok {
			t.Errorf("%s: its sender is known twice", tt.name)
		}
	}
}

// FuzzParseOrigin: an origin stands in its frame.
func FuzzParseOrigin(f *testing.F) {
	f.Add(ending(bob, 7, 53, 1, 7, 255))
	f.Add(ending(bob, 7)[:originSpace])
	f.Fuzz(func(t *testing.T, b []byte) {
		o, ok := parseOrigin(b)
		if !ok {
			return
		}
		for _, part := range [][]byte{o.XID[:], o.Client[:], o.IP.AsSlice(), o.Sender[:]} {
			if !bytes.Contains(b, part) {
				t.Errorf("%x does not stand there", part)
			}
		}
	})
}
