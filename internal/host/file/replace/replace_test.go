package replace_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/internal/host/file/replace"
	"github.com/bootlab/bootlab/test/support/faultfs"
)

// want holds that a folder has the file "file" with that text, and nothing else but other.
func want(t *testing.T, dir, text string, other ...string) {
	t.Helper()
	if got, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(got) != text {
		t.Errorf("the file has %q, %v, want %q", got, err, text)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1+len(other) {
		t.Errorf("the folder has %v, %v", all, err)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(filepath.Join(dir, "other"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("other", path); err != nil {
		t.Fatal(err)
	}
	if err := replace.File(path, 0o600, replace.With([]byte("first"))); err != nil {
		t.Fatal(err)
	}
	want(t, dir, "first", "other")
	if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if other, err := os.ReadFile(filepath.Join(dir, "other")); err != nil || string(other) != "precious" {
		t.Errorf("what the link named has %q, %v", other, err)
	}
	stopped := errors.New("stopped")
	for name, replaced := range map[string]func(string, os.FileMode, func(*os.File) error) error{"File": replace.File, "Cached": replace.Cached} {
		if err := replaced(path, 0o600, func(f *os.File) error { return errors.Join(replace.With([]byte("half"))(f), stopped) }); !errors.Is(err, stopped) {
			t.Errorf("%s: %v", name, err)
		}
		want(t, dir, "first", "other")
	}
}

// TestSync: File waits for the disk before the file gets its name, Cached does not.
func TestSync(t *testing.T) {
	dir := t.TempDir()
	disk := faultfs.Mount(t, dir)
	path := filepath.Join(dir, "file")
	if err := replace.File(path, 0o600, replace.With([]byte("first"))); err != nil {
		t.Fatal(err)
	}
	disk.Fail(func(op faultfs.Op, _ int64, _ int) syscall.Errno {
		if op == faultfs.Sync {
			return syscall.EIO
		}
		return 0
	})
	if err := replace.File(path, 0o600, replace.With([]byte("second"))); !errors.Is(err, syscall.EIO) {
		t.Errorf("the disk does not sync: %v", err)
	}
	want(t, dir, "first")
	if err := replace.Cached(path, 0o600, replace.With([]byte("third"))); err != nil {
		t.Error(err)
	}
	want(t, dir, "third")
}
