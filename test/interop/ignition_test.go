package interop

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

// ignition is Debian's package of it; the program runs in an initramfs otherwise.
const ignition = "/usr/lib/dracut/modules.d/30ignition/ignition"

// An ignitionRun is one run of Ignition's fetch stage on a machine.
type ignitionRun struct {
	cache string // where it leaves the document
	out   bytes.Buffer
	cmd   *exec.Cmd
	ended chan struct{}
}

// ignite starts Ignition on the machine with the URL of the document on the kernel's command line.
func (m *machine) ignite(t *testing.T, url string) *ignitionRun {
	t.Helper()
	dir := t.TempDir()
	cmdline := filepath.Join(dir, "cmdline")
	writeFile(t, cmdline, "ignition.firstboot ignition.platform.id=metal ignition.config.url="+url+"\n")
	r := &ignitionRun{cache: filepath.Join(dir, "ignition.json"), ended: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.cmd = m.Command(ctx, "unshare", "-m", "sh", "-c", `mount --bind "$1" /proc/cmdline && exec "$2" -platform metal -stage fetch -log-to-stdout -config-cache "$3" -root "$4"`,
		"sh", cmdline, ignition, r.cache, dir)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	if err := r.cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		defer cancel()
		defer close(r.ended)
		_ = r.cmd.Wait() // the caller checks its state
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
	})
	return r
}

// wait waits for its end and returns the document that it got.
func (r *ignitionRun) wait(t *testing.T) string {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		t.Fatal("Ignition does not end")
	}
	b, err := os.ReadFile(r.cache)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

// TestIgnition: the real Ignition retries while its document is not ready, which it does for a status of 500 and above alone, and gets it.
// A second request, and one from another machine, are refused for good.
func TestIgnition(t *testing.T) {
	t.Parallel()
	netns.Need(t, "udhcpc", "unshare")
	if _, err := os.Stat(ignition); err != nil {
		netns.Need(t, "ignition") // skips, or says what is missing
	}
	l := newLab(t, "10.93.2")
	document := filepath.Join(l.dir, "files", "ignition", "worker.ign")
	if err := os.Remove(document); err != nil {
		t.Fatal(err)
	}
	d := start(t, l)
	const self, mac = "10.93.2.10", "52-54-00-00-00-10"
	w0 := d.machine(t, "52:54:00:00:00:10")
	if addr := w0.lease(t); addr != self {
		t.Fatalf("w0 got %q", addr)
	}
	config, _, err := w0.script(self, mac)
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + d.addr + ":8080/" + config

	first := w0.ignite(t, url)
	const refused = `bootlab_events_total{kind="config_refused"}`
	d.until("Ignition retries", func() bool {
		return d.metric(`bootlab_httpd_requests_total{code="5xx",listener="http",route="config"}`) >= 2 && d.metric(refused) > 0
	})
	if n := d.metric(refused); n != 1 {
		t.Errorf("the missing document is reported %v times, want once", n)
	}
	l.file("files/ignition/later", []byte(`{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"/etc/secret","contents":{"source":"data:,{{.Host.Vars.secret}}"}}]}}`))
	if err := os.Rename(filepath.Join(filepath.Dir(document), "later"), document); err != nil { // in one step: Ignition comes at any time
		t.Fatal(err)
	}
	if got := first.wait(t); !first.cmd.ProcessState.Success() || !strings.Contains(got, "data:,treasure-of-w0") {
		t.Fatalf("Ignition ended with %v and has %q:\n%s", first.cmd.ProcessState, got, first.out.String())
	}
	for _, want := range []string{"GET result: Service Unavailable", "GET result: OK"} {
		if !strings.Contains(first.out.String(), want) {
			t.Errorf("Ignition did not log %q:\n%s", want, first.out.String())
		}
	}
	d.until("the install has begun", func() bool { out, _ := d.bootlab("hosts"); return strings.Contains(out, "installing") })

	spy := d.machine(t, "52:54:00:00:ff:04", "10.93.2.66")
	for who, m := range map[string]*machine{"the second reader": w0, "a neighbour": spy} {
		again := m.ignite(t, url)
		if got := again.wait(t); again.cmd.ProcessState.Success() || got != "" || !strings.Contains(again.out.String(), "GET result: Forbidden") {
			t.Errorf("%s ended with %v and has %q:\n%s", who, again.cmd.ProcessState, got, again.out.String())
		}
		if strings.Contains(again.out.String(), "treasure") {
			t.Errorf("%s got the document", who)
		}
	}
}
