package e2e

import (
	"testing"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/qemu"
)

// TestScriptThatChainsToItself: a custom script that chains to itself would loop for ever, 75 times a second. The daemon stops it, and the
// machine's screen shows why.
func TestScriptThatChainsToItself(t *testing.T) {
	t.Parallel()
	const script = "#!ipxe\nchain --replace http://" + appliance + ":8080/boot/52-54-00-77-00-21/boot.ipxe\n"
	r := newRig(t, fastLab, map[string]string{"ipxe/stay.ipxe": script})
	m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: qemu.BIOS, MemoryMiB: 256})
	m.Await(t, patience, "bootlab: node requested its script 20 times")
	r.wantKinds(t, "node", event.ScriptServed, event.ScriptLoop)
	if n := r.count(t, "node", event.ScriptLoop); n != 1 {
		t.Errorf("reported %d times", n)
	}
}
