package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// twoInstalls adds a second host that is installed once.
func twoInstalls(h *harness) {
	h.t.Helper()
	text, err := os.ReadFile(h.lab)
	if err != nil {
		h.t.Fatal(err)
	}
	h.write(strings.Replace(string(text), "balancers:", "  d: {mac: \"52:54:00:00:00:04\", ip: 10.88.0.14, profile: p}\nbalancers:", 1))
	h.steps(step{args: "reload"})
}

// TestRestore replaces the state of a daemon by a backup. No host that was installed after the backup is installed again.
func TestRestore(t *testing.T) {
	h := serve(t)
	twoInstalls(h)
	file := filepath.Join(t.TempDir(), "lab.backup")
	state := filepath.Join(filepath.Dir(h.lab), "state", "state.db")
	h.steps(
		step{args: "install a --done"},
		step{args: "backup " + file},
		step{args: "install d --done"},
		step{args: "install a --yes"},
		step{args: "restore --yes " + file, err: "the daemon is running: stop it"},
		step{args: "restore --check " + file, out: []string{"backup of lab cli, ", "active leases: 0 now, 0 in the backup",
			"HOST NOW BACKUP AFTER NEXT-BOOT a armed installed installed its own disk d installed - installed its own disk"}, not: []string{"WARNING"}},
		step{args: "restore --check --json " + file, json: true, out: []string{`"host": "d"`, `"after": "installed"`}},
	)
	h.stop()

	before, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	h.steps(
		step{args: "dns updates delete a.example --yes", err: "no dynamic update made a.example."},
		step{args: "restore " + file, err: "nothing was changed: standard input is no terminal to ask on; --yes"},
		step{args: "restore --check " + file, out: []string{"a armed installed installed", "d installed - installed"}},
	)
	if after, err := os.ReadFile(state); err != nil || !bytes.Equal(after, before) {
		t.Fatalf("a restore that was not confirmed changed the state: %v", err)
	}
	h.steps(step{args: "restore --yes " + file, out: []string{"restored " + state + "; the state before is kept as " + state + ".before-restore-"}})
	kept, err := filepath.Glob(state + ".before-restore-*")
	if err != nil || len(kept) != 1 {
		t.Fatal(kept, err)
	}
	if old, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(old, before) {
		t.Errorf("%s is not the state before: %v", kept[0], err)
	}
	h.start()
	h.steps(step{args: "hosts", out: []string{"a 10.88.0.11 52:54:00:00:00:01 p installed", "d 10.88.0.14 52:54:00:00:00:04 p installed"}})
}

// TestRestoreOfLostState: where nothing says whether a host was installed after the backup, it is held until an admin arms it.
func TestRestoreOfLostState(t *testing.T) {
	h := serve(t)
	twoInstalls(h)
	file := filepath.Join(t.TempDir(), "lab.backup")
	state := filepath.Join(filepath.Dir(h.lab), "state", "state.db")
	h.steps(step{args: "install a --done"}, step{args: "backup " + file})
	h.stop()
	remove := func() {
		t.Helper()
		if err := os.Remove(state); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	h.steps(
		step{args: "restore --check --arm " + file, out: []string{"d unknown - armed INSTALLS, overwrites its disk",
			"WARNING: the next network boot of these hosts installs them and overwrites their disks: d"}},
		step{args: "restore --check --arm --json " + file, json: true, out: []string{`"host": "d", "now": "unknown", "after": "armed", "next_boot": "install"`, `"next_boot": "disk"`,
			`"warnings": [ "the next network boot of these hosts installs them and overwrites their disks: d" ]`}},
		step{args: "restore --check --json " + file, json: true, out: []string{`"warnings": []`}},
		step{args: "restore --yes " + file, out: []string{"a unknown installed installed its own disk", "d unknown - held its own disk; bootlab install arms it", "restored " + state},
			not: []string{"WARNING", "is kept as"}},
	)
	h.start()
	h.steps(
		step{args: "hosts", out: []string{"p installed", "p held"}},
		step{args: "why d", err: "not booted: d", out: []string{"d: stopped at stage install", "a restore holds it", "bootlab install d --done if it has a system, else bootlab install d, which overwrites its disk"}, not: []string{"too often", "profile"}},
		step{args: "status", out: []string{"warning: a restore holds d:", "bootlab install HOST --done"}},
		step{args: "state", out: []string{"held by a restore, 1: d", "bootlab install HOST --done"}},
		step{args: "hosts --json", json: true, out: []string{"not installed in the backup of", "bootlab install d --done if it has a system"}},
		step{args: "install d --yes", out: []string{"armed"}},
		step{args: "hosts", out: []string{"p armed"}},
		step{args: "state", not: []string{"held"}},
		step{args: "status", not: []string{"a restore holds"}},
	)
	h.stop()
	if err := os.WriteFile(state, []byte("this was a state file once"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.steps(step{args: "restore --yes --json --arm " + file, json: true, out: []string{`"after": "armed"`, "the present state is damaged", `"kept": "` + state}})
	h.start()
	h.steps(step{args: "hosts", out: []string{"p installed", "p armed"}})
}

// TestRestoreRefuses: a backup that is not whole, a state in use and a lab that does not load change nothing, in one sentence.
func TestRestoreRefuses(t *testing.T) {
	h := serve(t)
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	h.steps(step{args: "install a --done"}, step{args: "backup " + good})
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	h.stop()
	state := filepath.Join(filepath.Dir(h.lab), "state", "state.db")
	before, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	newer := bytes.Replace(whole, []byte(`"bootlab_backup":1`), []byte(`"bootlab_backup":9`), 1)
	for _, tt := range []struct{ path, err string }{
		{write("cut", whole[:len(whole)/2]), "cut: it is incomplete: it was cut after "},
		{write("damaged", bytes.Replace(whole, []byte(`install/a`), []byte(`install/b`), 1)), "damaged: it is damaged: its checksum does not match"},
		{write("newer", newer), "newer: it has format 9 and this bootlab reads up to format 1"},
		{write("empty", nil), "empty: it is empty"},
		{state, "it is a copy of a state file"},
		{filepath.Join(dir, "missing"), "no such file"},
	} {
		h.steps(step{args: "restore --yes " + tt.path, err: tt.err})
	}
	f, err := os.OpenFile(state, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	h.steps(step{args: "restore --yes " + good, err: fmt.Sprintf("in use by process %d", os.Getpid())})
	f.Close()
	lab, err := os.ReadFile(h.lab)
	if err != nil {
		t.Fatal(err)
	}
	h.write("hosts: [\n")
	h.steps(step{args: "restore --yes --server nowhere.sock " + good, err: "a restore needs the lab file"})
	h.write(string(lab))
	if after, err := os.ReadFile(state); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the state changed: %v", err)
	}
	if files, _ := filepath.Glob(state + "*"); len(files) != 1 {
		t.Errorf("left behind: %v", files)
	}
	h.start()
	h.steps(step{args: "hosts", out: []string{"p installed"}})
}

// TestRestoreAsks: on a terminal it asks, and only yes changes anything.
func TestRestoreAsks(t *testing.T) {
	h := serve(t)
	file := filepath.Join(t.TempDir(), "lab.backup")
	h.steps(step{args: "install a --done"}, step{args: "backup " + file})
	h.stop()
	for _, tt := range []struct {
		answer string
		kept   int
	}{{"\n", 0}, {"n\n", 0}, {"yes\n", 1}} {
		said, err := onTerminal(t, tt.answer, "restore", file, "--lab", h.lab)
		if !strings.Contains(said, "Replace "+filepath.Join(filepath.Dir(h.lab), "state", "state.db")+"? [y/N]") || (err == nil) != (tt.kept == 1) {
			t.Errorf("answer %q: %v\n%s", tt.answer, err, said)
		}
		if kept, _ := filepath.Glob(filepath.Join(filepath.Dir(h.lab), "state", "*before-restore*")); len(kept) != tt.kept {
			t.Errorf("answer %q: kept %v", tt.answer, kept)
		}
	}
}

// terminal returns both ends of a terminal: that of who sits at it, and that of a program.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	return master, slave
}

// onTerminal runs a command whose standard input is a terminal, on which somebody types.
func onTerminal(t *testing.T, types string, args ...string) (said string, err error) {
	t.Helper()
	master, slave := terminal(t)
	if _, err := io.WriteString(master, types); err != nil {
		t.Fatal(err)
	}
	cmd := bootlab(context.WithoutCancel(t.Context()), args...)
	cmd.Stdin = slave
	out, err := cmd.CombinedOutput()
	return string(out), err
}
