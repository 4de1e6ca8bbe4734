package boot_test

import (
	"path/filepath"
	"slices"
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
			if p.Hosts[0].Name != "worker-0" || !strings.HasSuffix(p.Pos.File, "worker.cfg") || !strings.Contains(p.Error(), "unset") {
				t.Errorf("%s: of %s: %v", when, p.Hosts[0].Name, p)
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

// TestRefusedNamesAll: all hosts of a broken document are known as refused. That holds before one asks, for any order in which they ask, and
// for a document that breaks after the load.
func TestRefusedNamesAll(t *testing.T) {
	t.Parallel()
	const broken, fine = "{{if .Host.Vars.secret}}{{.Host.Vars.unset}}{{end}}", "fine"
	dir := t.TempDir()
	file := filepath.Join(dir, "files", "worker.cfg")
	write(t, file, broken)
	l, table := tableOf(t, dir, strings.Replace(labFile, "  switch:", `  worker-1: {mac: "52:54:00:00:02:06", ip: 192.168.16.26, role: worker, profile: disk, vars: {secret: s4}}
  worker-2: {mac: "52:54:00:00:02:07", ip: 192.168.16.27, role: worker, profile: disk, vars: {secret: ""}}
  switch:`, 1))
	r := rigOf(t, l, table)
	names := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, refused := range table.Refused() {
			for _, h := range refused.Hosts {
				got = append(got, h.Name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q are refused, want %q", when, got, want)
		}
		if len(want) == 2 && (len(table.Problems()) != 1 || !strings.Contains(table.Problems().Error(), "for hosts worker-0, worker-1: ")) {
			t.Errorf("%s: problems %v", when, table.Problems())
		}
	}
	script := func(host string, ok bool) {
		t.Helper()
		h := l.Host(host)
		if _, err := r.Script(t.Context(), h.MACs[0], h.IP, lab.ScriptName); (err == nil) != ok {
			t.Fatalf("the script of %s: %v", host, err)
		}
	}
	names("broken at the load", "worker-0", "worker-1")
	script("worker-1", false)
	since := table.Refused()[0].Since
	names("one has asked", "worker-0", "worker-1")
	script("worker-2", true)
	names("a host that can be served is", "worker-0", "worker-1")
	script("worker-0", false)
	if got := table.Refused()[0].Since; !got.Equal(since) {
		t.Errorf("refused since %v, then since %v", since, got)
	}
	write(t, file, fine)
	script("worker-1", true)
	names("fixed, and one is served")
	write(t, file, broken)
	names("broken again, and none has asked")
	script("worker-0", false)
	names("broken again, and one has asked", "worker-0", "worker-1")
}
