package boot_test

import (
	"path/filepath"
	"strings"
	"testing"

	"bootlab/internal/boot"
	"bootlab/internal/lab"
)

// BenchmarkScript is what a machine's request for its script costs: its document is rendered and judged by the way.
func BenchmarkScript(b *testing.B) {
	dir := b.TempDir()
	for name, text := range map[string]string{
		"worker.ign": `{"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "/etc/hostname", "contents": {"source": "data:,{{.Host.FQDN}}"}}]}}`,
		"worker.cfg": "d-i debian-installer/locale string en_US\nd-i preseed/late_command string wget {{.DoneURL}}\n",
	} {
		write(b, filepath.Join(dir, "files", name), text)
	}
	for name, profile := range map[string]string{
		"debian": "os: debian, kernel: k, initrd: [i], config: \"{{.Host.Role}}.cfg\"", "coreos": "os: coreos, kernel: k, initrd: [i], rootfs: r, config: worker.ign, install_to: /dev/vda",
	} {
		b.Run(name, func(b *testing.B) {
			text := strings.Replace(labFile, `kernel: k, initrd: [i], config: "{{.Host.Role}}.cfg", install_to: /dev/vda`, profile, 1)
			l, err := lab.Parse(filepath.Join(dir, "lab.yaml"), []byte(text), lab.Options{})
			if err != nil {
				b.Fatal(err)
			}
			table, err := boot.Compile(l)
			if err != nil {
				b.Fatal(err)
			}
			r := rigOf(b, l, table)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Script(b.Context(), mac, addr, lab.ScriptName); err != nil {
					b.Fatal(err)
				}
				r.events = r.events[:0]
			}
		})
	}
}
