package configs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

const dir = "../../configs"

func TestExamplesLoad(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(dir + "/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("lab files %v (%v)", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			l, err := load.Lab(file, load.Options{FileExists: func(string) bool { return true }})
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range l.Warnings {
				t.Errorf("warning: %v", w)
			}
			if _, err := virt.Compile(l); err != nil {
				t.Error(err)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Base(file) == "reference.yaml" {
				return // shows keys, not a lab to try
			}
			if how := "bootlab check --lab configs/" + filepath.Base(file); !strings.Contains(string(text), how) {
				t.Errorf("does not say how to check it: %s", how)
			}
		})
	}
}

func TestUnitVerifies(t *testing.T) {
	t.Parallel()
	netns.Need(t, "systemd-analyze")
	unit, err := os.ReadFile(dir + "/bootlab.service")
	if err != nil {
		t.Fatal(err)
	}
	// What it starts is not installed here; what is verified is the rest.
	text := strings.ReplaceAll(string(unit), "/usr/local/bin/bootlab", "/bin/true")
	file := filepath.Join(t.TempDir(), "bootlab.service")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", file).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "bootlab.service") && !strings.Contains(line, "not found") {
			t.Errorf("%s", line)
		}
	}
	if err != nil {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// The exposure that systemd rates, from 0 to 10, times ten.
	for _, want := range []string{"\nLimitCORE=0\n", "\nWatchdogSec=", "\nMemoryMax="} { // systemd-analyze does not ask for these
		if !strings.Contains(text, want) {
			t.Errorf("the unit lacks %q", strings.TrimSpace(want))
		}
	}
	if out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=19", file).CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze security: want below 2: %v\n%s", err, out)
	}
}
