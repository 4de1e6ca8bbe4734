package interop

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestDocumentOfEveryNIC boots a machine with two NICs from its second one, with paths that hold the MAC of the NIC that
// boots. The kernel is served to it; its document is served to it alone, by its token, though it stands below public/.
func TestDocumentOfEveryNIC(t *testing.T) {
	t.Parallel()
	netns.Need(t, "udhcpc")
	l := newLab(t, "10.93.7")
	const first, second = "52-54-00-00-00-20", "52-54-00-00-00-21"
	l.profiles = `  both: {os: coreos, kernel: "kernels/{{.Host.MAC.Hyphens}}", initrd: [images/i], config: "public/{{.Host.MAC.Hyphens}}.ign", install_to: /dev/vda}
`
	l.hosts = `  w2: {mac: ["52:54:00:00:00:20", "52:54:00:00:00:21"], ip: NET.20, role: worker, profile: both, vars: {secret: treasure-of-w2}}
`
	for _, mac := range []string{first, second} {
		l.file("files/public/"+mac+".ign", []byte(`{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"/etc/secret","contents":{"source":"data:,{{.Host.Vars.secret}}"}}]}}`))
		l.file("files/kernels/"+mac, []byte("kernel of "+mac))
	}
	l.file("files/kernels/52-54-00-00-00-22", []byte("of no machine"))
	for name, target := range map[string]string{"link": second + ".ign", "folder": "."} {
		if err := os.Symlink(target, filepath.Join(l.dir, "files/public", name)); err != nil {
			t.Fatal(err)
		}
	}
	l.write()
	d := start(t, l)
	w2 := d.machine(t, "52:54:00:00:00:21")
	const self = "10.93.7.20"
	if addr := w2.lease(t); addr != self {
		t.Fatalf("w2 got %q", addr)
	}
	config, _, err := w2.script(self, second)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := w2.get(self, "files/kernels/"+second); status != http.StatusOK || body != "kernel of "+second {
		t.Errorf("the kernel in the script of the second NIC: %d %q", status, body)
	}
	if out, err := w2.run("curl", "-s", "-m", "60", "tftp://"+d.addr+"/kernels/"+second); err != nil || out != "kernel of "+second {
		t.Errorf("the same by TFTP: %q, %v", out, err)
	}
	for _, name := range []string{
		"public/" + first + ".ign", "public/" + second + ".ign", "PUBLIC/" + second + ".IGN", "public/link", "public/folder/" + second + ".ign",
		"public/folder/folder/link", "public/./" + second + ".ign", "public//" + second + ".ign", "public/%35%32-54-00-00-00-21.ign", "kernels/52-54-00-00-00-22",
	} {
		if status, body := w2.get(self, "files/"+name); status != http.StatusForbidden && status != http.StatusNotFound || strings.Contains(body, "ignition") {
			t.Errorf("HTTP files/%s: %d %s", name, status, body)
		}
		if out, err := w2.run("curl", "-s", "-m", "10", "--path-as-is", "tftp://"+d.addr+"/"+name); err == nil || out != "" {
			t.Errorf("TFTP %s: %q", name, out)
		}
	}
	if status, body := w2.get(self, config); status != http.StatusOK || !strings.Contains(body, "treasure-of-w2") {
		t.Errorf("its own document: %d %s", status, body)
	}
	if status, body := w2.get(self, config); status < 400 {
		t.Errorf("a second read: %d %s", status, body)
	}
}

// TestDocumentBreaksDuringBoot: a document that is half-written when the machine fetches it is 503, which why explains, and is read once it is
// whole. A reload that gives the host another document leaves the boot its own.
func TestDocumentBreaksDuringBoot(t *testing.T) {
	t.Parallel()
	netns.Need(t, "udhcpc")
	l := newLab(t, "10.93.37")
	d := start(t, l)
	const self, mac = "10.93.37.10", "52-54-00-00-00-10"
	w0 := d.machine(t, "52:54:00:00:00:10")
	if addr := w0.lease(t); addr != self {
		t.Fatalf("w0 got %q", addr)
	}
	config, _, err := w0.script(self, mac)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(l.dir, "files", "ignition", "worker.ign")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range []string{"", `{"ign`} {
		l.file("files/ignition/worker.ign", []byte(broken))
		if status, body := w0.get(self, config); status != http.StatusServiceUnavailable || strings.Contains(body, "ign") {
			t.Errorf("the document %q is served with %d %q, want 503", broken, status, body)
		}
	}
	d.until("why names the document and its error", func() bool {
		a := d.why(t, "w0")
		return strings.Contains(a.Cause, "worker.ign") && strings.Contains(a.Cause, "not JSON")
	})
	if out, _ := d.bootlab("timeline", "w0"); !strings.Contains(out, "not JSON") {
		t.Errorf("the timeline does not name the error:\n%s", out)
	}
	l.file("files/ignition/other.ign", []byte(`{"ignition":{"version":"3.3.0"}}`))
	l.replace(strings.Replace(l.text(), `config: "ignition/{{.Host.Role}}.ign"`, "config: ignition/other.ign", 1))
	if err := d.reload(); err != nil {
		t.Fatal(err)
	}
	l.file("files/ignition/worker.ign", good)
	if status, body := w0.get(self, strings.Replace(config, "worker.ign", "nosuch.ign", 1)); status != http.StatusNotFound {
		t.Errorf("a document that the host never had: %d %s", status, body)
	}
	if status, body := w0.get(self, config); status != http.StatusOK || !strings.Contains(body, "treasure-of-w0") {
		t.Errorf("its document after the reload: %d %s", status, body)
	}
	d.until("the install has begun", func() bool { out, _ := d.bootlab("hosts"); return strings.Contains(out, "installing") })
	if status, body := w0.get(self, config); status != http.StatusForbidden {
		t.Errorf("a second read: %d %s", status, body)
	}
}
