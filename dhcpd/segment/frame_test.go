package segment

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/lab"

	"golang.org/x/net/ipv4"
)

// slowSum is RFC 1071 as it is written there.
func slowSum(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		w := uint32(b[i]) << 8
		if i+1 < len(b) {
			w |= uint32(b[i+1])
		}
		s += w
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// FuzzHeaders: a frame is what an IP stack takes: lengths agree and both checksums hold.
func FuzzHeaders(f *testing.F) {
	f.Add([]byte("odd"), uint32(0x0a4d0001), uint32(0xffffffff))
	f.Add(make([]byte, 300), uint32(0), uint32(0x0a4d0009))
	f.Fuzz(func(t *testing.T, message []byte, src, dst uint32) {
		if len(message) > 1472 {
			return
		}
		var a, b [4]byte
		binary.BigEndian.PutUint32(a[:], src)
		binary.BigEndian.PutUint32(b[:], dst)
		frame := append(make([]byte, FrameHeadroom), message...)
		d := Dest{Source: netip.AddrFrom4(a), Port: PortServer, To: netip.AddrPortFrom(netip.AddrFrom4(b), PortClient), MAC: arp.Broadcast}
		putHeaders(frame, lab.MAC{2}, &d)
		h, err := ipv4.ParseHeader(frame[ethernetHeader:])
		if err != nil || h.TotalLen != len(frame)-ethernetHeader || slowSum(frame[ethernetHeader:][:ipv4Header]) != 0xffff {
			t.Fatalf("IPv4 header %+v, %v", h, err)
		}
		udp := frame[ethernetHeader+ipv4Header:]
		pseudo := append(append(a[:], b[:]...), 0, 17, udp[4], udp[5])
		if slowSum(append(pseudo, udp...)) != 0xffff || int(binary.BigEndian.Uint16(udp[4:])) != len(udp) {
			t.Fatalf("UDP header % x", udp[:8])
		}
		if binary.BigEndian.Uint16(udp[6:]) == 0 {
			t.Fatal("says that it has no checksum")
		}
	})
}
