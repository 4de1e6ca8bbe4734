package segment

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/lab"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Frames as Linux sends them.
const (
	arpReply    = "02aabbccddee 0200000000 02 0806 0001080006040002 020000000002 0a4d0009 02aabbccddee 00000000"
	arpGarp     = "ffffffffffff 0200000000 02 0806 0001080006040001 020000000002 0a4d0009 ffffffffffff 0a4d0009"
	arpProbeHex = "ffffffffffff 0200000000 02 0806 0001080006040001 020000000002 00000000 000000000000 0a4d0009"
)

func TestParseARP(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, frame, want string
	}{
		{"reply", arpReply, "10.77.0.9 02:00:00:00:00:02"},
		{"gratuitous", arpGarp, "10.77.0.9 02:00:00:00:00:02"},
		{"probe: no sender address", arpProbeHex, ""},
		{"short", arpReply[:len(arpReply)-2], ""},
		{"reverse ARP", strings.Replace(arpReply, "06040002", "06040004", 1), ""},
		{"Token Ring", strings.Replace(arpReply, "0806 0001", "0806 0006", 1), ""},
		{"everybody's address", strings.Replace(arpReply, "0a4d0009", "ffffffff", 1), ""},
		{"multicast machine", strings.Replace(arpReply, "40002 02", "40002 03", 1), ""},
	}
	for _, tt := range tests {
		addr, m, _, ok := arp.Parse(unhex(t, tt.frame))
		got := ""
		if ok {
			got = addr.String() + " " + m.String()
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	f := arp.Request(lab.MAC{2, 0, 0, 0, 0, 2}, netip.Addr{}, arp.Broadcast, ip("10.77.0.9"))
	if want := unhex(t, arpProbeHex); !bytes.Equal(f[:], want) {
		t.Errorf("probe % x, want % x", f, want)
	}
}

// FuzzParseARP: what is learned is the address of one machine.
func FuzzParseARP(f *testing.F) {
	for _, s := range []string{arpReply, arpGarp, arpProbeHex} {
		f.Add(unhex(f, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		addr, m, _, ok := arp.Parse(b)
		if ok != addr.IsValid() || ok && (addr.IsUnspecified() || addr.IsMulticast() || addr == broadcastIP || m.IsZero() || m[0]&1 != 0) {
			t.Errorf("learned %s of %s", addr, m)
		}
		if ok && !(bytes.Equal(b[28:32], addr.AsSlice()) && bytes.Equal(b[22:28], m[:])) {
			t.Errorf("%s of %s is not what the sender says", addr, m)
		}
	})
}

// FuzzEchoReply: only an answer to our own question is one.
func FuzzEchoReply(f *testing.F) {
	answer := echoRequest(7)
	answer[0] = 0
	answer[2], answer[3] = 0, 0
	sum := ^packet.Sum(0, answer[:])
	answer[2], answer[3] = byte(sum>>8), byte(sum)
	if !isEchoReply(answer[:], 7) || isEchoReply(answer[:], 8) {
		f.Fatal("an answer is not known, or taken for another's")
	}
	f.Add(answer[:])
	q := echoRequest(7)
	f.Add(q[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		if isEchoReply(b, 7) && (len(b) != echoSize || b[0] != 0 || b[5] != 7 || slowSum(b) != 0xffff) {
			t.Errorf("% x is taken for an answer", b)
		}
	})
}

// reply builds an answer of another server from a DISCOVER's frame.
func reply(options ...byte) []byte {
	b := discoverFrame(lab.MAC{2, 0, 0, 0, 0, 9})
	b[FrameHeadroom] = 2
	copy(b[FrameHeadroom+16:], []byte{10, 77, 0, 9})
	copy(b[26:30], []byte{10, 77, 0, 254})
	return append(b[:FrameHeadroom+bootpFixed+4], options...)
}

func TestParseReply(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		options []byte
		kind    Kind
		server  string
	}{
		{"offer", []byte{53, 1, 2, 54, 4, 10, 77, 0, 254, 255}, Offer, "10.77.0.254"},
		{"padded, other options before", []byte{0, 0, 1, 4, 255, 255, 255, 0, 54, 4, 10, 77, 0, 254, 0, 53, 1, 5, 255}, Ack, "10.77.0.254"},
		{"cut off", []byte{53, 1, 6, 54, 4, 10, 77}, Nak, "invalid IP"},
		{"behind the end", []byte{53, 1, 6, 255, 54, 4, 10, 77, 0, 1}, Nak, "invalid IP"},
		{"BOOTP", nil, 0, "invalid IP"},
	}
	for _, tt := range tests {
		r, ok := parseReply(reply(tt.options...))
		if !ok || r.Kind != tt.kind || r.ServerID.String() != tt.server || r.YIAddr != ip("10.77.0.9") ||
			r.SourceIP != ip("10.77.0.254") || r.ClientMAC != (lab.MAC{2, 0, 0, 0, 0, 9}) {
			t.Errorf("%s: %+v, %v, want %s of %s", tt.name, r, ok, tt.kind, tt.server)
		}
	}
	if r, ok := parseReply(discoverFrame(lab.MAC{2})); ok {
		t.Errorf("a client's message is taken for a server's: %+v", r)
	}
}

// FuzzParseReply: what is reported stands in the frame.
func FuzzParseReply(f *testing.F) {
	f.Add(reply(53, 1, 2, 54, 4, 10, 77, 0, 254, 255))
	f.Add(reply(53, 1, 6, 54, 4, 10, 77))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := parseReply(b)
		if !ok {
			return
		}
		if len(b) < ethernetHeader+ipv4Header+udpHeader+bootpFixed+4 {
			t.Errorf("%d bytes are an answer", len(b))
		}
		if r.ServerID.IsValid() && !bytes.Contains(b, append([]byte{54, 4}, r.ServerID.AsSlice()...)) {
			t.Errorf("server %s does not stand there", r.ServerID)
		}
		if r.Kind != 0 && !bytes.Contains(b, []byte{53, 1, byte(r.Kind)}) {
			t.Errorf("kind %d does not stand there", r.Kind)
		}
	})
}
