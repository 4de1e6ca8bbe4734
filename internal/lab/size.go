package lab

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A Size is a number of bytes.
type Size uint64

// ParseSize reads a number and a unit, such as 512MiB or 42GiB.
func ParseSize(text string) (Size, error) {
	number := strings.TrimRight(text, "KMGTPiB")
	unit, ok := sizeUnit(text[len(number):])
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || !ok || n == 0 || n > math.MaxInt64/uint64(unit) {
		return 0, fmt.Errorf("%q is not a size: %s", text, meantSize(text))
	}
	return Size(n) * unit, nil
}

// meantSize says what would be right instead of a text that is not a size: that of libvirt, Kubernetes or df, or one of another case.
func meantSize(text string) string {
	number := strings.TrimRight(strings.ToLower(text), "abceimgtkpsy ")
	unit := strings.Trim(strings.ToLower(text[len(number):]), " ")
	n, err := strconv.ParseUint(number, 10, 32)
	unit = strings.TrimSuffix(strings.TrimSuffix(unit, "b"), "i")
	switch power := strings.Index("kmgtp", unit); {
	case err != nil || n == 0 || power < 0 || len(unit) > 1:
		return "want a number and a unit, like 512MiB or 42GiB"
	case unit == "" && n >= 64 && n < 512:
		return fmt.Sprintf("want a unit too, as in %dMiB or %[1]dGiB", n)
	case unit == "" && n >= 512:
		return fmt.Sprintf("did you mean %dMiB?", n)
	case unit == "":
		return fmt.Sprintf("did you mean %dGiB?", n)
	default:
		return fmt.Sprintf("did you mean %d%siB?", n, strings.ToUpper(unit))
	}
}

// sizeUnit knows binary (KiB) and decimal (KB) units.
func sizeUnit(s string) (Size, bool) {
	prefix, ok := strings.CutSuffix(s, "B")
	if !ok || prefix == "i" {
		return 1, false
	}
	prefix, binary := strings.CutSuffix(prefix, "i")
	power := strings.Index("KMGTP", prefix)
	switch {
	case prefix == "":
		return 1, true
	case power < 0 || len(prefix) != 1:
		return 1, false
	}
	unit := Size(1)
	for range power + 1 {
		if binary {
			unit *= 1024
		} else {
			unit *= 1000
		}
	}
	return unit, true
}

// Rounded returns the size for people: "512 B", "1.4 MiB".
func (s Size) Rounded() string {
	if s < 1024 {
		return fmt.Sprintf("%d B", s)
	}
	f, unit := float64(s), 0
	for ; f >= 1024 && unit < 4; unit++ {
		f /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", f, " KMGT"[unit])
}

// String returns the size in the largest binary unit that divides it, as the lab file writes it.
func (s Size) String() string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for i < len(units)-1 && s >= 1024 && s%1024 == 0 {
		s /= 1024
		i++
	}
	return strconv.FormatUint(uint64(s), 10) + units[i]
}
