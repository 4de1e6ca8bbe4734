package load_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/internal/lab/load"
)

// TestPipe: a pipe into which nobody writes is an empty file, and no reason to wait.
func TestPipe(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "lab.yaml")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Skip(err)
	}
	for _, path := range []string{name, filepath.Dir(name)} {
		if _, err := load.Lab(path, load.Options{}); err == nil || !strings.Contains(err.Error(), "version: is missing") {
			t.Errorf("%s: %v, want that the version is missing", path, err)
		}
	}
}
