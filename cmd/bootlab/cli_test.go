package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestUsage: whatever is wrong with a command line, the error says what would be right, and nothing succeeds.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, s := range []step{
		{args: "", out: []string{"Usage:", "Available Commands:", "timeline"}},
		{args: "--help", out: []string{"--lab file", "--json"}},
		{args: "--version", out: []string{"bootlab "}},
		{args: "nope", err: `unknown command "nope" for "bootlab"; see bootlab --help`},
		{args: "stauts", err: `unknown command "stauts" for "bootlab"; did you mean state or status?`},
		{args: "secureboot --help", err: `unknown command "secureboot" for "bootlab"; see bootlab --help`},
		{args: "stauts -h", err: "did you mean state or status?"},
		{args: "stauts --nope", err: `unknown command "stauts"`},
		{args: "vm lits --help", err: `unknown command "lits" for "bootlab vm"; did you mean list?`},
		{args: "vm --help", out: []string{"create", "delete", "list"}},
		{args: "vm create --help", out: []string{"bootlab vm create HOST"}},
		{args: "help", out: []string{"Available Commands:", "timeline"}},
		{args: "help vm create", out: []string{"bootlab vm create HOST"}},
		{args: "help stauts", err: `unknown command "stauts" for "bootlab"; did you mean state or status?`},
		{args: "help vm lits", err: "did you mean list?"},
		{args: "vm", out: []string{"create", "delete", "list"}},
		{args: "vm lits", err: `unknown command "lits" for "bootlab vm"; did you mean list?`},
		{args: "vm create", err: "HOST or CLUSTER is missing; usage: bootlab vm create HOST"},
		{args: "backend", out: []string{"drain", "ready", "list"}},
		{args: "backend dran a b", err: "did you mean drain?"},
		{args: "backend drain a", err: "BACKEND is missing; usage: bootlab backend drain BALANCER BACKEND"},
		{args: "backend weight a b -1", err: "-1 is parsed as a flag: no argument may be negative; usage: bootlab backend weight BALANCER BACKEND WEIGHT|default"},
		{args: "backend weight a b 0", err: `"0" is not a weight: want 1 to 256, or default`},
		{args: "backend list -x", err: "unknown shorthand flag: 'x' in -x; see bootlab backend list --help"},
		{args: "vm list a", err: "1 argument is too many; usage: bootlab vm list"},
		{args: "plan a b", err: "2 arguments are too many; usage: bootlab plan [HOST|ZONE]"},
		{args: "plan --zones nope.example --lab " + contract, err: `no zone "nope.example" in lab telco; zones are 0.0.0.0.0.0.0.0.6.1.0.0.0.0.d.f.ip6.arpa., 16.168.192.in-addr.arpa.`},
		{args: "check --strcit", err: "unknown flag: --strcit; did you mean --strict?"},
		{args: "plan --sever x", err: "unknown flag: --sever; did you mean --server?"},
		{args: "plan --nope", err: "unknown flag: --nope; see bootlab plan --help"},
		{args: "plan --lab", err: "flag needs an argument: --lab; see bootlab plan --help"},
		{args: "install", err: "HOST or CLUSTER is missing; usage: bootlab install HOST|CLUSTER..."},
		{args: "timeline", err: "usage: bootlab timeline HOST"},
		{args: "why", err: "HOST is missing; usage: bootlab why HOST..."},
		{args: "schema x", err: "usage: bootlab schema"},
		{args: "serve --log-level loud", err: `--log-level "loud" is not known: want debug, info, warn or error; see bootlab serve --help`},
		{args: "up c --timeout 90", err: `--timeout "90" has no unit: want 90s, 90m or 90h; see bootlab up --help`},
		{args: "vm stop a --timeout soon", err: `--timeout "soon" is not a time: want one such as 90s or 2h; see bootlab vm stop --help`},
		{args: "install a --now=perhaps", err: `--now "perhaps" is neither true nor false; see bootlab install --help`},
		{args: "install a --now --done", err: "--done and --now exclude each other; see bootlab install --help"},
		{args: "vm stop a --force --timeout 5s", err: "--force and --timeout exclude each other; see bootlab vm stop --help"},
		{args: "leases export --format xml", err: `--format "xml" is not known: want csv, json, kea or dnsmasq; see bootlab leases export --help`},
		{args: "leases import --format xml NOWHERE", err: `--format "xml" is not known: want csv, json, kea or dnsmasq; see bootlab leases import --help`},
		{args: "serve --log-format xml", err: `--log-format "xml" is not known: want text or json; see bootlab serve --help`},
		{args: "plan --lab NOWHERE", err: "nowhere.yaml: no such file or directory"},
		{args: "check --lab NOWHERE", err: "nowhere.yaml cannot be read; set the lab file with --lab", out: []string{"nowhere.yaml: no such file or directory"}},
		{args: "check --json --lab NOWHERE", err: "nowhere.yaml cannot be read", out: []string{`"ok": false`, "no such file or directory"}},
		{args: "plan master-9 --lab " + contract, err: `no host "master-9" in lab telco; hosts are master-0, worker-0, worker-1`},
		{args: "plan master-9 --json --lab " + contract, err: `no host "master-9"`},
		{args: "talos prepare NOWHERE", err: "nowhere.yaml: no such file or directory: want the folder that talosctl gen config wrote"},
		{args: "serve --lab NOWHERE", err: "nowhere.yaml: no such file or directory; set the lab file with --lab"},
		{args: "serve --firmware NOWHERE --lab " + contract, err: "no such file or directory: want a folder of network boot programs"},
		{args: "firmware --firmware NOWHERE", err: "--firmware: open"},
		{args: "import dnsmasq", err: "FILE is missing; usage: bootlab import dnsmasq FILE..."},
		{args: "import libvirt", err: "URI is missing; usage: bootlab import libvirt URI"},
		{args: "import bind named.conf", err: `unknown command "bind" for "bootlab import"`},
		{args: "import dnsmasq NOWHERE", err: "nowhere.yaml: no such file or directory"},
		{args: "import haproxy --json ../../internal/lab/importer/testdata/haproxy/shared.cfg", out: []string{`"lab": "# Made by`, `"line": 24`, `"statement": "use_backend green-apps`, `"weakens_access": []`}},
		{args: "import haproxy ../../internal/lab/importer/testdata/haproxy/helper.cfg", err: "1 statement not enforced; check what follows from it, then add --accept-weaker-access",
			out: []string{"# NOT ENFORCED: ../../internal/lab/importer/testdata/haproxy/helper.cfg:54: http-request deny", "NOT ENFORCED: ../../"}},
		{args: "import haproxy --json ../../internal/lab/importer/testdata/haproxy/helper.cfg", err: "1 statement not enforced", out: []string{`"weakens_access": [ { "file"`}},
		{args: "import haproxy --accept-weaker-access ../../internal/lab/importer/testdata/haproxy/helper.cfg", out: []string{"# NOT ENFORCED: "}},
		{args: "doctor --lab NOWHERE", err: "1 failure found", out: []string{"fail", "nowhere.yaml: no such file or directory"}},
		{args: "doctor --json --lab NOWHERE", err: "1 failure found", out: []string{`"level": "fail"`, `"serving": false`}},
		{args: "check lab.yaml", err: "bootlab check --lab lab.yaml"},
		{args: "serve " + contract, err: "bootlab serve --lab " + contract},
	} {
		t.Run(s.args, func(t *testing.T) {
			t.Parallel()
			nowhere := filepath.Join(t.TempDir(), "nowhere.yaml")
			s.check(t, run(t.Context(), strings.Fields(strings.ReplaceAll(s.args, "NOWHERE", nowhere))...))
		})
	}
}

// TestHelp: each command says what it does, in one line that begins with a capital, and how it is called.
func TestHelp(t *testing.T) {
	t.Parallel()
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		short := cmd.Short
		if short == "" || strings.HasSuffix(short, ".") || strings.ToUpper(short[:1]) != short[:1] {
			t.Errorf("%s: %q", cmd.CommandPath(), short)
		}
		a := run(t.Context(), append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
		if a.err != nil || !strings.Contains(a.out, cmd.UseLine()) && !cmd.HasSubCommands() {
			t.Errorf("%s --help: %v\n%s", cmd.CommandPath(), a.err, a.out)
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root())
}

// TestNoDaemon: every command that asks the daemon says that there is none, and what to do.
func TestNoDaemon(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "admin.sock")
	for _, args := range []string{
		"status", "hosts", "leases", "leases release a", "leases reserve a", "leases export", "timeline a", "timeline -f a", "why a", "reload", "reload --force", "token", "install a", "install a --done", "hosts --unknown", "adopt 02:00:00:00:00:01", "vm list", "vm create a",
		"vm start a", "vm stop a", "vm delete a", "backend list", "backend drain a b", "backend ready a b", "plan --diff --lab " + contract, "backup -",
		"resolve a", "dns flush", "dns log a", "dns updates", "dns updates delete a",
	} {
		for _, more := range []string{"", " --json"} {
			a := run(t.Context(), strings.Fields(args+more+" --server "+socket)...)
			step{args: args + more, err: "no bootlab daemon answers at " + socket + ": is it running? (bootlab serve)"}.check(t, a)
			if a.out != "" {
				t.Errorf("%s: %s", args+more, a.out)
			}
		}
	}
}

// TestProcess is about what only a process has: exit codes, and pipes without a reader.
func TestProcess(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "lab.yaml")
	if err := os.WriteFile(broken, []byte("hosts: [\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, args string
		code       int
		stderr     string
	}{
		{"good", "check --lab " + contract, 0, ""},
		{"bad", "check --lab " + broken, 1, broken + ":1:8: not YAML: [ is not closed"},
		{"bad, in JSON", "check --json --lab " + broken, 1, "bootlab: the lab file has"},
		{"wrong use", "plan a b", 1, "bootlab: 2 arguments are too many; usage: bootlab plan"},
		{"no daemon", "status --server /nowhere.sock", 1, "bootlab: no bootlab daemon answers"},
		{"nothing to compare with", "plan --diff --server /nowhere.sock --lab " + contract, 2, "bootlab: no bootlab daemon answers"},
		{"wrong use of a comparison", "plan --diff a b", 2, "bootlab: 2 arguments are too many; usage: bootlab plan"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			cmd := bootlab(t.Context(), strings.Fields(tc.args)...)
			cmd.Stderr = &stderr
			err := cmd.Run()
			if cmd.ProcessState.ExitCode() != tc.code {
				t.Errorf("exit code %d, want %d (%v)", cmd.ProcessState.ExitCode(), tc.code, err)
			}
			if !strings.Contains(stderr.String(), tc.stderr) {
				t.Errorf("stderr %q, want %q", stderr.String(), tc.stderr)
			}
		})
	}
	t.Run("no daemon where it was named", func(t *testing.T) {
		t.Parallel()
		own := filepath.Join(t.TempDir(), "lab.yaml")
		if err := os.WriteFile(own, []byte("version: 1\nlab: a\nappliance: {admin_socket: own.sock}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for args, where := range map[string]string{
			"status --server /nowhere.sock": "/nowhere.sock",
			"status --lab " + own:           filepath.Join(filepath.Dir(own), "own.sock"),
		} {
			cmd := bootlab(t.Context(), strings.Fields(args)...)
			out, _ := cmd.CombinedOutput()
			if want := "bootlab: no bootlab daemon answers at " + where + ": is it running? (bootlab serve)\n"; string(out) != want {
				t.Errorf("%s: %q, want %q", args, out, want)
			}
		}
	})
	t.Run("a full disk", func(t *testing.T) {
		t.Parallel()
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip(err)
		}
		defer full.Close()
		for _, args := range []string{"check --lab " + contract, "plan --lab " + contract, "plan --json --lab " + contract, "schema"} {
			cmd := bootlab(t.Context(), strings.Fields(args)...)
			cmd.Stdout = full
			if err := cmd.Run(); err == nil {
				t.Errorf("%s: success, though nothing was written", args)
			}
		}
	})
	t.Run("a broken pipe", func(t *testing.T) {
		t.Parallel()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close() // as head does that has seen enough
		defer w.Close()
		cmd := bootlab(t.Context(), "plan", "--lab", contract)
		cmd.Stdout = w
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		var exit *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exit) || strings.Contains(stderr.String(), "panic") {
			t.Errorf("%v: %s", err, stderr.String())
		}
	})
}
