package discovered

import (
	"encoding/hex"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// Bounds of a report, which is not authenticated.
const (
	maxText  = 64      // bytes of one value
	maxMACs  = 8       // NICs
	maxQuery = 4096    // bytes of a report; the rest is not read
	maxMiB   = 1 << 26 // of memory: 64 TiB
)

// Facts are the report of a machine. All texts are short and printable.
type Facts struct {
	UUID         string    `json:"uuid,omitempty"`
	Serial       string    `json:"serial,omitempty"`
	Asset        string    `json:"asset,omitempty"`
	Board        string    `json:"board,omitempty"` // serial number of the board
	Manufacturer string    `json:"manufacturer,omitempty"`
	Product      string    `json:"product,omitempty"`
	Arch         string    `json:"arch,omitempty"`       // of the iPXE: i386, x86_64, arm64
	Platform     string    `json:"platform,omitempty"`   // pcbios or efi
	IPXE         string    `json:"ipxe,omitempty"`       // its version
	NIC          string    `json:"nic,omitempty"`        // driver or chip of the NIC that boots
	MemoryMiB    int       `json:"memory_mib,omitempty"` // all, or of the first module where the firmware reports no more; 0: not known
	MACs         []lab.MAC `json:"macs,omitempty"`
}

// IsZero reports whether the report is empty.
func (f Facts) IsZero() bool { return f.Equal(Facts{}) }

// Equal reports whether two reports are the same.
func (f Facts) Equal(g Facts) bool {
	same := slices.Equal(f.MACs, g.MACs)
	f.MACs, g.MACs = nil, nil
	return same && f.key() == g.key()
}

func (f Facts) key() [11]string {
	return [11]string{f.UUID, f.Serial, f.Asset, f.Board, f.Manufacturer, f.Product, f.Arch, f.Platform, f.IPXE, f.NIC, strconv.Itoa(f.MemoryMiB)}
}

// ParseFacts parses the query of a report. It never fails: what cannot be parsed is left out, what is too long is cut, and what cannot be
// printed becomes a space. A plus stays a plus, since iPXE does not escape it (before 2026-07).
func ParseFacts(query string) (f Facts) {
	query = query[:min(len(query), maxQuery)]
	for part := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(part, "=")
		value, err := url.PathUnescape(value)
		if err == nil {
			f.set(key, value)
		}
	}
	return f
}

func (f *Facts) set(key, value string) {
	for _, field := range []struct {
		key string
		to  *string
	}{
		{"serial", &f.Serial}, {"asset", &f.Asset}, {"board", &f.Board}, {"manufacturer", &f.Manufacturer},
		{"product", &f.Product}, {"arch", &f.Arch}, {"platform", &f.Platform}, {"ipxe", &f.IPXE}, {"nic", &f.NIC},
	} {
		if key == field.key {
			*field.to = tidy(value)
			return
		}
	}
	switch {
	case key == "uuid":
		if f.UUID = tidy(value); strings.Trim(f.UUID, "0-") == "" || strings.Trim(strings.ToLower(f.UUID), "f-") == "" {
			f.UUID = "" // a board without one
		}
	case strings.HasPrefix(key, "mac"):
		f.addMAC(value)
	case key == "memory":
		if n, err := strconv.Atoi(value); err == nil && n > 0 && n <= maxMiB {
			f.MemoryMiB = n
		}
	case key == "module" && f.MemoryMiB == 0:
		f.MemoryMiB = moduleMiB(value)
	}
}

func (f *Facts) addMAC(s string) {
	m, err := lab.ParseMAC(s)
	if err == nil && !m.IsZero() && len(f.MACs) < maxMACs && !slices.Contains(f.MACs, m) {
		f.MACs = append(f.MACs, m)
	}
}

// moduleMiB reads the size of a memory module as SMBIOS has it (type 17, offset 12): two bytes, the low one first, in MiB
// unless the highest bit is set (KiB); 0xffff is unknown, 0x7fff means that another field holds it.
func moduleMiB(s string) int {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 2 || b[1]&0x80 != 0 {
		return 0
	}
	n := int(b[0]) | int(b[1])<<8
	if n == 0x7fff {
		return 0
	}
	return n
}

func tidy(s string) string { return lab.Tidy(s, maxText) }
