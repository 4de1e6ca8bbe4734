package boot_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/storetest"
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

// A hungStore takes no commit while it hangs.
type hungStore struct {
	*storetest.Mem
	hangs bool
}

func (s *hungStore) Commit(ctx context.Context, txn store.Txn) error {
	if s.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Mem.Commit(ctx, txn)
}

// TestHungDisk: a machine whose boot cannot be stored, because the disk hangs, gets 503, and then its script and document once
// the disk answers.
func TestHungDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "files", "worker.cfg"), "nothing to see")
	l, table := tableOf(t, dir, strings.Replace(labFile, "kernel: k,", "kernel: k, args: [\"config={{.ConfigURL}}\"],", 1))
	synctest.Test(t, func(t *testing.T) {
		disk := &hungStore{Mem: storetest.Memory(), hangs: true}
		r := rigOn(t, l, table, disk)
		refused := func(err error) {
			t.Helper()
			var refusal *boot.Refusal
			if !errors.As(err, &refusal) || refusal.Status != http.StatusServiceUnavailable || !strings.Contains(refusal.Error(), "the disk does not respond") {
				t.Errorf("on a disk that hangs: %v", err)
			}
		}
		_, err := r.Service.Script(context.WithoutCancel(t.Context()), mac, addr, lab.ScriptName)
		refused(err)
		disk.hangs = false
		script, err := r.Service.Script(t.Context(), mac, addr, lab.ScriptName) // not received yet: the document shows that
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(script.Body), "/config/")
		token := strings.Split(rest, "/")[1]
		disk.hangs = true
		_, err = r.Config(context.WithoutCancel(t.Context()), mac, token, "worker.cfg", addr)
		refused(err)
		disk.hangs = false
		if _, err := r.Config(t.Context(), mac, token, "worker.cfg", addr); err != nil {
			t.Error(err)
		}
	})
}
