package virt_test

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/virt"
)

// TestVolumesOfOthersStay has a volume of somebody else under each name that bootlab gives: it is neither adopted, nor
// replaced, nor deleted.
func TestVolumesOfOthersStay(t *testing.T) {
	t.Parallel()
	second := func(h *lab.Host) { h.VM.Disks = append(h.VM.Disks, lab.Disk{Size: gib}) }
	t.Run("second disk of a machine that exists", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		b := newTestServer(t, oneHost(), f, virt.Config{})
		check(t, b.Create(t.Context(), "master-0"))
		f.volumes["master-0-vdb.qcow2"] = true
		f.takeCalls()
		b.use(t, oneHost(second))
		wantErr(t, b.Create(t.Context(), "master-0"), "volume master-0-vdb.qcow2 exists in pool default and was not created by bootlab for host master-0")
		wantCalls(t, f)
	})
	t.Run("config document", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		f.volumes["master-0.ign"] = true
		i := &images{file: fstest.MapFS{"images/base.qcow2": {Data: qcow2(1 << 30)}}, config: ignition}
		b := newTestServerOf(t, i, oneHost(fromImage), virt.Config{}, virt.Deps{Driver: f})
		wantErr(t, b.Create(t.Context(), "master-0"), "volume master-0.ign exists in pool default and was not created by bootlab")
		wantCalls(t, f, "upload "+baseVolume)
	})
	t.Run("image of another length", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		f.volumes[baseVolume], f.lengths[baseVolume] = true, 7
		i := &images{file: fstest.MapFS{"images/base.qcow2": {Data: qcow2(1 << 30)}}, config: ignition}
		b := newTestServerOf(t, i, oneHost(fromImage), virt.Config{}, virt.Deps{Driver: f})
		wantErr(t, b.Create(t.Context(), "master-0"), "volume "+baseVolume+" exists in pool default and was not created by bootlab")
		wantCalls(t, f)
	})
	t.Run("disk attached by hand under a name of ours", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		b := newTestServer(t, oneHost(), f, virt.Config{})
		check(t, b.Create(t.Context(), "master-0"))
		for _, d := range f.domains {
			d.xml = strings.Replace(d.xml, "<interface", `<disk type="file"><source file="/pool/master-0-vdb.qcow2"/><target dev="vdb"/></disk><interface`, 1)
		}
		f.volumes["master-0-vdb.qcow2"] = true
		f.takeCalls()
		check(t, b.Delete(t.Context(), "master-0", virt.DeleteDisks))
		wantCalls(t, f, "undefine master-0", "delete-volume "+volume)
		if len(f.volumes) != 1 {
			t.Errorf("volumes left: %v, want the foreign one only", f.volumes)
		}
	})
}

// TestDeleteKeepsTheDisks deletes a machine without its disks, creates it again over them, and deletes both.
func TestDeleteKeepsTheDisks(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newFake()
	b := newTestServer(t, oneHost(), f, virt.Config{})
	check(t, b.Create(ctx, "master-0"))
	check(t, b.Delete(ctx, "master-0", virt.KeepDisks))
	wantCalls(t, f, "create-volume "+volume, "define master-0", "undefine master-0")
	check(t, b.Create(ctx, "master-0"))
	wantCalls(t, f, "define master-0")
	check(t, b.Delete(ctx, "master-0", virt.KeepDisks))
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks)) // what is left of it
	wantCalls(t, f, "undefine master-0", "delete-volume "+volume)
	if len(f.volumes) > 0 {
		t.Errorf("volumes left: %v", f.volumes)
	}
	if err := b.Delete(ctx, "master-0", virt.DeleteDisks); !errors.Is(err, virt.ErrAbsent) {
		t.Errorf("nothing to delete: %v, want ErrAbsent", err)
	}
}

// TestStopWaitsAndForces stops a machine that ignores the request: off by force after the time asked for, and no failure.
func TestStopWaitsAndForces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.ignore = true
		b := newTestServer(t, oneHost(), f, virt.Config{})
		check(t, b.Create(t.Context(), "master-0"))
		check(t, b.Start(t.Context(), "master-0"))
		f.takeCalls()
		b.events.take()
		before := time.Now()
		check(t, b.Stop(t.Context(), "master-0", virt.StopThenForce, 10*time.Minute))
		if waited := time.Since(before); waited != 10*time.Minute {
			t.Errorf("waited %s, want 10m", waited)
		}
		wantCalls(t, f, "shutdown master-0", "destroy master-0")
		b.wantEvents(t, event.VMStopped)
	})
}

// TestDeleteKeptDisksWithoutAPoolOfDocuments: a machine without documents needs no pool for them.
func TestDeleteKeptDisksWithoutAPoolOfDocuments(t *testing.T) {
	t.Parallel()
	ctx, f := t.Context(), newFake()
	b := newTestServer(t, oneHost(func(h *lab.Host) { h.VM.Hypervisor.Pool, h.VM.Disks[0].Pool = "none", "default" }), f, virt.Config{})
	check(t, b.Create(ctx, "master-0"))
	check(t, b.Delete(ctx, "master-0", virt.KeepDisks))
	f.takeCalls()
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
	wantCalls(t, f, "delete-volume "+volume)
	wantErr(t, b.Delete(ctx, "master-0", virt.DeleteDisks), "nothing to delete")
}
