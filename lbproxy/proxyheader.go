package lbproxy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// The PROXY protocol, versions 1 and 2, as its specification of 2020 has it.
const (
	proxyV1Prefix = "PROXY "
	proxyV1Max    = 107
	proxyV2Magic  = "\r\n\r\n\x00\r\nQUIT\n"
	proxyV2Header = 16
	proxyV2Max    = 2048 // bytes of addresses and TLVs that are waited for

	proxyV2Local = 0x20
	proxyV2Proxy = 0x21
	proxyV2TCP4  = 0x11
	proxyV2TCP6  = 0x21
)

// A proxyHeader says whose connection it is. Invalid addresses mean the sender's own, as in health checks (UNKNOWN,
// LOCAL) and for families that are not TCP over IP.
type proxyHeader struct {
	src, dst netip.AddrPort
}

// appendProxyHeader appends a header of that version, 1 or 2. Addresses of different families, or invalid ones, make it
// UNKNOWN or LOCAL.
func appendProxyHeader(b []byte, version int, h proxyHeader) []byte {
	src := netip.AddrPortFrom(h.src.Addr().Unmap(), h.src.Port())
	dst := netip.AddrPortFrom(h.dst.Addr().Unmap(), h.dst.Port())
	known := src.IsValid() && dst.IsValid() && src.Addr().Is4() == dst.Addr().Is4()
	switch {
	case version == 1 && !known:
		return append(b, proxyV1Prefix+"UNKNOWN\r\n"...)
	case version == 1:
		family := "TCP4"
		if src.Addr().Is6() {
			family = "TCP6"
		}
		return fmt.Appendf(b, "%s%s %s %s %d %d\r\n", proxyV1Prefix, family,
			src.Addr().WithZone(""), dst.Addr().WithZone(""), src.Port(), dst.Port())
	case !known:
		return append(append(b, proxyV2Magic...), proxyV2Local, 0, 0, 0)
	}
	b = append(append(b, proxyV2Magic...), proxyV2Proxy)
	if src.Addr().Is4() {
		b = append(b, proxyV2TCP4, 0, 12)
	} else {
		b = append(b, proxyV2TCP6, 0, 36)
	}
	b = append(append(b, src.Addr().AsSlice()...), dst.Addr().AsSlice()...)
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, src.Port()), dst.Port())
}

// readProxyHeader returns the header that b starts with and its length in bytes. It returns errShort while b may still
// become one, errForeign when b is not one, and another error when b is a broken one, which must end the connection.
func readProxyHeader(b []byte) (proxyHeader, int, error) {
	if startsLike(b, proxyV1Prefix) {
		return readProxyV1(b)
	}
	if startsLike(b, proxyV2Magic) {
		return readProxyV2(b)
	}
	return proxyHeader{}, 0, errForeign
}

// startsLike reports whether b starts with magic, as far as b goes.
func startsLike(b []byte, magic string) bool {
	n := min(len(b), len(magic))
	return string(b[:n]) == magic[:n]
}

func readProxyV1(b []byte) (proxyHeader, int, error) {
	end := bytes.Index(b[:min(len(b), proxyV1Max)], []byte("\r\n"))
	if end < 0 && len(b) < proxyV1Max {
		return proxyHeader{}, 0, errShort
	}
	if end < 0 {
		return proxyHeader{}, 0, fmt.Errorf("PROXY v1 header does not end within %d bytes", proxyV1Max)
	}
	h, err := parseProxyV1(string(b[:end]))
	return h, end + 2, err
}

func parseProxyV1(line string) (proxyHeader, error) {
	f := strings.Split(line, " ")
	if len(f) >= 2 && f[1] == "UNKNOWN" {
		return proxyHeader{}, nil
	}
	if len(f) != 6 || f[1] != "TCP4" && f[1] != "TCP6" {
		return proxyHeader{}, fmt.Errorf("PROXY v1 header %q is not \"PROXY TCP4|TCP6 SRC DST SPORT DPORT\"", line)
	}
	src, err := proxyAddr(f[1], f[2], f[4])
	if err != nil {
		return proxyHeader{}, err
	}
	dst, err := proxyAddr(f[1], f[3], f[5])
	return proxyHeader{src: src, dst: dst}, err
}

func proxyAddr(family, addr, port string) (netip.AddrPort, error) {
	a, err := netip.ParseAddr(addr)
	if err != nil || a.Zone() != "" || a.Is4() != (family == "TCP4") {
		return netip.AddrPort{}, fmt.Errorf("PROXY v1 header: %q is not a %s address", addr, family)
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("PROXY v1 header: %q is not a port", port)
	}
	return netip.AddrPortFrom(a, uint16(p)), nil
}

func readProxyV2(b []byte) (proxyHeader, int, error) {
	if len(b) < proxyV2Header {
		return proxyHeader{}, 0, errShort
	}
	command, family, size := b[12], b[13], int(binary.BigEndian.Uint16(b[14:]))
	if command != proxyV2Local && command != proxyV2Proxy {
		return proxyHeader{}, 0, fmt.Errorf("PROXY v2 header: version and command %#02x are not known", command)
	}
	if size > proxyV2Max {
		return proxyHeader{}, 0, fmt.Errorf("PROXY v2 header: %d bytes of addresses, want %d at most", size, proxyV2Max)
	}
	if len(b) < proxyV2Header+size {
		return proxyHeader{}, 0, errShort
	}
	if command == proxyV2Local {
		return proxyHeader{}, proxyV2Header + size, nil
	}
	h, err := parseProxyV2(family, b[proxyV2Header:proxyV2Header+size])
	return h, proxyV2Header + size, err
}

// parseProxyV2 reads the addresses of a v2 header; TLVs after them are ignored.
func parseProxyV2(family byte, b []byte) (proxyHeader, error) {
	size := 0
	switch family {
	case proxyV2TCP4:
		size = 4
	case proxyV2TCP6:
		size = 16
	default:
		return proxyHeader{}, nil
	}
	if len(b) < 2*size+4 {
		return proxyHeader{}, fmt.Errorf("PROXY v2 header: %d bytes are too few for two addresses", len(b))
	}
	src, _ := netip.AddrFromSlice(b[:size])
	dst, _ := netip.AddrFromSlice(b[size : 2*size])
	ports := b[2*size:]
	return proxyHeader{
		src: netip.AddrPortFrom(src, binary.BigEndian.Uint16(ports)),
		dst: netip.AddrPortFrom(dst, binary.BigEndian.Uint16(ports[2:])),
	}, nil
}
