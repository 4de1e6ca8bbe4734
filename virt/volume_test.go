//go:build cgo && libvirt_dlopen

package virt_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/guest"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

// diskInfo is what qemu-img says of a disk.
type diskInfo struct {
	Format string `json:"format"`
	Size   uint64 `json:"virtual-size"`
}

func qemuImgInfo(t *testing.T, file string) (info diskInfo) {
	t.Helper()
	check(t, json.Unmarshal([]byte(netns.Run(t, "qemu-img", "info", "-U", "--output=json", file)), &info))
	return info
}

// TestDisks takes a machine with disks in two pools, of both formats, and with a volume that is not ours, through growth, off and
// running, through what is refused, and through its deletion.
func TestDisks(t *testing.T) {
	d, on := startLibvirtd(t)
	seg := netns.NewSegment(t, "10.131.0.1/24")
	ctx := t.Context()
	virsh := func(args ...string) string {
		t.Helper()
		return netns.Run(t, "virsh", append([]string{"-c", d.URI}, args...)...)
	}
	fast := filepath.Join(filepath.Dir(d.Images), "fast")
	check(t, os.Mkdir(fast, 0o755))
	virsh("pool-create-as", "fast", "dir", "--target", fast)
	with := func(disks ...lab.Disk) *lab.Lab {
		return oneHost(on, func(h *lab.Host) {
			h.VM.Hypervisor.Bridges[0].Bridge = seg.Bridge
			h.VM.Disks = disks
		})
	}
	own, raw := lab.Disk{Size: gib}, lab.Disk{Size: gib, Pool: "fast", Format: lab.DiskRaw}
	data := lab.Disk{Volume: "data", Pool: "fast", Format: lab.DiskRaw}
	ownFile, rawFile, dataFile := filepath.Join(d.Images, "master-0-vda.qcow2"), filepath.Join(fast, "master-0-vdb.raw"), filepath.Join(fast, "data")
	b := newTestServer(t, with(own, raw, data), nil, virt.Config{})
	serve(t, b)

	wantPlan(t, b, virt.ConditionMissing, "disk vdc: pool fast has no volume data: create it (virsh vol-create-as fast data 20GiB --format raw)")
	wantErr(t, b.Create(ctx, "master-0"), "pool fast has no volume data")
	virsh("vol-create-as", "fast", "data", "1MiB", "--format", "qcow2")
	wantErr(t, b.Create(ctx, "master-0"), "volume data in pool fast has format qcow2, lab file: raw: write format: qcow2")
	if left, err := filepath.Glob(d.Images + "/*"); err != nil || len(left) > 0 {
		t.Fatalf("left by a create that was refused: %v, %v", left, err)
	}
	virsh("vol-delete", "--pool", "fast", "data")
	virsh("vol-create-as", "fast", "data", "1MiB", "--format", "raw")
	check(t, b.Create(ctx, "master-0"))
	wantPlan(t, b, virt.ConditionOK)
	if a, r := qemuImgInfo(t, ownFile), qemuImgInfo(t, rawFile); a != (diskInfo{"qcow2", uint64(gib)}) || r != (diskInfo{"raw", uint64(gib)}) {
		t.Errorf("disks %+v and %+v", a, r)
	}

	// Off, then running.
	own.Size, raw.Size = 2*gib, 3*gib
	b.use(t, with(own, raw, data))
	wantPlan(t, b, virt.ConditionChanged, "disk vda: 1GiB, lab file: 2GiB: apply makes it larger", "disk vdb: 1GiB, lab file: 3GiB")
	check(t, b.Apply(ctx, "master-0"))
	wantPlan(t, b, virt.ConditionOK)
	check(t, b.Start(ctx, "master-0"))
	own.Size = 4 * gib
	b.use(t, with(own, raw, data))
	wantPlan(t, b, virt.ConditionChanged, "disk vda: 2GiB, lab file: 4GiB")
	check(t, b.Apply(ctx, "master-0"))
	wantPlan(t, b, virt.ConditionOK)
	if a, r := qemuImgInfo(t, ownFile), qemuImgInfo(t, rawFile); a.Size != uint64(4*gib) || r.Size != uint64(3*gib) {
		t.Errorf("grown disks %+v and %+v", a, r)
	}
	if info := virsh("domblkinfo", "master-0", "vda"); !strings.Contains(info, "4294967296") {
		t.Errorf("the running machine sees %s", info)
	}

	// What is refused changes nothing.
	small, moved := own, raw
	small.Size, moved.Pool = gib, libvirtd.Pool
	b.use(t, with(small, moved, data))
	wantPlan(t, b, virt.ConditionChanged, "disk vda: 4GiB, lab file: 1GiB: a disk is never made smaller", "write size: 4GiB")
	wantErr(t, b.Apply(ctx, "master-0"), "a disk is never made smaller", "disk vdb is volume master-0-vdb.raw in pool fast, lab file: master-0-vdb.raw in pool default")
	if _, err := os.Stat(filepath.Join(d.Images, "master-0-vdb.raw")); err == nil {
		t.Error("a disk was created for one that was to be moved")
	}
	b.use(t, with(own, raw, data))
	wantPlan(t, b, virt.ConditionOK)

	check(t, b.Delete(ctx, "master-0", virt.KeepDisks))
	wantPlan(t, b, virt.ConditionMissing)
	check(t, b.Create(ctx, "master-0"))
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
	for _, file := range []string{ownFile, rawFile} {
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s was not deleted", file)
		}
	}
	if left, err := filepath.Glob(fast + "/*"); err != nil || len(left) != 1 || left[0] != dataFile {
		t.Errorf("left in pool fast: %v (%v), want only the volume that is not ours", left, err)
	}
}

// TestSeedOfCloudInit creates a machine from an image, whose documents are on a CD that goes with it.
func TestSeedOfCloudInit(t *testing.T) {
	d, on := startLibvirtd(t)
	netns.Need(t, "blkid", "isoinfo")
	seg := netns.NewSegment(t, "10.132.0.1/24")
	ctx := t.Context()
	const userData = "#cloud-config\npassword: secret"
	files := fstest.MapFS{"images/base.qcow2": {Data: guest.Talker("hello\r\n")}}
	l := oneHost(on, fromImage, func(h *lab.Host) {
		h.Profile.OS = lab.OSCloudInit
		h.VM.Hypervisor.Bridges[0].Bridge = seg.Bridge
	})
	b := newTestServerOf(t, &images{file: files, config: userData}, l, virt.Config{}, virt.Deps{})
	serve(t, b)
	check(t, b.Apply(ctx, "master-0"))
	wantState(t, b, virt.StateRunning)
	wantPlan(t, b, virt.ConditionOK)
	seed := filepath.Join(d.Images, "master-0-seed.iso")
	if info, err := os.Stat(seed); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the seed: %v, %v; want mode 0600", info, err)
	}
	if label := netns.Run(t, "blkid", "-p", "-s", "LABEL", "-o", "value", seed); strings.TrimSpace(label) != "cidata" {
		t.Errorf("label %q", label)
	}
	if got := netns.Run(t, "isoinfo", "-i", seed, "-J", "-x", "/user-data;1"); strings.TrimSpace(got) != userData {
		t.Errorf("user-data %q", got)
	}
	if drives := netns.Run(t, "virsh", "-c", d.URI, "domblklist", "master-0", "--details"); !strings.Contains(drives, seed) || !strings.Contains(drives, "cdrom") {
		t.Errorf("drives %s", drives)
	}
	check(t, b.SetBoot(ctx, "master-0", virt.BootCD, virt.NextStart))
	wantErr(t, b.Restart(ctx, "master-0"), "it is to boot from its cd, and has none: insert a medium")
	check(t, b.Delete(ctx, "master-0", virt.KeepDisks))
	if _, err := os.Stat(seed); err == nil {
		t.Error("the seed, which has a secret, was kept with the disks")
	}
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
}

// TestBlockVolume gives a machine a volume that is a block device: a partition of a loop device. Logical volumes differ in their pool only.
func TestBlockVolume(t *testing.T) {
	netns.Need(t, "losetup", "parted", "cmp")
	d, on := startLibvirtd(t)
	seg := netns.NewSegment(t, "10.135.0.1/24")
	virsh := func(args ...string) string {
		t.Helper()
		return netns.Run(t, "virsh", append([]string{"-c", d.URI}, args...)...)
	}
	disk := filepath.Join(t.TempDir(), "disk")
	check(t, os.WriteFile(disk, nil, 0o600))
	check(t, os.Truncate(disk, 64<<20))
	device := strings.TrimSpace(netns.Run(t, "losetup", "-fP", "--show", disk))
	t.Cleanup(func() { netns.Run(t, "losetup", "-d", device) })
	netns.Run(t, "parted", "-s", device, "mklabel", "gpt", "mkpart", "data", "1MiB", "20MiB")
	partition := device + "p1"
	netns.WaitFor(t, "the partition", func() bool { _, err := os.Stat(partition); return err == nil })
	virsh("pool-create-as", "blocks", "disk", "--source-dev", device, "--source-format", "gpt", "--target", "/dev")
	content := filepath.Join(t.TempDir(), "content")
	check(t, os.WriteFile(content, []byte(strings.Repeat("block", 1000)), 0o600))
	netns.Run(t, "dd", "if="+content, "of="+partition, "conv=notrunc")

	volume := lab.Disk{Volume: filepath.Base(partition), Pool: "blocks"}
	with := func() *lab.Lab {
		return oneHost(on, func(h *lab.Host) {
			h.VM.Hypervisor.Bridges[0].Bridge = seg.Bridge
			h.VM.Disks = []lab.Disk{{Size: gib}, volume}
		})
	}
	b := newTestServer(t, with(), nil, virt.Config{})
	serve(t, b)
	wantErr(t, b.Create(t.Context(), "master-0"), "has format raw, lab file: qcow2: write format: raw")
	volume.Format = lab.DiskRaw
	b.use(t, with())
	check(t, b.Create(t.Context(), "master-0"))
	wantPlan(t, b, virt.ConditionOK)
	check(t, b.Start(t.Context(), "master-0"))
	if list := virsh("domblklist", "--details", "master-0"); !strings.Contains(list, "block") || !strings.Contains(list, partition) {
		t.Errorf("disks\n%s", list)
	}
	check(t, b.Delete(t.Context(), "master-0", virt.DeleteDisks))
	netns.Run(t, "cmp", "-n", "5000", content, partition)
}
