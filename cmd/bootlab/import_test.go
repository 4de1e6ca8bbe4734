//go:build cgo && libvirt_dlopen

package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/bootlab/bootlab/test/support/golden"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestImportLibvirt imports the domain that libvirt's driver for tests has, and checks the lab that is printed.
func TestImportLibvirt(t *testing.T) {
	t.Parallel()
	netns.Need(t, "virsh") // the driver is in libvirt's library
	got, err := bootlab(t.Context(), "import", "libvirt", "test:///default").Output()
	if err != nil {
		t.Fatal(err)
	}
	want, file := "testdata/import-libvirt.golden", filepath.Join(t.TempDir(), "lab.yaml")
	golden.Check(t, update, want, string(got))
	if err := os.WriteFile(file, got, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := bootlab(t.Context(), "check", "--lab", file).CombinedOutput(); err != nil {
		t.Errorf("check: %v\n%s", err, out)
	}
}

// TestUntilInterrupted: an import of a large configuration ends with its context, whatever it is doing.
func TestUntilInterrupted(t *testing.T) {
	t.Parallel()
	if got, err := untilInterrupted(t.Context(), func() (string, error) { return "done", nil }); got != "done" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	busy := make(chan struct{})
	defer close(busy)
	got, err := untilInterrupted(ctx, func() (string, error) {
		cancel()
		<-busy
		return "done", nil
	})
	if got != "" || err == nil {
		t.Errorf("%q, %v after an interrupt, want an error", got, err)
	}
}
