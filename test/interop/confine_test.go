package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// threadStates returns these lines of what the kernel says of each thread of the daemon, without repetitions.
func (d *daemon) threadStates(keys ...string) (all []string) {
	d.t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", d.cmd.Process.Pid))
	if err != nil || len(files) < 2 {
		d.t.Fatalf("%d threads, %v", len(files), err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		var of []string
		for line := range strings.Lines(string(b)) {
			if key, value, _ := strings.Cut(line, ":"); slices.Contains(keys, key) {
				of = append(of, key+" "+strings.TrimSpace(value))
			}
		}
		all = append(all, strings.Join(of, ", "))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// confinement returns what bootlab status says of it.
func (d *daemon) confinement() string {
	d.t.Helper()
	text, err := d.bootlab("status")
	if err != nil {
		d.t.Fatal(text)
	}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "confined: "); ok {
			return strings.TrimSpace(rest)
		}
	}
	d.t.Fatalf("no line of the confinement:\n%s", text)
	return ""
}

// TestConfined: every thread of the daemon is confined, nobody of its user can look into it, and what it serves is still served.
func TestConfined(t *testing.T) {
	t.Parallel()
	netns.Need(t, "setpriv", "curl")
	l := newLab(t, "10.71.1")
	d := start(t, l)
	if got := d.confinement(); !strings.HasPrefix(got, "files Landlock ") || !strings.HasSuffix(got, "system calls seccomp") {
		if strings.Contains(got, "off: this kernel") || strings.Contains(got, "off: the kernel") {
			netns.Absent(t, "Landlock and seccomp", got)
		}
		t.Fatalf("confined: %s", got)
	}
	if got := d.threadStates("NoNewPrivs", "Seccomp"); !slices.Equal(got, []string{"NoNewPrivs 1, Seccomp 2"}) {
		t.Errorf("threads: %q", got)
	}
	if out, err := exec.Command("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "cat",
		fmt.Sprintf("/proc/%d/environ", d.cmd.Process.Pid)).CombinedOutput(); err == nil || !strings.Contains(string(out), "denied") {
		t.Errorf("another process of the user read its environment: %v", err)
	}
	if out, err := exec.Command("curl", "-sf", "http://10.71.1.1:8080/files/public/motd").Output(); err != nil || string(out) != "hello\n" {
		t.Errorf("a file: %q, %v", out, err)
	}
	if out, err := exec.Command("curl", "-sf", "http://10.71.1.1:9680/metrics").Output(); err != nil || !strings.Contains(string(out), "\nprocess_open_fds ") {
		t.Errorf("the metric of open descriptors is missing (%v)", err)
	}
}

// TestConfinedReload: what a reload names outside of the daemon's folders is refused with the remedy, which works; a folder of
// the lab may be replaced.
func TestConfinedReload(t *testing.T) {
	t.Parallel()
	netns.Need(t, "dig")
	l := newLab(t, "10.71.2")
	elsewhere, err := os.MkdirTemp("", "zones-*") // not beside the lab, as t.TempDir is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(elsewhere) })
	if err := os.Chmod(elsewhere, 0o755); err != nil {
		t.Fatal(err)
	}
	zone := filepath.Join(elsewhere, "db.other")
	if err := os.WriteFile(zone, []byte("@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 10.71.2.1\nwww A 10.71.2.9\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := start(t, l)
	if strings.Contains(d.confinement(), "files off") {
		netns.Absent(t, "Landlock", "this kernel lacks it")
	}
	l.more = fmt.Sprintf("dns: {zones: {other.test: {file: %s}}}\n", zone)
	l.write()
	out, err := d.bootlab("reload")
	if err == nil || !strings.Contains(out, "dns.zones.other.test.file: "+zone+" is outside the folders that the running daemon is confined to: restart it") {
		t.Errorf("reload: %v\n%s", err, out)
	}
	d.kill()
	d.start()
	if out, err := exec.Command("dig", "+short", "@10.71.2.1", "www.other.test").Output(); err != nil || string(out) != "10.71.2.9\n" {
		t.Errorf("after the restart: %q, %v", out, err)
	}

	// Another folder in place of the lab's files.
	files := filepath.Join(l.dir, "files")
	if out, err := exec.Command("cp", "-a", files, files+".new").CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	if err := os.WriteFile(files+".new/public/motd", []byte("replaced\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, mv := range [][2]string{{files, files + ".old"}, {files + ".new", files}} {
		if err := os.Rename(mv[0], mv[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.reload(); err != nil {
		t.Error(err)
	}
	if out, err := exec.Command("curl", "-sf", "http://10.71.2.1:8080/files/public/motd").Output(); err != nil || string(out) != "replaced\n" {
		t.Errorf("a file of the new folder: %q, %v", out, err)
	}
}

// TestConfinementOff: the lab file can switch it off, and the daemon says so.
func TestConfinementOff(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.71.3")
	l.appliance = "  confine: off\n"
	l.write()
	d := start(t, l)
	if got, want := d.confinement(), "files off: appliance.confine is off, system calls off: appliance.confine is off"; got != want {
		t.Errorf("confined: %s, want %s", got, want)
	}
	if got := d.threadStates("Seccomp"); !slices.Equal(got, []string{"Seccomp 0"}) {
		t.Errorf("threads: %q", got)
	}
	d.logged("appliance.confine is off: the process may open every file of its user")
}
