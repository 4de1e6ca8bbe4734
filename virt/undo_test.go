//go:build cgo && libvirt_dlopen

package virt_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

// failAutostart makes libvirtd fail to set that master-0 starts with it, until the function that it returns is called: another file has
// the name of the link that it makes.
func failAutostart(t *testing.T, d *libvirtd.Daemon) (heal func()) {
	t.Helper()
	file := filepath.Join(filepath.Dir(d.Images), "etc/qemu/autostart/master-0.xml")
	check(t, os.MkdirAll(file, 0o700))
	return func() { check(t, os.Remove(file)) }
}

// wantFiles checks which files of the pool match a pattern.
func wantFiles(t *testing.T, d *libvirtd.Daemon, pattern string, want int) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(d.Images, pattern))
	check(t, err)
	if len(found) != want {
		t.Errorf("files %s: %v, want %d", pattern, found, want)
	}
}

// TestErrorAfterTheDefinition lets a real libvirtd define a machine and fail at the step after that: what the machine uses stays, the plan
// says what is not so, and both apply and delete get out of it.
func TestErrorAfterTheDefinition(t *testing.T) {
	d, on := startLibvirtd(t)
	seg := netns.NewSegment(t, "10.133.0.1/24")
	ctx := t.Context()
	with := func(change ...func(*lab.Host)) *lab.Lab {
		return oneHost(append([]func(*lab.Host){on, func(h *lab.Host) { h.VM.Hypervisor.Bridges[0].Bridge = seg.Bridge }}, change...)...)
	}
	starts := func(h *lab.Host) { h.VM.Autostart = true }
	second := func(h *lab.Host) { h.VM.Disks = append(h.VM.Disks, lab.Disk{Size: gib}) }
	uefi := func(h *lab.Host) { second(h); h.VM.Firmware = lab.FirmwareUEFI }
	b := newTestServer(t, with(starts), nil, virt.Config{})
	serve(t, b)
	for name, out := range map[string]func() error{
		"apply":  func() error { return b.Apply(ctx, "master-0") },
		"delete": func() error { return b.Delete(ctx, "master-0", virt.DeleteDisks) },
	} {
		b.use(t, with(starts))
		heal := failAutostart(t, d)
		wantErr(t, b.CreateAndStart(ctx, "master-0"), "autostart")
		wantFiles(t, d, "master-0-vda.qcow2", 1)
		wantPlan(t, b, virt.ConditionDrifted, "autostart: no, lab file: yes", "not started: ")
		heal()
		check(t, out())
		if name == "apply" {
			wantPlan(t, b, virt.ConditionOK)
			wantState(t, b, virt.StateRunning)
			check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
		}
		wantPlan(t, b, virt.ConditionMissing)
		wantFiles(t, d, "master-0*", 0)
	}
	for _, change := range []func(*lab.Host){second, uefi} { // of a machine that is there
		b.use(t, with())
		check(t, b.Create(ctx, "master-0"))
		b.use(t, with(starts, change))
		heal := failAutostart(t, d)
		wantErr(t, b.Create(ctx, "master-0"), "autostart")
		wantFiles(t, d, "master-0-vd?.qcow2", 2)
		wantPlan(t, b, virt.ConditionDrifted, "autostart: no, lab file: yes")
		heal()
		check(t, b.Apply(ctx, "master-0"))
		wantPlan(t, b, virt.ConditionOK)
		check(t, b.Start(ctx, "master-0"))
		check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
		wantFiles(t, d, "master-0*", 0)
	}
}

// realImage returns a folder with an image that an overlay can be made on.
func realImage(t *testing.T) fs.FS {
	t.Helper()
	dir := t.TempDir()
	check(t, os.Mkdir(filepath.Join(dir, "images"), 0o755))
	netns.Run(t, "qemu-img", "create", "-f", "qcow2", filepath.Join(dir, "images/base.qcow2"), "64M")
	return os.DirFS(dir)
}

// TestErrorBeforeTheDefinition: a change that fails before its definition leaves the machine that is there its config document.
func TestErrorBeforeTheDefinition(t *testing.T) {
	d, on := startLibvirtd(t)
	ctx := t.Context()
	disks := []lab.Disk{{Size: gib}}
	with := func() *lab.Lab { return oneHost(on, fromImage, func(h *lab.Host) { h.VM.Disks = disks }) }
	i := &images{file: realImage(t), config: ignition}
	b := newTestServerOf(t, i, with(), virt.Config{}, virt.Deps{})
	serve(t, b)
	check(t, b.Create(ctx, "master-0"))
	wantFiles(t, d, "master-0.ign", 1)
	own := disks
	disks = append(disks, lab.Disk{Volume: "data", Pool: libvirtd.Pool})
	b.use(t, with())
	wantErr(t, b.Apply(ctx, "master-0"), "pool default has no volume data")
	wantFiles(t, d, "master-0.ign", 1)
	disks = own
	b.use(t, with())
	wantPlan(t, b, virt.ConditionOK)
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
	wantFiles(t, d, "master-0*", 0)
}

// TestVolumesThatAreGone deletes volumes of a machine behind our back: the plan says so, and apply creates them again.
func TestVolumesThatAreGone(t *testing.T) {
	d, on := startLibvirtd(t)
	ctx := t.Context()
	i := &images{file: realImage(t), config: ignition}
	b := newTestServerOf(t, i, oneHost(on, fromImage), virt.Config{}, virt.Deps{})
	serve(t, b)
	check(t, b.Create(ctx, "master-0"))
	for name, want := range map[string]string{
		"master-0-vda.qcow2": "disk vda: volume master-0-vda.qcow2 in pool default is gone: apply creates it again, empty or from its image",
		"master-0.ign":       "volume master-0.ign in pool default, its config document, is gone: apply renders it again",
	} {
		netns.Run(t, "virsh", "-c", d.URI, "vol-delete", "--pool", libvirtd.Pool, name)
		wantPlan(t, b, virt.ConditionDrifted, want)
		check(t, b.Apply(ctx, "master-0"))
		wantFiles(t, d, name, 1)
		wantPlan(t, b, virt.ConditionOK)
	}
}

// TestFirmwareKeepsSnapshots: another firmware needs other variables, and with the old ones libvirt forgets the snapshots.
func TestFirmwareKeepsSnapshots(t *testing.T) {
	_, on := startLibvirtd(t)
	ctx := t.Context()
	b := newTestServer(t, oneHost(on), nil, virt.Config{})
	serve(t, b)
	check(t, b.Create(ctx, "master-0"))
	check(t, b.CreateSnapshot(ctx, "master-0", "clean"))
	b.use(t, oneHost(on, func(h *lab.Host) { h.VM.Firmware = lab.FirmwareUEFI }))
	wantErr(t, b.Apply(ctx, "master-0"), "it has 1 snapshot(s)", "bootlab vm snapshot delete master-0")
	all, err := b.Snapshots(ctx, "master-0")
	check(t, err)
	if len(all) != 1 {
		t.Errorf("snapshots %+v, want one", all)
	}
	check(t, b.DeleteSnapshot(ctx, "master-0", "clean"))
	check(t, b.Apply(ctx, "master-0"))
	wantPlan(t, b, virt.ConditionOK)
}
