package lab

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Pattern matches bytes that a machine or its relay sends: exactly these, or text in which '*' stands for any bytes, none
// included. Case counts. It is comparable: equal patterns match the same bytes.
type Pattern struct {
	text string // the bytes, or the glob
	glob bool
}

// ParsePattern reads "hex:0001ff" and "text:eth0/7" as exactly these bytes, and anything else as text, in which '*' stands
// for any bytes.
func ParsePattern(s string) (Pattern, error) {
	form, rest, tagged := strings.Cut(s, ":")
	switch {
	case tagged && form == "hex":
		b, err := hex.DecodeString(strings.NewReplacer(":", "", " ", "").Replace(rest))
		if err != nil || len(b) == 0 {
			return Pattern{}, fmt.Errorf("%q is not bytes: want pairs of hexadecimal digits like hex:0001ff", s)
		}
		return Pattern{text: string(b)}, nil
	case tagged && form == "text" && rest != "":
		return Pattern{text: rest}, nil
	case s == "" || tagged && form == "text":
		return Pattern{}, fmt.Errorf("%q is empty: want text, in which * stands for anything, or hex:0001ff", s)
	}
	for strings.Contains(s, "**") {
		s = strings.ReplaceAll(s, "**", "*")
	}
	return Pattern{text: s, glob: strings.Contains(s, "*")}, nil
}

// Match reports whether b fits. What was not sent (an empty b) fits no pattern, not even "*".
func (p Pattern) Match(b []byte) bool {
	switch {
	case len(b) == 0:
		return false
	case !p.glob:
		return string(b) == p.text
	}
	return matchGlob(p.text, b)
}

// matchGlob tries the last '*' longer and longer: at most len(glob)*len(b) steps, whatever a client sends.
func matchGlob(glob string, b []byte) bool {
	g, i := 0, 0
	star, from := -1, 0
	for i < len(b) {
		switch {
		case g < len(glob) && glob[g] == '*':
			star, from = g, i
			g++
		case g < len(glob) && glob[g] == b[i]:
			g++
			i++
		case star >= 0:
			from++
			g, i = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(glob[g:], "*") == ""
}

// The worth of a pattern that matched; see Pattern.worth. It fits worthBits.
const (
	worthBits  = 9
	worthExact = 1<<worthBits - 1
)

// worth is how specific a match is: of a glob the number of fixed bytes plus one, of an exact value more than of any glob.
func (p Pattern) worth() uint64 {
	if !p.glob {
		return worthExact
	}
	return min(1+uint64(len(p.text)-strings.Count(p.text, "*")), worthExact-1)
}

// String returns the pattern as a lab file may hold it.
func (p Pattern) String() string {
	printable := !strings.ContainsFunc(p.text, func(r rune) bool { return r < ' ' || r > '~' })
	switch {
	case p.glob:
		return p.text
	case !printable:
		return "hex:" + hex.EncodeToString([]byte(p.text))
	case strings.HasPrefix(p.text, "hex:") || strings.HasPrefix(p.text, "text:") || strings.Contains(p.text, "*"):
		return "text:" + p.text
	}
	return p.text
}

// An Arch matches kinds of machine by the code that their firmware sends in option 93 (RFC 4578 section 2.1; the codes are
// IANA's "Processor Architecture Types"). It is comparable.
type Arch struct {
	name string // empty: the number alone
	set  uint64 // bit n: code n
	code uint16
}

// archs are the kinds that have a name. The codes for PXE and for HTTP boot of the same firmware have the same name. RFC 4578
// had the codes 7 and 9 swapped, and firmware that sends 9 is x64.
var archs = []Arch{
	kind("bios", 0, 20), kind("uefi-ia32", 6, 15), kind("uefi-x64", 7, 9, 16, 17), kind("uefi-arm32", 10, 18),
	kind("uefi-arm64", 11, 19), kind("opal", 14), kind("uboot-arm32", 21, 23), kind("uboot-arm64", 22, 24),
	kind("uefi-riscv32", 25, 26), kind("uefi-riscv64", 27, 28), kind("uefi-riscv128", 29, 30), kind("s390", 31, 32),
	kind("uefi-loongarch32", 37, 38), kind("uefi-loongarch64", 39, 40), kind("rpiboot", 41),
}

func kind(name string, codes ...uint16) Arch {
	a := Arch{name: name}
	for _, c := range codes {
		a.set |= 1 << c
	}
	return a
}

// ArchNames returns the architectures that have a name.
func ArchNames() (names []string) {
	for _, a := range archs {
		names = append(names, a.name)
	}
	return names
}

// ParseArch reads the name of a kind of machine, such as uefi-arm64, or the number of one code.
func ParseArch(s string) (Arch, error) {
	if i := slices.IndexFunc(archs, func(a Arch) bool { return a.name == s }); i >= 0 {
		return archs[i], nil
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		if near := Nearest(s, ArchNames()); near != "" {
			return Arch{}, fmt.Errorf("%q is not an architecture: did you mean %s?", s, near)
		}
		return Arch{}, fmt.Errorf("%q is not an architecture: want %s, or its number in option 93", s, strings.Join(ArchNames(), ", "))
	}
	return Arch{code: uint16(n)}, nil
}

// ArchName returns the name of the kind of machine that sends a code, empty if it has none.
func ArchName(code uint16) string {
	if i := slices.IndexFunc(archs, func(a Arch) bool { return a.Match(code) }); i >= 0 {
		return archs[i].name
	}
	return ""
}

// Match reports whether a machine that sends that code is meant.
func (a Arch) Match(code uint16) bool {
	if a.name == "" {
		return code == a.code
	}
	return code < 64 && a.set>>code&1 == 1
}

// low returns the codes below 64 that match, as bits.
func (a Arch) low() uint64 {
	if a.name == "" {
		return 1 << a.code
	}
	return a.set
}

// worth is how specific a match is: a number is more than a name, which stands for several codes.
func (a Arch) worth() uint64 {
	if a.name == "" {
		return 2
	}
	return 1
}

// Name returns the name of the kind, also for one of its numbers; empty if it has none.
func (a Arch) Name() string { return cmp.Or(a.name, ArchName(a.code)) }

// String returns the name, or the number.
func (a Arch) String() string {
	if a.name == "" {
		return strconv.Itoa(int(a.code))
	}
	return a.name
}
