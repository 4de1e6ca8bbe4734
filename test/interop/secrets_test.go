package interop

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bootlab/internal/netlab"
)

// TestDocumentIsForItsMachineAlone plays everybody who wants the document of w0: neighbours, readers who come second,
// people who guess paths. Only w0 gets it, once.
func TestDocumentIsForItsMachineAlone(t *testing.T) {
	t.Parallel()
	netlab.Need(t, "udhcpc")
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
	steal("a neighbour who claims to be w0", "10.93.1.66", spy, config, "-H", "X-Forwarded-For: "+self)
	steal("a neighbour who claims to be w0", "10.93.1.66", spy, config, "-H", "Forwarded: for="+self, "-H", "X-Real-IP: "+self)
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
	steal("the second reader", self, w0, config)
	if status, _ := w0.get(self, done); status != http.StatusOK {
		t.Errorf("done: status %d", status)
	}
	steal("a reader after the install", self, w0, config)
	d.tellsNobody(t, token)
}

// tellsNobody looks for a token, and for what stands in documents, in all that people are shown without asking for it.
func (d *daemon) tellsNobody(t *testing.T, token string) {
	t.Helper()
	shown := map[string]string{"the log": d.log.String(), "metrics": d.metrics()}
	for _, args := range [][]string{{"status"}, {"hosts"}, {"leases"}, {"timeline", "w0", "--all"}, {"timeline", "w0", "--json"}, {"status", "--json"}, {"hosts", "--json"}} {
		out, err := d.bootlab(args...)
		if err != nil {
			t.Errorf("bootlab %v: %v\n%s", args, err, out)
		}
		shown[strings.Join(args, " ")] = out
	}
	for _, path := range []string{"/", "/healthz", "/readyz", "/api/v1/lab", "/api/v1/hosts", "/api/v1/token", "/hosts/w0"} {
		out, _ := d.machine(t, "52:54:00:00:ff:05", "10.93.1.67").run("curl", "-s", "http://"+d.addr+":9680"+path)
		shown["admin plane, without a token, "+path] = out
	}
	plan, err := d.bootlab("plan")
	if err != nil {
		t.Error(err)
	}
	if strings.Contains(plan, token) {
		t.Error("plan shows the token of a boot")
	}
	for where, text := range shown {
		if strings.Contains(text, token) {
			t.Errorf("%s shows the token of a boot:\n%s", where, text)
		}
		if strings.Contains(text, "treasure") {
			t.Errorf("%s shows a document:\n%s", where, text)
		}
	}
}
