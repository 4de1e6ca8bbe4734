package boot_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

const ignitionOf = `{"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "/etc/name", "contents": {"source": "data:,{{.Host.Name}}"}}]}}`

// withProfile returns the lab in which profile disk is that.
func withProfile(profile string) string {
	return strings.Replace(labFile, `kernel: k, initrd: [i], config: "{{.Host.Role}}.cfg", install_to: /dev/vda`, profile, 1)
}

// TestDocumentBreaksAfterScript: a document that becomes invalid once the machine has its script is refused with 503, as it would have been
// before, and the read is kept until it is fixed.
func TestDocumentBreaksAfterScript(t *testing.T) {
	t.Parallel()
	const coreos, kickstart = "os: coreos, kernel: k, initrd: [i], rootfs: r, install_to: /dev/vda, config: m.ign", "os: anaconda, kernel: k, initrd: [i], config: m.ks"
	for _, tt := range []struct{ name, profile, file, good, broken, says string }{
		{"empty", coreos, "m.ign", ignitionOf, "", "m.ign"},
		{"half-written", coreos, "m.ign", ignitionOf, `{"ign`, "m.ign:1:6: not JSON"},
		{"not Ignition", coreos, "m.ign", ignitionOf, `{"ignition": {"version": "9.9.9"}}`, "m.ign"},
		{"Butane", strings.Replace(coreos, ".ign", ".bu", 1), "m.bu", "variant: fcos\nversion: 1.5.0\n", "variant: fcos\nversion: 1.5.0\nstorage: [\n", "m.bu"},
		{"missing value", coreos, "m.ign", ignitionOf, strings.Replace(ignitionOf, ".Host.Name", ".Host.Vars.nope", 1), "vars: {nope: …}"},
		{"half a template", coreos, "m.ign", ignitionOf, `{"ignition": {{.Host`, "m.ign"},
		{"kickstart", kickstart, "m.ks", "text\n%packages\n%end\n", "text\n%packages\n", "m.ks"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "files", tt.file)
			write(t, file, tt.good)
			l, table := tableOf(t, dir, withProfile(tt.profile))
			r, h := rigOf(t, l, table), l.Host("worker-0")
			token := r.token(t)
			write(t, file, tt.broken)
			for range 3 {
				if _, err := r.Config(t.Context(), mac, token, tt.file, addr); statusOf(err) != 503 || !strings.Contains(err.Error(), tt.says) {
					t.Fatalf("the broken document: %v, want 503 and %q", err, tt.says)
				}
			}
			if s := r.installs.Status(h); s.State != install.Booting || s.Reads != 0 {
				t.Errorf("after the refusal it is %s with %d reads, want booting with none", s.State, s.Reads)
			}
			if last := r.events[len(r.events)-1]; r.count(event.ConfigRefused) != 1 || last.Reason != event.NotRendered || !strings.Contains(last.Err, tt.says) {
				t.Errorf("%d refusals are recorded, the last event is %+v; want one refusal with the error", r.count(event.ConfigRefused), last)
			}
			write(t, file, tt.good)
			r.reads(t, token, tt.file, "")
			if s := r.installs.Status(h); s.State != install.Installing {
				t.Errorf("with the fixed document it is %s, want installing", s.State)
			}
		})
	}
}

// reads fetches a document, which must hold text, to its end.
func (r *rig) reads(t *testing.T, token, name, text string) {
	t.Helper()
	doc, err := r.Config(t.Context(), mac, token, name, addr)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer doc.Release()
	if !strings.Contains(string(doc.Body), text) || len(doc.Body) == 0 {
		t.Errorf("%s is %q, want %q in it", name, doc.Body, text)
	}
	if err := doc.Read(t.Context(), 0); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// BenchmarkConfig measures a request for a config document of 300 KiB.
func BenchmarkConfig(b *testing.B) {
	dir := b.TempDir()
	file := `{"path": "/etc/name", "contents": {"source": "data:,{{.Host.Name}}` + strings.Repeat("x", 300<<10) + `"}}`
	write(b, filepath.Join(dir, "files", "m.ign"), `{"ignition": {"version": "3.4.0"}, "storage": {"files": [`+file+`]}}`)
	l, table := tableOf(b, dir, withProfile("os: coreos, kernel: k, initrd: [i], rootfs: r, install_to: /dev/vda, config: m.ign"))
	r := rigOf(b, l, table)
	if _, err := r.Script(b.Context(), mac, addr, lab.ScriptName); err != nil {
		b.Fatal(err)
	}
	ticket, err := r.installs.Boot(b.Context(), l.Host("worker-0"), install.Request{NIC: mac})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		doc, err := r.Config(b.Context(), mac, ticket.Token, "m.ign", addr)
		if err != nil {
			b.Fatal(err)
		}
		doc.Release()
	}
}
