package segment

import (
	"bytes"
	"net"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

func TestSolicitor(t *testing.T) {
	t.Parallel()
	header := "\x85\x00\x00\x00\x00\x00\x00\x00"
	mac := lab.MAC{0x52, 0x54, 0, 0x77, 0, 0x21}
	for _, tt := range []struct {
		name, options, from string
		want                lab.MAC
	}{
		{"says it", "\x01\x01\x52\x54\x00\x77\x00\x21", "fe80::1", mac},
		{"behind another option", "\x0e\x01nonce!\x01\x01\x52\x54\x00\x77\x00\x21", "fe80::1", mac},
		{"by its address, as iPXE", "", "fe80::5054:ff:fe77:21", mac},
		{"an address that was not made from a MAC", "", "fe80::1234:5678:9abc:def0", lab.MAC{}},
		{"a global address", "", "2001:db8::5054:ff:fe77:21", lab.MAC{}},
		{"no address", "", "::", lab.MAC{}},
		{"IPv4", "", "169.254.1.1", lab.MAC{}},
		{"an option of no length", "\x01\x00\x52\x54\x00\x77\x00\x21", "::", lab.MAC{}},
		{"an option cut short", "\x01\x02\x52\x54\x00\x77\x00\x21", "::", lab.MAC{}},
	} {
		if got := solicitingMAC([]byte(header+tt.options), &net.IPAddr{IP: net.ParseIP(tt.from)}); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// FuzzSolicitor: a MAC that is told stands in the message.
func FuzzSolicitor(f *testing.F) {
	f.Add([]byte("\x85\x00\x00\x00\x00\x00\x00\x00\x01\x01\x52\x54\x00\x77\x00\x21"))
	f.Add([]byte("\x85\x00\x00\x00\x00\x00\x00\x00\x0e\x01nonce!\x01\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 8 { // isSolicitation
			return
		}
		if m := solicitingMAC(b, &net.IPAddr{IP: net.IPv6unspecified}); !m.IsZero() && !bytes.Contains(b[8:], m[:]) {
			t.Errorf("%s is not in % x", m, b)
		}
	})
}
