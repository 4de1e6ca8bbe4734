package virt_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/bootlab/bootlab/internal/lab"
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
		b := newTestServerWith(t, oneHost(fromImage), virt.Config{}, virt.Deps{Driver: f, Images: i})
		wantErr(t, b.Create(t.Context(), "master-0"), "volume master-0.ign exists in pool default and was not created by bootlab")
		wantCalls(t, f, "upload "+baseVolume)
	})
	t.Run("image of another length", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		f.volumes[baseVolume], f.lengths[baseVolume] = true, 7
		i := &images{file: fstest.MapFS{"images/base.qcow2": {Data: qcow2(1 << 30)}}, config: ignition}
		b := newTestServerWith(t, oneHost(fromImage), virt.Config{}, virt.Deps{Driver: f, Images: i})
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
		check(t, b.Delete(t.Context(), "master-0"))
		wantCalls(t, f, "undefine master-0", "delete-volume "+volume)
		if len(f.volumes) != 1 {
			t.Errorf("volumes left: %v, want the foreign one only", f.volumes)
		}
	})
}
