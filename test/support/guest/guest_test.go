package guest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/google/go-cmp/cmp"
)

// TestArchive unpacks an archive with busybox' cpio.
func TestArchive(t *testing.T) {
	t.Parallel()
	netns.Need(t, "busybox")
	var buf bytes.Buffer
	a := archive{w: &buf}
	a.add("bin", 0o040755, nil)
	a.add("bin/odd", 0o100755, []byte("five!"))
	a.add("four", 0o100644, []byte("four"))
	a.add("TRAILER!!!", 0, nil)
	if a.err != nil {
		t.Fatal(a.err)
	}
	dir := t.TempDir()
	cmd := exec.Command("busybox", "cpio", "-i")
	cmd.Dir, cmd.Stdin = dir, &buf
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cpio -i: %v\n%s", err, out)
	}
	got := map[string]string{}
	for _, name := range []string{"bin/odd", "four"} {
		body, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got[name] = string(body)
	}
	if diff := cmp.Diff(map[string]string{"bin/odd": "five!", "four": "four"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestBuild builds the guest and checks what firmware reads of its disk.
func TestBuild(t *testing.T) {
	netns.Need(t, Programs()...)
	ctx := context.Background()
	files, err := Build(ctx, CacheDir())
	if err != nil {
		t.Fatal(err)
	}
	again, err := Build(ctx, CacheDir())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files, again); diff != "" {
		t.Errorf("a second build: (-first +second)\n%s", diff)
	}
	if info, err := os.Stat(files.Initrd); err != nil || info.Size() > 15<<20 {
		t.Errorf("initrd: %v, %v: too big to travel in emulation", info.Size(), err)
	}
	disk, err := os.ReadFile(files.Disk)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]byte{0x55, 0xaa}, disk[510:512]); diff != "" {
		t.Errorf("signature of the boot record: (-want +got)\n%s", diff)
	}
	for _, name := range []string{"vmlinuz", "initrd.img", "EFI/BOOT/BOOTX64.EFI", "loader/entries/linux.conf", "ldlinux.sys"} {
		if out, err := exec.Command("mtype", "-i", files.Disk+"@@1M", "::"+name).Output(); err != nil || len(out) == 0 {
			t.Errorf("disk holds no %s: %v", name, err)
		}
	}
}
