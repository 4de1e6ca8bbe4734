package firmware

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

//go:embed SHA256SUMS
var sums []byte

// TestSums checks that every embedded program is the build that assets/README.md documents.
func TestSums(t *testing.T) {
	t.Parallel()
	var checked, absent int
	lines := bufio.NewScanner(bytes.NewReader(sums))
	for lines.Scan() {
		want, name, ok := strings.Cut(lines.Text(), "  ")
		if !ok {
			t.Fatalf("SHA256SUMS: malformed line %q", lines.Text())
		}
		body, err := assets.ReadFile("assets/" + name)
		if err != nil {
			absent++
			continue
		}
		sum := sha256.Sum256(body)
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%s: (-want +got)\n%s", name, cmp.Diff(want, got))
		}
		checked++
	}
	switch {
	case checked == 0 && absent > 0:
		t.Skip("no program is embedded; run make assets")
	case absent > 0:
		t.Errorf("%d of %d programs are embedded", checked, checked+absent)
	}
}

// TestFirstScript checks that the UEFI programs contain embed.ipxe. In the BIOS program it is compressed; TestSums covers that.
func TestFirstScript(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("embed.ipxe")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{UEFI, UEFISNP, ARM64} {
		body, err := assets.ReadFile("assets/" + name)
		if err != nil {
			t.Skip("no program is embedded; run make assets")
		}
		if !bytes.Contains(body, script) {
			t.Errorf("%s does not contain embed.ipxe; remove it and run make assets", name)
		}
	}
}

func TestLayers(t *testing.T) {
	t.Parallel()
	own := t.TempDir()
	write(t, filepath.Join(own, UEFI), "own")
	write(t, filepath.Join(own, "shim.efi"), "more")
	if err := os.Symlink("/etc/hostname", filepath.Join(own, "escape.efi")); err != nil {
		t.Fatal(err)
	}
	embedded := fstest.MapFS{
		UEFI:        {Data: []byte("embedded")},
		UEFISNP:     {Data: []byte("embedded")},
		"README.md": {Data: []byte("not a program")},
	}
	debian := fstest.MapFS{UEFISNP: {Data: []byte("debian")}, BIOS: {Data: []byte("debian")}, "ipxe.iso": {Data: []byte("x")}}
	fsys := layered{{fsys: folder(own)}, {embedded, Names()}, {debian, Names()}}

	tests := []struct {
		name, file, want string
	}{
		{"own folder first", UEFI, "own"},
		{"other files of the own folder", "shim.efi", "more"},
		{"embedded before debian", UEFISNP, "embedded"},
		{"debian last", BIOS, "debian"},
		{"nowhere", ARM64, "error"},
		{"an embedded file that is no program", "README.md", "error"},
		{"an unknown program of Debian", "ipxe.iso", "error"},
		{"a link out of the folder", "escape.efi", "error"},
		{"out of the folder", "../firmware.go", "error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := "error"
			if body, err := fs.ReadFile(fsys, tt.file); err == nil {
				got = string(body)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tt.file, diff)
			}
		})
	}

	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, e := range entries {
		if Has(fsys, e.Name()) {
			files = append(files, e.Name())
		}
	}
	if diff := cmp.Diff([]string{UEFI, "shim.efi", UEFISNP, BIOS}, files); diff != "" {
		t.Errorf("files: (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{ARM64}, Missing(fsys)); diff != "" {
		t.Errorf("Missing: (-want +got)\n%s", diff)
	}
}

// TestSeek checks that files can seek: HTTP ranges and TFTP's tsize need it.
func TestSeek(t *testing.T) {
	t.Parallel()
	own := t.TempDir()
	write(t, filepath.Join(own, BIOS), "0123")
	for _, name := range append(Names(), BIOS) {
		f, err := FS(own).Open(name)
		if err != nil {
			continue // missing programs are covered by TestSums and make assets
		}
		defer f.Close()
		s, ok := f.(io.Seeker)
		if !ok {
			t.Errorf("%s cannot seek", name)
			continue
		}
		if n, err := s.Seek(0, io.SeekEnd); err != nil || n == 0 {
			t.Errorf("%s: seek to the end: %d, %v", name, n, err)
		}
	}
}

// TestNoFolder checks that a missing folder hides no embedded program.
func TestNoFolder(t *testing.T) {
	t.Parallel()
	with := Missing(FS(filepath.Join(t.TempDir(), "nowhere")))
	if diff := cmp.Diff(Missing(FS("")), with); diff != "" {
		t.Errorf("(-without +with)\n%s", diff)
	}
}

func write(t *testing.T, path, body string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
}
