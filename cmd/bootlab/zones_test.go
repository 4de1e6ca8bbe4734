package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/daemon/plan"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestZones: BIND reads every zone that plan --zones prints, and has nothing to complain about.
func TestZones(t *testing.T) {
	t.Parallel()
	netns.Need(t, "named-checkzone")
	for name, file := range labs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := run(t.Context(), "plan", "--zones", "--json", "--lab", file)
			var zones []plan.Zone
			if err := json.Unmarshal([]byte(a.out), &zones); a.err != nil || err != nil || len(zones) == 0 {
				t.Fatalf("%v, %v: %s", a.err, err, a.out)
			}
			for _, z := range zones {
				one := run(t.Context(), "plan", "--zones", z.Origin, "--lab", file)
				if one.err != nil || one.out != z.Text {
					t.Errorf("plan --zones %s: %v\n%s", z.Origin, one.err, one.out)
				}
				if z.Broken {
					continue
				}
				checkZone(t, z)
			}
		})
	}
}

func checkZone(t *testing.T, z plan.Zone) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "zone")
	if err := os.WriteFile(path, []byte(z.Text), 0o600); err != nil {
		t.Fatal(err)
	}
	// Names outside the zone are not looked up: there is no name server here.
	out, err := exec.CommandContext(t.Context(), "named-checkzone", "-i", "local", "-k", "fail", z.Origin, path).CombinedOutput()
	if err != nil || strings.Count(string(out), "\n") != 2 || !strings.HasSuffix(string(out), "OK\n") {
		t.Errorf("zone %s: %v\n%s\n%s", z.Origin, err, out, z.Text)
	}
}
