package interop

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// nobody returns the ids of the user that the daemon becomes.
func nobody(t *testing.T) (uid, gid int) {
	t.Helper()
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	uid, err = strconv.Atoi(u.Uid)
	if err != nil {
		t.Fatal(err)
	}
	gid, err = strconv.Atoi(u.Gid)
	if err != nil {
		t.Fatal(err)
	}
	return uid, gid
}

func owner(t *testing.T, path string) (uid int, mode fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid), info.Mode().Perm()
}

// TestPrivileges checks user, capabilities and files of a daemon that root started.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	uid, gid := nobody(t)
	l := newLab(t, "10.94.1")
	d := start(t, l)
	const keeps = "0000000000003400" // CAP_NET_BIND_SERVICE, CAP_NET_RAW, and CAP_NET_ADMIN for addresses
	const effective = "0000000000002400"
	want := []string{
		fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", uid), fmt.Sprintf("Gid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", gid),
		"CapPrm:\t" + keeps, "CapEff:\t" + effective, "CapBnd:\t" + keeps, "CapInh:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1",
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", d.cmd.Process.Pid))
	if err != nil || len(threads) < 2 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, thread := range threads {
		b, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		for _, line := range want {
			if !strings.Contains(string(b), line) {
				t.Errorf("%s: want %q\n%s", thread, line, b)
			}
		}
	}
	for name, mode := range map[string]fs.FileMode{"state": 0o750, "state/state.db": 0o600, "state/token": 0o600, "run/admin.sock": 0o660} {
		if got, perm := owner(t, filepath.Join(l.dir, name)); got != uid || perm != mode {
			t.Errorf("%s: owner %d, mode %o; want %d, %o", name, got, perm, uid, mode)
		}
	}
	if got, _ := owner(t, l.path()); got == uid {
		t.Error("the lab file was given away")
	}
	if out, err := exec.Command("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups",
		os.Getenv(binaryVar), "token", "--lab", l.path()).CombinedOutput(); err == nil {
		t.Errorf("another user read the token: %s", out)
	}
	// As root, and back: each can use the files of the other.
	token, err := d.bootlab("token")
	if err != nil {
		t.Fatal(token)
	}
	for _, as := range []string{"root", "nobody"} {
		d.kill()
		l.user = as
		l.write()
		d.start()
		if again, _ := d.bootlab("token"); again != token {
			t.Errorf("as %s the token is %q, was %q", as, again, token)
		}
	}
	if got, _ := owner(t, filepath.Join(l.dir, "state/state.db")); got != uid {
		t.Error("after a start as root the state belongs to root")
	}
}

// TestSharedFolderOfTheSocket: files beside the admin socket keep their owner.
func TestSharedFolderOfTheSocket(t *testing.T) {
	t.Parallel()
	uid, _ := nobody(t)
	l := newLab(t, "10.94.2")
	l.file("run/other.pid", []byte("1\n"))
	start(t, l)
	for name, want := range map[string]bool{"run": false, "run/other.pid": false, "run/admin.sock": true} {
		if got, _ := owner(t, filepath.Join(l.dir, name)); (got == uid) != want {
			t.Errorf("%s belongs to %d", name, got)
		}
	}
}

// TestStartRefused: errors at start end the daemon, with a message that says how to fix them.
func TestStartRefused(t *testing.T) {
	t.Parallel()
	for i, tt := range []struct {
		name    string
		prepare func(l *labFile)
		want    string
	}{
		{"no such user", func(l *labFile) { l.user = "no-such-user"; l.write() }, "useradd --system"},
		{"a lab for root alone", func(l *labFile) { _ = os.Chmod(l.path(), 0o600) }, "chmod g+rX "},
		{"a document for root alone", func(l *labFile) { _ = os.Chmod(filepath.Join(l.dir, "files/ignition/worker.ign"), 0o600) }, "chmod g+rX "},
		{"a broken lab", func(l *labFile) { l.more = "  d: {mac: nonsense}\n"; l.write() }, `"nonsense"`},
		{"state that cannot be written", func(l *labFile) { l.appliance = "  state: /proc/state\n"; l.write() }, "appliance.state: mkdir /proc/state"},
		{"two daemons", func(l *labFile) { start(l.t, l) }, "another bootlab (pid "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, fmt.Sprintf("10.95.%d", i))
			tt.prepare(l)
			d := &daemon{labFile: l, log: &output{}}
			d.launch()
			if code := d.exit(patience); code != 1 || !strings.Contains(d.log.String(), tt.want) {
				t.Errorf("exit code %d, want 1 and %q:\n%s", code, tt.want, d.log)
			}
			if _, err := os.Stat(filepath.Join(l.dir, "state")); err == nil && tt.name != "two daemons" {
				t.Error("a refused start has made the state folder")
			}
		})
	}
}

// TestImageForRootAlone: the daemon warns of an image that its user may not read, until it may.
func TestImageForRootAlone(t *testing.T) {
	t.Parallel()
	netns.Need(t, "curl")
	nobody(t)
	l := newLab(t, "10.94.4")
	image := filepath.Join(l.dir, "files/images/k")
	if err := os.Chmod(image, 0o600); err != nil {
		t.Fatal(err)
	}
	d := start(t, l)
	for _, when := range []string{"at the start", "after a reload"} {
		if s := d.status(); len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0].Error(), "profiles.install.kernel: "+image+": permission denied") {
			t.Errorf("%s: warnings %q", when, s.Warnings)
		}
		if err := d.reload(); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("curl", "-sfo", os.DevNull, "http://10.94.4.1:8080/files/images/k").CombinedOutput(); err == nil {
		t.Errorf("fetched: %s", out)
	}
	d.logged("the daemon's user may not read it")
	if err := os.Chmod(image, 0o644); err != nil {
		t.Fatal(err)
	}
	if w := d.status().Warnings; len(w) > 0 {
		t.Errorf("readable again: warnings %q", w)
	}
	if err := d.reload(); err != nil || len(d.status().Warnings) > 0 {
		t.Errorf("readable again, after a reload: warnings %q, %v", d.status().Warnings, err)
	}
}

// TestWithoutRoot runs the daemon as an ordinary user, on high ports and without DHCP.
func TestWithoutRoot(t *testing.T) {
	t.Parallel()
	netns.Need(t, "setpriv", "dig")
	uid, gid := nobody(t)
	l := newLab(t, "10.94.3")
	if err := os.Chown(l.dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(":69\"", ":6969\"", ":53\"", ":5353\"", "interface: "+l.seg.Bridge, "dhcp: off", "    pools: {guests: {range: 10.94.3.100-10.94.3.250}}\n", "").Replace(l.text())
	l.replace(text)
	d := start(t, l)
	d.kill()
	if err := os.RemoveAll(filepath.Join(l.dir, "state")); err != nil {
		t.Fatal(err)
	}
	d.start("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--bounding-set=-all")
	if err := d.reload(); err != nil {
		t.Error(err)
	}
	out, err := exec.Command("dig", "+short", "-p", "5353", "@10.94.3.1", "w0.lab.test").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "10.94.3.10" {
		t.Errorf("dig: %v\n%s", err, out)
	}
}

// TestAsUser runs the daemon as configs/bootlab.service and the container do: never root, with three capabilities, which come
// from whoever starts it or from the file. A machine gets its address, boot program and script; what the daemon starts has none. With the
// third it adds a balancer's address; with appliance.addresses: off it does not keep it.
func TestAsUser(t *testing.T) {
	t.Parallel()
	netns.Need(t, "setpriv", "setcap", "udhcpc", "busybox", "curl")
	uid, gid := nobody(t)
	only := "-all,+net_bind_service,+net_raw,+net_admin"
	for i, tt := range []struct {
		name string
		wrap []string
		file bool // the capabilities are the file's
		off  bool // appliance.addresses is off
	}{
		{"ambient capabilities of a service manager", []string{"--inh-caps=" + only, "--ambient-caps=" + only, "--bounding-set=" + only}, false, false},
		{"no addresses", []string{"--inh-caps=" + only, "--ambient-caps=" + only, "--bounding-set=" + only}, false, true},
		{"capabilities of the file, in a container", []string{"--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=" + only}, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, fmt.Sprintf("10.72.%d", i))
			l.balancers = "  web: {listen: \"NET.5:80\", backends: [w0:80]}\n"
			if tt.off {
				l.appliance = "  addresses: off\n"
			}
			l.write()
			for _, dir := range []string{"state", "run"} {
				if err := os.MkdirAll(filepath.Join(l.dir, dir), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.Chown(filepath.Join(l.dir, dir), uid, gid); err != nil {
					t.Fatal(err)
				}
			}
			wrap := append([]string{"setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"}, tt.wrap...)
			if tt.file {
				binary := filepath.Join(l.dir, "bootlab")
				netns.Run(t, "cp", os.Getenv(binaryVar), binary)
				netns.Run(t, "chmod", "755", binary)
				if out, err := exec.Command("setcap", "cap_net_bind_service,cap_net_raw,cap_net_admin=p", binary).CombinedOutput(); err != nil {
					t.Skipf("this file system keeps no capabilities: %s", out)
				}
				wrap = append(wrap, "sh", "-c", `shift; exec "$0" "$@"`, binary) // in place of the binary
			}
			d := start(t, l, wrap...)
			all, effective, phase := "0000000000003400", "0000000000002400", "added"
			if tt.off {
				all, phase = effective, "missing"
			}
			d.until("the balancer's address is "+phase, func() bool { return d.status().Addresses[0].State == phase })
			bound := all
			if tt.off {
				bound = "0000000000003400" // what started it has set the bounds
			}
			want := fmt.Sprintf("Uid %[1]d\t%[1]d\t%[1]d\t%[1]d, CapInh 0000000000000000, CapPrm %[2]s, CapEff %[3]s, CapBnd %[4]s, CapAmb 0000000000000000, NoNewPrivs 1", uid, all, effective, bound)
			if got := d.threadStates("Uid", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"); len(got) != 1 || got[0] != want {
				t.Errorf("threads\n%q, want\n%q", got, want)
			}
			c := l.seg.NewClient(t, "52:54:00:00:00:10")
			if out := c.Run(t, "busybox", "udhcpc", "-f", "-n", "-q", "-i", "eth0", "-s", "/bin/true", "-t", "10", "-T", "1"); !strings.Contains(out, l.net+".10 obtained") {
				t.Errorf("DHCP: %s", out)
			}
			c.Run(t, "ip", "addr", "add", l.net+".10/24", "dev", "eth0")
			if out := c.Run(t, "curl", "-sSf", "http://"+l.addr()+":8080/boot/52-54-00-00-00-10/boot.ipxe"); !strings.HasPrefix(out, "#!ipxe") {
				t.Errorf("script: %s", out)
			}
			if out := c.Run(t, "curl", "-sSf", "tftp://"+l.addr()+"/boot/52-54-00-00-00-10/boot.ipxe"); !strings.HasPrefix(out, "#!ipxe") {
				t.Errorf("script by TFTP: %s", out)
			}
		})
	}
}
