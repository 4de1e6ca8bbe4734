package boot_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/lab"
)

// BenchmarkScript measures a request for a script within a boot: repeated, and for the first time after a reload, when it is
// rendered.
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
			l, table := tableOf(b, dir, text)
			_, other := tableOf(b, dir, text)
			r := rigOf(b, l, table)
			for name, next := range map[string]*boot.Table{"again": table, "rendered": other} {
				b.Run(name, func(b *testing.B) { r.bench(b, table, next) })
			}
		})
	}
}

func (r *rig) bench(b *testing.B, table, other *boot.Table) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Script(b.Context(), mac, addr, lab.ScriptName); err != nil {
			b.Fatal(err)
		}
		r.events = r.events[:0]
		r.loops.Release(mac) // it is another machine each time
		r.table, table, other = other, other, table
	}
}
