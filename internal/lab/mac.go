package lab

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// A MAC is a 48-bit Ethernet address. It is comparable, so it can be a map key.
type MAC [6]byte

// ParseMAC reads a MAC as people write it: six bytes in hexadecimal, upper or lower case, separated by ':' or '-'.
func ParseMAC(s string) (MAC, error) {
	var m MAC
	if len(s) != 17 {
		return MAC{}, fmt.Errorf("%q is not a MAC address: want six bytes like 52:54:00:2c:01:10", s)
	}
	for i := range m {
		if i > 0 && (s[3*i-1] != s[2] || (s[2] != ':' && s[2] != '-')) {
			return MAC{}, fmt.Errorf("%q is not a MAC address: want one separator, ':' or '-', throughout", s)
		}
		if _, err := hex.Decode(m[i:i+1], []byte(s[3*i:3*i+2])); err != nil {
			return MAC{}, fmt.Errorf("%q is not a MAC address: %q is not hexadecimal", s, s[3*i:3*i+2])
		}
	}
	return m, nil
}

// String returns the address in lower case with colons.
func (m MAC) String() string { return m.format(':') }

// Hyphens returns the address in lower case with hyphens, as it stands in the paths of the boot plane.
func (m MAC) Hyphens() string { return m.format('-') }

// IsZero reports whether the address is unknown.
func (m MAC) IsZero() bool { return m == MAC{} }

// Compare orders addresses by their bytes.
func (m MAC) Compare(o MAC) int { return bytes.Compare(m[:], o[:]) }

// MarshalText implements encoding.TextMarshaler.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *MAC) UnmarshalText(b []byte) (err error) {
	if len(b) == 0 {
		*m = MAC{}
		return nil
	}
	*m, err = ParseMAC(string(b))
	return err
}

func (m MAC) format(sep byte) string {
	var b [17]byte
	for i := range m {
		hex.Encode(b[3*i:], m[i:i+1])
		if i < 5 {
			b[3*i+2] = sep
		}
	}
	return string(b[:])
}

// A MACPattern matches the MACs that agree with it in its leading or wildcarded bits.
type MACPattern struct {
	value, mask MAC
}

// ParseMACPattern reads "52:54:00:*:*:*" (whole bytes) or "52:54:00:00:00:00/24" (a prefix of 0 to 48 bits).
func ParseMACPattern(s string) (MACPattern, error) {
	addr, bits, isPrefix := strings.Cut(s, "/")
	if isPrefix {
		return parseMACPrefix(s, addr, bits)
	}
	var p MACPattern
	separator := ":"
	if !strings.Contains(s, separator) {
		separator = "-"
	}
	parts := strings.Split(s, separator)
	if len(parts) != 6 {
		return MACPattern{}, fmt.Errorf("%q is not a MAC pattern: want 52:54:00:*:*:* or 52:54:00:00:00:00/24", s)
	}
	for i, part := range parts {
		if part == "*" {
			continue
		}
		b, err := strconv.ParseUint(part, 16, 8)
		if err != nil || len(part) != 2 {
			return MACPattern{}, fmt.Errorf("%q is not a MAC pattern: want * or two hexadecimal digits, not %q", s, part)
		}
		p.value[i], p.mask[i] = byte(b), 0xff
	}
	return p, nil
}

func parseMACPrefix(s, addr, bits string) (MACPattern, error) {
	n, err := strconv.Atoi(bits)
	if err != nil || n < 0 || n > 48 {
		return MACPattern{}, fmt.Errorf("%q is not a MAC prefix: want /0 to /48", s)
	}
	m, err := ParseMAC(addr)
	if err != nil {
		return MACPattern{}, err
	}
	var p MACPattern
	for i := range p.mask {
		switch left := n - 8*i; {
		case left >= 8:
			p.mask[i] = 0xff
		case left > 0:
			p.mask[i] = 0xff << (8 - left)
		}
		p.value[i] = m[i] & p.mask[i]
	}
	return p, nil
}

// Match reports whether m agrees with the pattern.
func (p MACPattern) Match(m MAC) bool {
	for i := range m {
		if m[i]&p.mask[i] != p.value[i] {
			return false
		}
	}
	return true
}

// Bits returns how many bits the pattern fixes; of several matching patterns the one with most bits wins.
func (p MACPattern) Bits() int {
	n := 0
	for _, b := range p.mask {
		for ; b != 0; b &= b - 1 {
			n++
		}
	}
	return n
}

// String returns the pattern with '*' for free bytes, or as a prefix where it ends inside a byte.
func (p MACPattern) String() string {
	var parts [6]string
	for i := range p.mask {
		switch p.mask[i] {
		case 0xff:
			parts[i] = fmt.Sprintf("%02x", p.value[i])
		case 0:
			parts[i] = "*"
		default:
			return fmt.Sprintf("%s/%d", p.value, p.Bits())
		}
	}
	return strings.Join(parts[:], ":")
}
