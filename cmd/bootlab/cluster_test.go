package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestClusterWords are the sentences about clusters and machines.
func TestClusterWords(t *testing.T) {
	t.Parallel()
	since := time.Now().Add(-41 * time.Second)
	machine := []api.ClusterMachine{{Host: "m0", Stage: "off"}}
	for _, tt := range []struct {
		cl   api.Cluster
		want string // the first line of the table, and of the changes
		line string
	}{
		{api.Cluster{Phase: "bootstrapping", Since: since, Waits: "m0: its boot, at stage script", Machines: machine}, "prod (talos) has been bootstrapping for 41s; it waits for m0: its boot, at stage script", "prod is bootstrapping; it waits for m0: its boot, at stage script"},
		{api.Cluster{Phase: "down", Since: since, Waits: "bootlab up prod", NeedsUp: true, Machines: machine}, "prod (talos) has been down for 41s; bootlab up prod brings it up", "prod is down; bootlab up prod brings it up"},
		{api.Cluster{Phase: "down", Waits: "it has no hosts"}, "prod (talos) is down; it has no hosts", "prod is down; it has no hosts"},
		{api.Cluster{Phase: "ready", Since: since, Machines: machine}, "prod (talos) has been ready for 41s", "prod is ready"},
	} {
		tt.cl.Name, tt.cl.Kind = "prod", "talos"
		first, _, _ := strings.Cut(clusterText(tt.cl, 0), "\n")
		if lines := changes(api.Cluster{}, tt.cl); first != tt.want || lines[0] != tt.line {
			t.Errorf("%q and %q, want %q and %q", first, lines[0], tt.want, tt.line)
		}
	}
	for _, tt := range []struct {
		m    api.ClusterMachine
		want string
	}{
		{api.ClusterMachine{Stage: "booting", Waits: "its boot, at stage script"}, "m0 is booting; it waits for its boot, at stage script"},
		{api.ClusterMachine{Stage: "off", Waits: "its hypervisor does not answer", Stuck: true}, "m0 is off: its hypervisor does not answer"},
		{api.ClusterMachine{Stage: "serving"}, "m0 is serving"},
	} {
		tt.m.Host = "m0"
		if lines := changes(api.Cluster{}, api.Cluster{Machines: []api.ClusterMachine{tt.m}}); lines[0] != tt.want {
			t.Errorf("%q, want %q", lines[0], tt.want)
		}
	}
}

// TestClusterCause: the table, the lines without a terminal and the error at the end name why a machine's boot stopped.
func TestClusterCause(t *testing.T) {
	t.Parallel()
	before := api.Cluster{Name: "prod", Phase: "bootstrapping", Waits: "m0: files", Machines: []api.ClusterMachine{{Host: "m0", Stage: "booting", Waits: "files"}, {Host: "m1", Stage: "serving"}}}
	after := before
	after.Machines = []api.ClusterMachine{{Host: "m0", Stage: "booting", Waits: "files", Cause: "a file is missing: k"}, before.Machines[1]}
	if lines := changes(before, after); len(lines) != 1 || lines[0] != "m0 is booting; it waits for files; it stopped: a file is missing: k" {
		t.Errorf("news %q", lines)
	}
	if lines := changes(after, after); len(lines) != 0 {
		t.Errorf("nothing changed, and there is news: %q", lines)
	}
	const want = "m0: a file is missing: k (bootlab why m0)"
	if text := clusterText(after, 0); !strings.Contains(text, "! "+want) || strings.Contains(text, "why m1") {
		t.Errorf("table:\n%s", text)
	}
	if err := stillUp(t.Context(), after, time.Minute); !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "m1") {
		t.Errorf("error: %v", err)
	}
}

// TestClusterNarrow: on a terminal the table of a cluster is as wide as that, and nothing that a machine waits for is cut.
func TestClusterNarrow(t *testing.T) {
	t.Parallel()
	waits := "an admin has to switch it on: it has no bmc and is no virtual machine"
	cl := api.Cluster{Name: "prod", Kind: "openshift", Phase: "bootstrapping", Waits: "the control plane: 0 of 3 machines serve", Since: time.Now(), Machines: []api.ClusterMachine{
		{Host: "master-0", Role: "control-plane", Stage: "unknown", Since: time.Now(), Waits: waits, Stuck: true, Cause: "the transfer of a file broke off at 37 % of 8.0 MiB: files/images/rootfs.img: the client ended it"},
		{Host: "master-1", Role: "control-plane", Stage: "serving", Since: time.Now()},
	}}
	text := terminalText(t, 80, func(f *os.File) error { _, err := f.WriteString(clusterText(cl, widthOf(f))); return err })
	narrow(t, text, "! an admin has to", "virtual machine", "the client ended it (bootlab why master-0)", "it waits for the control plane: 0 of 3 machines serve")
	if text := clusterText(cl, 0); !strings.Contains(text, "! "+waits+"\n") {
		t.Errorf("without a terminal:\n%s", text)
	}
}

// ofMachines adds a cluster of virtual machines to the lab: the last one is made from an image.
const ofMachines = `hypervisors:
  one: {uri: %q, bridges: {n: %s}, domain_type: qemu}
clusters:
  prod: {kind: openshift, address: 10.88.0.5}
hosts:
  boot: {mac: "52:54:00:00:02:20", ip: 10.88.0.20, cluster: prod, role: bootstrap, profile: auto, vm: &vm {hypervisor: one, cpus: 1, memory: 64MiB, disks: [1GiB]}}
  cp0: {mac: "52:54:00:00:02:21", ip: 10.88.0.21, cluster: prod, role: master, profile: p, vm: *vm}
  w0: {mac: "52:54:00:00:02:24", ip: 10.88.0.24, cluster: prod, role: worker, profile: p, vm: *vm}
  img: {mac: "52:54:00:00:02:25", ip: 10.88.0.25, cluster: prod, role: worker, profile: image, vm: *vm}
`

// serveAt answers every request at an address with 200 until stop.
func serveAt(t *testing.T, addr string, secure bool) (stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	_ = s.Listener.Close()
	s.Listener = l
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	stop = sync.OnceFunc(func() { s.CloseClientConnections(); s.Close() })
	t.Cleanup(stop)
	return stop
}

// TestUpMachines brings a cluster of virtual machines up, on a real hypervisor: the control plane first, workers when it serves. The bootstrap
// is switched off when it was removed. An interrupt of the command ends nothing but the command. down shuts the control plane down last.
// The machines have no system: the test serves in their place, and switches them off when they are asked to shut down.
func TestUpMachines(t *testing.T) {
	netns.Need(t, "udhcpc", "virsh")
	one := startLibvirtd(t, 5900)
	h := serve(t)
	dir := filepath.Dir(h.lab)
	disk := make([]byte, 1<<20)
	copy(disk, "\xfa\xf4\xeb\xfd") // a boot sector that halts: cli, hlt, jmp
	copy(disk[510:], "\x55\xaa")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "files"), 0o755), os.WriteFile(filepath.Join(dir, "files", "disk.raw"), disk, 0o644)); err != nil {
		t.Fatal(err)
	}
	h.edit("{p: {kernel: k, install_to: /dev/vda}}", "{p: {kernel: k, install_to: /dev/vda}, auto: {kernel: k, install: once}, image: {os: coreos, image: disk.raw}}")
	h.edit("hosts:\n", fmt.Sprintf(ofMachines, one.URI, h.seg.Bridge))
	for _, last := range []string{".20", ".21", ".24"} {
		netns.Run(t, "ip", "addr", "add", "10.88.0"+last+"/24", "dev", h.seg.Bridge)
	}
	h.until("reload", func() bool { return strings.Contains(h.run("clusters").out, "prod (openshift) has been down for") })
	shutdowns := newShutdowns(t, one.URI)

	// Every disk that would be overwritten is named, also where the profile does not say which it is.
	h.steps(step{args: "up prod", err: "nothing was changed", out: []string{"This installs 3 machines and overwrites their disks: boot its disk, cp0 /dev/vda, w0 /dev/vda."}})
	running := func(want string) func() bool {
		return func() bool {
			out := strings.Fields(netns.Run(t, "virsh", "-q", "-c", one.URI, "list", "--name"))
			slices.Sort(out)
			return strings.Join(out, " ") == want
		}
	}
	watch := bootlab(t.Context(), "up", "--yes", "--install", "prod", "--lab", h.lab)
	var said bytes.Buffer
	watch.Stderr = &said
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	h.until("the bootstrap and the control plane run", running("boot cp0"))
	h.steps(step{args: "clusters", out: []string{"has been bootstrapping for", "0 of 1 machine serves", "w0 worker waiting", "img worker waiting"}},
		step{args: "clusters prod", out: []string{"prod (openshift) has been bootstrapping for"}},
		step{args: "clusters nosuch", err: `no cluster "nosuch" in the lab that can be brought up`})
	if err := watch.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := watch.Wait(); err == nil || !strings.Contains(said.String(), "the daemon continues") || !strings.Contains(said.String(), "Nothing installs these machines, and they are left as they are: img.") {
		t.Errorf("after an interrupt: %v\n%s", err, said.String())
	}

	h.steps(step{args: "install --done boot cp0"})
	stopBootstrap, _ := serveAt(t, "10.88.0.20:6443", true), serveAt(t, "10.88.0.20:22623", true)
	h.until("the bootstrap serves", func() bool {
		return strings.Contains(strings.Join(strings.Fields(h.run("clusters").out), " "), "boot bootstrap serving")
	})
	serveAt(t, "10.88.0.21:6443", true)
	serveAt(t, "10.88.0.21:22623", true)
	h.until("workers are created when the control plane serves", running("boot cp0 img w0"))
	if all := shutdowns.all(); len(all) > 0 {
		t.Errorf("the daemon shut %v down", all)
	}
	stopBootstrap()
	h.until("the bootstrap is shut down", func() bool { return slices.Equal(shutdowns.all(), []string{"boot"}) })
	shutdowns.obey("boot")
	serveAt(t, "10.88.0.24:1936", false)
	h.until("the cluster waits for the system of the machine that is made from an image", func() bool {
		out := strings.Join(strings.Fields(h.run("clusters").out), " ")
		return strings.Contains(out, "boot bootstrap gone") && strings.Contains(out, "w0 worker serving") && strings.Contains(out, "img worker booting")
	})
	script := filepath.Join(dir, "udhcpc.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n[ \"$1\" != bound ] || ip addr replace \"$ip/24\" dev \"$interface\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	system := h.seg.NewClient(t, "52:54:00:00:02:25")
	h.until("the cluster is ready", func() bool {
		_ = system.Command(t.Context(), "udhcpc", "-i", "eth0", "-n", "-q", "-t", "3", "-s", script).Run()
		return strings.Contains(h.run("clusters").out, "prod (openshift) has been ready for")
	})
	h.steps(step{args: "up --yes --timeout 1m prod"}) // it is ready: the command ends at once

	ended := make(chan answer, 1)
	go func() { ended <- h.run("down", "--yes", "prod") }()
	h.until("the workers are shut down", func() bool { return len(shutdowns.all()) >= 3 })
	if all := shutdowns.all(); slices.Contains(all, "cp0") {
		t.Errorf("the control plane is shut down with the workers: %v", all)
	}
	shutdowns.obey("w0", "img")
	h.until("the control plane is shut down", func() bool { return slices.Contains(shutdowns.all(), "cp0") })
	shutdowns.obey("cp0")
	step{args: "down", out: []string{"prod (openshift) has been down for", "bootlab up prod brings it up", "cp0 control-plane off"}}.check(t, <-ended)
	h.steps(step{args: "vm delete prod --disks --yes"})
}

// ofMetal adds clusters of bare metal to the lab: one that is installed, and one whose machines have nothing to install.
const ofMetal = `clusters:
  prod: {kind: kubernetes, address: 10.88.0.5}
  edge: {kind: plain}
hosts:
  m2: {mac: "52:54:00:00:03:02", ip: 10.88.0.32, cluster: prod, role: control-plane, profile: p}
  m1: {mac: "52:54:00:00:03:01", ip: 10.88.0.31, cluster: prod, role: worker, profile: p}
  d1: {mac: "52:54:00:00:03:03", ip: 10.88.0.33, cluster: prod, role: worker}
  e1: {mac: "52:54:00:00:03:04", ip: 10.88.0.34, cluster: edge}
`

// TestClusterAsHosts: install and power take clusters as they take hosts, in the order of the lab, and say once what holds for many.
func TestClusterAsHosts(t *testing.T) {
	h := serve(t)
	h.edit("hosts:\n", ofMetal)
	h.until("reload", func() bool { return strings.Contains(h.run("hosts").out, "10.88.0.34") })
	h.steps(
		step{args: "install --now prod a", err: "nothing was changed: standard input is no terminal"},
		step{args: "install --yes prod", out: []string{"m1, m2 are armed: each overwrites /dev/vda at its next network boot", "Nothing installs these machines, and they are left as they are: d1."}, not: []string{"a is armed", "a, "}},
		step{args: "install --yes prod --json", json: true, out: []string{`"host": "m1"`, `"host": "m2"`}},
		step{args: "install --yes m2 a prod", out: []string{"a, m1, m2 are armed: each overwrites /dev/vda"}},
		step{args: "install --done prod a", out: []string{"a, m1, m2 are installed: each starts from its own disk; bootlab install HOST arms it again"}},
		step{args: "install edge", err: "nothing installs a machine of cluster edge: e1"},
		step{args: "install nobody noone", err: `no host or cluster "nobody", "noone" in the lab (bootlab hosts and bootlab clusters list them)`},
		step{args: "power status prod a", err: "each of a, d1, m1, m2 is no virtual machine and has no bmc"},
		step{args: "power status b", err: "b is no virtual machine and has no bmc"},
		step{args: "install", err: "HOST or CLUSTER is missing; usage: bootlab install HOST|CLUSTER..."},
		step{args: "power status", err: "HOST or CLUSTER is missing; usage: bootlab power status HOST|CLUSTER..."},
		step{args: "down --yes prod", out: []string{"bootlab up prod brings it up", "d1 worker unknown", "no virtual machines, and left as they are: d1, m1, m2"}, not: []string{"0s bootlab up"}},
	)
}

// TestInstalledWithoutBootstrap: a cluster that is installed needs no bootstrap machine, and no warning says so.
func TestInstalledWithoutBootstrap(t *testing.T) {
	const warning = "no host has role bootstrap"
	h := serve(t)
	h.edit("install_to: /dev/vda}", "install_to: /dev/vda, os: coreos, initrd: [i], rootfs: r, config: c.ign}")
	h.edit("hosts:\n", `clusters: {prod: {kind: openshift, address: 10.88.0.5}}
hosts:
  m2: {mac: "52:54:00:00:03:02", ip: 10.88.0.32, cluster: prod, role: master, profile: p}
`)
	h.until("reload", func() bool { return strings.Contains(h.run("hosts").out, "10.88.0.32") })
	h.steps(step{args: "status", out: []string{warning}}, step{args: "install --done m2"}, step{args: "status", not: []string{warning}})
}

// TestUpExpired: a cluster whose bootstrap document has certificates that ended is not brought up with it.
func TestUpExpired(t *testing.T) {
	h := serve(t)
	ofRun := func(ends time.Time) {
		text, err := os.ReadFile(filepath.Join(installFolder(t, ends, installConfig), "bootstrap.ign"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(h.lab), "files", "bootstrap.ign"), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(filepath.Dir(h.lab), "files"), 0o755); err != nil {
		t.Fatal(err)
	}
	ofRun(time.Now().Add(-2 * time.Hour))
	h.edit("install_to: /dev/vda}", "install_to: /dev/vda, os: coreos, initrd: [i], rootfs: r, config: bootstrap.ign}")
	h.edit("hosts:\n", `clusters: {prod: {kind: openshift, address: 10.88.0.5}}
hosts:
  boot: {mac: "52:54:00:00:03:01", ip: 10.88.0.31, cluster: prod, role: bootstrap, profile: p}
  m2: {mac: "52:54:00:00:03:02", ip: 10.88.0.32, cluster: prod, role: master, profile: p}
`)
	h.until("reload", func() bool { return strings.Contains(h.run("hosts").out, "10.88.0.32") })
	h.steps(step{args: "up --yes --detach prod", err: "the certificates in bootstrap.ign ended 2h ago: prod cannot come up with it"})
	ofRun(time.Now().Add(20 * time.Hour))
	h.steps(step{args: "up --yes --detach prod", out: []string{"m2: an admin has to switch it on"}})
}

// TestUpOfAReadyCluster: up says in one line that there is nothing to do, and changes nothing: nothing is switched on, asked or recorded.
func TestUpOfAReadyCluster(t *testing.T) {
	h := serve(t)
	netns.Run(t, "ip", "addr", "add", "10.88.0.32/24", "dev", h.seg.Bridge)
	serveAt(t, "10.88.0.32:6443", true)
	h.edit("hosts:\n", `clusters: {prod: {kind: kubernetes, address: 10.88.0.5}}
hosts:
  m2: {mac: "52:54:00:00:03:02", ip: 10.88.0.32, cluster: prod, role: control-plane, profile: p}
`)
	h.until("the cluster is ready", func() bool { return strings.Contains(h.run("clusters").out, "prod (kubernetes) has been ready for") })
	for _, args := range []string{"up prod", "up --yes prod", "up --detach prod", "up --timeout 1m prod"} {
		if a := h.run(strings.Fields(args)...); a.err != nil || a.out != "prod is ready: nothing to do\n" {
			t.Errorf("%s: %v\n%s", args, a.err, a.out)
		}
	}
	h.steps(step{args: "up --json prod", json: true, out: []string{`"phase": "ready"`}, not: []string{"nothing"}},
		step{args: "up --install prod", err: "nothing was changed", out: []string{"This installs 1 machine and overwrites"}})
}

// TestUpAfterLoss: after a loss of install states up says, whole and before anything happens, which machines it does not install, and what to do.
func TestUpAfterLoss(t *testing.T) {
	h := serve(t)
	h.edit("profiles: {p: {kernel: k, install_to: /dev/vda}}", "profiles: {p: {kernel: k, install_to: /dev/vda, install: once}}")
	h.edit("hosts:\n", ofMetal)
	h.until("reload", func() bool { return strings.Contains(h.run("hosts").out, "10.88.0.34") })
	h.steps(step{args: "up prod", err: "nothing was changed", out: []string{"This installs 2 machines and overwrites their disks: m1 /dev/vda, m2 /dev/vda."}, not: []string{"lost"}})
	h.stop()
	if err := os.Remove(filepath.Join(filepath.Dir(h.lab), "state", "state.db")); err != nil {
		t.Fatal(err)
	}
	h.start()
	const lost = "The install states of these machines were lost, so they start from their own disks and are not installed: m1, m2. " +
		"bootlab install HOST --done says that one has a system; bootlab up prod --install installs them and overwrites their disks."
	h.steps(
		step{args: "up --yes --detach prod", out: []string{lost}, not: []string{"This installs"}},
		step{args: "down --yes prod"},
		step{args: "up --install prod", err: "nothing was changed", out: []string{"This installs 2 machines and overwrites their disks: m1 /dev/vda, m2 /dev/vda."}, not: []string{lost}},
		step{args: "install --done prod", out: []string{"m1, m2 are installed"}},
		step{args: "up --yes --detach prod", not: []string{"were lost"}},
	)
}

// TestSilentHypervisor: up with --yes names the disks that it overwrites, too. A machine whose hypervisor does not answer is not shut down, and
// down fails for it.
func TestSilentHypervisor(t *testing.T) {
	h := serve(t)
	h.edit("hosts:\n", fmt.Sprintf("hypervisors:\n  kvm: {uri: %q, bridges: {n: %s}}\nclusters:\n  k8s: {kind: kubernetes, domain: lab.example, address: 10.88.0.30}\nhosts:\n"+
		"  v: {mac: \"52:54:00:00:01:01\", ip: 10.88.0.21, cluster: k8s, role: control-plane, profile: p, vm: {hypervisor: kvm, cpus: 1, memory: 128MiB, disks: [1GiB]}}\n",
		"qemu:///system?socket=/nonexistent", h.seg.Bridge))
	h.until("the hypervisor was asked", func() bool { return strings.Contains(h.run("status").out, "/nonexistent") })
	h.steps(
		step{args: "up --yes --detach k8s", out: []string{"This installs 1 machine and overwrites its disk: v /dev/vda."}},
		step{args: "down --yes k8s", err: "v: hypervisor kvm is down"},
	)
}

// TestInstallQuestion: hosts whose installation overwrites the same disk share a line of the question.
func TestInstallQuestion(t *testing.T) {
	t.Parallel()
	hosts := []api.Host{{Name: "a", Disk: "/dev/vda"}, {Name: "b", Disk: "/dev/sda"}, {Name: "c", Disk: "/dev/vda"}, {Name: "d"}, {Name: "e", Disk: "/dev/vda"}}
	got := strings.Join(installedDisks(hosts, []string{"c", "d", "b", "a"}), "; ")
	if want := "a, c: overwrites /dev/vda; b: overwrites /dev/sda"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// shutdowns are the machines that a hypervisor has asked to shut down.
type shutdowns struct {
	t   *testing.T
	uri string
	mu  sync.Mutex
	of  []string
}

func newShutdowns(t *testing.T, uri string) *shutdowns {
	t.Helper()
	s := &shutdowns{t: t, uri: uri}
	cmd := exec.CommandContext(t.Context(), "virsh", "-c", uri, "qemu-monitor-event", "--event", "POWERDOWN", "--loop")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if _, name, ok := strings.Cut(lines.Text(), "for domain '"); ok {
				s.mu.Lock()
				s.of = append(s.of, strings.Split(name, "'")[0])
				s.mu.Unlock()
			}
		}
	}()
	return s
}

func (s *shutdowns) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.of)
}

// obey switches machines off, as their systems would.
func (s *shutdowns) obey(names ...string) {
	s.t.Helper()
	for _, name := range names {
		netns.Run(s.t, "virsh", "-c", s.uri, "destroy", name)
	}
}
