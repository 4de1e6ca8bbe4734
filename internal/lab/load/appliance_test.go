package load_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bootlab/bootlab/internal/lab/load"
)

// TestLoadAppliance is about a command line that must find its daemon while the lab file is broken.
func TestLoadAppliance(t *testing.T) {
	t.Parallel()
	const fallback = "/run/bootlab/admin.sock"
	for _, tt := range []struct{ name, text, want string }{
		{"good", "version: 1\nlab: x\nappliance: {admin_socket: /tmp/a.sock}\n", "/tmp/a.sock"},
		{"unknown key", "version: 1\nlab: x\nappliance: {admin_socket: /tmp/a.sock}\nfoo: 1\n", "/tmp/a.sock"},
		{"wrong host", "version: 1\nlab: x\nappliance: {admin_socket: /tmp/a.sock}\nhosts: {a: {mac: nonsense}}\n", "/tmp/a.sock"},
		{"not YAML", "version: 1\nappliance: {admin_socket\n", fallback},
		{"not YAML below", "version: 1\nappliance:\n  # where we are\n  admin_socket: /tmp/a.sock\n\n  user: root\nhosts: [\n", "/tmp/a.sock"},
		{"not YAML above", "hosts: [\nappliance: {admin_socket: /tmp/a.sock} # one line\nbad\n", "/tmp/a.sock"},
		{"a tab", "version: 1\nappliance: {admin_socket: /tmp/a.sock}\nhosts:\n\tx: 1\n", "/tmp/a.sock"},
		{"empty", "", fallback},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "lab.yaml")
			if err := os.WriteFile(path, []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			if got := load.Appliance(path).AdminSocket; got != tt.want {
				t.Errorf("admin socket %q, want %q", got, tt.want)
			}
		})
	}
	if got := load.Appliance("/nowhere/lab.yaml").AdminSocket; got != fallback {
		t.Errorf("without a lab file: %q, want %q", got, fallback)
	}
}
