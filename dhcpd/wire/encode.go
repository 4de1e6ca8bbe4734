package wire

import (
	"encoding/binary"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// tlvSize is how many bytes a value takes as an option, in parts of 255 where it is longer (RFC 3396).
func tlvSize(n int) int { return n + 2*max(1, (n+math.MaxUint8-1)/math.MaxUint8) }

// appendTLV writes an option, in several parts where the value is longer than one can be (RFC 3396).
func appendTLV[T ~string | ~[]byte](b []byte, code uint8, value T) []byte {
	for len(value) > math.MaxUint8 {
		b = append(append(b, code, math.MaxUint8), value[:math.MaxUint8]...)
		value = value[math.MaxUint8:]
	}
	return append(append(b, code, uint8(len(value))), value...)
}

// addrs writes the valid addresses.
func addrs(list ...netip.Addr) []byte {
	var b []byte
	for _, a := range list {
		if a.Is4() {
			b = append(b, a.AsSlice()...)
		}
	}
	return b
}

// encodeRoutes writes classless routes (RFC 3442). A client that understands them must ignore the router option, so the
// router is repeated as the default route unless the author wrote one.
func encodeRoutes(routes []lab.Route, router netip.Addr) []byte {
	var b []byte
	hasDefault := !router.Is4()
	for _, r := range routes {
		hasDefault = hasDefault || r.To.Bits() == 0
		b = appendRoute(b, r.To, r.Via)
	}
	if !hasDefault {
		b = appendRoute(b, netip.PrefixFrom(netip.IPv4Unspecified(), 0), router)
	}
	return b
}

func appendRoute(b []byte, to netip.Prefix, via netip.Addr) []byte {
	dst, gw := to.Masked().Addr().As4(), via.As4()
	b = append(b, uint8(to.Bits()))
	b = append(b, dst[:(to.Bits()+7)/8]...)
	return append(b, gw[:]...)
}

// encodeSearch writes a search list with the compression of RFC 1035 section 4.1.4, as RFC 3397 asks.
func encodeSearch(domains []string) []byte {
	var b []byte
	seen := map[string]int{}
	for _, d := range domains {
		b = appendName(b, strings.ToLower(strings.TrimSuffix(d, ".")), seen)
	}
	return b
}

// appendName writes pointers only to names without pointers: not every client follows a pointer to a pointer.
func appendName(b []byte, name string, seen map[string]int) []byte {
	start, whole := len(b), name
	for name != "" {
		if at, ok := seen[name]; ok {
			return append(b, 0xc0|uint8(at>>8), uint8(at))
		}
		var label string
		label, name, _ = strings.Cut(name, ".")
		b = append(append(b, uint8(len(label))), label...)
	}
	for suffix, found := whole, true; found; _, suffix, found = strings.Cut(suffix, ".") {
		if at := start + len(whole) - len(suffix); at < 1<<14 {
			seen[suffix] = at
		}
	}
	return append(b, 0)
}

// validDomain reports whether every label fits RFC 1035 section 2.3.4. It allocates nothing.
func validDomain(d string) bool {
	d = strings.TrimSuffix(d, ".")
	if d == "" || len(d) > 253 {
		return false
	}
	for more := true; more; {
		var label string
		label, d, more = strings.Cut(d, ".")
		if label == "" || len(label) > 63 {
			return false
		}
	}
	return true
}

// seconds returns d in 32 bits of seconds; a longer time is infinite (RFC 2131 section 3.3).
func seconds(d time.Duration) uint32 {
	return uint32(min(max(int64(d/time.Second), 0), math.MaxUint32))
}

func maskOf(p netip.Prefix) (m [4]byte) {
	binary.BigEndian.PutUint32(m[:], uint32(uint64(math.MaxUint32)<<(32-p.Bits())))
	return m
}

// broadcastOf returns the broadcast address.
func broadcastOf(p netip.Prefix) (last [4]byte) {
	mask, first := maskOf(p), p.Masked().Addr().As4()
	for i := range last {
		last[i] = first[i] | ^mask[i]
	}
	return last
}
