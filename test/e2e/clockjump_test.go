package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/guest"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestClockJump runs TestClockJump of test/interop in an emulated machine, which has a system clock to set: the daemon, and udhcpc as its
// clients.
func TestClockJump(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "qemu-system-x86_64", "busybox", "ip", "bridge", "curl", "udhcpc", "dpkg-deb")
	dir := t.TempDir()
	interop, daemon := filepath.Join(dir, "interop"), filepath.Join(dir, "bootlab")
	compile(t, "test", "-c", "-o", interop, "github.com/bootlab/bootlab/test/interop")
	compile(t, "build", "-o", daemon, "github.com/bootlab/bootlab/cmd/bootlab")
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	out, err := guest.Run(ctx, guest.CacheDir(), guest.Job{
		Modules:  strings.Fields("veth bridge dummy af_packet"),
		Programs: []string{interop, daemon, "ip", "bridge", "curl", "udhcpc", "sh"},
		Files:    map[string][]byte{"/etc/passwd": []byte("root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"), "/etc/group": []byte("root:x:0:\nnogroup:x:65534:\n")},
		Script:   "export BOOTLAB_REQUIRE=all BOOTLAB_SETS_CLOCK=1 BOOTLAB_INTEROP_BINARY=" + daemon + "\n" + interop + " -test.v -test.run '^TestClockJump$'",
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out, "--- PASS: TestClockJump") {
		t.Errorf("the test did not run:\n%s", out)
	}
	t.Log(out)
}
