package regular_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/internal/host/file/regular"
)

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.WriteFile(at("small"), []byte("abc"), 0o600), os.WriteFile(at("large"), []byte("abcd"), 0o600),
		os.Symlink("small", at("link")), syscall.Mkfifo(at("fifo"), 0o600), os.Mkdir(at("folder"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"small", "link"} {
		if b, err := regular.Read(at(name), 3); err != nil || string(b) != "abc" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if b, err := regular.Read(at("large"), 3); err == nil || !strings.Contains(err.Error(), "has 4 bytes, more than 3") {
		t.Errorf("large: %q, %v", b, err)
	}
	for _, path := range []string{at("fifo"), at("folder"), os.DevNull} {
		if b, err := regular.Read(path, 3); !errors.Is(err, regular.ErrNotRegular) {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	if _, err := regular.Read(at("none"), 3); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}
