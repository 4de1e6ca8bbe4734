package load_test

import (
	"flag"
	"net/netip"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

func addr(t *testing.T, s string) netip.Addr {
	t.Helper()
	a, err := netip.ParseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
