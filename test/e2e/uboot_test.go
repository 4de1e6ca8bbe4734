package e2e

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/qemu"
)

// ubootMAC is what U-Boot for QEMU has in its environment; it does not ask the card.
const ubootMAC = "52:52:52:52:52:52"

// TestUBoot boots a machine whose firmware is U-Boot, as boards with an Arm have it. It asks twice: as itself, for a script that there
// is none of, and as a UEFI that boots by PXE, which gets iPXE. What it can do without, a device tree, is no news.
func TestUBoot(t *testing.T) {
	t.Parallel()
	netns.Need(t, append(qemu.Needs(), "qemu-system-aarch64", qemu.UBoot)...)
	r := newRig(t, strings.Replace(fastLab, nodeMAC, ubootMAC, 1),
		map[string]string{"ipxe/stay.ipxe": "#!ipxe\necho SCRIPT of {{.Host.Name}} on ${buildarch} by ${platform}\nsleep 600\n"})
	m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: ubootMAC, Firmware: qemu.UBootARM64})
	line := m.Await(t, patience, "SCRIPT of node")
	t.Logf("script after %.1f s", line.At.Seconds())
	if !strings.Contains(line.Text, "on arm64 by efi") {
		t.Errorf("its script runs elsewhere: %s", line.Text)
	}
	r.wantKinds(t, "node", event.DHCPAck, event.DHCPAck, event.TFTPServed, event.ScriptServed)
	if n := r.count(t, "node", event.TFTPRefused); n > 0 {
		t.Errorf("%d files are told as refused that it can do without", n)
	}
}
