package privileges

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

// TestCapabilitiesAreTheSameEverywhere: the unit and the container give what the daemon keeps, and nothing else.
func TestCapabilitiesAreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	var want []string
	for _, c := range Kept(lab.Appliance{}) {
		want = append(want, strings.ToUpper(c.String()))
	}
	for _, tt := range []struct{ file, after string }{
		{"../../../configs/bootlab.service", "\nAmbientCapabilities="},
		{"../../../configs/bootlab.service", "\nCapabilityBoundingSet="},
		{"../../../Dockerfile", "\n && setcap "},
	} {
		b, err := os.ReadFile(tt.file)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, ok := strings.Cut(string(b), tt.after)
		list, _, _ := strings.Cut(rest, "\n")
		list, _, _ = strings.Cut(list, "=")
		got := strings.FieldsFunc(strings.ToUpper(list), func(r rune) bool { return r == ' ' || r == ',' })
		if !ok || !slices.Equal(got, want) {
			t.Errorf("%s, %s: %q, want %q", tt.file, strings.TrimSpace(tt.after), got, want)
		}
	}
}
