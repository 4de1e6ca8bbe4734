package discovered

import (
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
)

func TestParseFacts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 100)
	for _, tt := range []struct {
		name, query string
		want        Facts
	}{
		{"as iPXE sends it", "uuid=4c4c4544-004a-3810-804b-b8c04f503533&serial=J8K2P53&manufacturer=Dell%20Inc.&product=PowerEdge%20R640&arch=x86_64" +
			"&platform=efi&ipxe=1.21.1+%28g8460%29&nic=nii&memory=&module=0080&mac0=52-54-00-00-00-01&mac1=&mac2=52-54-00-00-00-02",
			Facts{UUID: "4c4c4544-004a-3810-804b-b8c04f503533", Serial: "J8K2P53", Manufacturer: "Dell Inc.", Product: "PowerEdge R640", Arch: "x86_64",
				Platform: "efi", IPXE: "1.21.1+(g8460)", NIC: "nii", MACs: []lab.MAC{{0x52, 0x54, 0, 0, 0, 1}, {0x52, 0x54, 0, 0, 0, 2}}}},
		{"no UUID", "uuid=00000000-0000-0000-0000-000000000000&uuid=FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", Facts{}},
		{"memory by module, low byte first", "module=0002", Facts{MemoryMiB: 512}},
		{"memory, then module", "memory=4096&module=0002", Facts{MemoryMiB: 4096}},
		{"invalid memory", "memory=-1&memory=99999999999999999999&module=ff7f", Facts{}},
		{"a terminal's sequences", "serial=%1b%5b2Jx%0a%09y%00z%c2%9b%ff", Facts{Serial: "[2Jx y z"}},
		{"too long", "serial=" + long, Facts{Serial: long[:maxText]}},
		{"MAC twice, zero MAC", "mac0=52-54-00-00-00-01&mac1=52:54:00:00:00:01&mac2=00-00-00-00-00-00&mac3=x", Facts{MACs: []lab.MAC{{0x52, 0x54, 0, 0, 0, 1}}}},
		{"bad escapes, other keys", "serial=%zz&password=x&=&&&product", Facts{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, ParseFacts(tt.query)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzFacts asserts that the facts of any report are short printable lines without control characters, and that parsing them
// again gives the same.
func FuzzFacts(f *testing.F) {
	for _, seed := range []string{
		"", "uuid=1&serial=%1b[31m&mac0=52-54-00-00-00-01&memory=512", "module=0080&module=ff7f", "serial=%c3%28&product=%e2%80%ae", "mac=02-00-00-00-00-01&macs=02-00-00-00-00-02",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		facts := ParseFacts(query)
		for _, s := range facts.key() {
			if len(s) > maxText || !utf8.ValidString(s) || strings.TrimSpace(s) != s || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("%q is kept of %q", s, query)
			}
		}
		if len(facts.MACs) > maxMACs || facts.MemoryMiB < 0 || facts.MemoryMiB > maxMiB {
			t.Fatalf("%+v of %q", facts, query)
		}
		if again := ParseFacts(retell(facts)); !again.Equal(facts) {
			t.Fatalf("parsed again: %+v, before %+v", again, facts)
		}
	})
}

// retell is a report of the same facts.
func retell(f Facts) string {
	k, keys := f.key(), []string{"uuid", "serial", "asset", "board", "manufacturer", "product", "arch", "platform", "ipxe", "nic", "memory"}
	var parts []string
	for i, key := range keys {
		parts = append(parts, key+"="+url.PathEscape(k[i]))
	}
	for _, m := range f.MACs {
		parts = append(parts, "mac="+m.Hyphens())
	}
	return strings.Join(parts, "&")
}
