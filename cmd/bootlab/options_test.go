package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestMissingLab: a lab file that does not exist is named, before anyone looks for a daemon elsewhere.
func TestMissingLab(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lba.yaml")
	_, err := (&options{lab: path}).client()
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "--lab") {
		t.Errorf("error %v, want one that names %s", err, path)
	}
	if _, err := (&options{lab: path, server: "http://127.0.0.1:9680", token: "t"}).client(); err != nil {
		t.Errorf("with --server: %v", err)
	}
}
