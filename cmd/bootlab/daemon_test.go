package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
)

const running = `
version: 1
lab: cli
domain: lab.example
appliance: {state: state, admin_socket: admin.sock, user: root, confine: off, http: "10.88.0.1:8080", tftp: "10.88.0.1:69", dns: "10.88.0.1:53", admin: "10.88.0.1:9680"}
networks:
  n:
    subnet: 10.88.0.0/24
    interface: %s
    address: 10.88.0.1
    pools: {guests: {range: 10.88.0.100-10.88.0.110}}
profiles: {p: {kernel: k, install_to: /dev/vda}}
hosts:
  a: {mac: "52:54:00:00:00:01", ip: 10.88.0.11, profile: p}
  b: {mac: ["52:54:00:00:00:02", "52:54:00:00:00:12"], ip: 10.88.0.12}
  c: {mac: "52:54:00:00:00:03", ip: 10.88.0.13}
balancers:
  web: {listen: "10.88.0.1:80", check: {kind: none}, backends: ["a:80", "10.88.0.14:80"]}
`

// A harness is a daemon under `bootlab serve` in the test's own network namespace.
type harness struct {
	t    *testing.T
	seg  *netns.Segment
	lab  string // path of the lab file
	ctx  context.Context
	stop func() // ends the daemon; a second call does nothing
}

// serve runs the daemon until the test ends.
func serve(t *testing.T) *harness {
	t.Helper()
	netns.Need(t, "root")
	seg := netns.NewSegment(t, "10.88.0.1/24")
	h := &harness{t: t, seg: seg, lab: filepath.Join(t.TempDir(), "lab.yaml"), ctx: t.Context()}
	h.write(fmt.Sprintf(running, seg.Bridge))
	t.Cleanup(func() { h.stop() })
	h.start()
	return h
}

// start runs the daemon until stop.
func (h *harness) start() {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.ctx))
	ended := make(chan answer, 1)
	go func() { ended <- run(ctx, "serve", "--log-level", "error", "--lab", h.lab) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if a := <-ended; a.err != nil {
			h.t.Errorf("bootlab serve: %v", a.err)
		}
	})
	h.until("all servers serve", func() bool { a := h.run("status"); return a.err == nil && !strings.Contains(a.out, "not serving") })
}

func (h *harness) run(args ...string) answer { return run(h.ctx, append(args, "--lab", h.lab)...) }

func (h *harness) steps(steps ...step) {
	h.t.Helper()
	for _, s := range steps {
		s.check(h.t, h.run(strings.Fields(s.args)...))
	}
}

func (h *harness) write(text string) {
	h.t.Helper()
	// In one go: the daemon may look at any time.
	if err := os.WriteFile(h.lab+".new", []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(h.lab+".new", h.lab); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) edit(old, new string) {
	h.t.Helper()
	text, err := os.ReadFile(h.lab)
	if err != nil || !strings.Contains(string(text), old) {
		h.t.Fatalf("%q is not in the lab file (%v)", old, err)
	}
	h.write(strings.Replace(string(text), old, new, 1))
}

func (h *harness) until(what string, ok func() bool) {
	h.t.Helper()
	netns.WaitFor(h.t, what, ok)
}

// TestOtherDHCPServer: status and doctor name another DHCP server that the running daemon has seen.
func TestOtherDHCPServer(t *testing.T) {
	netns.Need(t, "root", "ip", "dnsmasq", "udhcpc")
	h := serve(t)
	rogue, dir := h.seg.NewClient(t, "02:00:00:00:00:66"), t.TempDir()
	rogue.Run(t, "ip", "addr", "add", "10.88.0.66/24", "dev", "eth0")
	cmd := rogue.Command(t.Context(), "dnsmasq", "-k", "--conf-file=/dev/null", "--port=0", "--interface=eth0", "--bind-interfaces", "--except-interface=lo", "--user=root", "--no-ping",
		"--dhcp-broadcast", "--dhcp-range=10.88.0.70,10.88.0.80", "--pid-file=", "--dhcp-leasefile="+filepath.Join(dir, "leases"), "--log-facility="+filepath.Join(dir, "log"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	client := h.seg.NewClient(t, "02:00:00:00:00:07")
	h.until("status names the other server", func() bool {
		_ = client.Command(t.Context(), "udhcpc", "-i", "eth0", "-f", "-n", "-q", "-t", "1", "-T", "1", "-B", "-s", "/bin/true").Run()
		a := h.run("status", "--json")
		return a.err == nil && strings.Contains(a.out, "dhcp-server")
	})
	h.steps(
		step{args: "status", out: []string{"dhcp-server " + h.seg.Bridge + " failed 10.88.0.66 (02:00:00:00:00:66) 2", "another DHCP server answers"}},
		step{args: "doctor", err: "found", out: []string{"fail dhcp " + h.seg.Bridge + " 10.88.0.66 (02:00:00:00:00:66), seen by the daemon since 2", "-> stop the other DHCP server, or set dhcp: proxy for this network"}, not: []string{"no other DHCP server", "fail daemon dhcp-server"}},
	)
}

// TestReservedAddressInUse: status, timeline and doctor name another machine that has announced a reserved address.
func TestReservedAddressInUse(t *testing.T) {
	netns.Need(t, "root", "arping")
	h := serve(t)
	spy := h.seg.NewClient(t, "02:00:00:00:00:66")
	spy.Run(t, "ip", "addr", "add", "10.88.0.11/24", "dev", "eth0")
	h.until("status names the address", func() bool {
		spy.Run(t, "arping", "-U", "-c", "1", "-I", "eth0", "-s", "10.88.0.11", "10.88.0.11")
		a := h.run("status")
		return a.err == nil && strings.Contains(a.out, "reservation")
	})
	h.until("it is on the timeline", func() bool { return strings.Contains(h.run("timeline", "a").out, "address conflict") })
	h.steps(
		step{args: "status", out: []string{"reservation 10.88.0.11 failed host a 2", "switch off 02:00:00:00:00:66"}},
		step{args: "timeline a", out: []string{"02:00:00:00:00:66 uses 10.88.0.11, which is reserved for a", "events that other machines caused: 1"}},
		step{args: "doctor", err: "found", out: []string{"fail daemon reservation 10.88.0.11 another machine uses it"}},
		step{args: "why a", err: "failing: a", out: []string{"a: failing at stage address", "another machine uses its address"}},
	)
}

// TestDaemon asks a running daemon everything that there is a command for.
func TestDaemon(t *testing.T) {
	h := serve(t)
	h.steps(
		step{args: "status", out: []string{"lab cli, generation 1", "SERVER STATE LISTENS", "dhcpd serving", "httpd serving 10.88.0.1:8080", "virt nothing to serve -"}},
		step{args: "status --json", json: true, out: []string{`"generation": 1`, `"state": "serving"`, `"kind": "interface", "name": "` + h.seg.Bridge + `", "ok": true, "since": "20`}},
		step{args: "doctor --json", json: true, out: []string{`"serving": true`, "the daemon has them", "no other DHCP server answers", "with 10.88.0.1/24 of network"}},
		step{args: "hosts", out: []string{"HOST IP MAC PROFILE INSTALL VM STATE LAST", "a 10.88.0.11 52:54:00:00:00:01 p armed - unknown no boot recorded", "b 10.88.0.12 52:54:00:00:00:02 +1 - - - unknown no boot recorded"}},
		step{args: "hosts --json", json: true, out: []string{`"name": "a"`}},
		step{args: "leases", out: []string{"IP MAC NAME NETWORK POOL STATE EXPIRES"}},
		step{args: "leases release 10.88.0.11", err: `no lease of "10.88.0.11"`},
		step{args: "leases reserve nobody", err: `no lease of "nobody"`},
		step{args: "leases --json", json: true, out: []string{"[]"}},
		step{args: "vm list", out: []string{"HOST HYPERVISOR STATE"}},
		step{args: "vm list --json", json: true, out: []string{"[]"}},
		step{args: "vm start a", err: `host "a" is not a virtual machine`},
		step{args: "vm stop nobody", err: "nobody"},
		step{args: "vm create nobody", err: "nobody"},
		step{args: "vm delete nobody", err: "nobody"},
		step{args: "vm stop nobody --timeout 0s", err: "want more than 0"},
		step{args: "timeline nobody", err: `no host "nobody" in lab cli (bootlab hosts lists them)`},
		step{args: "timeline -f nobody", err: `no host "nobody" in lab cli (bootlab hosts lists them)`},
		step{args: "timeline b", out: []string{"no boot recorded"}},
		step{args: "timeline B", out: []string{"no boot recorded"}},
		step{args: "timeline 10.88.0.12", out: []string{"no boot recorded"}},
		step{args: "timeline b.lab.example.", out: []string{"no boot recorded"}},
		step{args: "timeline 10.88.0.99", err: `no host "10.88.0.99"`},
		step{args: "install 10.88.0.11", err: `no host or cluster "10.88.0.11" in the lab (that is a)`},
		step{args: "timeline b --json", json: true, out: []string{"[]"}},
		step{args: "timeline 52:54:00:99:99:99", out: []string{"no boot recorded"}},
		step{args: "why nobody", err: `no host "nobody" in lab cli (bootlab hosts lists them)`},
		step{args: "why b", err: "not booted: b", out: []string{"b: no request received yet", "no packet of it was received", "what to do", "bootlab hosts --unknown"}},
		step{args: "why a 10.88.0.12 --json", json: true, err: "not booted: a, b", out: []string{`"state": "unknown"`, `"host": "b"`}},
		step{args: "install nobody", err: `no host or cluster "nobody" in the lab`},
		step{args: "install a --now", err: "nothing was changed: standard input is no terminal to ask on; --yes installs without asking"},
		step{args: "install a", err: "nothing was changed: standard input is no terminal to ask on; --yes installs without asking"},
		step{args: "timeline a", not: []string{"install armed"}},
		step{args: "install a --yes", out: []string{"a is armed: overwrites "}},
		step{args: "install a nobody", err: `no host or cluster "nobody" in the lab`, not: []string{"a is armed"}},
		step{args: "install nobody a noone", err: `no host or cluster "nobody", "noone" in the lab`, not: []string{"a is armed"}},
		step{args: "install a --yes --json", json: true, out: []string{`"state": "armed"`}},
		step{args: "timeline a", out: []string{"a (52:54:00:00:00:01)", "install armed"}},
		step{args: "timeline 52-54-00-00-00-01", out: []string{"install armed"}},
		step{args: "timeline a --all --json", json: true, out: []string{`"kind": "install_armed"`}},
		step{args: "resolve b.lab.example", out: []string{"b.lab.example. A for 127.0.0.1: NOERROR aa", "b.lab.example. 60 IN A 10.88.0.12", "because", "b.lab.example.: zone lab.example. (derived", "from host b"}},
		step{args: "resolve 10.88.0.11 --as b", out: []string{"11.0.88.10.in-addr.arpa. PTR for 10.88.0.12: NOERROR aa", "a.lab.example."}},
		step{args: "resolve www.example.org --as 203.0.113.9 --json", json: true, out: []string{`"code": "REFUSED"`, `"client": "203.0.113.9"`, `"by": "policy"`}},
		step{args: "resolve B", out: []string{"REFUSED", "did you mean b.lab.example?"}},
		step{args: "resolve nosuch", out: []string{"REFUSED", "no forwarder"}, not: []string{"did you mean"}},
		step{args: "resolve b.lab.example NOPE", err: `"NOPE" is not a record type`},
		step{args: "resolve b --as nobody", err: `no host "nobody"`},
		step{args: "dns flush", out: []string{"answers removed from the cache: 0"}},
		step{args: "dns updates", out: []string{"no dynamic updates"}},
		step{args: "dns updates delete a.example --yes", err: "no dynamic update made a.example."},
		step{args: "dns updates delete a.example", err: "nothing was changed: standard input is no terminal to ask on; --yes deletes without asking"},
		step{args: "dns flush a..b", err: "is not a domain name"},
		step{args: "dns flush example.org --json", json: true, out: []string{`"removed": 0`}},
		step{args: "dns log nobody", err: `no host "nobody"`},
		step{args: "plan --diff", out: []string{"nothing would change"}, not: []string{"+", "-"}},
		step{args: "plan --diff --json", json: true, out: []string{"[]"}},
		step{args: "plan --diff nobody", err: `no host "nobody"`},
	)
}

func TestBackend(t *testing.T) {
	h := serve(t)
	h.steps(
		step{args: "backend list", out: []string{"BALANCER LISTEN BACKEND ADDR STATE WEIGHT CONNECTIONS REASON", "web 10.88.0.1:80 a 10.88.0.11:80 unchecked 1 0 -"}},
		step{args: "backend list --json", json: true, out: []string{`"name": "web"`}},
		step{args: "backend live", out: []string{"web, 10.88.0.1:80, mode tcp: 0 connections, 0 queued", "a 10.88.0.11:80 unchecked 0 0 0 - - 0"}},
		step{args: "backend live --json", json: true, out: []string{`"rate": 0`, `"error_rate": 0`}},
		step{args: "backend drain web nobody", err: "bootlab backend list shows"},
		step{args: "backend drain nobody a", err: "bootlab backend list shows"},
		step{args: "backend drain web a:80", out: []string{"a 10.88.0.11:80 is drain", "0 connections open"}},
		step{args: "backend drain web a", out: []string{"a 10.88.0.11:80 is drain", "0 connections open"}},
		step{args: "backend drain web 10.88.0.14:80 --json", json: true, out: []string{`"state": "drain`}},
		step{args: "backend list", out: []string{"a 10.88.0.11:80 drain"}},
		step{args: "backend ready web a", out: []string{"a 10.88.0.11:80 is unchecked: it gets connections, and has no checks, weight 1, 0 connections open"}},
		step{args: "backend add web 10.88.0.77:80 --weight 3 --backup", out: []string{"10.88.0.77:80 is unchecked: it gets connections, and has no checks, weight 3"}},
		step{args: "backend add web b:81", out: []string{":81 is unchecked: it gets connections, and has no checks, weight 1"}},
		step{args: "backend add web 10.88.0.11:80", err: "is in the lab file"},
		step{args: "backend add web nobody:80", err: "no host has this name"},
		step{args: "backend add web 10.88.0.78", out: []string{"10.88.0.78:80 is unchecked"}}, // the balancer's port
		step{args: "backend add web 10.88.0.78:81"},
		step{args: "backend drain web 10.88.0.78", out: []string{"10.88.0.78:80 is drain", "10.88.0.78:81 is drain"}},
		step{args: "backend weight web 10.88.0.78 2 --json", json: true, out: []string{`"addr": "10.88.0.78:80"`, `"addr": "10.88.0.78:81"`}},
		step{args: "backend remove web 10.88.0.78", out: []string{"10.88.0.78:80 is removed", "10.88.0.78:81 is removed"}},
		step{args: "backend add nobody b:80", err: "bootlab backend list shows"},
		step{args: "backend remove web a", err: "is in the lab file"},
		step{args: "backend weight web a 7", out: []string{"weight 7"}},
		step{args: "backend weight web a 0", err: "want 1 to 256, or default"},
		step{args: "backend weight web a 257", err: "\"257\" is not a weight: want 1 to 256, or default"},
		step{args: "backend list", out: []string{"a 10.88.0.11:80 unchecked 7 (lab file 1) 0 -", "10.88.0.77:80 unchecked (backup) (added) 3 0 -"}},
	)
	h.stop()
	h.start()
	h.steps(
		step{args: "backend list", out: []string{"a 10.88.0.11:80 unchecked 7 (lab file 1) 0 -", "10.88.0.77:80 unchecked (backup) (added) 3 0 -"}},
		step{args: "backend weight web a default", out: []string{"weight 1"}},
		step{args: "backend remove web 10.88.0.77:80", out: []string{"10.88.0.77:80 is removed"}},
		step{args: "backend list", not: []string{"10.88.0.77", "lab file"}},
	)
}

// TestReload changes the lab file under a running daemon.
func TestReload(t *testing.T) {
	h := serve(t)
	h.edit("10.88.0.13}", "10.88.0.23}")
	if h.run("status").out == "" { // before any watcher brings it into force, or after: both are right
		t.Error("no status")
	}
	h.steps(
		step{args: "reload", out: []string{"is in use"}, not: []string{"armed"}},
		step{args: "reload --json", json: true, out: []string{`"generation"`}},
		step{args: "plan --diff"},
		step{args: "hosts", out: []string{"c 10.88.0.23"}},
	)
	good, err := os.ReadFile(h.lab)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(filepath.Dir(h.lab), "other.yaml") // which no watcher brings into force
	if err := os.WriteFile(other, []byte(strings.Replace(string(good), "check: {kind: none}", "on_down: close, check: {kind: none}", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]step{
		"":  {err: "differs from the running lab", out: []string{"LAB FILE ~ balancers.web.on_down: another value"}},
		"a": {err: "differs from the running lab", out: []string{"LAB FILE ~ balancers.web.on_down: another value"}},
		"c": {out: []string{"nothing would change"}},
	} {
		want.args = strings.TrimSpace("plan --diff " + host)
		want.check(t, run(h.ctx, append(strings.Fields(want.args), "--lab", other)...))
	}
	h.write(strings.NewReplacer("  b: {mac", "  #", "  c: {mac", "  #").Replace(string(good)))
	h.steps(
		step{args: "plan --diff", err: "and bootlab reload refuses it: the new lab file drops more than half of the hosts (1 of 3 are left); bootlab reload --force applies it anyway", out: []string{"RESERVATIONS - 52:54:00:00:00:02 10.88.0.12 b b.lab.example n - -"}},
		step{args: "plan --diff --json", err: "differs", json: true, out: []string{`"op": "-"`}},
	)
	differ := bootlab(h.ctx, "plan", "--diff", "--lab", h.lab)
	var stderr strings.Builder
	differ.Stderr = &stderr
	if err := differ.Run(); differ.ProcessState.ExitCode() != 1 || !strings.HasPrefix(stderr.String(), "the lab file differs") {
		t.Errorf("a plan that differs: %v: %s", err, stderr.String())
	}
	h.steps(
		step{args: "plan --diff a", not: []string{"+ ", "- "}},
		step{args: "reload", err: "bootlab reload --force"},
		step{args: "hosts", out: []string{"b 10.88.0.12"}},
		step{args: "reload --force", out: []string{"is in use"}},
		step{args: "hosts", not: []string{"10.88.0.12"}},
	)
	h.write(string(good) + "hosts: {mac: [\n") // which is not even YAML, yet the daemon is found
	h.steps(
		step{args: "reload", err: "not YAML"},
		step{args: "status", out: []string{"was refused", "not YAML"}},
		step{args: "hosts", out: []string{"a 10.88.0.11"}},
		step{args: "plan --diff", err: "not YAML"},
		step{args: "doctor", err: "found", out: []string{"fail lab", "not YAML", "warn daemon reload", "ok interfaces"}},
		step{args: "doctor --json", err: "found", out: []string{`"serving": true`}},
	)
	h.write(string(good))
	h.steps(step{args: "reload", out: []string{"is in use"}})
}

// TestReloadArms: a reload, and status after it, name the hosts and pools that the reload has armed, once the first start is accepted too.
func TestReloadArms(t *testing.T) {
	const arms = "armed by a reload: one machine installs itself at its next network boot: c; for those that have a system: bootlab install HOST --done"
	h := serve(t)
	h.steps(step{args: "state accept-new"}, step{args: "status", not: []string{"installs itself"}})
	h.edit("profiles: {p: {kernel: k, install_to: /dev/vda}}", "profiles: {p: {kernel: k, install_to: /dev/vda}, never: {kernel: k, install: never}}")
	h.edit("ip: 10.88.0.12}", "ip: 10.88.0.12, profile: never}")
	h.edit("10.88.0.13}", "10.88.0.13, profile: p}")
	h.steps( // a watcher may have reloaded meanwhile
		step{args: "reload", out: []string{"warning: " + arms}},
		step{args: "status", out: []string{"warning: " + arms}, not: []string{"first start"}},
	)
	h.edit(`"a:80"`, `"first:80"`)
	h.edit("  a: {", "  first: {") // armed, and accepted
	h.steps(step{args: "reload", out: []string{"warning: " + arms}})
	h.edit("  c: {", "  third: {")
	h.steps(
		step{args: "reload", out: []string{strings.Replace(arms, ": c;", ": third;", 1)}},
		step{args: "install third --done"},
		step{args: "status", not: []string{"armed by"}},
		step{args: "reload", not: []string{"armed by"}},
	)
	h.edit("install_to: /dev/vda}", "install_to: /dev/vda, install: always}")
	h.steps(
		step{args: "reload", out: []string{"armed by a reload: one machine installs itself at its next network boot: third (install: always);"}},
		step{args: "status", out: []string{"third (install: always)"}},
		step{args: "state accept-new"},
		step{args: "status", not: []string{"armed by"}},
	)
	h.edit("install_to: /dev/vda, install: always}", "install_to: /dev/vda}")
	h.edit("110}}", "110, profile: p}}")
	h.steps(
		step{args: "reload", out: []string{"armed by a reload: these machines install themselves at their next network boot: machines of pool n/guests;"}},
		step{args: "state accept-new"},
		step{args: "status", not: []string{"armed by"}},
	)
}

// TestPowerSaysOverwritten: the commands that switch an armed host on name the disk that its next network boot overwrites.
func TestPowerSaysOverwritten(t *testing.T) {
	const says = "a: overwrites /dev/vda at the next network boot"
	h := serve(t)
	h.steps(
		step{args: "power on a b", err: "no bmc", out: []string{says}, not: []string{"b: overwrites"}},
		step{args: "power cycle a", err: "no bmc", out: []string{says}},
		step{args: "vm start a", err: "not a virtual machine", out: []string{says}},
		step{args: "power off a", err: "no bmc", not: []string{"overwrites"}},
		step{args: "power status a", err: "no bmc", not: []string{"overwrites"}},
		step{args: "install a --done"},
		step{args: "power on a", err: "no bmc", not: []string{"overwrites"}},
		step{args: "vm start a", err: "not a virtual machine", not: []string{"overwrites"}},
	)
}

// TestToken asks over TCP, with and without the token.
func TestToken(t *testing.T) {
	h := serve(t)
	token := strings.TrimSpace(h.run("token").out)
	if len(token) < 20 {
		t.Fatalf("token %q", token)
	}
	for _, s := range []step{
		{args: "status --server http://10.88.0.1:9680", err: "bootlab token"},
		{args: "status --server http://10.88.0.1:9680 --token wrong", err: "bootlab token"},
		{args: "status --server http://10.88.0.1:9680 --token " + token, out: []string{"lab cli"}},
		{args: "token --json --lab " + h.lab, json: true, out: []string{token}},
		{args: "token --server http://10.88.0.1:9680 --token wrong", err: "bootlab token"},
		{args: "token rotate --server http://10.88.0.1:9680 --token " + token, err: "Unix socket only"},
	} {
		s.check(t, run(t.Context(), strings.Fields(s.args)...))
	}
	a := h.run("token", "rotate")
	next := strings.TrimSpace(a.out)
	if a.err != nil || len(next) < 20 || next == token {
		t.Fatalf("the new token is %q: %v", next, a.err)
	}
	for _, s := range []step{
		{args: "status --server http://10.88.0.1:9680 --token " + token, err: "bootlab token"},
		{args: "status --server http://10.88.0.1:9680 --token " + next, out: []string{"lab cli"}},
		{args: "token --lab " + h.lab, out: []string{next}},
	} {
		s.check(t, run(t.Context(), strings.Fields(s.args)...))
	}
	h.stop()
	h.start()
	h.steps(step{args: "token", out: []string{next}})
}

// TestAdminBehindTLS: a balancer with TLS in front of the admin API, as docs/admin.md shows one: logins get a Secure cookie, and the
// command line works through it.
func TestAdminBehindTLS(t *testing.T) {
	netns.Need(t, "curl", "openssl")
	h := serve(t)
	dir := filepath.Dir(h.lab)
	netns.Run(t, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=boot.lab.example",
		"-addext", "subjectAltName=DNS:boot.lab.example", "-keyout", filepath.Join(dir, "key.pem"), "-out", filepath.Join(dir, "cert.pem"))
	key, err := os.ReadFile(filepath.Join(dir, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := os.ReadFile(filepath.Join(dir, "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "lab.pem"), append(cert, key...), 0o600); err != nil {
		t.Fatal(err)
	}
	h.stop() // a key of appliance takes effect at a start
	h.edit("appliance: {", "appliance: {admin_hosts: [boot.lab.example], ")
	h.edit("balancers:\n", `balancers:
  admin: {listen: "10.88.0.1:443", mode: http, tls: {certificates: [lab.pem]}, backends: ["10.88.0.1:9680"]}
`)
	h.start()
	token := strings.TrimSpace(h.run("token").out)
	curl := []string{"curl", "-s", "--noproxy", "*", "--resolve", "boot.lab.example:443:10.88.0.1", "--cacert", filepath.Join(dir, "cert.pem"), "-i"}
	login := append(slices.Clone(curl), "-d", "token="+token, "https://boot.lab.example/login")
	var out string
	h.until("the backend is healthy", func() bool {
		b, _ := exec.Command(login[0], append([]string{"-m", "5"}, login[1:]...)...).CombinedOutput()
		out = string(b)
		return strings.Contains(out, "HTTP/2 303")
	})
	if !strings.Contains(out, "; Secure") {
		t.Errorf("the cookie of a login by HTTPS is not Secure:\n%s", out)
	}
	ask := append(slices.Clone(curl), "-H", "Authorization: Bearer "+token, "https://boot.lab.example/api/v1/status")
	if out := netns.Run(t, ask[0], ask[1:]...); !strings.Contains(out, `"lab":"cli"`) {
		t.Errorf("status by HTTPS:\n%s", out)
	}
}

// TestTokenIsNotInHelp: the token of the environment is not printed as the default of its flag.
func TestTokenIsNotInHelp(t *testing.T) {
	t.Setenv("BOOTLAB_TOKEN", "a-token-of-the-environment")
	a := run(t.Context(), "status", "--help")
	if a.err != nil || strings.Contains(a.out, "a-token-of-the-environment") {
		t.Errorf("%v\n%s", a.err, a.out)
	}
	for _, want := range []string{"BOOTLAB_TOKEN", "https://"} {
		if !strings.Contains(a.out, want) {
			t.Errorf("the help lacks %s:\n%s", want, a.out)
		}
	}
}

// TestFollow: timeline -f shows what happens as it happens, and an interrupt is the way out of it.
func TestFollow(t *testing.T) {
	h := serve(t)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd := bootlab(t.Context(), "timeline", "-f", "a", "--json", "--lab", h.lab)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		heard := make(chan event.Event, 1)
		go func() {
			var e event.Event
			if lines.Scan() && json.Unmarshal(lines.Bytes(), &e) == nil {
				heard <- e
			}
			close(heard)
		}()
		h.until("an event is heard", func() bool {
			h.steps(step{args: "install a --yes"}) // until the follower has begun to listen
			select {
			case e := <-heard:
				if e.Kind != event.InstallArmed || e.Host != "a" || e.Seq == 0 {
					t.Errorf("heard %+v", e)
				}
				return true
			default:
				return false
			}
		})
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("after %v: %v, want exit code 0", sig, err)
		}
	}
}

// TestFollowEnds: following a daemon that stops ends with a message.
func TestFollowEnds(t *testing.T) {
	h := serve(t)
	cmd := bootlab(t.Context(), "timeline", "-f", "a", "--json", "--lab", h.lab)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	heard, ended := make(chan bool, 1), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		heard <- lines.Scan()
		for lines.Scan() { // all that is said until the end
		}
	}()
	h.until("someone follows", func() bool {
		h.steps(step{args: "install a --yes"})
		return len(heard) > 0
	})
	h.stop()
	<-ended
	if err := cmd.Wait(); err == nil || !strings.Contains(stderr.String(), "the daemon stopped") {
		t.Errorf("after the daemon has stopped: %v\n%s", err, stderr.String())
	}
}

// TestCheckAndReloadAgree: what check calls an error fails a reload, and what it lets pass a reload applies. An error of one machine's document
// refuses that machine alone, and both name it.
func TestCheckAndReloadAgree(t *testing.T) {
	h := serve(t)
	document := filepath.Join(filepath.Dir(h.lab), "files", "a.ks")
	writeDocument := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(document), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(document, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const good, faulty = "zerombr\n%packages\n%end\n", "zerombr\n%packages\nvim\n"
	writeDocument(good)
	for _, tt := range []struct {
		name, document, old, new string
		err                      bool
		refused                  bool // by both: nothing is applied
	}{
		{"a good lab", good, "{kernel: k, install_to: /dev/vda}", "{os: anaconda, kernel: k, initrd: [i], config: a.ks, install_to: /dev/vda}", false, false},
		{"a faulty document", faulty, "a:80", "b:80", true, false},
		{"no document", "", "b:80", "c:80", false, false},
		{"an error of the lab", good, "c:80", "z:80", true, true},
	} {
		writeDocument(tt.document)
		if tt.document == "" {
			if err := os.Remove(document); err != nil {
				t.Fatal(err)
			}
		}
		h.edit(tt.old, tt.new)
		check, reload := h.run("check"), h.run("reload")
		if (check.err != nil) != tt.err || (reload.err != nil) != tt.err {
			t.Errorf("%s: check %v\n%s\nreload %v\n%s", tt.name, check.err, check.stderr, reload.err, reload.stderr)
		}
		if tt.err && !tt.refused {
			for name, a := range map[string]answer{"check": check, "reload": reload} {
				if !strings.Contains(a.stderr, "files/a.ks:2:1: profiles.p.config: for host a: ") || !strings.Contains(a.err.Error(), " fixed") {
					t.Errorf("%s: %s does not name the machine that is refused: %s%v", tt.name, name, a.stderr, a.err)
				}
			}
		}
		if applied := strings.Contains(h.run("plan", "--diff").out, "no difference") || h.run("plan", "--diff").err == nil; applied == tt.refused {
			t.Errorf("%s: applied %v, want %v", tt.name, applied, !tt.refused)
		}
	}
}
