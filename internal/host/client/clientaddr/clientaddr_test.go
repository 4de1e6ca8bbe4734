package clientaddr

import (
	"net/netip"
	"testing"
)

func TestOf(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"10.0.0.1":             "10.0.0.1",
		"::ffff:10.0.0.1":      "10.0.0.1",
		"2001:db8:0:1:2:3:4:5": "2001:db8:0:1::",
		"2001:db8:0:1::":       "2001:db8:0:1::",
		"fe80::1%eth0":         "fe80::",
		"::1":                  "::",
	} {
		if got := Of(netip.MustParseAddr(addr)); got != netip.MustParseAddr(want) {
			t.Errorf("%s is counted as %s, want %s", addr, got, want)
		}
	}
	if got := Of(netip.Addr{}); got.IsValid() {
		t.Errorf("no address is counted as %s", got)
	}
}
