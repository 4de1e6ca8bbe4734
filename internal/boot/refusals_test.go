package boot_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

// TestRefusedIsMeasured: documents need no reload. One that is broken after the load is a problem once a machine was refused for it, and until
// one is served; one that was broken at the load is none any more once a machine is served.
func TestRefusedIsMeasured(t *testing.T) {
	t.Parallel()
	const broken = "{{if .Host.Vars.secret}}{{.Host.Vars.unset}}{{end}}"
	dir := t.TempDir()
	file := filepath.Join(dir, "files", "worker.cfg")
	write(t, file, broken)
	file2 := filepath.Join(dir, "files", "master.cfg")
	write(t, file2, "fine")
	l, table := tableOf(t, dir, strings.Replace(labFile, "  switch:", `  master-0: {mac: "52:54:00:00:02:06", ip: 192.168.16.26, role: master, profile: disk}
  switch:`, 1))
	r := rigOf(t, l, table)
	problems := func(when string, want int) {
		t.Helper()
		all := table.Refused()
		if len(all) != want || len(table.Problems()) != want {
			t.Fatalf("%s: %v, want %d", when, table.Problems(), want)
		}
		for _, p := range all {
			if p.Host.Name != "worker-0" || !strings.HasSuffix(p.Pos.File, "worker.cfg") || !strings.Contains(p.Error(), "unset") {
				t.Errorf("%s: of %s: %v", when, p.Host.Name, p)
			}
		}
	}
	script := func(mac lab.MAC, ok bool) {
		t.Helper()
		if _, err := r.Script(t.Context(), mac, l.HostByMAC(mac).IP, lab.ScriptName); (err == nil) != ok {
			t.Fatalf("the script of %s: %v", mac, err)
		}
	}
	problems("broken at the load", 1)
	script(mac, false)
	problems("refused", 1)
	script(lab.MAC{0x52, 0x54, 0, 0, 2, 6}, true)
	problems("another host is served", 1)
	write(t, file, "fine")
	script(mac, true)
	problems("fixed and served", 0)
	token := r.token(t)
	for range 2 {
		write(t, file, broken)
		if _, err := r.Config(t.Context(), mac, token, "worker.cfg", addr); err == nil {
			t.Fatal("a broken document was served")
		}
		problems("broken after the load", 1)
		write(t, file, "fine")
		doc, err := r.Config(t.Context(), mac, token, "worker.cfg", addr)
		if err != nil {
			t.Fatal(err)
		}
		doc.Release()
		problems("fixed again", 0)
	}
}
