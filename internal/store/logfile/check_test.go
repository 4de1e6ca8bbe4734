package logfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRemovedWhileOpen: Check reports that the file or its folder was removed, and Close writes it again.
func TestRemovedWhileOpen(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	path := filepath.Join(dir, "state.db")
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	s, _, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "before", "before")
	if err := s.Check(); err != nil {
		t.Errorf("Check: %v", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	put(t, s, "after", "after")
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "was removed") {
		t.Errorf("Check: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if s, _, err = Open(path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, key := range []string{"before", "after"} {
		if v, err := s.Get(t.Context(), key); err != nil || string(v) != key {
			t.Errorf("%s: %q, %v", key, v, err)
		}
	}
}

// TestReplacedWhileOpen: a file that replaced the store's is not overwritten.
func TestReplacedWhileOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s, _, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".backup", []byte("backup"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".backup", path); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "was replaced") {
		t.Errorf("Check: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "backup" {
		t.Errorf("%q, %v", b, err)
	}
}
