package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/guest"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestVLAN runs the tests TestVLAN of other packages under Debian's kernel, because the kernel of this machine may have no 802.1Q: a server
// on a VLAN and on the interface below it, and the daemon with a tagged and an untagged network.
func TestVLAN(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "qemu-system-x86_64", "busybox", "ip", "bridge", "curl", "udhcpc", "arping", "dpkg-deb")
	dir := t.TempDir()
	segment, interop, daemon := filepath.Join(dir, "segment"), filepath.Join(dir, "interop"), filepath.Join(dir, "bootlab")
	compile(t, "test", "-c", "-o", segment, "github.com/bootlab/bootlab/dhcpd/segment")
	compile(t, "test", "-c", "-o", interop, "github.com/bootlab/bootlab/test/interop")
	compile(t, "build", "-o", daemon, "github.com/bootlab/bootlab/cmd/bootlab")
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	out, err := guest.Run(ctx, guest.CacheDir(), guest.Job{
		Modules:  strings.Fields("8021q veth bridge dummy af_packet"),
		Programs: []string{segment, interop, daemon, "ip", "bridge", "curl", "udhcpc", "arping", "sh"},
		Files:    map[string][]byte{"/etc/passwd": []byte("root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"), "/etc/group": []byte("root:x:0:\nnogroup:x:65534:\n")},
		Script: "export BOOTLAB_REQUIRE=all BOOTLAB_INTEROP_BINARY=" + daemon + "\n" +
			segment + " -test.v -test.run '^TestVLAN$' && " + interop + " -test.v -test.run '^TestVLAN$'",
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(out, "--- PASS: TestVLAN"); n != 2 || strings.Contains(out, "--- SKIP") {
		t.Errorf("%d tests passed, want 2:\n%s", n, out)
	}
	t.Log(out)
}

// compile builds a program for the emulated machine, without the race detector, which is too slow there.
func compile(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{args[0], "-tags=libvirt_dlopen", "-buildvcs=false"}, args[1:]...)
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
