package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestFileThatGoes: a file of a profile that is removed after the load is a warning while it is missing, in the status and in the log. The
// machines that boot it would be the first to find out.
func TestFileThatGoes(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.125.10.1")
	kernel := filepath.Join(filepath.Dir(r.lab), "k")
	if err := os.WriteFile(kernel, []byte("kernel"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.write(strings.Replace(strings.Replace(r.read(), "state: state,", "state: state, files: .,", 1), "\nhosts:", "\nprofiles: {p: {kernel: k}}\nhosts:", 1))
	r.start()
	missing := func() bool {
		return strings.Contains(r.status().Warnings.Error(), "/k: file not found; machines that need it")
	}
	if missing() {
		t.Fatalf("missing before it was removed: %q", r.status().Warnings)
	}
	if err := os.Remove(kernel); err != nil {
		t.Fatal(err)
	}
	r.until("the status warns of the file", missing)
	if err := os.WriteFile(kernel, []byte("kernel"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.until("the status does not warn of it any more", func() bool { return !missing() })
}
