//go:build cgo && libvirt_dlopen

package virt_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

// serve runs b until the test ends, and then waits for Serve to return.
func serve(t *testing.T, b *testServer) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			check(t, err)
		case <-time.After(time.Minute):
			t.Error("Serve does not end")
		}
	})
}

// TestLibvirtTestDriver creates, starts, stops and deletes a machine with libvirt's test driver, which is part of its
// library.
func TestLibvirtTestDriver(t *testing.T) {
	ctx := t.Context()
	l := oneHost(func(h *lab.Host) {
		h.VM.Hypervisor.DomainType = "test"
		h.VM.Hypervisor.Pool = "default-pool"
		h.VM.Memory = gib
	})
	b := newTestServer(t, l, nil, virt.Config{})
	serve(t, b)
	check(t, b.Create(ctx, "master-0"))
	check(t, b.Create(ctx, "master-0"))
	check(t, b.Start(ctx, "master-0"))
	wantState(t, b, virt.StateRunning)
	check(t, b.Stop(ctx, "master-0", virt.StopShutdown, 0))
	wantState(t, b, virt.StateOff)
	check(t, b.Restart(ctx, "master-0"))
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
	wantState(t, b, virt.StateAbsent)
	b.wantEvents(t, event.VMCreated, event.VMStarted, event.VMStopped, event.VMStarted, event.VMDeleted)

	b.use(t, oneHost(func(h *lab.Host) { h.VM.Hypervisor.Pool, h.VM.Memory = "fast", gib }))
	wantErr(t, b.Create(ctx, "master-0"), `no storage pool "fast": want one of default-pool`)
	// The driver starts with a domain of that name.
	b.use(t, oneHost(func(h *lab.Host) { h.Name = "test" }))
	wantErr(t, b.Delete(ctx, "test", virt.DeleteDisks), `domain "test" (UUID `, `exists and was not created from lab "telco"`)
}

func wantState(t *testing.T, b *testServer, want virt.State) {
	t.Helper()
	netns.WaitFor(t, "all machines to be "+string(want), func() bool { // a list waits for a hypervisor for a second only
		return !slices.ContainsFunc(b.List(t.Context()), func(st virt.Status) bool { return st.State != want || st.Err != "" })
	})
}

// TestMachinesBootFromTheNetworkFirst starts machines of each firmware on a real libvirtd and waits for the
// DHCPDISCOVER of each; then deletes them and checks that nothing is left.
func TestMachinesBootFromTheNetworkFirst(t *testing.T) {
	netns.Need(t, append(libvirtd.Needs(), "tcpdump")...)
	ctx := t.Context()
	seg := netns.NewSegment(t, "10.77.0.1/24")
	dir := t.TempDir()
	d, err := libvirtd.Start(ctx, libvirtd.Config{Dir: dir})
	check(t, err)
	t.Cleanup(func() { check(t, d.Stop()) })

	l := oneHost()
	hv := l.Hypervisors[0]
	*hv = lab.Hypervisor{Name: "local", URI: d.URI, Pool: libvirtd.Pool, DomainType: "qemu",
		Bridges: []lab.Attachment{{Network: l.Networks[0], Bridge: seg.Bridge}}}
	proto := l.Hosts[0]
	l.Hosts = nil
	for i, fw := range []lab.Firmware{lab.FirmwareBIOS, lab.FirmwareUEFI, lab.FirmwareUEFISecure} {
		h, vm := *proto, *proto.VM
		h.Name, h.Serial, h.MACs = string(fw), string(fw), []lab.MAC{{0x52, 0x54, 0, 0, 9, byte(i)}}
		vm.Firmware, vm.Memory, vm.CPUs = fw, gib/2, 1
		vm.Disks = []lab.Disk{{Size: gib, Bus: "virtio", Cache: "unsafe"}, {Size: gib, Bus: "scsi"}}
		h.VM = &vm
		l.Hosts = append(l.Hosts, &h)
	}
	b := newTestServer(t, l, nil, virt.Config{})
	serve(t, b)
	seen := discovers(t, seg.Bridge)
	for _, h := range l.Hosts {
		check(t, b.Create(ctx, h.Name))
		check(t, b.Create(ctx, h.Name))
	}
	for _, h := range l.Hosts {
		check(t, b.Start(ctx, h.Name))
	}
	wantState(t, b, virt.StateRunning)
	waitDiscovers(t, seen, l.Hosts)

	wantErr(t, b.Create(ctx, "worker-9"), "not a virtual machine")
	for _, h := range l.Hosts {
		check(t, b.Delete(ctx, h.Name, virt.DeleteDisks))
	}
	wantState(t, b, virt.StateAbsent)
	leftovers(t, d, dir)
}

// discovers returns the MACs that DHCPDISCOVERs come from.
func discovers(t *testing.T, bridge string) <-chan string {
	t.Helper()
	cmd := exec.Command("tcpdump", "-i", bridge, "-l", "-n", "-e", "-U", "udp", "src", "port", "68")
	out, err := cmd.StdoutPipe()
	check(t, err)
	ready, err := cmd.StderrPipe()
	check(t, err)
	check(t, cmd.Start())
	for sc := bufio.NewScanner(ready); sc.Scan() && !strings.Contains(sc.Text(), "listening on"); {
	}
	macs := make(chan string)
	go func() {
		defer close(macs)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			if f := strings.Fields(sc.Text()); len(f) > 1 {
				macs <- f[1]
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range macs {
		}
		_ = cmd.Wait()
	})
	return macs
}

func waitDiscovers(t *testing.T, seen <-chan string, hosts []*lab.Host) {
	t.Helper()
	missing := map[string]string{}
	for _, h := range hosts {
		missing[h.MACs[0].String()] = h.Name
	}
	deadline := time.After(5 * time.Minute)
	start := time.Now()
	for len(missing) > 0 {
		select {
		case mac := <-seen:
			if name := missing[mac]; name != "" {
				t.Logf("DHCPDISCOVER of %s after %s", name, time.Since(start).Round(100*time.Millisecond))
				delete(missing, mac)
			}
		case <-deadline:
			t.Fatalf("no DHCPDISCOVER from %v", missing)
		}
	}
}

// leftovers fails the test for files of deleted machines: volumes, firmware variables, definitions.
func leftovers(t *testing.T, d *libvirtd.Daemon, dir string) {
	t.Helper()
	for _, pattern := range []string{d.Images + "/*", dir + "/lib/qemu/nvram/*", dir + "/etc/qemu/*.xml"} {
		left, err := filepath.Glob(pattern)
		check(t, err)
		if len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	if _, err := os.Stat(dir + "/lib/qemu/nvram"); err != nil {
		t.Errorf("no folder of firmware variables: %v", err)
	}
}

func TestLibvirtErrors(t *testing.T) {
	netns.Need(t, libvirtd.Needs()...)
	ctx := t.Context()
	d, err := libvirtd.Start(ctx, libvirtd.Config{Dir: t.TempDir()})
	check(t, err)
	t.Cleanup(func() { check(t, d.Stop()) })
	with := func(change func(*lab.Hypervisor)) *lab.Lab {
		return oneHost(func(h *lab.Host) {
			hv := h.VM.Hypervisor
			hv.URI, hv.Pool, hv.DomainType = d.URI, libvirtd.Pool, "qemu"
			h.VM.Memory, h.VM.CPUs = gib/4, 1
			change(hv)
		})
	}
	b := newTestServer(t, with(func(*lab.Hypervisor) {}), nil, virt.Config{})
	serve(t, b)
	check(t, b.Create(ctx, "master-0"))
	wantErr(t, b.Start(ctx, "master-0"), "create bridge br0 on the hypervisor, or set another in hypervisors.kvm1.bridges")
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))

	huge := with(func(*lab.Hypervisor) {})
	huge.Hosts[0].VM.Memory = 512 * 1024 * gib
	b.use(t, huge)
	wantErr(t, b.Create(ctx, "master-0"), "it wants 536870912 MiB of memory, and hypervisor kvm1 has", "choose another hypervisor")
	if plan, err := b.Plan(ctx, nil); err != nil || len(plan) != 1 || len(plan[0].Details) != 1 || !strings.Contains(plan[0].Details[0], "choose another hypervisor") {
		t.Errorf("plan of a machine that is too large: %+v, %v", plan, err)
	}

	b.use(t, with(func(hv *lab.Hypervisor) { hv.Pool = "fast" }))
	wantErr(t, b.Create(ctx, "master-0"), `no storage pool "fast": want one of default`)

	b.use(t, with(func(hv *lab.Hypervisor) {
		hv.Bridges[0] = lab.Attachment{Network: hv.Bridges[0].Network, LibvirtNetwork: "lan"}
	}))
	check(t, b.Create(ctx, "master-0"))
	wantErr(t, b.Start(ctx, "master-0"), "virsh net-start lan")
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))

	b.use(t, with(func(hv *lab.Hypervisor) { hv.URI = "qemu+unix:///system?socket=/nowhere/libvirt-sock" }))
	wantErr(t, b.Create(ctx, "master-0"), "systemctl start libvirtd", "/nowhere/libvirt-sock")
}

// TestMachineFromImageOnLibvirt creates two machines over one uploaded image, with an Ignition config in fw_cfg.
func TestMachineFromImageOnLibvirt(t *testing.T) {
	netns.Need(t, append(libvirtd.Needs(), "qemu-img")...)
	ctx := t.Context()
	seg := netns.NewSegment(t, "10.78.0.1/24")
	d, err := libvirtd.Start(ctx, libvirtd.Config{Dir: t.TempDir()})
	check(t, err)
	t.Cleanup(func() { check(t, d.Stop()) })
	files := t.TempDir()
	check(t, os.Mkdir(filepath.Join(files, "images"), 0o755))
	original := filepath.Join(files, "images", "base.qcow2")
	raw := filepath.Join(files, "disk")
	check(t, os.WriteFile(raw, bytes.Repeat([]byte("bootlab\n"), 1<<17), 0o600))
	netns.Run(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, original)

	change := func(h *lab.Host) {
		fromImage(h)
		*h.VM.Hypervisor = lab.Hypervisor{Name: "local", URI: d.URI, DomainType: "qemu",
			Bridges: []lab.Attachment{{Network: h.Network, Bridge: seg.Bridge}}}
		h.VM.Memory, h.VM.CPUs = gib/8, 1
	}
	b := newTestServerOf(t, &images{file: os.DirFS(files), config: ignition}, oneHost(change), virt.Config{}, virt.Deps{})
	serve(t, b)
	check(t, b.Create(ctx, "master-0"))
	check(t, b.Start(ctx, "master-0"))
	wantState(t, b, virt.StateRunning)
	b.use(t, oneHost(change, func(h *lab.Host) {
		h.Name, h.MACs = "worker-0", []lab.MAC{{0x52, 0x54, 0, 0, 2, 9}}
		h.VM.Disks = []lab.Disk{{Size: gib}}
	}))
	check(t, b.Create(ctx, "worker-0"))

	overlay := filepath.Join(d.Images, "worker-0-vda.qcow2")
	info := netns.Run(t, "qemu-img", "info", overlay)
	bases, err := filepath.Glob(d.Images + "/bootlab-base-*.qcow2")
	check(t, err)
	if len(bases) != 1 || !strings.Contains(info, "backing file: "+bases[0]) || !strings.Contains(info, "virtual size: 1 GiB") {
		t.Errorf("bases %v, overlay\n%s", bases, info)
	}
	netns.Run(t, "cmp", original, bases[0])
	netns.Run(t, "qemu-img", "check", overlay)
	config, err := os.ReadFile(filepath.Join(d.Images, "worker-0.ign"))
	check(t, err)
	if string(config) != ignition {
		t.Errorf("config document %q", config)
	}
	if mode, err := os.Stat(filepath.Join(d.Images, "worker-0.ign")); err != nil || mode.Mode().Perm() != 0o600 {
		t.Errorf("config document has mode %v (%v), want 0600", mode.Mode(), err)
	}
	check(t, b.Delete(ctx, "worker-0", virt.DeleteDisks))
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
	left, err := filepath.Glob(d.Images + "/*")
	check(t, err)
	if len(left) != 2 || left[0] != bases[0] || left[1] != bases[0]+".bootlab" {
		t.Errorf("left behind: %v, want only the image and its mark", left)
	}
}

// TestReconnectToLibvirt restarts libvirtd under a Server.
func TestReconnectToLibvirt(t *testing.T) {
	netns.Need(t, libvirtd.Needs()...)
	dir := t.TempDir()
	d, err := libvirtd.Start(t.Context(), libvirtd.Config{Dir: dir})
	check(t, err)
	b := newTestServer(t, oneHost(func(h *lab.Host) { h.VM.Hypervisor.URI = d.URI }), nil, virt.Config{})
	serve(t, b)
	wantState(t, b, virt.StateAbsent)
	check(t, d.Stop())
	netns.WaitFor(t, "a list that says that libvirtd is gone", func() bool {
		st := b.List(t.Context())
		return st[0].State == virt.StateUnknown && st[0].Err != ""
	})
	check(t, os.RemoveAll(dir))
	check(t, os.Mkdir(dir, 0o755))
	d, err = libvirtd.Start(t.Context(), libvirtd.Config{Dir: dir})
	check(t, err)
	t.Cleanup(func() { check(t, d.Stop()) })
	for deadline := time.Now().Add(2 * time.Minute); b.List(t.Context())[0].State != virt.StateAbsent; { // after its back-off
		if time.Now().After(deadline) {
			t.Fatalf("after libvirtd started again: %+v", b.List(t.Context()))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestSilentHypervisorDelaysNoOther has one hypervisor that accepts connections and never answers, beside libvirt's test driver.
func TestSilentHypervisorDelaysNoOther(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "libvirt-sock")
	silent, err := net.Listen("unix", socket)
	check(t, err)
	l := oneHost(func(h *lab.Host) {
		h.VM.Hypervisor.DomainType, h.VM.Hypervisor.Pool, h.VM.Memory = "test", "default-pool", gib
	})
	hv := &lab.Hypervisor{Name: "kvm2", URI: "qemu+unix:///system?socket=" + socket, Bridges: l.Hypervisors[0].Bridges}
	h, vm := *l.Hosts[0], *l.Hosts[0].VM
	h.Name, vm.Hypervisor = "worker-0", hv
	h.VM = &vm
	l.Hosts, l.Hypervisors = append(l.Hosts, &h), []*lab.Hypervisor{hv, l.Hypervisors[0]}
	b := newTestServer(t, l, nil, virt.Config{ListWait: 100 * time.Millisecond})
	serve(t, b)
	t.Cleanup(func() { check(t, silent.Close()) }) // ends the connection that waits in its backlog
	check(t, b.Create(t.Context(), "master-0"))
	st := b.List(t.Context())
	if st[0].State != virt.StateOff || st[0].Err != "" {
		t.Errorf("on the hypervisor that answers: %+v", st[0])
	}
	if st[1].State != virt.StateUnknown || !strings.Contains(st[1].Err, "hypervisor kvm2 has not answered yet") {
		t.Errorf("on the silent hypervisor: %+v", st[1])
	}
}

const hidden = "BOOTLAB_TEST_LIBVIRT_HIDDEN"

// TestWithoutLibvirt runs itself in a mount namespace without the library.
func TestWithoutLibvirt(t *testing.T) {
	if os.Getenv(hidden) != "" {
		b := newTestServer(t, oneHost(), nil, virt.Config{})
		serve(t, b)
		for range 2 {
			wantErr(t, b.Create(t.Context(), "master-0"), "no libvirt library on this machine", "install libvirt0")
		}
		return
	}
	netns.Need(t, "root", "unshare")
	// What this process must not have, the process of its hypervisor has.
	b := newTestServer(t, oneHost(), nil, virt.Config{})
	serve(t, b)
	wantState(t, b, virt.StateAbsent)
	if mine := library(t, os.Getpid()); mine != "" {
		t.Errorf("this process has loaded %s", mine)
	}
	path := library(t, onlyChild(t))
	if path == "" {
		t.Fatal("the process of the hypervisor has not loaded libvirt")
	}
	cmd := exec.Command("unshare", "--mount", "sh", "-ec", `mount --bind /dev/null "$1"; exec "$2" -test.run '^TestWithoutLibvirt$' -test.v`,
		"sh", path, "/proc/self/exe")
	self, err := os.Executable()
	check(t, err)
	cmd.Args[len(cmd.Args)-1] = self
	cmd.Env = append(os.Environ(), hidden+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS: TestWithoutLibvirt") {
		t.Errorf("%v\n%s", err, out)
	}
}

// library returns the path of the libvirt library that a process has loaded.
func library(t *testing.T, pid int) string {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	check(t, err)
	for line := range strings.Lines(string(maps)) {
		if i := strings.Index(line, "/"); i > 0 && strings.Contains(line, "/libvirt.so.0") {
			return strings.TrimSpace(line[i:])
		}
	}
	return ""
}

// children returns the processes of hypervisors that this process has started.
func children(t *testing.T) (pids []int) {
	t.Helper()
	return childrenNamed(t, "hypervisor")
}

func childrenNamed(t *testing.T, name string) (pids []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/stat")
	check(t, err)
	for _, stat := range dirs {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // ended
		}
		_, fields, _ := strings.Cut(string(text), ") ")
		f := strings.Fields(fields)
		cmdline, err := os.ReadFile(filepath.Join(filepath.Dir(stat), "cmdline"))
		if err != nil || f[1] != strconv.Itoa(os.Getpid()) || f[0] == "Z" || !strings.HasPrefix(string(cmdline), "bootlab\x00"+name+"\x00") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		check(t, err)
		pids = append(pids, pid)
	}
	return pids
}

func onlyChild(t *testing.T) int {
	t.Helper()
	pids := children(t)
	if len(pids) != 1 {
		t.Fatalf("processes of hypervisors: %v, want one", pids)
	}
	return pids[0]
}

// TestForeignVolumesOnLibvirt puts files of somebody else into the pool of a real libvirtd, under names that bootlab gives.
func TestForeignVolumesOnLibvirt(t *testing.T) {
	netns.Need(t, libvirtd.Needs()...)
	ctx := t.Context()
	d, err := libvirtd.Start(ctx, libvirtd.Config{Dir: t.TempDir()})
	check(t, err)
	t.Cleanup(func() { check(t, d.Stop()) })
	change := func(h *lab.Host) {
		hv := h.VM.Hypervisor
		hv.URI, hv.Pool, hv.DomainType = d.URI, libvirtd.Pool, "qemu"
		h.VM.Memory, h.VM.CPUs, h.VM.Disks = gib/4, 1, []lab.Disk{{Size: gib}}
	}
	two := func(h *lab.Host) { h.VM.Disks = append(h.VM.Disks, lab.Disk{Size: gib}) }
	b := newTestServer(t, oneHost(change), nil, virt.Config{})
	serve(t, b)
	check(t, b.Create(ctx, "master-0"))
	foreign := filepath.Join(d.Images, "master-0-vdb.qcow2")
	netns.Run(t, "qemu-img", "create", "-f", "qcow2", foreign, "1M")
	netns.Run(t, "virsh", "-c", d.URI, "pool-refresh", libvirtd.Pool)
	b.use(t, oneHost(change, two))
	wantErr(t, b.Create(ctx, "master-0"), "volume master-0-vdb.qcow2 exists", "was not created by bootlab")
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
	left, err := filepath.Glob(d.Images + "/*")
	check(t, err)
	if len(left) != 1 || left[0] != foreign {
		t.Errorf("left in the pool: %v, want %s only", left, foreign)
	}
}
