package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSBOM: every module that the binary lists and every boot program is in the bill of materials, with version and licence, and
// the same binary gives the same text.
func TestSBOM(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "bootlab")
	build := exec.Command("go", "build", "-tags", "libvirt_dlopen", "-buildvcs=false", "-trimpath", "-o", binary, "./cmd/bootlab")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var texts [2]bytes.Buffer
	for i := range texts {
		if err := write(&texts[i], source{binary: binary, folder: "../..", version: "v1.2.3", date: "2026-11-22T10:00:00Z"}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0].Bytes(), texts[1].Bytes()) {
		t.Error("two texts for one binary")
	}
	var d document
	if err := json.Unmarshal(texts[0].Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	got, ids := map[string]string{}, map[string]bool{d.ID: true}
	for _, p := range d.Packages {
		got[p.Name] = p.Version
		if p.Declared == "" || p.Declared == noAssertion || p.Download == "" || ids[p.ID] {
			t.Errorf("%s: licence %q, from %q, id %q", p.Name, p.Declared, p.Download, p.ID)
		}
		ids[p.ID] = true
	}
	for _, r := range d.Relationships {
		if !ids[r.From] || !ids[r.To] {
			t.Errorf("a relationship of what is not there: %v", r)
		}
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"bootlab": "v1.2.3", "stdlib": strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		want[m.Path] = m.Version
	}
	commit, err := os.ReadFile("../../internal/firmware/assets/ipxe.commit")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"undionly.kpxe", "ipxe.efi", "snponly.efi", "snponly-arm64.efi"} {
		want["ipxe/"+name] = strings.TrimSpace(string(commit))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packages (-want +got)\n%s", diff)
	}
	if len(info.Deps) < 20 {
		t.Errorf("the binary lists %d modules", len(info.Deps))
	}
}
