package freebind

import (
	"net"
	"testing"
)

// TestControl: a socket listens on addresses that this machine does not have (RFC 5737, RFC 3849).
func TestControl(t *testing.T) {
	t.Parallel()
	lc := net.ListenConfig{Control: Control}
	addrs := []string{"192.0.2.1:0"}
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
		_ = l.Close()
		addrs = append(addrs, "[2001:db8::1]:0")
	}
	for _, addr := range addrs {
		l, err := lc.Listen(t.Context(), "tcp", addr)
		if err != nil {
			t.Errorf("tcp: %v", err)
			continue
		}
		_ = l.Close()
		p, err := lc.ListenPacket(t.Context(), "udp", addr)
		if err != nil {
			t.Errorf("udp: %v", err)
			continue
		}
		_ = p.Close()
	}
}
