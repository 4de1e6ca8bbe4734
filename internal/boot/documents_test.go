package boot_test

import (
	"errors"
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

// TestReloadDuringBoot: a boot gets the documents that its script names, though the lab was reloaded since and the host has others now: by
// the same rules, and once. The next boot gets the new ones.
func TestReloadDuringBoot(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, before, after string }{
		{"another config", "config: ign/m.ign", "config: ign/other.ign"},
		{"of the same name", "config: ign/m.ign", "config: next/m.ign"},
		{"no config", ", config: ign/m.ign", ""},
		{"another documents", "part.ks", "other.ks"},
		{"another profile", "profile: disk, vars", "profile: other, vars"},
		{"a variable", "secret: s3", "secret: s4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range map[string]string{"ign/m.ign": "old", "ign/other.ign": "new", "next/m.ign": "new", "part.ks": "old", "other.ks": "new"} {
				if strings.HasSuffix(name, ".ign") {
					text = strings.Replace(ignitionOf, "{{.Host.Name}}", text+"-{{.Host.Vars.secret}}-{{.Profile.Name}}", 1)
				}
				write(t, filepath.Join(dir, "files", name), text)
			}
			text := withProfile("os: coreos, kernel: k, initrd: [i], rootfs: r, install_to: /dev/vda, config: ign/m.ign, documents: [part.ks]")
			text = strings.Replace(text, "hosts:\n", "  other: {os: coreos, kernel: k, initrd: [i], config: ign/other.ign, install_to: /dev/vda}\nhosts:\n", 1)
			l, table := tableOf(t, dir, text)
			r := rigOf(t, l, table)
			token := r.token(t)
			changed := strings.Replace(text, tt.before, tt.after, 1)
			if changed == text {
				t.Fatal("the edit changes nothing")
			}
			r.lab, r.table = tableOf(t, dir, changed)

			if _, err := r.Config(t.Context(), mac, "guess", "m.ign", addr); statusOf(err) != 403 {
				t.Errorf("with a wrong token: %v, want 403", err)
			}
			if _, err := r.Config(t.Context(), mac, token, "m.ign", intrud); statusOf(err) != 403 {
				t.Errorf("from another address: %v, want 403", err)
			}
			if _, err := r.Config(t.Context(), mac, token, "nosuch", addr); statusOf(err) != 404 {
				t.Errorf("a document that no lab had: %v, want 404", err)
			}
			r.reads(t, token, "part.ks", "old")
			r.reads(t, token, "m.ign", "old-s3-disk")
			if _, err := r.Config(t.Context(), mac, token, "m.ign", addr); !errors.Is(err, install.ErrReads) {
				t.Errorf("a second read: %v, want ErrReads", err)
			}
			if err := r.Done(t.Context(), mac, token, addr); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Config(t.Context(), mac, token, "m.ign", addr); statusOf(err) != 403 {
				t.Errorf("after its install: %v, want 403", err)
			}
		})
	}
}

// TestNextBootAfterReload: a boot whose script is rendered after the reload gets the new document, while the boot before has its own.
func TestNextBootAfterReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "files", "old.ign"), strings.Replace(ignitionOf, "{{.Host.Name}}", "old", 1))
	write(t, filepath.Join(dir, "files", "new.ign"), strings.Replace(ignitionOf, "{{.Host.Name}}", "new", 1))
	text := withProfile("os: coreos, kernel: k, initrd: [i], rootfs: r, install_to: /dev/vda, config: old.ign")
	l, table := tableOf(t, dir, text)
	r := rigOf(t, l, table)
	first := r.token(t)
	r.lab, r.table = tableOf(t, dir, strings.Replace(text, "config: old.ign", "config: new.ign", 1))
	h := r.lab.Host("worker-0")
	if err := r.installs.Arm(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Config(t.Context(), mac, first, "old.ign", addr); statusOf(err) != 403 {
		t.Errorf("the boot that an admin ended: %v, want 403", err)
	}
	second := r.token(t)
	if _, err := r.Config(t.Context(), mac, second, "old.ign", addr); statusOf(err) != 404 {
		t.Errorf("the old document for the new boot: %v, want 404", err)
	}
	r.reads(t, second, "new.ign", "new")
}

// TestReloadRepairsBoot: what the lab of a boot cannot render, the lab in force does, if it has a document of that name. While neither can,
// the machine is asked to try again.
func TestReloadRepairsBoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "files", "m.ign")
	write(t, file, ignitionOf)
	text := withProfile("os: coreos, kernel: k, initrd: [i], rootfs: r, install_to: /dev/vda, config: m.ign")
	l, table := tableOf(t, dir, text)
	r := rigOf(t, l, table)
	token := r.token(t)
	write(t, file, strings.Replace(ignitionOf, ".Host.Name", ".Host.Vars.colour", 1))
	apply := func(from, to string) {
		t.Helper()
		r.lab, r.table = tableOf(t, dir, strings.Replace(text, from, to, 1))
	}
	for _, change := range [][2]string{{"lab: test", "lab: again"}, {"config: m.ign", "config: other.ign"}} {
		apply(change[0], change[1])
		if _, err := r.Config(t.Context(), mac, token, "m.ign", addr); statusOf(err) != 503 || !strings.Contains(err.Error(), "vars: {colour: …}") {
			t.Errorf("with %s: %v, want 503 and the missing value", change[1], err)
		}
	}
	apply("secret: s3", "secret: s3, colour: red")
	r.reads(t, token, "m.ign", "data:,red")
}

// TestReloadKeepsCount: what was a further document of a boot, which may be read any number of times, is not read so when it is the config
// document of the lab in force.
func TestReloadKeepsCount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	part := filepath.Join(dir, "files", "part.ign")
	write(t, filepath.Join(dir, "files", "m.ign"), ignitionOf)
	write(t, part, ignitionOf)
	text := withProfile("os: coreos, kernel: k, initrd: [i], rootfs: r, install_to: /dev/vda, config: m.ign, documents: [part.ign]")
	l, table := tableOf(t, dir, text)
	r := rigOf(t, l, table)
	token := r.token(t)
	write(t, part, strings.Replace(ignitionOf, ".Host.Name", ".Host.Vars.colour", 1))
	r.lab, r.table = tableOf(t, dir, strings.NewReplacer("config: m.ign, documents: [part.ign]", "config: part.ign", "secret: s3", "secret: s3, colour: red").Replace(text))
	if _, err := r.Config(t.Context(), mac, token, "part.ign", addr); statusOf(err) != 503 || !strings.Contains(err.Error(), "vars: {colour: …}") {
		t.Errorf("the new config document: %v, want 503 and why the old lab cannot render it", err)
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
	decision, err := r.installs.Boot(b.Context(), l.Host("worker-0"), install.Request{NIC: mac})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		doc, err := r.Config(b.Context(), mac, decision.Token, "m.ign", addr)
		if err != nil {
			b.Fatal(err)
		}
		doc.Release()
	}
}
