package virt_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/virt"
)

// orders returns the boot order of a definition, as "1 network, 2 vda".
func orders(d *libvirtxml.Domain) map[string]uint {
	all := map[string]uint{}
	for _, nic := range d.Devices.Interfaces {
		if nic.Boot != nil {
			all["nic"] = nic.Boot.Order
		}
	}
	for _, disk := range d.Devices.Disks {
		if disk.Boot != nil {
			all[disk.Device+" "+disk.Target.Dev] = disk.Boot.Order
		}
	}
	return all
}

// TestABootDeviceOfOneBoot: the next start has another boot order, and the reboots of its system, and later starts, have the lab
// file's again. It outlives a restart of the daemon.
func TestABootDeviceOfOneBoot(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f, store := newFake(), &memory[virt.NextBoot]{byHost: map[string]virt.NextBoot{}}
	b := newTestServerWith(t, oneHost(), virt.Config{}, virt.Deps{Driver: f, NextBoots: store})
	check(t, b.Create(ctx, "master-0"))
	check(t, b.SetBoot(ctx, "master-0", virt.BootDisk, virt.NextStart))
	f.takeCalls()

	b = newTestServerWith(t, oneHost(), virt.Config{}, virt.Deps{Driver: f, NextBoots: store})
	check(t, b.Start(ctx, "master-0"))
	wantCalls(t, f, "start-with master-0", "boot-order master-0 map[52:54:00:00:02:01:1 vda:2]")
	if diff := cmp.Diff(map[string]uint{"disk vda": 1, "nic": 2}, orders(f.started[0])); diff != "" {
		t.Errorf("boot order of that start (-want +got)\n%s", diff)
	}
	check(t, b.Restart(ctx, "master-0"))
	wantCalls(t, f, "destroy master-0", "start master-0")

	check(t, b.SetBoot(ctx, "master-0", virt.BootDisk, virt.EachStart))
	for range 2 {
		check(t, b.Restart(ctx, "master-0"))
		wantCalls(t, f, "destroy master-0", "start-with master-0")
	}
	check(t, b.SetBoot(ctx, "master-0", virt.BootDefault, virt.NextStart))
	check(t, b.Restart(ctx, "master-0"))
	wantCalls(t, f, "destroy master-0", "start master-0")
	check(t, b.SetBoot(ctx, "master-0", virt.BootCD, virt.NextStart))
	wantErr(t, b.Restart(ctx, "master-0"), "boot from its cd, and has none: insert a medium")
}

// TestNextBootKeepsUnknownElements: a start with another boot order has all that vm.xml added, also what libvirtxml does not know.
func TestNextBootKeepsUnknownElements(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newFake()
	b := newTestServer(t, oneHost(withXML(
		lab.XMLChange{At: "devices", Add: "<future kind='device'/>"},
		lab.XMLChange{At: "devices/disk[1]", Add: "<future kind='disk'/>"},
		lab.XMLChange{At: ".", Add: "<x:extra xmlns:x='urn:x'><x:arg value='1'/></x:extra>"},
	)), f, virt.Config{})
	check(t, b.Create(ctx, "master-0"))
	check(t, b.InsertMedia(ctx, "master-0", "http://x/a.iso", strings.NewReader("iso"), 3))
	check(t, b.SetBoot(ctx, "master-0", virt.BootCD, virt.NextStart))
	check(t, b.Start(ctx, "master-0"))
	for _, part := range []string{`<future kind="device"/>`, `<future kind="disk"/>`, `<x:arg value="1"/>`, "master-0-cd.iso"} {
		if text := f.startedXML[0]; strings.Count(text, part) != 1 {
			t.Errorf("want one %s in\n%s", part, text)
		}
	}
	if diff := cmp.Diff(map[string]uint{"cdrom sda": 1, "nic": 2, "disk vda": 3}, orders(f.started[0])); diff != "" {
		t.Errorf("boot order of that start (-want +got)\n%s", diff)
	}
}

// TestAVirtualMedium: it is in the CD drive of the next start, and is deleted with its machine.
func TestAVirtualMedium(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f, store := newFake(), &memory[virt.NextBoot]{byHost: map[string]virt.NextBoot{}}
	b := newTestServerWith(t, oneHost(), virt.Config{}, virt.Deps{Driver: f, NextBoots: store})
	wantErr(t, b.InsertMedia(ctx, "master-0", "http://x/a.iso", strings.NewReader("iso"), 3), "create it first")
	check(t, b.Create(ctx, "master-0"))
	b.events.take()
	check(t, b.InsertMedia(ctx, "master-0", "http://x/a.iso", strings.NewReader("iso"), 3))
	check(t, b.SetBoot(ctx, "master-0", virt.BootCD, virt.NextStart))
	f.takeCalls()
	check(t, b.Start(ctx, "master-0"))
	wantCalls(t, f, "start-with master-0", "boot-order master-0 map[52:54:00:00:02:01:1 sda:0 vda:2]")
	if diff := cmp.Diff(map[string]uint{"cdrom sda": 1, "nic": 2, "disk vda": 3}, orders(f.started[0])); diff != "" {
		t.Errorf("boot order of that start (-want +got)\n%s", diff)
	}
	check(t, b.InsertMedia(ctx, "master-0", "http://x/b.iso", strings.NewReader("other"), 5))
	wantCalls(t, f, "delete-volume master-0-cd.iso", "upload master-0-cd.iso")
	if got := b.NextBoot("master-0").Media; got.URL != "http://x/b.iso" || got.Bytes != 5 {
		t.Errorf("medium %+v", got)
	}
	check(t, b.EjectMedia(ctx, "master-0"))
	check(t, b.EjectMedia(ctx, "master-0"))
	wantCalls(t, f, "delete-volume master-0-cd.iso")
	b.wantEvents(t, event.VMMediaInserted, event.VMStarted, event.VMMediaInserted, event.VMMediaEjected)

	check(t, b.InsertMedia(ctx, "master-0", "http://x/a.iso", strings.NewReader("iso"), 3))
	check(t, b.Delete(ctx, "master-0", virt.KeepDisks))
	if f.volumes["master-0-cd.iso"] || len(store.byHost) != 0 {
		t.Errorf("left after the machine was deleted: volumes %v, next boots %v", f.volumes, store.byHost)
	}
	// A volume of that name without a mark is somebody else's.
	check(t, b.Create(ctx, "master-0"))
	f.volumes["master-0-cd.iso"] = true
	wantErr(t, b.InsertMedia(ctx, "master-0", "http://x/a.iso", strings.NewReader("iso"), 3), "was not created by bootlab")
}
