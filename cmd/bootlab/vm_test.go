package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
)

// onTwoHypervisors adds a cluster of virtual machines to the lab, on two real hypervisors.
const onTwoHypervisors = `hypervisors:
  one: {uri: %q, bridges: {n: %s}, domain_type: qemu}
  two: {uri: %q, bridges: {n: %[2]s}, domain_type: qemu}
clusters:
  prod: {kind: plain, domain: lab.example}
hosts:
  m1: {mac: "52:54:00:00:01:01", ip: 10.88.0.21, cluster: prod, profile: p, vm: {hypervisor: one, cpus: 1, memory: 128MiB, disks: [1GiB]}}
  m2: {mac: "52:54:00:00:01:02", ip: 10.88.0.22, cluster: prod, profile: p, vm: {hypervisor: one, cpus: 1, memory: 128MiB, disks: [1GiB]}}
  m3: {mac: "52:54:00:00:01:03", ip: 10.88.0.23, cluster: prod, profile: p, vm: {hypervisor: two, cpus: 1, memory: 128MiB, disks: [1GiB]}}
`

func startLibvirtd(t *testing.T, vncPort int) *libvirtd.Daemon {
	t.Helper()
	netns.Need(t, libvirtd.Needs()...)
	dir, err := os.MkdirTemp("", "cli") // short, for libvirt's sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d, err := libvirtd.Start(context.WithoutCancel(t.Context()), libvirtd.Config{Dir: dir, VNCPort: vncPort})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Stop() })
	return d
}

// TestApplySummary: a machine that was defined and does not start is not as in the lab file.
func TestApplySummary(t *testing.T) {
	t.Parallel()
	after := []api.VMPlan{{Network: "lan", Condition: "ok"}, {Host: "m1", Condition: "ok"}, {Host: "m2", Condition: "restart"}, {Host: "m3", Condition: "ok"}}
	failed := notDone([]string{"m1", "m3"}, []api.VM{{Host: "m3"}})
	line, open := applySummary(2, failed, after)
	if want := "2 applied, 1 failed, 2 of 4 as in the lab file"; line != want {
		t.Errorf("%q, want %q", line, want)
	}
	if len(open) != 2 || open[0].Host != "m1" || open[0].Condition != "failed" || open[1].Host != "m2" {
		t.Errorf("open %+v, want m1, failed, and m2", open)
	}
	if line, open = applySummary(0, nil, after[:2]); line != "0 applied, 2 of 2 as in the lab file" || len(open) != 0 {
		t.Errorf("%q, open %+v", line, open)
	}
}

func TestNoConsoleOutput(t *testing.T) {
	t.Parallel()
	vms := []api.VM{{Host: "m1", State: "running"}, {Host: "m2", State: "absent"}}
	for host, want := range map[string]string{
		"m1": "m1 has written nothing to its serial console yet; it is running",
		"m2": "m2 has no console output: create it first (bootlab vm create)",
		"a":  "a has no console output: only virtual machines of bootlab have some",
	} {
		if err := noOutput(host, vms); err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

// interruptStop interrupts "vm stop" of a machine whose firmware ignores the request: it is not forced off, nothing has failed, and the machine
// can be forced off at once.
func interruptStop(t *testing.T, h *harness, shutdowns *shutdowns) {
	t.Helper()
	stop := bootlab(t.Context(), "vm", "stop", "m1", "--timeout", "10m", "--lab", h.lab)
	var said bytes.Buffer
	stop.Stderr = &said
	if err := stop.Start(); err != nil {
		t.Fatal(err)
	}
	h.until("m1 is asked to shut down", func() bool { return slices.Contains(shutdowns.all(), "m1") })
	if err := stop.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := stop.Wait(); err == nil || !strings.Contains(said.String(), "bootlab: interrupted; m1 was asked to shut down and is not forced off any more: bootlab vm list shows") {
		t.Errorf("after an interrupt: %v\n%s", err, said.String())
	}
	h.until("the operation ends", func() bool { return h.run("vm", "stop", "m1", "--force").err == nil })
	h.steps(
		step{args: "timeline m1 --all", out: []string{"vm stopped"}, not: []string{"vm failed"}},
		step{args: "vm list", out: []string{"m1 one off"}},
		step{args: "vm start m1", out: []string{"m1 is running on one", "m1: overwrites /dev/vda at the next network boot"}},
	)
}

// TestInterrupted says what an interrupted command leaves behind.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		action api.VMAction
		opts   api.VMOptions
		want   string
	}{
		{api.VMStop, api.VMOptions{}, "interrupted; m1 was asked to shut down and is not forced off any more: bootlab vm list shows whether it is off, bootlab vm stop --force m1 forces it off; not begun: m2, m3"},
		{api.VMStop, api.VMOptions{Force: true}, "interrupted; the daemon continues to stop m1: bootlab vm plan m1 shows it; not begun: m2, m3"},
		{api.VMCreate, api.VMOptions{}, "interrupted; the daemon continues to create m1: bootlab vm plan m1 shows it; not begun: m2, m3"},
	} {
		if got := interrupted("m1", []string{"m2", "m3"}, tt.action, tt.opts).Error(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.action, got, tt.want)
		}
	}
}

// TestVMCommands manages a cluster of virtual machines on two hypervisors, of which one falls silent.
func TestVMCommands(t *testing.T) {
	one, two := startLibvirtd(t, 5900), startLibvirtd(t, 6100)
	h := serve(t)
	shutdowns := newShutdowns(t, one.URI)
	text, err := os.ReadFile(h.lab)
	if err != nil {
		t.Fatal(err)
	}
	_, bridge, _ := strings.Cut(string(text), "interface: ")
	bridge, _, _ = strings.Cut(bridge, "\n")
	h.write(strings.Replace(string(text), "hosts:\n", fmt.Sprintf(onTwoHypervisors, one.URI, bridge, two.URI), 1))
	h.until("reload", func() bool { return strings.Contains(h.run("hosts").out, "m3") })
	h.steps(
		step{args: "vm plan", out: []string{"HOST HYPERVISOR STATE PLAN m1 one absent missing", "m2 one absent missing", "m3 two absent missing"}},
		step{args: "vm plan m3 --json", json: true, out: []string{`"condition": "missing"`}, not: []string{"m1"}},
		step{args: "vm plan nobody", err: `no host or cluster "nobody" in lab`},
		step{args: "vm plan prot", err: "did you mean prod?"},
		step{args: "vm start 52:54:00:00:00:01", err: "that is a"},
		step{args: "vm plan a", err: `host "a" is not a virtual machine of lab`},
		// One hypervisor after the other: both libvirtds are in one namespace, and race for the names of its tap devices.
		step{args: "vm apply m1 m2", out: []string{"m1 is running on one", "m2 is running on one"}},
		step{args: "vm apply prod", out: []string{"m3 is running on two", "1 applied, 3 of 3 as in the lab file"}},
		step{args: "vm apply", out: []string{"0 applied, 3 of 3 as in the lab file"}},
		step{args: "vm create m1", out: []string{"m1 is running on one"}},
		step{args: "vm create m1 --json", json: true, out: []string{`"host": "m1"`}, not: []string{"["}},
		step{args: "power status prod a", err: "a is no virtual machine and has no bmc", out: []string{"HOST POWER BY", "m1 on libvirt one", "m3 on libvirt two"}},
		step{args: "power off m3 --json", json: true, out: []string{`"state": "off"`}},
		step{args: "power cycle m3", out: []string{"m3 on libvirt two", "m3: overwrites /dev/vda at the next network boot"}},
		step{args: "power boot disk m3 --always", out: []string{"HOST BOOT HOW BY", "m3 disk always libvirt two"}},
		step{args: "power boot default m3 a --json", json: true, out: []string{`"device": "default"`}, err: "a is no virtual machine and has no bmc"},
		step{args: "power boot default m3", out: []string{"m3 default - libvirt two"}},
		step{args: "power boot floppy m3", err: `"floppy" is no boot device: want network, disk, cd, default`},
		step{args: "power on m3 nobody", err: `"nobody"`, out: []string{"m3 on libvirt two"}},
		step{args: "vm start m1 --wait moon", err: "--wait moon: want one of lease, kernel, config, installed, ready"},
		step{args: "vm stop m2 --force", out: []string{"m2 is off"}},
		step{args: "vm start m2 --wait lease", out: []string{"m2 is running"}},
		step{args: "vm start m2 --wait config --wait-timeout 1s", err: "m2 has not reached config: ", out: []string{"m2 is running"}},
		step{args: "vm stop m1 nobody m3 --force", err: `"nobody"`, out: []string{"m1 is off on one", "m3 is off on two"}},
		step{args: "vm list", out: []string{"m1 one off", "m2 one running"}},
		step{args: "vm list --json", json: true, out: []string{`"state": "off"`}},
		step{args: "vm plan m1", out: []string{"m1 one off ok"}},
		step{args: "hosts", out: []string{"p unfinished off"}},
		step{args: "power status m1", out: []string{"m1 off libvirt one"}},
		step{args: "vm start m1 m2"},
	)
	interruptStop(t, h, shutdowns)
	h.steps(
		step{args: "vm start prod --json", json: true, out: []string{"[", `"host": "m2"`}},
		step{args: "vm delete prod", err: "nothing was changed"},
		step{args: "vm forget m1", err: "hypervisor one answers and has it"},
	)
	netns.Run(t, "virsh", "-c", two.URI, "setvcpus", "m3", "2", "--maximum", "--config")
	h.edit("m2: {mac: \"52:54:00:00:01:02\", ip: 10.88.0.22, cluster: prod, profile: p, vm: {hypervisor: one, cpus: 1", "m2: {mac: \"52:54:00:00:01:02\", ip: 10.88.0.22, cluster: prod, profile: p, vm: {hypervisor: one, cpus: 2")
	h.until("the change of m2", func() bool { return strings.Contains(h.run("vm", "plan", "m2").out, "changed") })
	h.steps(step{args: "vm plan", out: []string{"m1 one running ok", "m2 one running changed cpus: 1, lab file: 2", "m3 two running drifted cpus: 2, lab file: 1", "it runs"}})
	if err := one.Freeze(); err != nil {
		t.Fatal(err)
	}
	h.steps(step{args: "vm apply", err: "unknown on one: m1", out: []string{"m3 is running on two", "1 applied"}})
	if err := one.Thaw(); err != nil {
		t.Fatal(err)
	}
	h.until("hypervisor one", func() bool { return !strings.Contains(h.run("vm", "list").out, "unknown") })
	h.steps(
		step{args: "vm apply", out: []string{"m2 is running on one", "1 applied, 2 of 3 as in the lab file", "m2 one running restart"}},
		step{args: "vm delete prod --disks --yes", out: []string{"m1 is deleted", "m3 is deleted"}},
		step{args: "vm plan", out: []string{"m1 one absent missing"}},
	)
	h.edit("vm: {hypervisor: one, cpus: 2", "vm: {hypervisor: any, cpus: 2")
	h.until("any", func() bool { return strings.Contains(h.run("vm", "plan", "m2").out, "now that would be one") })
	h.steps(
		step{args: "vm list", out: []string{"m2 - absent"}},
		step{args: "plan m2", out: []string{"DOMAIN m2 as on one: vm create chooses one of one, two"}},
		step{args: "vm start m2", err: "create it first"},
		step{args: "vm capacity", out: []string{"HYPERVISOR CPUS MEMORY FREE ALLOCATED OTHERS RUNNING POOLS", "0.1GiB - 0/1 default: "}},
		step{args: "vm create m2", out: []string{"m2 is running on one"}},
		step{args: "vm capacity --json", json: true, out: []string{`"running": 1`, `"vms": 2`, `"name": "default"`}},
		step{args: "hosts --json", json: true, out: []string{`"hypervisor": "one"`}},
		step{args: "vm plan m2", out: []string{"m2 one running ok"}},
	)
	h.edit("vm: {hypervisor: any, cpus: 2", "vm: {hypervisor: two, cpus: 2")
	h.until("the other hypervisor", func() bool { return strings.Contains(h.run("vm", "list").out, "orphan") })
	h.steps(
		step{args: "vm list", out: []string{"m2 one running, orphan", "m2 two absent"}},
		step{args: "vm list --json", json: true, out: []string{`"orphan": true`}},
		step{args: "hosts", out: []string{"running"}},
		step{args: "why m2", not: []string{"does not exist"}},
		step{args: "power status m2", out: []string{"m2 on libvirt one"}},
		step{args: "power boot disk m2", out: []string{"m2 disk once libvirt one"}},
		step{args: "power off m2", out: []string{"m2 off libvirt one"}},
		step{args: "vm delete m2 --disks --yes", out: []string{"m2 is deleted"}, not: []string{" on one"}},
	)
}
