package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/daemon/doctor"
	"github.com/bootlab/bootlab/test/support/netns"
)

// terminalText returns what write has written to a terminal of that many columns.
func terminalText(t *testing.T, columns int, write func(*os.File) error) string {
	t.Helper()
	ours, theirs := terminal(t)
	if err := unix.IoctlSetWinsize(int(theirs.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		defer theirs.Close()
		written <- write(theirs)
	}()
	var text strings.Builder
	for b := make([]byte, 4096); ; { // ends with an error when theirs is closed
		n, err := ours.Read(b)
		text.Write(b[:n])
		if err != nil {
			break
		}
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(text.String(), "\r\n", "\n")
}

// TestNarrowTerminal: long texts of doctor and status are wrapped on a terminal, and lose nothing.
func TestNarrowTerminal(t *testing.T) {
	t.Parallel()
	long := strings.TrimSpace(strings.Repeat("a problem of many words ", 12))
	for _, subject := range []string{"br0", "/var/lib/bootlab/a/folder/with/a/long/path"} {
		r := doctorResult{Findings: []doctor.Finding{{Check: "interfaces", Subject: subject, Level: doctor.Fail, Text: long, Fix: "run " + long}, {Check: "dns", Subject: "x", Level: doctor.OK, Text: "short"}}}
		text := terminalText(t, 80, func(f *os.File) error { return doctorText(f, r) })
		narrow(t, text, long+" -> run "+long, "x short")
		if n := strings.Count(text, "\n"); n > 24 {
			t.Errorf("%d lines, each a few words:\n%s", n, text)
		}
	}
	text := terminalText(t, 80, func(f *os.File) error {
		return problemTable(f, []string{"A", "B"}, [][]string{{"one", "two", long}, {"three", "four"}})
	})
	narrow(t, text, "one two "+long+" three four")
	if !strings.Contains(text, "two\n  a problem") || !strings.Contains(text, "\n  ") {
		t.Errorf("a problem is not below its row:\n%s", text)
	}
}

// narrow fails the test if a line is longer than 80 columns, or if the words lack some.
func narrow(t *testing.T, text string, words ...string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, want := range words {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text  string
		width int
		want  string
	}{
		{"one two three", 0, "one two three"},
		{"one two three", 7, "one two|three"},
		{"one two three", 6, "one|two|three"},
		{"one two three", 13, "one two three"},
		{"a longer-than-that word", 6, "a|longer-than-that|word"},
		{"äöü äöü", 4, "äöü|äöü"},
		{"unbreakable", 4, "unbreakable"},
		{"", 4, ""},
	} {
		if got := strings.Join(wrap(tt.text, tt.width), "|"); got != tt.want {
			t.Errorf("%q in %d columns: %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
}

// TestDoctorBesideTheDaemon: what the daemon and a check both find is reported once, as status says it.
func TestDoctorBesideTheDaemon(t *testing.T) {
	netns.Need(t, "root", "ip")
	h := serve(t)
	netns.Run(t, "ip", "link", "set", h.seg.Bridge, "down")
	h.until("status says that it is down", func() bool { return strings.Contains(h.run("status").out, "interface is down: run ip link set") })
	h.until("dhcpd does not serve it", func() bool { return h.run("status").err != nil })
	h.steps(
		step{args: "status", err: "not ready: dhcpd", out: []string{"dhcpd not serving", "interface is down"}},
		step{args: "status --json", err: "not ready: dhcpd", json: true, out: []string{`"servers"`}},
	)
	a := h.run("doctor")
	if n := strings.Count(a.out, "fail  interfaces "); a.err == nil || n != 1 || strings.Contains(a.out, "interface "+h.seg.Bridge) {
		t.Errorf("an interface that is down is reported %d times, want once: %v\n%s", n, a.err, a.out)
	}
	if !strings.Contains(a.out, "interface is down (network n)\n") || !strings.Contains(a.out, "-> run ip link set "+h.seg.Bridge+" up\n") {
		t.Errorf("other words than those of status:\n%s", a.out)
	}
	netns.Run(t, "ip", "addr", "del", "10.88.0.1/24", "dev", h.seg.Bridge)
	netns.Run(t, "ip", "link", "set", h.seg.Bridge, "up")
	h.until("status says that the address is missing", func() bool {
		return strings.Contains(h.run("status").out, "10.88.0.1 is on no interface: run ip addr add")
	})
	if a = h.run("doctor"); strings.Count(a.out, "-> run ip addr add") != 1 || strings.Contains(a.out, "no interface of this machine has 10.88.0.1, from") {
		t.Errorf("a missing address is not reported once:\n%s", a.out)
	}
	if n := strings.Count(a.out, "/files/k"); n != 1 {
		t.Errorf("a missing file is reported %d times:\n%s", n, a.out)
	}
	netns.Run(t, "ip", "addr", "add", "10.88.0.1/24", "dev", h.seg.Bridge)
}

// TestDoctorOfAnotherLab: nothing that a daemon has measured for its own lab is said of another one with the same socket.
func TestDoctorOfAnotherLab(t *testing.T) {
	netns.Need(t, "root", "ip")
	h := serve(t)
	other := filepath.Join(filepath.Dir(h.lab), "other.yaml")
	text, err := os.ReadFile(h.lab)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, text, 0o644); err != nil { // also with the same name
		t.Fatal(err)
	}
	a := run(h.ctx, "doctor", "--lab", other)
	if !strings.Contains(a.out, "serves another lab, "+h.lab+": what it has measured is left out\n") || strings.Contains(a.out, "the daemon has them") || strings.Contains(a.out, "warning ") {
		t.Errorf("%v\n%s", a.err, a.out)
	}
	link := filepath.Join(filepath.Dir(h.lab), "link.yaml")
	if err := os.Symlink(h.lab, link); err != nil {
		t.Fatal(err)
	}
	if a = run(h.ctx, "doctor", "--lab", link); strings.Contains(a.out, "another lab") || !strings.Contains(a.out, "the daemon has them") {
		t.Errorf("the lab by another name: %v\n%s", a.err, a.out)
	}
}

// TestRefusedHosts: hosts that share a broken document are all named as refused, before one of them asks, and the mistake is shown once.
func TestRefusedHosts(t *testing.T) {
	netns.Need(t, "root", "ip")
	h := serve(t)
	document := filepath.Join(filepath.Dir(h.lab), "files", "a.ks")
	if err := errors.Join(os.MkdirAll(filepath.Dir(document), 0o755), os.WriteFile(document, []byte("zerombr\n%packages\nvim\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	h.edit("{kernel: k, install_to: /dev/vda}", "{os: anaconda, kernel: k, initrd: [i], config: a.ks, install_to: /dev/vda}")
	h.edit("ip: 10.88.0.12}", "ip: 10.88.0.12, profile: p}")
	h.steps(
		step{args: "reload", err: "until it is fixed"},
		step{args: "status", out: []string{"machine a failed", "machine b failed"}},
		step{args: "why a", err: "not booted", out: []string{"a.ks:2:1: profiles.p.config: for hosts a, b: "}},
	)
	const mistake = ":2:1: profiles.p.config: for hosts a, b: "
	if text := h.run("status").out; strings.Count(text, "see the error above") != 2 || strings.Count(text, mistake) != 1 {
		t.Errorf("status shows the mistake more than once:\n%s", text)
	}
	ready := h.run("status", "--json")
	if n := strings.Count(ready.out, `"kind": "machine"`); n != 2 {
		t.Errorf("%d machines are refused, want 2:\n%s", n, ready.out)
	}
	a := h.run("doctor")
	if strings.Count(a.out, "a.ks") != 1 || !strings.Contains(a.out, "for hosts a, b: ") || a.err == nil || !strings.HasPrefix(a.err.Error(), "1 failure ") {
		t.Errorf("doctor does not show it once: %v\n%s", a.err, a.out)
	}
}

// TestDoctorRefusedReload: beside a daemon that refused the lab file for a port, doctor says so as status does, fails, and names the holder.
func TestDoctorRefusedReload(t *testing.T) {
	netns.Need(t, "root", "ip")
	h := serve(t)
	other, err := net.Listen("tcp4", "10.88.0.1:9001")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	h.edit("balancers:\n", "balancers:\n  extra: {listen: \"10.88.0.1:9001\", backends: [\"a:81\"]}\n")
	h.edit("balancers:\n", "balancers:\n  game: {listen: \"10.88.0.1:9100-9105\", mode: udp, backends: [a]}\n")
	holder := fmt.Sprintf("(pid %d)", os.Getpid())
	h.steps(
		step{args: "reload", err: "refused"},
		step{args: "status", out: []string{" was refused; generation 1 stays in force:"}},
		step{args: "doctor", err: "2 failures found", out: []string{"fail daemon reload the reload of 2", " was refused; generation 1 stays in force: balancer extra: listen on 10.88.0.1:9001",
			"fail ports tcp 10.88.0.1:9001 in use by ", holder, "-> stop that program, or change balancers.extra.listen", "ok ports all others the daemon has them"}},
	)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	h.steps(
		step{args: "doctor", err: "1 failure found", out: []string{"fail daemon reload", "ok ports tcp 10.88.0.1:9001 free (balancers.extra.listen)"}},
		step{args: "reload"},
		step{args: "doctor", out: []string{"ok ports all the daemon has them"}, not: []string{"was refused"}},
	)
}

// TestDoctorOfAFrozenDisk: doctor says that the disk of the state does not answer, and ends before it does: also for who reads its output to the end.
func TestDoctorOfAFrozenDisk(t *testing.T) {
	netns.Need(t, "root", "mkfs.ext4", "mount", "fsfreeze")
	dir := t.TempDir()
	image, state, lab := filepath.Join(dir, "disk"), filepath.Join(dir, "state"), filepath.Join(dir, "lab.yaml")
	if err := errors.Join(os.Mkdir(state, 0o750), os.WriteFile(image, nil, 0o600), os.Truncate(image, 160<<20),
		os.WriteFile(lab, []byte("version: 1\ndomain: lab.test\nappliance: {state: "+state+", user: root, admin_socket: "+dir+"/admin.sock}\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	netns.Run(t, "mkfs.ext4", "-q", "-F", image)
	if out, err := exec.Command("mount", "-o", "loop", image, state).CombinedOutput(); err != nil {
		netns.Absent(t, "loop devices", string(out))
	}
	t.Cleanup(func() { _ = exec.Command("umount", "--lazy", state).Run() })
	netns.Run(t, "fsfreeze", "--freeze", state)
	thaw := sync.OnceFunc(func() { _ = exec.Command("fsfreeze", "--unfreeze", state).Run() })
	t.Cleanup(thaw)

	var out bytes.Buffer
	cmd := bootlab(t.Context(), "doctor", "--lab", lab)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(2 * examineLimit):
		t.Error("doctor did not end while the disk was frozen")
		thaw()
		<-ended
	}
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(out.String(), state) || !strings.Contains(out.String(), "does not answer") || !strings.Contains(out.String(), "found") {
		t.Errorf("exit status %d\n%s", code, out.String())
	}
}
