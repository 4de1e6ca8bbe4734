package sockaddr

import (
	"net/netip"
	"testing"
)

// TestRaw: an address survives the kernel's layout, a link-local one with its interface.
func TestRaw(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"192.0.2.1:67", "[2001:db8::1]:53", "[fe80::1%3]:69", "[::ffff:192.0.2.1]:69"} {
		want := netip.MustParseAddrPort(text)
		var s Raw
		s.Set(netip.MustParseAddrPort("[fe80::2%9]:9")) // what stood there before
		s.Set(want)
		if got := s.AddrPort(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	var s Raw
	if s.Set(netip.MustParseAddrPort("[fe80::1%lo]:69")); s.raw.Scope_id != 1 {
		t.Errorf("interface %d of zone lo, want 1", s.raw.Scope_id)
	}
}
