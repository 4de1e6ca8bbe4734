package e2e

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/qemu"
)

// ubootMAC is the MAC in the environment of U-Boot for QEMU, which ignores the NIC's.
const ubootMAC = "52:52:52:52:52:52"

// TestUBoot boots a machine with U-Boot, as on boards with an Arm. It sends two DISCOVERs: as U-Boot, which gets no boot file, and as UEFI
// PXE, which gets iPXE. The optional device tree that it requests is not reported.
func TestUBoot(t *testing.T) {
	t.Parallel()
	netns.Need(t, append(qemu.Needs(), "qemu-system-aarch64", qemu.UBoot)...)
	r := newRig(t, strings.Replace(fastLab, nodeMAC, ubootMAC, 1),
		map[string]string{"ipxe/stay.ipxe": "#!ipxe\necho SCRIPT of {{.Host.Name}} on ${buildarch} by ${platform}\nsleep 600\n"})
	m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: ubootMAC, Firmware: qemu.UBootARM64})
	line := m.Await(t, patience, "SCRIPT of node")
	t.Logf("script after %.1f s", line.At.Seconds())
	if !strings.Contains(line.Text, "on arm64 by efi") {
		t.Errorf("not on 64-bit Arm: %s", line.Text)
	}
	r.wantKinds(t, "node", event.DHCPAck, event.DHCPAck, event.TFTPServed, event.ScriptServed)
	if n := r.count(t, "node", event.TFTPRefused); n > 0 {
		t.Errorf("%d optional files are reported as refused", n)
	}
}
