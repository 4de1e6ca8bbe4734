package configs

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// NOTICE lists every module that is linked into the binary, and the commit of iPXE that is embedded.
func TestNotice(t *testing.T) {
	t.Parallel()
	notice, err := os.ReadFile("../../NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "list", "-tags", "libvirt_dlopen", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "./cmd/bootlab")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string]bool{}
	for _, module := range strings.Fields(string(out)) {
		linked[module] = true
	}
	_, modules, ok := strings.Cut(string(notice), "`go version -m bootlab`")
	if !ok {
		t.Fatal("NOTICE has no list of modules")
	}
	listed := map[string]bool{}
	for line := range strings.Lines(modules) {
		if strings.HasPrefix(line, "  ") {
			listed[strings.Fields(line)[0]] = true
		}
	}
	if diff := cmp.Diff(linked, listed); diff != "" {
		t.Errorf("modules in NOTICE (-linked +listed):\n%s", diff)
	}

	page, err := os.ReadFile("../../internal/firmware/assets/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "github.com/ipxe/ipxe at commit ")
	if commit := rest[:40]; !strings.Contains(string(notice), commit) {
		t.Errorf("NOTICE does not name iPXE's commit %s", commit)
	}
}
