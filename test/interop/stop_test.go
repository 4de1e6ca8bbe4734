package interop

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestNotify receives the messages of sd_notify(3).
func TestNotify(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.96.1")
	path := filepath.Join(l.dir, "notify")
	s, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	next := func() string {
		t.Helper()
		b := make([]byte, 4096)
		_ = s.SetReadDeadline(time.Now().Add(patience))
		n, err := s.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	d := start(t, l)
	d.kill()
	d.start("env", "NOTIFY_SOCKET="+path)
	if got := next(); got != "READY=1" {
		t.Errorf("at the start: %q", got)
	}
	d.signal(syscall.SIGHUP)
	if got := next(); !strings.HasPrefix(got, "RELOADING=1") {
		t.Errorf("at SIGHUP: %q", got)
	}
	if got := next(); got != "READY=1" {
		t.Errorf("after the reload: %q", got)
	}
	d.signal(syscall.SIGTERM)
	if got := next(); got != "STOPPING=1" {
		t.Errorf("at SIGTERM: %q", got)
	}
	if code := d.exit(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestStop: SIGTERM in the middle of a download lets it finish, while DNS still answers and no new connection is accepted. A second SIGTERM
// ends the daemon at once.
func TestStop(t *testing.T) {
	t.Parallel()
	netns.Need(t, "dig")
	l := newLab(t, "10.96.2")
	const image = "files/public/image"
	l.file(image, nil)
	const size = 40 << 20 // more than the kernel's buffers take at once
	if err := os.Truncate(filepath.Join(l.dir, image), size); err != nil {
		t.Fatal(err)
	}
	d := start(t, l)
	m := d.machine(t, "52:54:00:00:ff:06", "10.96.2.2")
	end := m.download(t, image)
	d.signal(syscall.SIGTERM)
	d.until("new machines are refused", func() bool {
		c, err := net.Dial("tcp", d.addr+":8080")
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	if out, err := m.run("dig", "+short", "+tries=1", "+time=30", "@"+d.addr, "w0.lab.test"); err != nil || strings.TrimSpace(out) != "10.96.2.10" {
		t.Errorf("while the transfer ends, names are not answered: %v %s", err, out)
	}
	if !d.alive() {
		t.Error("the daemon ended before the transfer")
	}
	if n, err := end(); err != nil || n != size {
		t.Errorf("the transfer: %d bytes, %v", n, err)
	}
	if code := d.exit(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(filepath.Join(l.dir, "run/admin.sock")); err == nil {
		t.Error("the admin socket was left behind")
	}

	d.start()
	end = m.download(t, image)
	d.signal(syscall.SIGTERM)
	d.until("it stops", func() bool { return strings.Count(d.log.String(), "daemon_stopping") == 2 })
	d.signal(syscall.SIGTERM)
	d.exit(30 * time.Second) // the download is not read: it would last for a minute
	if n, err := end(); err == nil {
		t.Errorf("the transfer ended well, after %d bytes", n)
	}
}

// download begins a transfer. end reads the rest.
func (m *machine) download(t *testing.T, path string) (end func() (int64, error)) {
	t.Helper()
	var c net.Conn
	if err := m.inside(func() (err error) { c, err = net.Dial("tcp", m.d.addr+":8080"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	fmt.Fprintf(c, "GET /%s HTTP/1.1\r\nHost: %s\r\n\r\n", path, m.d.addr)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return func() (int64, error) { return io.Copy(io.Discard, resp.Body) }
}

// TestWithoutLibvirt hides libvirt from the daemon.
func TestWithoutLibvirt(t *testing.T) {
	t.Parallel()
	netns.Need(t, "unshare", "mount")
	l := newLab(t, "10.96.4")
	l.hosts = "  vm: {mac: \"52:54:00:00:00:12\", ip: NET.12, profile: install, role: worker, vars: {secret: s}, vm: {hypervisor: kvm1}}\n"
	l.more = "hypervisors:\n  kvm1: {uri: \"qemu:///system\", bridges: {lan: BRIDGE}}\n"
	l.write()
	d := start(t, l)
	d.kill()
	d.log = &output{}
	d.start("unshare", "-m", "sh", "-ec",
		`for f in $(ldconfig -p | grep -o '/.*/libvirt[^ ]*\.so[^ ]*$'); do mount --bind /dev/null "$(readlink -f "$f")"; done; exec "$@"`, "sh")
	if strings.Contains(d.log.String(), "no libvirt library") {
		t.Errorf("the lab has no virtual machine yet:\n%s", d.log)
	}
	for _, args := range [][]string{{"vm", "list"}, {"vm", "create", "vm"}} {
		if out, _ := d.bootlab(args...); !strings.Contains(out, "install libvirt") {
			t.Errorf("bootlab %v does not say what to install:\n%s", args, out)
		}
	}
	if out, err := d.bootlab("vm", "create", "vm"); err == nil {
		t.Errorf("a virtual machine was made of nothing: %s", out)
	}
	if out, err := d.bootlab("status"); err != nil {
		t.Errorf("status: %v\n%s", err, out)
	}
}
