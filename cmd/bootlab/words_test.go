package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWordsOfMachines: answers about machines that are silent, unknown or empty say in plain words what is so, and what to do.
func TestWordsOfMachines(t *testing.T) {
	h := serve(t)
	client := h.seg.NewClient(t, "02:00:00:00:00:66")
	h.until("an unknown machine has a lease", func() bool {
		_ = client.Command(t.Context(), "udhcpc", "-i", "eth0", "-f", "-n", "-q", "-t", "3", "-T", "1", "-B", "-s", "/bin/true").Run()
		return strings.Contains(h.run("hosts", "--unknown").out, "02:00:00:00:00:66")
	})
	h.steps(
		step{args: "why c", err: "not booted: c", out: []string{"c: no request received yet"}, not: []string{"unknown at stage", "adopt"}},
		step{args: "why 02:00:00:00:00:99", err: "not booted", out: []string{"02:00:00:00:00:99: no request received yet", "no host of the lab file has this MAC"}, not: []string{"bootlab adopt 02"}},
		step{args: "why 02-00-00-00-00-66", out: []string{"bootlab adopt 02:00:00:00:00:66 prints lab-file lines for this machine"}},
		step{args: "adopt 02-00-00-00-00-66 --ip 10.88.0.11", err: "adopt 02:00:00:00:00:66: 10.88.0.11 is the address of host a: want another one", not: []string{"reservations:"}},
		step{args: "adopt 02-00-00-00-00-66 --name a", err: "adopt 02:00:00:00:00:66: the lab has a host a already: want another name"},
		step{args: "leases --state foo", err: `"foo" is not the state of a lease (want all, or any of active, expired, released, declined, conflict and offered)`},
		step{args: "plan lab.example", err: `no host "lab.example" in lab cli: it is a zone, which bootlab plan --zones lab.example shows`},
		step{args: "plan --diff lab.example.", err: "bootlab plan --zones lab.example. shows"},
		step{args: "plan 52-54-00-00-00-02", out: []string{"b.lab.example"}, not: []string{"a.lab.example"}},
		step{args: "leases release 02-00-00-00-00-66", out: []string{"lease of"}},
	)
}

// TestBrokenZoneHasFile: resolve names the file of a zone that has an error, and how to see it.
func TestBrokenZoneHasFile(t *testing.T) {
	h := serve(t)
	zone := filepath.Join(filepath.Dir(h.lab), "z.zone")
	if err := os.WriteFile(zone, []byte("$TTL 60\n@ IN SOA a a 1 1 1 1 1\n  IN NS a\nx IN A 1.2.3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.edit("profiles:", "dns: {zones: {z.example: {file: z.zone}}}\nprofiles:")
	h.steps(
		step{args: "reload", err: "the lab file has 1 error", out: []string{zone + ":4:8"}},
		step{args: "resolve x.z.example", out: []string{"SERVFAIL", "zone z.example. is not served: " + zone + " has an error, or cannot be read; bootlab check says which"}},
	)
	h.edit("profiles:", "profilez:")
	a := h.run("reload")
	if n := strings.Count(a.out+a.stderr+a.err.Error(), `"profilez"`); n != 1 {
		t.Errorf("the refusal says its reason %d times:\n%s%s%v", n, a.out, a.stderr, a.err)
	}
}

// TestEmptyLists: on a terminal an empty list says that it is empty; elsewhere it stays a header, and [] in JSON.
func TestEmptyLists(t *testing.T) {
	h := serve(t)
	for args, want := range map[string]string{
		"leases": "no leases", "leases --state expired": "no leases", "vm list": "no virtual machines", "hosts --unknown": "no unknown machines", "leases --json": "[]",
	} {
		if got := shownOnTerminal(t, h, args); got != want {
			t.Errorf("%s on a terminal: %q, want %q", args, got, want)
		}
	}
	h.steps(step{args: "leases", out: []string{"IP MAC NAME"}, not: []string{"no leases"}})
}

// shownOnTerminal returns what a command writes to a terminal.
func shownOnTerminal(t *testing.T, h *harness, args string) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer tty.Close()
	cmd, stderr := root(), bytes.Buffer{}
	cmd.SetArgs(append(strings.Fields(args), "--lab", h.lab))
	cmd.SetOut(tty)
	cmd.SetErr(&stderr)
	if err := cmd.ExecuteContext(h.ctx); err != nil {
		t.Errorf("%s: %v\n%s", args, err, stderr.String())
	}
	fmt.Fprintln(tty, "end of the test")
	var said []byte
	for buf := make([]byte, 4096); !bytes.Contains(said, []byte("end of the test")); {
		n, err := master.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, buf[:n]...)
	}
	text, _, _ := strings.Cut(string(said), "end of the test")
	return strings.TrimSpace(text)
}
