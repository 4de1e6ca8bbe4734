package logins_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/host/client/logins"
)

// try tries n wrong tokens and returns how many were looked at.
func try(n int, from func(i int) netip.Addr) (looked int) {
	now := time.Now()
	l := logins.New(func() time.Time { return now })
	for i := range n {
		if l.Try(from(i), func() bool { return false }) == logins.Rejected {
			looked++
		}
	}
	return looked
}

// TestSourcesOfLoginsAreBounded: a host that takes one IPv6 address after another has the tries of one, and thousands of sources cost little.
func TestSourcesOfLoginsAreBounded(t *testing.T) {
	t.Parallel()
	tried := try(100, func(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd00::1:%x", i)) })
	if tried != 10 {
		t.Errorf("%d of 100 wrong tokens of one IPv6 network are looked at, want 10", tried)
	}
	tried = try(5000, func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) })
	if tried < 1024 || tried > 5000 {
		t.Errorf("%d of 5000 wrong tokens of 5000 sources are looked at", tried)
	}
}
