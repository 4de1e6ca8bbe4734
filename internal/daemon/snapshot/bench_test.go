package snapshot_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// tenThousand writes a lab of 10,000 hosts.
func tenThousand(tb testing.TB) string {
	tb.Helper()
	var b bytes.Buffer
	b.WriteString(`version: 1
lab: bench
domain: test
networks: {n: {subnet: 10.0.0.0/8, interface: br0, address: 10.0.0.1, pools: {guests: {range: 10.250.0.1-10.250.255.254}}}}
profiles: {worker: {os: coreos, kernel: kernel, initrd: [initrd], config: "{{.Host.Role}}.ign", install_to: /dev/vda}}
hosts:
`)
	for i := range 10000 {
		fmt.Fprintf(&b, "  host-%d: {mac: \"52:54:00:%02x:%02x:%02x\", ip: 10.%d.%d.%d, role: worker, profile: worker}\n",
			i, i>>16&255, i>>8&255, i&255, 1+i>>16, i>>8&255, i&255)
	}
	path := filepath.Join(tb.TempDir(), "lab.yaml")
	if err := os.Mkdir(filepath.Join(filepath.Dir(path), "files"), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "files", "worker.ign"), document(), 0o644); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		tb.Fatal(err)
	}
	return path
}

// document is an Ignition document of 20 files, which differs from host to host.
func document() []byte {
	var b bytes.Buffer
	b.WriteString(`{"ignition": {"version": "3.4.0"}, "storage": {"files": [`)
	for i := range 20 {
		fmt.Fprintf(&b, `{"path": "/etc/lab/%d", "mode": 420, "contents": {"source": "data:,{{.Host.FQDN}}%%0A{{.Host.IP}}"}},`+"\n", i)
	}
	b.WriteString(`{"path": "/etc/hostname", "contents": {"source": "data:,{{.Host.Name}}"}}]}}`)
	return b.Bytes()
}

// BenchmarkLoad is what a reload does before the flip.
func BenchmarkLoad(b *testing.B) {
	path := tenThousand(b)
	for _, step := range []struct {
		name string
		run  func() (*lab.Lab, error)
	}{
		{"lab", func() (*lab.Lab, error) { return load.Lab(path, load.Options{}) }},
		{"lab+tables", func() (*lab.Lab, error) {
			l, err := load.Lab(path, load.Options{})
			if err == nil {
				_, err = snapshot.Compile(l)
			}
			return l, err
		}},
		{"check", func() (*lab.Lab, error) { // what bootlab check does: every host is rendered, and its document validated
			l, err := load.Lab(path, load.Options{})
			if err != nil {
				return l, err
			}
			s, err := snapshot.Compile(l)
			if err == nil {
				err = s.CheckAll().Err()
			}
			return l, err
		}},
	} {
		b.Run(step.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := step.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
