package snapshot_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// TestOneHostIsAWarning: a lab with a host that cannot be rendered comes into force, and says so; check says it too.
func TestOneHostIsAWarning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "files"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "files/x.cfg"), []byte("{{.Host.Vars.rack}}"), 0o644); err != nil {
		t.Fatal(err)
	}
	text := `
version: 1
domain: lab.example
networks: {n: {subnet: 10.0.0.0/24, interface: br0, address: 10.0.0.1}}
profiles: {p: {kernel: k, config: x.cfg}}
hosts:
  good: {mac: 52:54:00:00:00:01, ip: 10.0.0.11, profile: p, vars: {rack: r1}}
  bad: {mac: 52:54:00:00:00:02, ip: 10.0.0.12, profile: p}
`
	l, err := load.Parse(filepath.Join(dir, "lab.yaml"), []byte(text), load.Options{FileExists: func(string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	for name, problems := range map[string]lab.Problems{"warnings": s.Warnings(), "check": s.CheckAll()} {
		if len(problems) != 1 || !strings.Contains(problems[0].Error(), "files/x.cfg:1:8: profiles.p.config: for host bad: ") {
			t.Errorf("%s: %v, want the one host", name, problems)
		}
	}
}

// TestOneHostRefused: a host that lacks a value is refused alone, whichever template of its profile needs the value, and its error is reported once.
func TestOneHostRefused(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{
		"kernel: 'k-{{.Host.Vars.rack}}'", "kernel: k, initrd: ['i-{{.Host.Vars.rack}}']", "kernel: k, rootfs: 'r-{{.Host.Vars.rack}}', os: coreos",
		"kernel: k, args: ['{{.Host.Vars.rack}}']", "kernel: k, config: 'c-{{.Host.Vars.rack}}'",
		"kernel: k, config: c, documents: ['d-{{.Host.Vars.rack}}']",
	} {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			l, err := load.Parse(filepath.Join(t.TempDir(), "lab.yaml"), []byte(`
version: 1
domain: lab.example
networks: {n: {subnet: 10.0.0.0/24, interface: br0, address: 10.0.0.1}}
profiles: {p: {`+profile+`}}
hosts:
  good: {mac: 52:54:00:00:00:01, ip: 10.0.0.11, profile: p, vars: {rack: r1}}
  bad: {mac: 52:54:00:00:00:02, ip: 10.0.0.12, profile: p}
  worse: {mac: 52:54:00:00:00:03, ip: 10.0.0.13, profile: p}
`), load.Options{FileExists: func(string) bool { return true }})
			if err != nil {
				t.Fatal(err)
			}
			s, err := snapshot.Compile(l)
			if err != nil {
				t.Fatal(err)
			}
			for name, problems := range map[string]lab.Problems{"faults": s.Faults(), "check": s.CheckAll()} {
				if len(problems) != 1 || !strings.Contains(problems[0].Error(), ": for hosts bad, worse: {{.Host.Vars.rack}} is not set: want vars: {rack: …} for the host") {
					t.Errorf("%s: %v, want the two hosts", name, problems)
				}
			}
		})
	}
}
