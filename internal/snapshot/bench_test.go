package snapshot_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"bootlab/internal/lab"
	"bootlab/internal/snapshot"
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
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		tb.Fatal(err)
	}
	return path
}

// BenchmarkLoad is what a reload does before the flip.
func BenchmarkLoad(b *testing.B) {
	path := tenThousand(b)
	for _, step := range []struct {
		name string
		run  func() (*lab.Lab, error)
	}{
		{"lab", func() (*lab.Lab, error) { return lab.Load(path, lab.Options{}) }},
		{"lab+tables", func() (*lab.Lab, error) {
			l, err := lab.Load(path, lab.Options{})
			if err == nil {
				_, err = snapshot.Compile(l)
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
