package machine

import (
	"fmt"
	"time"

	"github.com/bootlab/bootlab/internal/observe/event"
)

// How long a machine may send nothing before it counts as stopped. Firmware repeats its requests for about a minute; a server tests its memory
// before it asks for anything. A kernel starts, loads drivers and waits for its network and for a link that a switch blocks. An installer
// writes a disk. A system fetches what it runs and joins its cluster before it passes a check.
const (
	FirmwarePatience = time.Minute
	KernelPatience   = 5 * time.Minute
	PowerPatience    = 10 * time.Minute
	SystemPatience   = 30 * time.Minute
	InstallPatience  = time.Hour
)

// Patience returns how long a machine may send nothing after what showed it to be at a stage. The document says whether its profile has a
// config document, which its system asks for.
func Patience(at event.Stage, document bool) time.Duration {
	switch at {
	case event.StageMachine, event.StageAddress, event.StageFirmware:
		return FirmwarePatience
	case event.StageScript, event.StageFiles:
		return KernelPatience
	case event.StageSystem:
		if document {
			return KernelPatience
		}
	}
	return InstallPatience
}

// Starts reports whether a check that fails since a time says nothing yet of a system that was started: it failed while another system was
// there, or none.
func Starts(failing, started, now time.Time) bool {
	return !failing.After(started) && now.Sub(started) < SystemPatience
}

// patienceText is a patience for people.
func patienceText(d time.Duration) string {
	if d >= time.Hour {
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d min", d/time.Minute)
}
