package dhcpd

import (
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// TestBroadcastSource: a message whose reply would go to a broadcast or group address, since its source, its client address or that of its
// relay was forged, gets none, which all machines of the segment would receive.
func TestBroadcastSource(t *testing.T) {
	t.Parallel()
	const disc, req, inf = dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform
	for _, tc := range []struct {
		name string
		kind dhcpv4.MessageType
		port uint16
		from string
		more []dhcpv4.Modifier
		want int // replies
	}{
		{"port 4011", req, portPXE, "10.77.0.21:4011", nil, 1},
		{"port 4011 from the broadcast address", req, portPXE, "10.77.0.255:68", nil, 0},
		{"port 4011 from the former one", req, portPXE, "10.77.0.0:68", nil, 0},
		{"port 4011 from a group", req, portPXE, "224.0.0.1:68", nil, 0},
		{"port 4011 without an address", req, portPXE, client0, nil, 1},
		{"port 4011 without an address, for the broadcast address", req, portPXE, client0, []dhcpv4.Modifier{withCiaddr("10.77.0.255")}, 0},
		{"DHCPINFORM", inf, portServer, "10.77.0.21:68", []dhcpv4.Modifier{withCiaddr("10.77.0.21")}, 1},
		{"DHCPINFORM for the broadcast address", inf, portServer, "10.77.0.21:68", []dhcpv4.Modifier{withCiaddr("10.77.0.255")}, 0},
		{"DHCPDISCOVER for a group", disc, portServer, "10.77.0.21:68", []dhcpv4.Modifier{withCiaddr("224.0.0.1")}, 0},
		{"a relay", disc, portServer, "10.78.0.254:67", []dhcpv4.Modifier{withGiaddr("10.78.0.254")}, 1},
		{"a relay with the broadcast address", disc, portServer, "10.78.0.254:67", []dhcpv4.Modifier{withGiaddr("10.78.255.255")}, 0},
		{"DHCPDISCOVER", disc, portServer, client0, nil, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			m := master0
			if len(tc.more) > 0 && tc.from == "10.78.0.254:67" {
				m = farHost
			}
			if out := b.exchange("lab0", tc.port, tc.from, message(t, tc.kind, mac(t, m), ovmf, tc.more...)); len(out) != tc.want {
				t.Errorf("%d replies, want %d", len(out), tc.want)
			}
		})
	}
}
