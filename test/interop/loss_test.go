package interop

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/netns"
)

// A lossLab is a daemon whose hosts w0 and w1 were installed, and the machines w0, w1 and w2.
type lossLab struct {
	*daemon
	ms [3]*machine
}

// newLossLab starts the daemon and installs w0 and w1. prepare is called before the start.
func newLossLab(t *testing.T, subnet string, prepare func(l *labFile), wrap ...string) *lossLab {
	t.Helper()
	l := newLab(t, subnet)
	l.hosts = "  w2: {mac: \"52:54:00:00:00:12\", ip: NET.12, role: worker, profile: install, vars: {secret: s}}\n"
	l.write()
	if prepare != nil {
		prepare(l)
	}
	d := start(t, l, wrap...)
	lab := &lossLab{daemon: d}
	for i := range lab.ms {
		lab.ms[i] = d.machine(t, fmt.Sprintf("52:54:00:00:00:1%d", i), fmt.Sprintf("%s.1%d", subnet, i))
	}
	lab.logged("first start of this lab: machines install themselves at their next network boot\" hosts=\"[w0 w1 w2]\"")
	for _, host := range []string{"w0", "w1"} {
		if out, err := d.bootlab("install", host, "--done"); err != nil {
			t.Fatal(out)
		}
	}
	return lab
}

// restart ends the daemon as a power cut does, and starts it again with an empty log.
func (l *lossLab) restart(between func(), wrap ...string) {
	l.t.Helper()
	l.kill()
	if between != nil {
		between()
	}
	l.log = &output{}
	l.daemon.start(wrap...)
}

// installs reports whether the script of w0, w1 or w2 starts the installer. It fails the test if it starts neither that nor the disk.
func (l *lossLab) installs(host int) bool {
	l.t.Helper()
	status, script := l.ms[host].get(fmt.Sprintf("%s.1%d", l.net, host), fmt.Sprintf("boot/52-54-00-00-00-1%d/boot.ipxe", host))
	kernel := strings.Contains(script, "images/k")
	if disk := strings.Contains(script, "starting from its own disk"); status != http.StatusOK || kernel == disk {
		l.t.Errorf("script of w%d: %d %s", host, status, script)
	}
	return kernel
}

// wantNoInstall checks that no host is installed, and that everything says why. The install state of that host is unknown.
func (l *lossLab) wantNoInstall(unknown, why string) {
	l.t.Helper()
	for host := range 3 {
		if l.installs(host) {
			l.t.Errorf("w%d would be wiped", host)
		}
	}
	l.logged("level=ERROR msg=state_lost")
	l.logged(why)
	if s := l.status(); !strings.Contains(s.StateLost, why) || !strings.Contains(s.Warnings.Error(), "No machine with install: once is installed until an admin says so") {
		l.t.Errorf("status: %q, warnings %q", s.StateLost, s.Warnings)
	}
	for _, text := range []string{l.status().StateLost, l.log.String(), l.output("state"), l.page("")} { // the safe steps are named
		if !strings.Contains(text, "bootlab restore FILE") || !strings.Contains(text, " --done") || !strings.Contains(text, "docs/operations.md#the-state-folder-was-lost") ||
			!strings.Contains(text, "mount its disk or put its folder back") {
			l.t.Errorf("no safe step:\n%s", text)
		}
	}
	if l.metric("bootlab_state_lost") != 1 {
		l.t.Error("bootlab_state_lost is not 1")
	}
	if body := l.page("readyz"); !strings.Contains(body, "state: install states were lost; no machine is installed until an admin says so") {
		l.t.Errorf("readyz:\n%s", body)
	}
	for _, page := range []string{"", "hosts/" + unknown} {
		if body := l.page(page); !strings.Contains(body, "install state unknown since ") && !strings.Contains(body, "Install states were lost") {
			l.t.Errorf("page /%s says nothing:\n%s", page, body)
		}
	}
	l.wantOutput("install state unknown since ", "timeline", unknown)
	l.wantOutput(": bootlab install "+unknown+" --done if it has a system, else bootlab install "+unknown+", which overwrites its disk", "timeline", unknown)
	l.wantOutput("unknown", "hosts")
	l.wantOutput(why, "state")
}

func (l *lossLab) output(args ...string) string {
	l.t.Helper()
	out, err := l.bootlab(args...)
	if err != nil {
		l.t.Errorf("bootlab %v: %v\n%s", args, err, out)
	}
	return out
}

func (l *lossLab) wantOutput(text string, args ...string) {
	l.t.Helper()
	if out, err := l.bootlab(args...); err != nil || !strings.Contains(out, text) {
		l.t.Errorf("bootlab %v lacks %q: %v\n%s", args, text, err, out)
	}
}

// page fetches a page of the admin API, by its socket.
func (l *lossLab) page(path string) string {
	l.t.Helper()
	out, err := exec.Command("curl", "-s", "--unix-socket", filepath.Join(l.dir, "run/admin.sock"), "http://bootlab/"+path).Output()
	if err != nil {
		l.t.Error(err)
	}
	return string(out)
}

func removeAll(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLostState: after the state is gone, no machine is wiped, over restarts.
func TestLostState(t *testing.T) {
	t.Parallel()
	for i, tt := range []struct {
		name    string
		prepare func(t *testing.T, l *labFile)
		lose    func(t *testing.T, l *labFile)
		why     string
	}{
		{name: "state.db is removed", lose: func(t *testing.T, l *labFile) { removeAll(t, filepath.Join(l.dir, "state/state.db")) },
			why: "the state folder has no state, but "},
		{name: "the state folder is removed", lose: func(t *testing.T, l *labFile) { removeAll(t, filepath.Join(l.dir, "state")) },
			why: ".lab.yaml.bootlab-state shows that there was one"},
		{name: "state.db is of another lab", lose: func(t *testing.T, l *labFile) {
			other := newLab(t, "10.109.9")
			d := start(t, other)
			d.kill()
			b, err := os.ReadFile(filepath.Join(other.dir, "state/state.db"))
			if err == nil {
				err = os.WriteFile(filepath.Join(l.dir, "state/state.db"), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, why: "the state database is another one than "},
		{name: "state folder and markers are of another lab", lose: func(t *testing.T, l *labFile) {
			other := newLab(t, "10.109.8")
			other.replace(strings.ReplaceAll(other.text(), "52:54:00:00:00:", "52:54:00:00:0a:"))
			d := start(t, other)
			d.kill()
			removeAll(t, filepath.Join(l.dir, "state"))
			for _, name := range []string{"state", ".lab.yaml.bootlab-state"} {
				netns.Run(t, "mv", filepath.Join(other.dir, name), filepath.Join(l.dir, name))
			}
		}, why: "the state database is of a lab with other hosts, such as 52:54:00:00:0a:"},
		{name: "state.db is removed, and the lab is read-only", prepare: func(t *testing.T, l *labFile) {
			// A bind mount makes the folder of the lab read-only; state and socket are elsewhere.
			rw := t.TempDir()
			for _, dir := range []string{filepath.Dir(rw), rw} {
				if err := os.Chmod(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, dir := range []string{"state", "run"} {
				for _, dir := range []string{filepath.Join(rw, dir), filepath.Join(l.dir, dir)} {
					if err := os.MkdirAll(dir, 0o755); err != nil {
						t.Fatal(err)
					}
				}
			}
			netns.Run(t, "mount", "--bind", l.dir, l.dir)
			netns.Run(t, "mount", "-o", "remount,bind,ro", l.dir)
			t.Cleanup(func() { _ = exec.Command("umount", "-l", l.dir).Run() })
			for _, dir := range []string{"state", "run"} {
				netns.Run(t, "mount", "--bind", filepath.Join(rw, dir), filepath.Join(l.dir, dir))
				t.Cleanup(func() { _ = exec.Command("umount", "-l", filepath.Join(l.dir, dir)).Run() })
			}
		}, lose: func(t *testing.T, l *labFile) { removeAll(t, filepath.Join(l.dir, "state/state.db")) },
			why: "state/state.marker shows that there was one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLossLab(t, fmt.Sprintf("10.109.%d", i), func(l *labFile) {
				if tt.prepare != nil {
					tt.prepare(t, l)
				}
			})
			if tt.prepare != nil {
				l.logged(`msg="state marker not written: without it, a lost state may not be noticed"`)
			}
			l.restart(nil)
			if l.installs(0) || !l.installs(2) || l.status().StateLost != "" {
				t.Error("a restart without a loss changes states")
			}
			l.restart(func() { tt.lose(t, l.labFile) })
			l.wantNoInstall("w1", tt.why)
			l.restart(nil)
			l.wantNoInstall("w1", tt.why)
		})
	}
}

// TestHostsReplaced: all hosts of a lab are replaced by a reload, which is no loss at the next start. While bootlab is stopped it is one, until it
// is accepted.
func TestHostsReplaced(t *testing.T) {
	t.Parallel()
	l := newLossLab(t, "10.109.7", nil)
	replaced := func(by string) { l.replace(strings.ReplaceAll(l.text(), "52:54:00:00:00:", by)) }
	replaced("52:54:00:00:0a:")
	if out, err := l.bootlab("reload"); err != nil {
		t.Fatal(out)
	}
	l.restart(nil)
	if lost := l.status().StateLost; lost != "" {
		t.Errorf("replaced by a reload: %s", lost)
	}
	l.restart(func() { replaced("52:54:00:00:0b:") })
	if lost := l.status().StateLost; !strings.Contains(lost, "is of a lab with other hosts, such as 52:54:00:00:0a:10") {
		t.Errorf("replaced while it was stopped: %q", lost)
	}
	if out, err := l.bootlab("state", "accept-new", "--yes"); err != nil {
		t.Fatal(out)
	}
	l.restart(nil)
	if lost := l.status().StateLost; lost != "" {
		t.Errorf("accepted: %s", lost)
	}
}

// TestAcceptState: an admin says what the machines are, one by one or all at once.
func TestAcceptState(t *testing.T) {
	t.Parallel()
	netns.Need(t, "script", "udhcpc")
	l := newLossLab(t, "10.110.1", nil)
	// The first start: its warning shrinks as an admin says what hosts are, and ends when he accepts the rest.
	if ws := l.warnings(); !strings.Contains(ws, "one machine installs itself at its next network boot: w2; ") {
		t.Errorf("after two of three are marked as installed: %s", ws)
	}
	l.restart(nil)
	if ws := l.warnings(); !strings.Contains(ws, "one machine installs itself at its next network boot: w2; ") {
		t.Errorf("after a restart that nobody has accepted: %s", ws)
	}
	if out, err := l.bootlab("state", "accept-new", "--yes"); err != nil || strings.Contains(l.warnings(), "first start") {
		t.Errorf("the first start cannot be accepted: %v\n%s\n%s", err, out, l.warnings())
	}
	l.restart(nil)
	if ws := l.warnings(); strings.Contains(ws, "first start") {
		t.Errorf("after it was accepted and a restart: %s", ws)
	}
	if out, err := l.bootlab("state", "accept-new", "--yes"); err == nil || !strings.Contains(out, "there is nothing to accept") {
		t.Errorf("without a loss: %v\n%s", err, out)
	}
	lost := filepath.Join(l.dir, "lost")
	l.restart(func() { netns.Run(t, "mv", filepath.Join(l.dir, "state"), lost) })
	l.wantNoInstall("w1", "the state folder has no state")

	// One is seen to run, one is armed by hand.
	if addr := l.ms[0].lease(t); addr != l.net+".10" {
		t.Fatalf("w0 has %q", addr)
	}
	l.until("w0 counts as installed", func() bool { return l.host("w0").Install == "installed" })
	l.wantOutput("its install state was lost, but it runs: it has a lease for its system", "hosts", "--json")
	if out, err := l.bootlab("install", "w2", "--yes"); err != nil || !l.installs(2) {
		t.Errorf("armed by hand: %v %s", err, out)
	}
	if l.installs(0) || l.installs(1) {
		t.Error("the others install, too")
	}

	// Without a terminal nothing is accepted; a terminal is asked on.
	out, err := l.bootlab("state", "accept-new")
	if err == nil || !strings.Contains(out, "2 machines would install themselves at their next network boot, which overwrites their disks: w1, w2") || !strings.Contains(out, "--yes") {
		t.Errorf("without a terminal: %v\n%s", err, out)
	}
	if out := l.terminal("no", "install", "w1"); !strings.Contains(out, "Install at the next network boot? [y/N]") || !strings.Contains(out, "nothing was changed") || l.installs(1) {
		t.Errorf("install, answered with no:\n%s", out)
	}
	if out := l.terminal("no", "state", "accept-new"); !strings.Contains(out, "nothing was changed") || l.installs(1) {
		t.Errorf("after the answer no:\n%s", out)
	}
	if out := l.terminal("yes", "state", "accept-new"); !strings.Contains(out, "The state is accepted.") || !strings.Contains(out, "w1, w2") {
		t.Errorf("after the answer yes:\n%s", out)
	}
	for range 2 {
		if l.installs(0) || !l.installs(1) || l.status().StateLost != "" || l.metric("bootlab_state_lost") != 0 {
			t.Errorf("after it was accepted: %+v", l.status())
		}
		l.restart(nil)
	}
	if strings.Contains(l.log.String(), "state_lost") {
		t.Error("an accepted loss is reported after a restart")
	}

	// The state that was lost comes back: machines were installed since.
	l.restart(func() {
		removeAll(t, filepath.Join(l.dir, "state"))
		netns.Run(t, "mv", lost, filepath.Join(l.dir, "state"))
	})
	l.wantNoInstall("w2", "the state database is another one than "+filepath.Join(l.dir, ".lab.yaml.bootlab-state")+" names")
	var s api.State
	out, err = l.bootlab("state", "accept-new", "--yes", "--json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	if err != nil || s.Condition != api.StateKnown || len(s.Install) != 1 {
		t.Errorf("with --yes --json: %v\n%s", err, out)
	}
}

// warnings returns what bootlab status warns of.
func (l *lossLab) warnings() string {
	l.t.Helper()
	s, err := l.client.Status(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return s.Warnings.Error()
}

func (l *lossLab) host(name string) (found api.Host) {
	l.t.Helper()
	hosts, err := l.client.Hosts(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	for _, h := range hosts {
		if h.Name == name {
			return h
		}
	}
	l.t.Fatalf("no host %s", name)
	return found
}

// TestUnmountedState: the state folder is a file system of its own, which is not mounted at a start, or unmounted under the running
// daemon. All this is in a mount namespace of the test.
func TestUnmountedState(t *testing.T) {
	t.Parallel()
	netns.Need(t, "unshare", "nsenter", "mount")
	holder := exec.Command("unshare", "--mount", "--propagation", "private", "sleep", "infinity")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	wrap := []string{"nsenter", "--mount", "--target", fmt.Sprint(holder.Process.Pid)}
	run := func(args ...string) { t.Helper(); netns.Run(t, wrap[0], append(wrap[1:], args...)...) }
	waitUntil(t, "a mount namespace", func() bool {
		own, _ := os.Readlink("/proc/self/ns/mnt")
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", holder.Process.Pid))
		return err == nil && its != own
	})
	var disk, folder string
	l := newLossLab(t, "10.110.2", func(l *labFile) {
		disk, folder = filepath.Join(l.dir, "disk"), filepath.Join(l.dir, "state")
		run("mkdir", disk, folder)
		run("mount", "-t", "tmpfs", "-o", "mode=755", "none", disk) // keeps its content while it is not mounted on folder
		run("mount", "--bind", disk, folder)
	}, wrap...)

	l.restart(func() { run("umount", folder) }, wrap...)
	l.wantNoInstall("w1", "the state folder has no state, but ")
	run("mount", "--bind", disk, folder)
	l.logged("restart bootlab, which then uses it")
	if out := l.output("status"); strings.Contains(out, "does not have the state") {
		t.Errorf("the state that is back is called missing:\n%s", out)
	}
	run("umount", folder)
	l.logged("a problem has ended\" cause=\"lost state is mounted again\"")
	l.restart(func() { run("mount", "--bind", disk, folder) }, wrap...)
	known := func() {
		t.Helper()
		if l.installs(0) || !l.installs(2) || l.status().StateLost != "" {
			t.Errorf("with its file system again: %+v", l.status())
		}
	}
	known()

	// Under the running daemon.
	run("umount", "--lazy", folder)
	l.logged("was unmounted or replaced while in use: put it back")
	known()
	l.wantOutput("was unmounted or replaced while in use", "state")
	l.restart(nil, wrap...)
	l.wantNoInstall("w1", "the state folder has no state, but ")

	// A clean shutdown cannot save it either, as the confined daemon may not write to another folder. Its file system has all.
	l.restart(func() { run("mount", "--bind", disk, folder) }, wrap...)
	known()
	run("umount", "--lazy", folder)
	if out, err := l.bootlab("install", "w2", "--done"); err != nil {
		t.Fatal(out)
	}
	l.signal(syscall.SIGTERM)
	if code := l.exit(patience); code != 0 { // another file has the name of the state file: an admin may want that
		t.Errorf("exit code %d", code)
	}
	l.restart(nil, wrap...)
	l.wantNoInstall("w1", "the state folder has no state, but ")
	l.restart(func() { run("mount", "--bind", disk, folder) }, wrap...)
	if l.installs(2) || l.host("w2").Install != "installed" || l.status().StateLost != "" {
		t.Errorf("what was stored while the folder was not mounted is missing: %+v", l.host("w2"))
	}
}

// TestRemovedState: the state folder is removed under the running daemon, which may not make it again. It says what to do, and that saves
// everything. A stop without that fails, and the next start installs nobody.
func TestRemovedState(t *testing.T) {
	t.Parallel()
	l := newLossLab(t, "10.110.5", nil)
	folder, file := filepath.Join(l.dir, "state"), filepath.Join(l.dir, "state.backup")
	remove := func() {
		t.Helper()
		l.log = &output{}
		l.daemon.start()
		removeAll(t, folder)
		const advice = "was removed while in use: run bootlab backup FILE now, while bootlab runs, then stop it, run bootlab restore FILE, and start it"
		l.logged(advice)
		l.wantOutput(advice, "status")
		l.wantOutput(advice, "state")
		l.wantOutput("was removed", "state")
		waitUntil(t, "its condition is not good", func() bool { return l.metric(`bootlab_conditions{condition="disk",state="failed"}`) == 1 })
		if body := l.page("readyz"); !strings.Contains(body, "store: degraded: state folder was removed") || strings.Contains(body, "disks: ok") {
			t.Errorf("readyz:\n%s", body)
		}
		if out := l.output("status"); strings.Contains(out, "0 MiB free") || strings.Contains(out, "restart bootlab") {
			t.Errorf("the space of a folder that does not exist, or advice that would lose the state:\n%s", out)
		}
	}
	stop := func(why ...string) {
		t.Helper()
		l.signal(syscall.SIGTERM)
		if code := l.exit(patience); code != 1 {
			t.Errorf("exit code %d", code)
		}
		for _, text := range why {
			l.logged(text)
		}
	}
	lost := []string{"was removed while in use, and cannot be written again",
		"bootlab restore puts that back (docs/operations.md#removed-or-replaced-while-in-use)"}
	l.kill()
	remove()
	if out, err := l.bootlab("install", "w2", "--done"); err != nil { // the daemon still stores
		t.Fatal(out)
	}
	l.daemon.backup(t, file)
	stop(lost...)
	if out, err := l.bootlab("restore", file, "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	remove()
	for host := range 3 {
		if l.installs(host) {
			t.Errorf("w%d was installed before the backup, and would be again", host)
		}
	}
	if s := l.status(); s.StateLost != "" {
		t.Errorf("a restored state counts as lost: %s", s.StateLost)
	}
	stop(lost...)
	l.restart(nil)
	l.wantNoInstall("w1", ".lab.yaml.bootlab-state shows that there was one")

	// A folder that was only moved has everything.
	l.kill()
	if out, err := l.bootlab("restore", file, "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l.restart(nil)
	netns.Run(t, "mv", folder, folder+".moved")
	l.logged("was unmounted or replaced while in use: put it back")
	stop("is no longer in its place, since it or its folder was moved or unmounted: nothing is lost: put it back before the next start")
	netns.Run(t, "mv", folder+".moved", folder)
	l.restart(nil)
	if s := l.status(); s.StateLost != "" || l.installs(2) {
		t.Errorf("a folder that was put back counts as lost: %s", s.StateLost)
	}
}

// TestOldState: a copy of the state that was made before the last start is no way to install a machine again.
func TestOldState(t *testing.T) {
	t.Parallel()
	l := newLossLab(t, "10.110.4", nil)
	state, old := filepath.Join(l.dir, "state"), filepath.Join(l.dir, "old")
	l.restart(func() { netns.Run(t, "cp", "--archive", state, old) })
	if out, err := l.bootlab("install", "w2", "--done"); err != nil {
		t.Fatal(out)
	}
	l.restart(func() { removeAll(t, state); netns.Run(t, "mv", old, state) })
	l.wantNoInstall("w2", "the state database is older than ")
}

// TestOldStateOfOneStart: nor is a copy that was made since the last start and before an install, once the marker beside the lab has followed.
func TestOldStateOfOneStart(t *testing.T) {
	t.Parallel()
	l := newLossLab(t, "10.110.9", nil)
	state, old := filepath.Join(l.dir, "state"), filepath.Join(l.dir, "old")
	marker := func() string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(l.dir, ".lab.yaml.bootlab-state"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	l.restart(nil)
	started := marker()
	netns.Run(t, "cp", "--archive", state, old)
	if out, err := l.bootlab("install", "w2", "--done"); err != nil {
		t.Fatal(out)
	}
	waitUntil(t, "the marker follows", func() bool { return marker() != started })
	l.restart(nil)
	if s := l.status(); s.StateLost != "" || l.installs(2) {
		t.Errorf("a crash after an install counts as a loss: %s", s.StateLost)
	}
	l.restart(func() { removeAll(t, state); netns.Run(t, "mv", old, state) })
	l.wantNoInstall("w2", "the state database is older than ")
}

// TestDoctorTriesTheStart: doctor reports why a start fails, in the same words, and says nothing is wrong where it does not fail.
func TestDoctorTriesTheStart(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.110.3")
	private, shared := filepath.Join(l.dir, "private"), filepath.Join(l.dir, "shared")
	for _, err := range []error{os.Mkdir(private, 0o700), os.Mkdir(shared, 0o755), os.Mkdir(filepath.Join(shared, "locked"), 0o500)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	l.file("plain", nil)
	l.lan = "    dhcp: off\n    pools: {}\n" // for other DHCP servers doctor would wait
	for _, tt := range []struct{ name, appliance, user, why, todo string }{
		{"not entered", "state: private/state", "nobody", "user nobody may not enter " + private + ", so it cannot use " + private + "/state", "set appliance.state"},
		{"locked", "state: shared/locked", "nobody", "user nobody may not read and write " + shared + "/locked", "run chmod u+rwx"},
		{"no such user", "state: state", "nobdy", `no user "nobdy"`, `create it with "useradd`},
		{"cannot be made", "state: /proc/foo/bar", "nobody", "appliance.state: mkdir /proc/foo: no such file or directory", "want a folder"},
		{"below a file", "state: plain/state", "nobody", "appliance.state: mkdir " + l.dir + "/plain: not a directory", "want a folder"},
		{"a file", "state: plain", "nobody", "appliance.state: mkdir " + l.dir + "/plain: not a directory", "want a folder"},
		{"not read", "state: state", "nobody", "user nobody cannot read what a reload reads: open " + l.path() + ": permission denied", "run chgrp nogroup " + l.path() + " && chmod g+rX " + l.path()},
		{"no socket", "state: state\n  admin_socket: plain/admin.sock", "nobody", "appliance.admin_socket: mkdir " + l.dir + "/plain: not a directory", "want its folder"},
	} {
		l.appliance, l.user = "  "+tt.appliance+"\n", tt.user
		text := l.text()
		if strings.Contains(tt.appliance, "admin_socket") {
			text = strings.Replace(text, "  admin_socket: run/admin.sock\n", "", 1)
		}
		l.replace(text)
		if tt.name == "not read" {
			netns.Run(t, "chmod", "600", l.path())
		}
		d := &daemon{labFile: l, log: &output{}}
		if out, err := d.bootlab("doctor"); err == nil || !strings.Contains(out, tt.why) || !strings.Contains(out, "-> "+tt.todo) {
			t.Errorf("%s: doctor: %v, want %q\n%s", tt.name, err, tt.why, out)
		}
		d.launch()
		if code := d.exit(patience); code != 1 || !strings.Contains(d.log.String(), tt.why+": "+tt.todo) {
			t.Errorf("%s: exit code %d, want 1 and %q:\n%s", tt.name, code, tt.why, d.log)
		}
		for _, made := range []string{"private/state", "state", "run"} {
			if _, err := os.Stat(filepath.Join(l.dir, made)); err == nil || strings.Contains(d.log.String(), "close state file") {
				t.Errorf("%s: the refused start has made %s, or says more than why:\n%s", tt.name, made, d.log)
			}
		}
	}

	l.appliance, l.user = "  state: new/deep/state\n", "nobody"
	l.write()
	d := &daemon{labFile: l, log: &output{}}
	netns.Run(t, "chmod", "600", filepath.Join(l.dir, "files/images/k"))
	out, _ := d.bootlab("doctor")
	out = strings.Join(strings.Fields(out), " ")
	if !strings.Contains(out, "is made at the first start") || strings.Contains(out, "fail start") ||
		!strings.Contains(out, "fail files "+l.dir+"/files/images/k permission denied; machines that need it get an error until the daemon's user may read it -> run chgrp nogroup "+l.dir+"/files/images/k && chmod g+rX "+l.dir+"/files/images/k") {
		t.Errorf("doctor:\n%s", out)
	}
	if _, err := os.Stat(filepath.Join(l.dir, "new")); err == nil {
		t.Error("doctor has made a folder")
	}
	start(t, l)
}
