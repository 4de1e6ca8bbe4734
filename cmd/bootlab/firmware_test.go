package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/firmware"
)

// TestFirmware: what a folder of the user's holds comes first, and what is nowhere is listed with how to get it.
func TestFirmware(t *testing.T) {
	t.Parallel()
	own := t.TempDir()
	if err := os.WriteFile(filepath.Join(own, firmware.ShimX64), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	text := run(t.Context(), "firmware", "--firmware", own)
	if text.err != nil {
		t.Fatal(text.err)
	}
	said := strings.Join(strings.Fields(text.out), " ")
	for _, want := range []string{"FILE RUNS_ON WHAT VERSION", "shimx64.efi UEFI x64 shim, Secure Boot: starts GRUB - - 4 ", "folder " + own} {
		if !strings.Contains(said, want) {
			t.Errorf("bootlab firmware lacks %q:\n%s", want, text.out)
		}
	}
	var programs []firmware.Program
	if err := json.Unmarshal([]byte(run(t.Context(), "firmware", "--json", "--firmware", own).out), &programs); err != nil {
		t.Fatal(err)
	}
	missing := 0
	for _, p := range programs {
		if p.Missing != "" {
			missing++
			if !strings.Contains(text.out, p.Missing) {
				t.Errorf("bootlab firmware does not say how to get %s: %q", p.Name, p.Missing)
			}
		}
	}
	if len(programs) < len(firmware.Names()) || missing > 0 != strings.Contains(text.out, "HOW_TO_GET_IT") {
		t.Errorf("%d programs, %d of them missing:\n%s", len(programs), missing, text.out)
	}
}
