package images

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

func coreos() *lab.Image {
	return &lab.Image{Path: "images/fcos", Arch: "x86_64", Artifact: "metal", Format: "pxe"}
}

func TestStreamRefuses(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("ab", 32)
	whole := func(format string) string {
		return `{"architectures":{"x86_64":{"artifacts":{"metal":{"formats":{"pxe":` + format + `}}}}}}`
	}
	for text, want := range map[string]string{
		`<html>`:                           "not a stream metadata document",
		`{"architectures":{"aarch64":{}}}`: `no architecture "x86_64": want one of aarch64`,
		`{"architectures":{"x86_64":{"artifacts":{"aws":{}}}}}`: `no artifact "metal": want one of aws`,
		whole(`{}`): `no format "pxe"`,
		whole(`{"../x":{"location":"http://a/b","sha256":"` + sum + `"}}`):           `a file called "../x"`,
		whole(`{"stream.json":{"location":"http://a/b","sha256":"` + sum + `"}}`):    `a file called "stream.json"`,
		whole(`{"kernel":{"location":"http://a/b"}}`):                                "no sha256 of kernel",
		whole(`{"kernel":{"location":"file:///etc/passwd","sha256":"` + sum + `"}}`): "want an http or https URL",
	} {
		if _, err := parseStream([]byte(text), coreos()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestStreamFilesAreBounded: a stream metadata document on disk is a regular file of a size like that of others.
func TestStreamFilesAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	saved := filepath.Join(dir, "images/fcos", streamName)
	if err := errors.Join(os.MkdirAll(filepath.Dir(saved), 0o755), os.WriteFile(saved, nil, 0o600), os.Truncate(saved, maxDocument+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := Saved(t.Context(), dir, coreos()); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("Saved: %v", err)
	}
	given := coreos()
	for at, want := range map[string]string{saved: "more than", os.DevNull: "is no regular file"} {
		given.Stream = at
		if _, err := Fetch(nil)(t.Context(), dir, given); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Fetch %s: %v, want %s", at, err, want)
		}
	}
}

// FuzzStream asserts of every document that is taken: its files stay in the image's folder, one each, have a checksum, and
// come from the web.
func FuzzStream(f *testing.F) {
	f.Add([]byte(`{"architectures":{"x86_64":{"artifacts":{"metal":{"formats":{"pxe":{"kernel":{"location":"https://a/b","sha256":"` + strings.Repeat("0", 64) + `"}}}}}}}}`))
	f.Add([]byte(`{"architectures":{"x86_64":null}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		items, err := parseStream(text, coreos())
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, i := range items {
			if !fs.ValidPath(i.Path) || path.Dir(i.Path) != "images/fcos" || seen[i.Path] || strings.HasPrefix(path.Base(i.Path), ".") {
				t.Errorf("path %q", i.Path)
			}
			seen[i.Path] = true
			if len(i.SHA256) != 64 || !strings.HasPrefix(strings.ToLower(i.URLs[0]), "http") {
				t.Errorf("%+v", i)
			}
		}
	})
}
