package unpack_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/content/unpack"
	"github.com/bootlab/bootlab/test/support/netns"
)

// image is larger than a block of the copy, with a hole in it.
var image = append(append(bytes.Repeat([]byte("bootlab\n"), 1<<17), make([]byte, 3<<20)...), "the end"...)

func read(t *testing.T, c *unpack.Cache, file string) ([]byte, fs.FileInfo, error) {
	t.Helper()
	f, err := c.Open(t.Context(), "images/"+filepath.Base(file), func() (fs.File, error) { return os.Open(file) })
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(f)
	return content, info, err
}

func gzipped(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestOpen(t *testing.T) {
	t.Parallel()
	netns.Need(t, "xz")
	dir := t.TempDir()
	cmd := exec.Command("xz", "--stdout")
	cmd.Stdin = bytes.NewReader(image)
	byXZ, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	old := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := unpack.New(filepath.Join(dir, "unpacked"))
	for name, content := range map[string][]byte{"disk.qcow2": image, "disk.raw.xz": byXZ, "disk.img.gz": gzipped(t, image)} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, old, old); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, info, err := read(t, c, file)
			if err != nil || !bytes.Equal(got, image) {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
				continue
			}
			if want := strings.TrimSuffix(strings.TrimSuffix(name, ".xz"), ".gz"); info.Name() != want || !info.ModTime().Equal(old) {
				t.Errorf("%s: unpacked as %s of %s", name, info.Name(), info.ModTime())
			}
		}
	}
	// A file that changes is unpacked again, and the old copy is gone.
	file := filepath.Join(dir, "disk.img.gz")
	if err := os.WriteFile(file, gzipped(t, []byte("new")), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, _, err := read(t, c, file); err != nil || string(got) != "new" {
		t.Errorf("after it changed: %q, %v", got, err)
	}
	if copies, err := filepath.Glob(filepath.Join(dir, "unpacked/*/*/*")); err != nil || len(copies) != 2 {
		t.Errorf("copies: %v, want that of each compressed file", copies)
	}
}

// TestOpenDamaged unpacks files that are cut off: an error, and no copy.
func TestOpenDamaged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := unpack.New(filepath.Join(dir, "unpacked"))
	whole := gzipped(t, image)
	for _, n := range []int{3, 20, len(whole) / 2, len(whole) - 1} {
		file := filepath.Join(dir, "disk.gz")
		if err := os.WriteFile(file, whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := read(t, c, file); err == nil || !strings.Contains(err.Error(), "unpack images/disk.gz") {
			t.Errorf("cut off after %d bytes: %v", n, err)
		}
	}
	if copies, _ := filepath.Glob(filepath.Join(dir, "unpacked/*")); len(copies) > 0 {
		t.Errorf("copies of damaged files: %v", copies)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	file := filepath.Join(dir, "disk.gz")
	if err := os.WriteFile(file, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Open(ctx, "x", func() (fs.File, error) { return os.Open(file) }); err == nil {
		t.Error("unpacked after its context ended")
	}
}
