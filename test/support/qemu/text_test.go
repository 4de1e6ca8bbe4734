package qemu

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBlankOptions: only the options of iPXE are blanked, and a truncated packet is handled.
func TestBlankOptions(t *testing.T) {
	t.Parallel()
	head := make([]byte, 240)
	tests := []struct {
		name          string
		options, want string
		blanked       bool
	}{
		{"iPXE", "\x35\x01\x01\x4d\x04iPXE\xaf\x03\xb1\x01\x02\x37\x01\x03\xff", "\x35\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x37\x01\x03\xff", true},
		{"another client", "\x35\x01\x01\x00\x37\x01\x03\xff\x4d\x01", "\x35\x01\x01\x00\x37\x01\x03\xff\x4d\x01", false},
		{"cut short", "\x35\x01\x01\x4d\x09iPXE", "\x35\x01\x01\x4d\x09iPXE", false},
		{"cut before the length", "\x4d", "\x4d", false},
		{"no options", "", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			packet := append(bytes.Clone(head), tt.options...)
			if got := blankOptions(packet, 77, 175); got != tt.blanked {
				t.Errorf("blanked: %v, want %v", got, tt.blanked)
			}
			if diff := cmp.Diff(tt.want, string(packet[240:])); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestPlain: escape sequences are removed from a line, and nothing else.
func TestPlain(t *testing.T) {
	t.Parallel()
	const in = "\x1b[2J\x1b[01;01H\x1b[=3h\x1b[0m\x1b[37m\x1b[40mGUEST lease\tip=10.77.0.21/24\r\n"
	if diff := cmp.Diff("GUEST lease\tip=10.77.0.21/24", plain(in)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
