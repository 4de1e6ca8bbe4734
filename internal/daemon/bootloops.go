package daemon

import (
	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// received reports to the boot-loop detector which machines have received a boot program, from their own address.
type received struct{ loops *bootloop.Detector }

// Record implements event.Recorder. Any file by TFTP will do: a forged request is not followed by the acknowledgement of every block.
func (r received) Record(e event.Event) {
	if (e.Kind == event.TFTPServed || e.Kind == event.FirmwareServed) && !e.Claimed && !e.MAC.IsZero() {
		r.loops.ProgramReceived(e.MAC)
	}
}
