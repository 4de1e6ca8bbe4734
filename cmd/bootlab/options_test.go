package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestMissingLab: a lab file that does not exist is named, before anyone looks for a daemon elsewhere.
func TestMissingLab(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lba.yaml")
	_, err := (&options{lab: path}).client()
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "--lab") || !strings.Contains(err.Error(), "default socket, /run/bootlab/admin.sock") {
		t.Errorf("error %v, want one that names %s", err, path)
	}
	if _, err := (&options{lab: path, server: "http://127.0.0.1:9680", token: "t"}).client(); err != nil {
		t.Errorf("with --server: %v", err)
	}
}

// TestUnreadableLab: where no daemon answers at the default socket, a lab file that this user may not read is named, with the permission.
func TestUnreadableLab(t *testing.T) {
	netns.Need(t, "root")
	dir := t.TempDir()
	for folder := dir; folder != os.TempDir() && folder != "/"; folder = filepath.Dir(folder) {
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	lab, self := filepath.Join(dir, "lab.yaml"), filepath.Join(dir, "bootlab")
	if err := os.WriteFile(lab, []byte("version: 1\nlab: l\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := bootlab(t.Context(), "status", "--lab", lab)
	program, err := os.ReadFile(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(self, program, 0o755); err != nil { // where it is may not be open to others
		t.Fatal(err)
	}
	cmd.Path, cmd.Dir, cmd.SysProcAttr = self, "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if want := "cannot be read (open " + lab + ": permission denied)"; err == nil || !strings.Contains(string(out), want) || !strings.Contains(string(out), "--server") {
		t.Errorf("%v: %s\nwant %q", err, out, want)
	}
}
