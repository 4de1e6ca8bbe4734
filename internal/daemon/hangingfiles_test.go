package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/test/support/faultfs"
	"github.com/bootlab/bootlab/test/support/netns"
)

// withNamedFiles adds to a lab every kind of file that an admin names, in folder far; the last host boots with a document.
func withNamedFiles(lab string) string {
	return strings.Replace(lab, "\nhosts:", `
profiles:
  p: {os: coreos, kernel: k, initrd: [i], rootfs: r, install_to: /dev/vda, config: far/host.ign}
redfish:
  listen: "127.0.0.1:18000"
  certificate: far/redfish.pem
  accounts: {u: {password_file: far/password}}
dns:
  forward: [./far/resolv.conf, {address: 10.0.0.53, tls: dns.example, ca_file: far/dns.ca}]
  keys: {ns: {secret_file: far/dns.key}}
  zones: {far.example: {file: far/far.zone}}
balancers:
  web: {listen: ["127.0.0.1:18443"], mode: http, tls: {certificates: [far/web.pem]}, backends: ["10.0.0.9:80"]}
hosts:
  far: {mac: "52:54:00:00:00:99", profile: p}`, 1)
}

var namedFiles = []string{"host.ign", "redfish.pem", "password", "resolv.conf", "dns.ca", "dns.key", "far.zone", "web.pem"}

// bounded fails the test if f does not end. The limit is generous: on a busy machine each file may take its whole time.
func bounded(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal(what + ": held up")
	}
}

// TestCheckOfFIFOs: files that are FIFOs, to which nobody writes, hold up no check.
func TestCheckOfFIFOs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"lab.yaml": withNamedFiles(`version: 1
domain: lab.example
appliance: {files: .}
networks: {n: {subnet: 10.0.0.0/24, dhcp: off}}
hosts:
`)})
	lab := filepath.Join(dir, "lab.yaml")
	if err := os.Mkdir(filepath.Join(dir, "far"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range namedFiles {
		if err := syscall.Mkfifo(filepath.Join(dir, "far", name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bounded(t, "check", func() {
		_, found, err := daemon.Check(lab, daemon.Lenient)
		for _, name := range []string{"host.ign", "redfish.pem", "resolv.conf", "dns.key", "far.zone", "web.pem"} {
			if all := found.Faults.Error() + found.Warnings.Error(); err != nil || !strings.Contains(all, "far/"+name) {
				t.Errorf("%s is not among what is wrong: %v\n%s", name, err, all)
			}
		}
	})
}

// TestFilesThatHang: a file system that does not answer, and has all files that the lab names, holds up no reload, no status and no readiness.
// Once it answers, so do the files.
func TestFilesThatHang(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.125.9.1")
	dir := filepath.Dir(r.lab)
	far := filepath.Join(dir, "far")
	if err := os.Mkdir(far, 0o755); err != nil {
		t.Fatal(err)
	}
	disk := faultfs.Mount(t, far)
	for name, text := range map[string]string{
		"host.ign": `{"ignition": {"version": "3.4.0"}}`, "password": "secret-password\n", "far.zone": "@ NS ns\nns A 10.0.0.1\n", "resolv.conf": "nameserver 10.0.0.53\n",
		"dns.key": "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmE=\n",
	} {
		if err := os.WriteFile(filepath.Join(far, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.write(withNamedFiles(strings.Replace(r.read(), "state: state,", "state: state, files: .,", 1)))
	r.start()
	answer := make(chan struct{})
	disk.Fail(func(faultfs.Op, int64, int) syscall.Errno { <-answer; return 0 })
	bounded(t, "status and reload", func() {
		for range 3 {
			if _, err := r.client.Reload(t.Context(), api.Forced); err != nil {
				t.Errorf("reload: %v", err)
			}
			r.status()
			r.get("http://10.125.9.1:9680/readyz")
		}
	})
	close(answer)
	disk.Fail(nil)
	r.until("the zone is served again", func() bool {
		if _, err := r.client.Reload(t.Context(), api.Forced); err != nil {
			t.Fatal(err)
		}
		_, failed := r.status().ConditionsOf(api.ConditionZone)
		return len(failed) == 0
	})
}
