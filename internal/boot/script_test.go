package boot_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// tableOf compiles a lab file in dir.
func tableOf(t testing.TB, dir, text string) (*lab.Lab, *boot.Table) {
	t.Helper()
	l, err := load.Parse(filepath.Join(dir, "lab.yaml"), []byte(text), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	table, err := boot.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	return l, table
}

// TestScriptOfOneBoot: a machine that requests its script twice in one boot gets the same token; changes of the lab apply.
func TestScriptOfOneBoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "files", "worker.cfg"), "nothing to see")
	text := strings.Replace(labFile, "kernel: k,", "kernel: k, args: [\"config={{.ConfigURL}}\"],", 1)
	l, table := tableOf(t, dir, text)
	r := rigOf(t, l, table)
	ask := func(name string) string {
		t.Helper()
		script, err := r.Script(t.Context(), mac, addr, name)
		if err != nil {
			t.Fatal(err)
		}
		return string(script)
	}
	first, grub := ask(lab.ScriptName), ask(lab.GRUBName)
	if again := ask(lab.AutoexecName); again != first {
		t.Errorf("asked again it gets\n%s\nwant\n%s", again, first)
	}
	if again := ask(lab.GRUBName); again != grub || grub == first || strings.HasPrefix(grub, "#!ipxe") {
		t.Errorf("GRUB gets\n%s\nthen\n%s", grub, again)
	}
	_, r.table = tableOf(t, dir, strings.Replace(text, "args: [", "args: [quiet, ", 1))
	changed := ask(lab.ScriptName)
	if !strings.Contains(changed, " quiet ") || strings.Replace(changed, " quiet", "", 1) != first {
		t.Errorf("after the reload it gets\n%s\nwant quiet added to\n%s", changed, first)
	}
	if err := r.installs.Arm(t.Context(), l.Host("worker-0")); err != nil {
		t.Fatal(err)
	}
	if next := ask(lab.ScriptName); next == changed || len(next) != len(changed) {
		t.Errorf("the next boot gets\n%s\nwant another token than in\n%s", next, changed)
	}
}

// TestScriptFileOfOneBoot: a script file is read again for every request, also within one boot.
func TestScriptFileOfOneBoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "files", "rescue.ipxe")
	write(t, file, "#!ipxe\nshell\n")
	r := rigOf(t, nil, nil)
	r.lab, r.table = tableOf(t, dir, strings.Replace(labFile, "kernel: k, initrd: [i], config: \"{{.Host.Role}}.cfg\", install_to: /dev/vda", "ipxe: rescue.ipxe", 1))
	for _, want := range []string{"#!ipxe\nshell\n", "#!ipxe\nexit\n"} {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := r.Script(t.Context(), mac, addr, lab.ScriptName); err != nil || string(got) != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
}
