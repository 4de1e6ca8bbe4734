package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/qemu"
)

// TestImageIsAwaited: iPXE requests an image that is not downloaded yet. The answer 503 with Retry-After makes the same script retry until
// the image exists.
func TestImageIsAwaited(t *testing.T) {
	t.Parallel()
	for _, fw := range []qemu.Firmware{qemu.BIOS, qemu.UEFIPXE} { // iPXE of 2019, and ours
		t.Run(string(fw), func(t *testing.T) {
			t.Parallel()
			netns.Need(t, qemu.Needs()...)
			file := strings.Replace(fastLab, "profiles:", "images:\n  public/late: {url: \"http://10.77.0.1:1/late\", sha256: "+strings.Repeat("0", 64)+"}\nprofiles:", 1)
			r := newRig(t, file, map[string]string{
				"ipxe/stay.ipxe": "#!ipxe\nimgfetch {{.FilesURL}}/public/late && echo LATE is there || echo LATE was given up\nsleep 600\n",
			})
			m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: fw})
			r.wantKinds(t, "node", event.FileMissing)
			put(t, filepath.Join(r.dir, "files/public/late"), []byte("late"))
			line := m.Await(t, patience, "LATE ")
			t.Logf("%.1f s: %s, after %d refusals", line.At.Seconds(), line.Text, r.count(t, "node", event.FileMissing))
			if n := m.Said("LATE was given up"); n > 0 {
				t.Error("iPXE gave up")
			}
		})
	}
}
