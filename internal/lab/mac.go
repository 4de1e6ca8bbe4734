package lab

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// A MAC is a 48-bit Ethernet address. It is comparable, so it can be a map key.
type MAC [6]byte

// ParseMAC reads a MAC as people write it: six bytes in hexadecimal, upper or lower case, separated by ':' or '-'.
func ParseMAC(s string) (MAC, error) {
	var m MAC
	if len(s) != 17 {
		return MAC{}, notMAC(s, "want six bytes like 52:54:00:2c:01:10")
	}
	for i := range m {
		if i > 0 && (s[3*i-1] != s[2] || (s[2] != ':' && s[2] != '-')) {
			return MAC{}, notMAC(s, "want one separator, ':' or '-', throughout")
		}
		if _, err := hex.Decode(m[i:i+1], []byte(s[3*i:3*i+2])); err != nil {
			return MAC{}, fmt.Errorf("%q is not a MAC address: %q is not hexadecimal", s, s[3*i:3*i+2])
		}
	}
	return m, nil
}

// notMAC says what is wrong with s, and what was meant where it has the digits of six bytes, as a switch writes them: 5254.002c.0110.
func notMAC(s, wrong string) error {
	digits := strings.NewReplacer(".", "", ":", "", "-", "").Replace(s)
	if m, err := hex.DecodeString(digits); err == nil && len(m) == len(MAC{}) {
		wrong = fmt.Sprintf("did you mean %s?", MAC(m))
	}
	return fmt.Errorf("%q is not a MAC address: %s", s, wrong)
}

// String returns the address in lower case with colons.
func (m MAC) String() string { return m.format(':') }

// Hyphens returns the address in lower case with hyphens, as in the paths of the HTTP server for machines.
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

// AppendTo appends what String returns to b.
func (m MAC) AppendTo(b []byte) []byte { return m.appendTo(b, ':') }

func (m MAC) format(sep byte) string {
	var b [17]byte
	return string(m.appendTo(b[:0], sep))
}

func (m MAC) appendTo(b []byte, sep byte) []byte {
	for i := range m {
		if i > 0 {
			b = append(b, sep)
		}
		b = hex.AppendEncode(b, m[i:i+1])
	}
	return b
}

// bits returns the address as a number, its first byte in bits 47 to 40.
func (m MAC) bits() uint64 {
	return uint64(m[0])<<40 | uint64(m[1])<<32 | uint64(m[2])<<24 | uint64(m[3])<<16 | uint64(m[4])<<8 | uint64(m[5])
}

// A MACPattern matches the MACs that agree with it in its leading or wildcarded bits. It is comparable: equal patterns
// match the same addresses, however they were written.
type MACPattern struct {
	value, mask uint64 // as MAC.bits; value holds no bit that mask does not
}

// ParseMACPattern reads "52:54:00:*:*:*" (whole bytes) or "52:54:00:00:00:00/24" (a prefix of 0 to 48 bits).
func ParseMACPattern(s string) (MACPattern, error) {
	addr, length, isPrefix := strings.Cut(s, "/")
	if isPrefix {
		return parseMACPrefix(s, addr, length)
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
	for _, part := range parts {
		p.value, p.mask = p.value<<8, p.mask<<8
		if part == "*" {
			continue
		}
		b, err := strconv.ParseUint(part, 16, 8)
		if err != nil || len(part) != 2 {
			return MACPattern{}, fmt.Errorf("%q is not a MAC pattern: want * or two hexadecimal digits, not %q", s, part)
		}
		p.value, p.mask = p.value|b, p.mask|0xff
	}
	return p, nil
}

func parseMACPrefix(s, addr, length string) (MACPattern, error) {
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > macBits {
		return MACPattern{}, fmt.Errorf("%q is not a MAC prefix: want /0 to /48", s)
	}
	m, err := ParseMAC(addr)
	if err != nil {
		return MACPattern{}, err
	}
	mask := uint64(1)<<macBits - uint64(1)<<(macBits-n)
	return MACPattern{value: m.bits() & mask, mask: mask}, nil
}

const macBits = 48

// Match reports whether m agrees with the pattern.
func (p MACPattern) Match(m MAC) bool { return m.bits()&p.mask == p.value }

// Bits returns how many bits the pattern fixes, 0 to 48; of several matching patterns the one with most bits wins.
func (p MACPattern) Bits() int { return bits.OnesCount64(p.mask) }

// String returns the pattern with '*' for free bytes, or as a prefix where it ends inside a byte.
func (p MACPattern) String() string {
	var parts [6]string
	var value MAC
	for i := range value {
		shift := 8 * (5 - i)
		value[i] = byte(p.value >> shift)
		switch byte(p.mask >> shift) {
		case 0xff:
			parts[i] = fmt.Sprintf("%02x", value[i])
		case 0:
			parts[i] = "*"
		default: // the bytes after it are 0 in value
			return fmt.Sprintf("%s/%d", value, p.Bits())
		}
	}
	return strings.Join(parts[:], ":")
}

// DerivedMAC returns the MAC of a virtual machine's NIC that has none in the lab file. It depends on the names of lab, host and network
// alone. It begins with 52:54, which is local and unicast (IEEE 802), as QEMU's own 52:54:00.
func DerivedMAC(lab, host, network string) MAC {
	sum := sha256.Sum256([]byte(lab + "\x00" + host + "\x00" + network))
	return MAC{0x52, 0x54, sum[0], sum[1], sum[2], sum[3]}
}
