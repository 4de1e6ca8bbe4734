package interop

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestDocumentIsForItsMachineAlone requests the document of w0 from other machines, for a second time, and by guessed paths. Only w0 gets
// it, once.
func TestDocumentIsForItsMachineAlone(t *testing.T) {
	t.Parallel()
	netns.Need(t, "udhcpc")
	l := newLab(t, "10.93.1")
	if err := os.Symlink("../ignition/worker.ign", filepath.Join(l.dir, "files/public/link.ign")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../lab.yaml", filepath.Join(l.dir, "files/public/lab.yaml")); err != nil {
		t.Fatal(err)
	}
	d := start(t, l)
	const self, mac = "10.93.1.10", "52-54-00-00-00-10"
	w0 := d.machine(t, "52:54:00:00:00:10")
	if addr := w0.lease(t); addr != self {
		t.Fatalf("w0 got %q", addr)
	}
	spy := d.machine(t, "52:54:00:00:ff:04", "10.93.1.66")
	config, done, err := w0.script(self, mac)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.Split(config, "/")[2]

	steal := func(who, from string, m *machine, path string, args ...string) {
		t.Helper()
		if status, body := m.get(from, path, args...); status < 400 || strings.Contains(body, "treasure") || strings.Contains(body, "ignition") || strings.Contains(body, token) {
			t.Errorf("%s asks for %s: %d %s", who, path, status, body)
		}
	}
	other := strings.Replace(config, mac, "52-54-00-00-00-11", 1)
	wrong := strings.Replace(config, token, strings.Repeat("A", len(token)), 1)
	for _, path := range []string{
		"boot/" + mac + "/boot.ipxe", "boot/" + mac + "/autoexec.ipxe", config, done, other, wrong,
		"files/ignition/worker.ign", "files/public/link.ign", "files/public/lab.yaml", "files/lab.yaml", "lab.yaml",
		"files/public/../ignition/worker.ign", "files/public/%2e%2e/ignition/worker.ign", "files/public/..%2fignition%2fworker.ign",
		"files/public/%252e%252e/ignition/worker.ign", "files/ignition%2fworker.ign", "files//ignition//worker.ign", "files/IGNITION/WORKER.IGN",
		"files/public/..\\ignition\\worker.ign", "files/public/./../ignition/worker.ign", "files/../state/state.db", "files/../state/token",
		"state/token", "api/v1/lab", "metrics",
	} {
		steal("a neighbour", "10.93.1.66", spy, path)
	}
	steal("another machine that claims to be w0", "10.93.1.66", spy, config, "-H", "X-Forwarded-For: "+self)
	steal("another machine that claims to be w0", "10.93.1.66", spy, config, "-H", "Forwarded: for="+self, "-H", "X-Real-IP: "+self)
	steal("w0 without its token", self, w0, wrong)
	steal("w0 for another", self, w0, other)
	for _, name := range []string{
		"boot/" + mac + "/boot.ipxe", "autoexec.ipxe.", config, "ignition/worker.ign", "files/ignition/worker.ign", "files/public/link.ign",
		"files/public/..\\ignition\\worker.ign", "//ignition//worker.ign", "lab.yaml", "../lab.yaml",
	} {
		if out, err := spy.run("curl", "-s", "-m", "5", "--path-as-is", "tftp://"+d.addr+"/"+name); err == nil || out != "" {
			t.Errorf("by TFTP a neighbour got %s: %q", name, out)
		}
	}
	if out, _ := spy.run("curl", "-s", "-m", "5", "tftp://"+d.addr+"/boot.ipxe"); strings.Contains(out, token) {
		t.Error("by TFTP a neighbour got the script of w0")
	}

	if status, _ := w0.get(self, config, "-I"); status != http.StatusOK {
		t.Errorf("HEAD: status %d", status)
	}
	if status, body := w0.get(self, config); status != http.StatusOK || !strings.Contains(body, "treasure-of-w0") {
		t.Errorf("w0 does not get its document: %d %s", status, body)
	}
	d.logged("install_started host=w0 ") // a second reader gets 503 until the first has acknowledged the whole document
	steal("the second reader", self, w0, config)
	d.showsRefusals(t, "the config document was already read by this boot", "asked from 10.93.1.66 by ", "the token is not that of this boot")
	if status, _ := w0.get(self, done); status != http.StatusOK {
		t.Errorf("done: status %d", status)
	}
	steal("a reader after the install", self, w0, config)
	if out, err := d.bootlab("install", "w0", "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	steal("a reader while no boot is under way", self, w0, config)
	fresh, _, err := w0.script(self, mac)
	if err != nil || fresh == config {
		t.Fatalf("the next boot has %q, %v", fresh, err)
	}
	steal("a reader with a token of the boot before", self, w0, config)
	steal("a neighbour with the new one", "10.93.1.66", spy, fresh)
	if status, _ := w0.get(self, fresh); status != http.StatusOK {
		t.Errorf("the new boot's own read: status %d", status)
	}
	d.hidesSecrets(t, token)
	d.hidesSecrets(t, strings.Split(fresh, "/")[2])
}

// TestUnacknowledgedDocument: a document counts as read once the client's system has acknowledged it, and not when it was handed to the
// kernel, which sends it again to whoever takes the address meanwhile.
func TestUnacknowledgedDocument(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "nft", "curl")
	l := newLab(t, "10.93.9")
	d := start(t, l)
	const self = "10.93.9.10"
	w0 := d.machine(t, "52:54:00:00:00:10", self)
	config, _, err := w0.script(self, "52-54-00-00-00-10")
	if err != nil {
		t.Fatal(err)
	}
	// What has no data, and so acknowledges only, does not leave the machine; its requests do.
	w0.Run(t, "nft", "add table ip t; add chain ip t out { type filter hook output priority 0; }; "+
		"add rule ip t out tcp dport 8080 tcp flags & (syn | ack) == ack ip length < 90 drop")
	w0.get(self, config)
	d.logged("did not acknowledge the end of the document")
	w0.Run(t, "nft", "delete table ip t")
	if status, body := w0.get(self, config); status != 200 || !strings.Contains(body, "treasure-of-w0") {
		t.Errorf("the machine's own read afterwards: %d %s", status, body)
	}
	d.logged("install_started host=w0 ")
	if status, _ := w0.get(self, config); status != 403 {
		t.Errorf("a second read: %d, want 403", status)
	}
}

// showsRefusals checks that the refusals are logged, shown and counted.
func (d *daemon) showsRefusals(t *testing.T, reasons ...string) {
	t.Helper()
	for _, reason := range reasons {
		d.shows(reason, "timeline", "w0", "--all")
	}
	if n := d.metric(`bootlab_events_total{kind="config_refused"}`); n < 5 {
		t.Errorf("%v refusals are counted", n)
	}
}

// hidesSecrets checks that neither a token nor a document is in the log, in metrics or on a page.
func (d *daemon) hidesSecrets(t *testing.T, token string) {
	t.Helper()
	adminToken, err := os.ReadFile(filepath.Join(d.dir, "state", "token"))
	if err != nil {
		t.Fatal(err)
	}
	d.hides(t, token, strings.TrimSpace(string(adminToken)))
}

func (d *daemon) hides(t *testing.T, token, adminToken string) {
	t.Helper()
	shown := map[string]string{"the log": d.log.String(), "metrics": d.metrics()}
	for _, args := range [][]string{{"status"}, {"hosts"}, {"leases"}, {"timeline", "w0", "--all"}, {"timeline", "w0", "--json"}, {"status", "--json"}, {"hosts", "--json"}} {
		out, err := d.bootlab(args...)
		if err != nil {
			t.Errorf("bootlab %v: %v\n%s", args, err, out)
		}
		shown[strings.Join(args, " ")] = out
	}
	for _, path := range []string{"/", "/healthz", "/readyz", "/api/v1/lab", "/api/v1/hosts", "/api/v1/token", "/api/v1/backup", "/hosts/w0"} {
		out, _ := d.machine(t, "52:54:00:00:ff:05", "10.93.1.67").run("curl", "-s", "http://"+d.addr+":9680"+path)
		shown["admin API, without a token, "+path] = out
	}
	for _, args := range [][]string{{"plan"}, {"plan", "w0", "--json"}, {"plan", "--diff"}, {"hosts", "--unknown", "--json"}, {"check"}} {
		out, err := d.bootlab(args...)
		if err != nil {
			t.Errorf("bootlab %v: %v\n%s", args, err, out)
		}
		shown[strings.Join(args, " ")] = out
	}
	for _, path := range []string{"", "hosts/w0", "api/v1/lab", "api/v1/lab?host=w0", "api/v1/hosts", "api/v1/status", "api/v1/leases", "api/v1/timeline/w0", "api/v1/unknown", "api/v1/backup", "metrics"} {
		out, err := exec.Command("curl", "-sf", "--unix-socket", filepath.Join(d.dir, "run", "admin.sock"), "http://bootlab/"+path).Output()
		if err != nil || len(out) == 0 {
			t.Errorf("GET /%s: %v", path, err)
		}
		shown["admin API, by its socket, /"+path] = string(out)
		if path == "api/v1/backup" {
			for _, e := range readBackup(t, bytes.NewReader(out)).Entries { // which encodes its values
				shown["the backup, "+e.Key] = string(e.Value)
			}
		}
	}
	d.onDisk(t, shown)
	if plan, err := d.bootlab("plan", "w0", "--secrets"); err != nil || !strings.Contains(plan, "treasure-of-w0") || strings.Contains(plan, token) {
		t.Errorf("plan --secrets: %v\n%s", err, plan)
	}
	for where, text := range shown {
		if strings.Contains(text, adminToken) && !strings.HasSuffix(where, "/state/token") {
			t.Errorf("%s shows the token of the admin API:\n%s", where, text)
		}
		if strings.Contains(text, token) {
			t.Errorf("%s shows the token of a boot:\n%s", where, text)
		}
		if strings.Contains(text, "treasure") {
			t.Errorf("%s shows a document:\n%s", where, text)
		}
	}
}

// onDisk adds all learned state on the disk, timelines and install states too, and checks its modes.
func (d *daemon) onDisk(t *testing.T, shown map[string]string) {
	t.Helper()
	state := filepath.Join(d.dir, "state")
	d.until("the timeline is saved", func() bool { // once a second
		b, _ := os.ReadFile(filepath.Join(state, "state.db"))
		return bytes.Contains(b, []byte("already read by this boot"))
	})
	err := filepath.WalkDir(state, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o007 != 0 {
			t.Errorf("%s may be read by anybody: %v", path, info.Mode())
		}
		if entry.IsDir() {
			return nil
		}
		b, err := os.ReadFile(path)
		shown[path] = string(b)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
