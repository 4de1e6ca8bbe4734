package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestSilentHypervisor freezes a hypervisor and kills the process that talks to it: the daemon lives, has no libvirt in it, and
// everything else is answered as before.
func TestSilentHypervisor(t *testing.T) {
	t.Parallel()
	netns.Need(t, append(libvirtd.Needs(), "dig")...)
	netns.Enter(t)
	libvirt := startLibvirt(t)
	r := newRigHere(t, vmLab(libvirt.URI, "bios"), bootFiles)
	r.bootlab(t, "vm", "create", "node")
	child := hypervisorProcess(t, r)
	if text := mapsOf(t, r.daemon.cmd.Process.Pid); strings.Contains(text, "libvirt") {
		t.Error("the daemon has loaded libvirt")
	}
	if text := mapsOf(t, child); !strings.Contains(text, "libvirt.so.0") {
		t.Error("the process of the hypervisor has not loaded libvirt")
	}
	r.othersAnswer(t, "before")

	if err := libvirt.Freeze(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error {
		vms := ask[[]api.VM](t, r, "vm", "list")
		if len(vms) != 1 || vms[0].State != "unknown" || vms[0].Down.IsZero() {
			return fmt.Errorf("of a hypervisor that is frozen: %+v", vms)
		}
		return nil
	})
	r.othersAnswer(t, "frozen")
	eventually(t, patience, func() error {
		ready := netns.Run(t, "curl", "-s", "http://127.0.0.1:9680/readyz")
		if !strings.Contains(ready, "virt: degraded: 1 of 1 hypervisors do not answer") {
			return fmt.Errorf("readyz does not count the hypervisor that is down: %s", ready)
		}
		return nil
	})
	if err := libvirt.Thaw(); err != nil {
		t.Fatal(err)
	}
	r.untilVM(t, "running")

	if err := syscall.Kill(hypervisorProcess(t, r), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.othersAnswer(t, "killed")
	r.untilVM(t, "running")
	r.bootlab(t, "vm", "delete", "node", "--disks", "--yes")
}

// untilVM waits until the machine of the lab has a state.
func (r *rig) untilVM(t *testing.T, state string) {
	t.Helper()
	eventually(t, patience, func() error {
		if vms := ask[[]api.VM](t, r, "vm", "list"); len(vms) != 1 || vms[0].State != state {
			return fmt.Errorf("%+v, want %s", vms, state)
		}
		return nil
	})
}

// othersAnswer asks for what needs no hypervisor, and for the lists that show its machines.
func (r *rig) othersAnswer(t *testing.T, when string) {
	t.Helper()
	for _, what := range []struct {
		name string
		ask  func()
	}{
		{"DNS", func() { netns.Run(t, "dig", "+time=40", "+tries=1", "@"+appliance, "node.prod.lab.test") }},
		{"status", func() { r.bootlab(t, "status") }},
		{"hosts", func() { r.bootlab(t, "hosts") }},
		{"vm list", func() { r.bootlab(t, "vm", "list") }},
		{"dashboard", func() { netns.Run(t, "curl", "-s", "--max-time", "40", "http://127.0.0.1:9680/") }},
	} {
		start := time.Now()
		what.ask()
		took := time.Since(start)
		t.Logf("%s, %s: %s", when, what.name, took.Round(time.Millisecond))
		if took > 50*time.Second { // what waits for the hypervisor takes a minute or two, on any machine
			t.Errorf("%s, %s: took %s", when, what.name, took)
		}
	}
}

func mapsOf(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// hypervisorProcess returns the process of the daemon that talks to its hypervisor. The daemon may be about to start it again.
func hypervisorProcess(t *testing.T, r *rig) (pid int) {
	t.Helper()
	netns.WaitFor(t, "a process of a hypervisor", func() bool { pid = hypervisorChild(t, r); return pid > 0 })
	return pid
}

// hypervisorChild is hypervisorProcess, or 0.
func hypervisorChild(t *testing.T, r *rig) int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.daemon.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		children, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		for _, child := range strings.Fields(string(children)) {
			line, err := os.ReadFile("/proc/" + child + "/cmdline")
			if pid, bad := strconv.Atoi(child); bad == nil && err == nil && strings.Contains(string(line), "hypervisor\x00") {
				return pid
			}
		}
	}
	return 0
}
