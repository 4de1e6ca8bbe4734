package datagram

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDestination reads control messages as the kernel writes them.
func TestDestination(t *testing.T) {
	t.Parallel()
	info4 := func(index int, specDst string) []byte {
		b := AppendSource(nil, netip.MustParseAddr(specDst))
		b[unix.CmsgLen(0)] = byte(index)
		return b
	}
	info6 := func(index int, addr string) []byte {
		b, data := appendMessage(nil, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
		a := netip.MustParseAddr(addr).As16()
		copy(data, a[:])
		data[16] = byte(index)
		return b
	}
	for _, c := range []struct {
		name  string
		oob   []byte
		local string // "": invalid
		index int
	}{
		{"nothing", nil, "", 0},
		{"IPv4", info4(2, "192.0.2.1"), "192.0.2.1", 2},
		{"IPv6", info6(2, "2001:db8::1"), "2001:db8::1", 2},
		{"link-local", info6(3, "fe80::1"), "fe80::1%3", 3},
		{"multicast", info6(3, "ff02::1"), "", 3},
		{"broadcast on a dual-stack socket", append(info6(2, "::ffff:192.0.2.255"), info4(2, "192.0.2.1")...), "192.0.2.1", 2},
		{"another message first", append(appendSegmentSize(nil, 512), info4(2, "192.0.2.1")...), "192.0.2.1", 2},
		{"cut off", info6(2, "2001:db8::1")[:30], "", 0},
	} {
		var got control
		n := copy(got[:], c.oob)
		local, index := got.destination(n)
		var want netip.Addr
		if c.local != "" {
			want = netip.MustParseAddr(c.local)
		}
		if local != want || index != c.index {
			t.Errorf("%s: %s on interface %d, want %s on %d", c.name, local, index, want, c.index)
		}
	}
}

// TestSource: what AppendSource writes reads back as that destination; an invalid address writes nothing.
func TestSource(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"192.0.2.1", "2001:db8::1", "fe80::1%3"} {
		var c control
		n := len(AppendSource(c[:0], netip.MustParseAddr(text)))
		if got, _ := c.destination(n); got != netip.MustParseAddr(text) {
			t.Errorf("%s: reads back as %s", text, got)
		}
	}
	if b := AppendSource(nil, netip.Addr{}); b != nil {
		t.Errorf("no source: %x", b)
	}
}
