package iso_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/content/iso"
	"github.com/bootlab/bootlab/test/support/netns"
)

func image(t *testing.T, files []iso.File) []byte {
	t.Helper()
	b, err := iso.Image("cidata", files)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestImage has blkid and isoinfo read an image.
func TestImage(t *testing.T) {
	t.Parallel()
	netns.Need(t, "blkid", "isoinfo")
	files := []iso.File{
		{"user-data", bytes.Repeat([]byte("x"), 5000)}, {"meta-data", []byte("instance-id: a\n")}, {"network-config", bytes.Repeat([]byte("y"), 2048)}, {"empty", nil},
	}
	path := filepath.Join(t.TempDir(), "seed.iso")
	if err := os.WriteFile(path, image(t, files), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := netns.Run(t, "blkid", "-p", "-o", "export", path); !strings.Contains(out, "\nLABEL=cidata\n") || !strings.Contains(out, "\nTYPE=iso9660\n") {
		t.Errorf("blkid: %s", out)
	}
	for _, f := range files {
		if got := netns.Run(t, "isoinfo", "-i", path, "-J", "-x", "/"+f.Name+";1"); got != strings.TrimSpace(string(f.Body)) && got != string(f.Body) {
			t.Errorf("%s has %d bytes, want %d", f.Name, len(got), len(f.Body))
		}
	}
	if out := netns.Run(t, "isoinfo", "-i", path, "-f"); !strings.Contains(out, "/USER_DATA.;1") {
		t.Errorf("without Joliet: %s", out)
	}
}

// TestImageOfTooManyFiles is an error, no damaged image. Equal files are an equal image, in whatever order.
func TestImageOfTooManyFiles(t *testing.T) {
	t.Parallel()
	a, b := iso.File{Name: "a", Body: []byte("1")}, iso.File{Name: "b", Body: []byte("2")}
	if !bytes.Equal(image(t, []iso.File{a, b}), image(t, []iso.File{b, a})) {
		t.Error("the order of files matters")
	}
	if _, err := iso.Image("cidata", make([]iso.File, 60)); err == nil {
		t.Error("60 files: no error")
	}
}
