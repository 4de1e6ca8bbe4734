package statefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLeft: only what a daemon alone makes shows that one has used the folder. A name that ends with a slash is a folder, "a -> b" a link.
func TestLeft(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		has  []string
		want string
	}{
		{name: "a folder made by systemd"},
		{name: "mkfs", has: []string{"lost+found/"}},
		{name: "files of an admin, ssh and libvirt", has: []string{".ssh/known_hosts", ".cache/libvirt/x", "lab.yaml", "README"}},
		{name: "a token in advance", has: []string{"token"}},
		{name: "file systems of their own, not used yet", has: []string{"mirrors/lost+found/", "unpacked/", "acme/"}},
		{name: "links made in advance", has: []string{"mirrors -> /", "consoles -> /"}},
		{name: "state file and marker, which others judge", has: []string{"state.db", "state.db.new", "state.marker"}},
		{name: "any start", has: []string{"token", "consoles/"}, want: "consoles"},
		{name: "a mirror", has: []string{"lost+found/", "mirrors/debian/"}, want: "mirrors"},
		{name: "a mirror with a file system of its own", has: []string{"mirrors/lost+found/", "mirrors/debian/"}, want: "mirrors"},
		{name: "a certificate of ACME", has: []string{"acme/0123456789abcdef/lab.example"}, want: "acme"},
		{name: "an image", has: []string{"unpacked/0123456789abcdef/disk.img"}, want: "unpacked"},
		{name: "a certificate of Redfish", has: []string{"redfish.pem"}, want: "redfish.pem"},
		{name: "a damaged state", has: []string{"consoles/", "state.db.damaged-20261128T120000Z"}, want: "state.db.damaged-20261128T120000Z"},
		{name: "a state that a restore has replaced", has: []string{"state.db.before-restore-20261128-120000"}, want: "state.db.before-restore-20261128-120000"},
		{name: "a restore that was killed", has: []string{"state.db.restore"}, want: "state.db.restore"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, name := range tt.has {
				put(t, dir, name)
			}
			want := tt.want
			if want != "" {
				want = filepath.Join(dir, want)
			}
			if got := Left(dir); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	if got := Left(filepath.Join(t.TempDir(), "none")); got != "" {
		t.Errorf("no folder: %q", got)
	}
}

func put(t *testing.T, dir, name string) {
	t.Helper()
	name, target, link := strings.Cut(name, " -> ")
	path := filepath.Join(dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	switch {
	case err != nil:
	case link:
		err = os.Symlink(target, path)
	case strings.HasSuffix(name, "/"):
		err = os.MkdirAll(path, 0o755)
	default:
		err = os.WriteFile(path, nil, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
