package snapshot_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// TestMissing: files that machines need are missed whatever templates name them, once each.
func TestMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "lab.yaml")
	for name, text := range map[string]string{
		"lab.yaml": `version: 1
lab: a
domain: test
networks: {n: {subnet: 10.0.0.0/24, address: 10.0.0.1}}
profiles:
  p: {os: coreos, kernel: k, initrd: ["{{.Host.Name}}.img"], config: "{{.Host.Role}}.ign", documents: ["{{.Host.Vars.doc}}.yaml"]}
hosts:
  a: {mac: "52:54:00:00:00:01", ip: 10.0.0.11, role: worker, profile: p, vars: {doc: join}}
  b: {mac: "52:54:00:00:00:02", ip: 10.0.0.12, role: worker, profile: p, vars: {doc: join}}
`, "files/k": "k", "files/a.img": "a", "files/worker.ign": `{"ignition": {"version": "3.4.0"}}`,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := load.Lab(path, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	got := s.Warnings().Error()
	for _, name := range []string{"b.img: file not found", "join.yaml: file not found"} {
		if strings.Count(got, name) != 1 {
			t.Errorf("%s is not warned of once:\n%s", name, got)
		}
	}
	for _, name := range []string{"a.img", "worker.ign", "files/k"} {
		if strings.Contains(got, name) {
			t.Errorf("%s is warned of:\n%s", name, got)
		}
	}
}
