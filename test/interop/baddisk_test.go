package interop

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/faultfs"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
)

// newVMs starts a lab with a cluster of two virtual machines on a real libvirtd, of which both run. prepare is called before the start, with
// the state folder.
func newVMs(t *testing.T, subnet string, prepare func(state string)) (d *daemon, virsh func(args ...string)) {
	t.Helper()
	netns.Need(t, append(libvirtd.Needs(), "mount", "udhcpc")...)
	netns.Enter(t)                      // the ports of consoles, and names of taps
	dir, err := os.MkdirTemp("", "vms") // short, for libvirt's sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	libvirt, err := libvirtd.Start(context.WithoutCancel(t.Context()), libvirtd.Config{Dir: dir, Group: "nogroup"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = libvirt.Stop() })
	l := newLab(t, subnet)
	l.more = "hypervisors:\n  here: {uri: \"" + libvirt.URI + "\", bridges: {lan: BRIDGE}, domain_type: qemu}\nclusters:\n  prod: {kind: kubernetes, address: NET.5}\n"
	for _, m := range []string{"0", "1"} {
		l.hosts += "  vm" + m + ": {mac: \"52:54:00:00:00:3" + m + "\", ip: NET.3" + m + ", cluster: prod, role: control-plane, profile: install, vm: {hypervisor: here, cpus: 1, memory: 64MiB, disks: [1GiB]}}\n"
	}
	l.file("files/ignition/control-plane.ign", []byte(`{"ignition":{"version":"3.3.0"}}`))
	l.write()
	state := filepath.Join(l.dir, "state")
	if err := os.Mkdir(state, 0o755); err != nil {
		t.Fatal(err)
	}
	prepare(state)
	d = start(t, l)
	if out, err := d.bootlab("vm", "apply"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return d, func(args ...string) {
		t.Helper()
		netns.Run(t, "virsh", append([]string{"-q", "-c", libvirt.URI}, args...)...)
	}
}

// bounded runs a command of bootlab that must end, whatever the disk does.
func (d *daemon) bounded(args ...string) (string, error) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	cmd := d.command(ctx, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		d.t.Fatalf("bootlab %v does not end", args)
	}
	return string(out), err
}

// vmStates returns the states of the virtual machines, by host.
func (d *daemon) vmStates() map[string]string {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	vms, err := d.client.VMs(ctx)
	if err != nil {
		d.t.Fatalf("virtual machines: %v", err)
	}
	states := map[string]string{}
	for _, vm := range vms {
		states[vm.Host] = string(vm.State)
	}
	return states
}

// TestFrozenDiskOfVMs: while nothing comes back from the disk of the state, machines change their states, and status, lists, pages and
// clusters follow; what has to be stored is refused with the reason; and all goes on afterwards.
func TestFrozenDiskOfVMs(t *testing.T) {
	t.Parallel()
	var disk *faultfs.Disk
	d, virsh := newVMs(t, "10.127.40", func(state string) { disk = faultfs.Mount(t, state) })
	m := d.machine(t, "52:54:00:00:00:10")
	m.lease(t)
	stranger := d.machine(t, "52:54:00:77:00:01")
	from := stranger.lease(t)

	hung := make(chan struct{})
	release := sync.OnceFunc(func() { disk.Fail(nil); close(hung) })
	t.Cleanup(release) // before the daemon is killed
	disk.Fail(func(faultfs.Op, int64, int) syscall.Errno { <-hung; return 0 })
	virsh("destroy", "vm0")
	virsh("undefine", "vm1")
	virsh("destroy", "vm1")
	d.until("the machines are seen to be off", func() bool {
		states := d.vmStates()
		return states["vm0"] == "off" && states["vm1"] == "absent"
	})
	d.until("the hang is shown", func() bool { return slices.Contains(d.status().Store.Causes, "disk does not respond") })
	if status, _ := stranger.get(from, "report/52-54-00-77-00-01?cpu=new", "-m", "1"); status == http.StatusOK {
		t.Error("a report is accepted that is not on disk")
	}
	for _, args := range [][]string{{"timeline", "vm0"}, {"why", "vm0"}} { // what was recorded is read from the disk
		if out, err := d.bounded(args...); err != nil && !strings.Contains(out, "is it stopped, or its disk?") {
			t.Errorf("bootlab %v: %v\n%s", args, err, out)
		}
	}
	for _, args := range [][]string{{"status"}, {"hosts"}, {"vm", "list"}, {"vm", "log", "vm0", "--list"}, {"leases"}, {"plan", "vm0"}, {"state"}, {"reload"}} {
		if out, err := d.bounded(args...); err != nil && args[1%len(args)] != "log" {
			t.Errorf("bootlab %v: %v\n%s", args, err, out)
		}
	}
	if a := m.lease(t); a != d.net+".10" {
		t.Errorf("a reservation: %q", a)
	}
	if status, _ := m.get(d.net+".10", "boot/52-54-00-00-00-10/boot.ipxe"); status != http.StatusServiceUnavailable {
		t.Errorf("a script whose boot cannot be stored: status %d", status)
	}
	if out, err := d.bounded("up", "--yes", "--detach", "prod"); err == nil || !strings.Contains(out, "disk does not respond") {
		t.Errorf("up: %v\n%s", err, out)
	}
	release()
	d.until("the cluster is brought up", func() bool { _, err := d.bounded("up", "--yes", "--detach", "prod"); return err == nil })
	d.until("its machines run", func() bool { states := d.vmStates(); return states["vm0"] == "running" && states["vm1"] == "running" })
	d.until("the disk answers", func() bool { return len(d.status().Store.Causes) == 0 })
	d.kill()
	d.start()
	if cl := d.cluster(); cl.Up.IsZero() {
		t.Errorf("after a restart: %+v", cl)
	}
}

// TestFullDiskOfVMs: while the disk of the state is full, machines change their states, a cluster is not brought up, and both go on afterwards.
// Then the state is damaged, and no machine is installed or power-cycled for it.
func TestFullDiskOfVMs(t *testing.T) {
	t.Parallel()
	var folder string
	d, virsh := newVMs(t, "10.127.41", func(state string) {
		folder = state
		netns.Run(t, "mount", "-t", "tmpfs", "-o", "size=3m,mode=755", "none", state)
		t.Cleanup(func() { _ = exec.Command("umount", "-l", state).Run() })
	})
	filler := filepath.Join(folder, "filler")
	_ = os.WriteFile(filler, make([]byte, 3<<20), 0o644) // as much as fits
	for n := 0; ; n++ {                                  // the store has some space ahead
		if _, err := d.client.MarkInstalled(t.Context(), "w0"); err != nil {
			var refused *api.Error
			if !errors.As(err, &refused) || refused.Status != http.StatusInsufficientStorage {
				t.Errorf("a state that cannot be stored: %v", err)
			}
			break
		}
		if n == 20_000 {
			t.Fatal("the disk never was full: the test proves nothing")
		}
	}
	virsh("destroy", "vm0")
	d.until("the machine is seen to be off", func() bool { return d.vmStates()["vm0"] == "off" })
	if out, err := d.bounded("up", "--yes", "--detach", "prod"); err == nil || !strings.Contains(out, "no space left on device") {
		t.Errorf("up: %v\n%s", err, out)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	d.until("the cluster is brought up", func() bool { _, err := d.bounded("up", "--yes", "--detach", "prod"); return err == nil })
	d.until("its machines run", func() bool { states := d.vmStates(); return states["vm0"] == "running" && states["vm1"] == "running" })
	if _, err := d.client.MarkInstalled(t.Context(), "vm0"); err != nil {
		t.Fatal(err)
	}

	// A damaged state at the start: sectors of records are destroyed.
	d.kill()
	file := filepath.Join(folder, "state.db")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for at := 8192; at+512 < len(b); at += 2048 {
		copy(b[at:at+512], strings.Repeat("\xa5", 512))
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	d.start()
	if !slices.Contains(d.status().Store.Causes, "stored changes were lost") {
		t.Errorf("status: %+v", d.status().Store)
	}
	d.until("both machines are seen", func() bool { states := d.vmStates(); return states["vm0"] == "running" && states["vm1"] == "running" })
	hosts, err := d.client.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		if h.Name == "vm0" && h.Install != "installed" && h.Install != "unknown" {
			t.Errorf("vm0 was installed, and is %s after the state was damaged", h.Install)
		}
	}
	for _, args := range [][]string{{"status"}, {"vm", "list"}, {"state"}, {"state", "accept-new", "--yes"}} {
		if out, err := d.bounded(args...); err != nil {
			t.Errorf("bootlab %v: %v\n%s", args, err, out)
		}
	}
	d.until("the loss is accepted", func() bool { return !slices.Contains(d.status().Store.Causes, "stored changes were lost") })
}
