package lab_test

import (
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

// TestUEFIOf: Secure Boot is what the loader or a feature says, unless a feature says no.
func TestUEFIOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		loader, feature, keys string
		secure                bool
	}{
		{"", "", "", false},
		{"no", "", "", false},
		{"yes", "", "", true},
		{"", "yes", "", true},
		{"", "", "yes", true},
		{"", "yes", "yes", true},
		{"no", "yes", "", true},
		{"yes", "yes", "no", false},
		{"yes", "no", "", false},
		{"", "no", "no", false},
	} {
		want := lab.FirmwareUEFI
		if tt.secure {
			want = lab.FirmwareUEFISecure
		}
		if got := lab.UEFIOf(tt.loader, tt.feature, tt.keys); got != want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
