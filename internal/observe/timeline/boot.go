package timeline

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// The outcomes of a boot.
const (
	Booting = "booting" // under way, or given up without a word
	Done    = "done"    // installed, sent to its disk, running, or serving
	Failed  = "failed"  // the last that was heard of it is an error
)

// A Boot is one boot of one machine, as it happened. It converts to api.Boot.
type Boot struct {
	Host    string
	MAC     lab.MAC
	Started time.Time
	Ended   time.Time   // of the last event
	Stage   event.Stage // the furthest it came
	Outcome string      // Booting, Done or Failed
	Reason  string      // why it failed
	Events  []event.Event
}

// A Summary says in a few words how a machine stands.
type Summary struct {
	Key     string      // the host's name, or the MAC of a stranger
	Started time.Time   // of its last boot
	Stage   event.Stage // the furthest that boot came
	Outcome string
	Reason  string
	Last    event.Event
}

// A sketch is what is known of a boot without its events: enough to show it in a list, and to tell which events belong
// to it. It stands in the store as JSON.
type sketch struct {
	Started time.Time   `json:"started"`
	Last    time.Time   `json:"last"` // zero: all was somebody else's doing
	Stage   event.Stage `json:"stage,omitempty"`
	Outcome string      `json:"outcome"`
	Reason  string      `json:"reason,omitempty"`
	Events  int         `json:"events"`
	MAC     lab.MAC     `json:"mac,omitzero"`

	Asked      bool `json:"asked,omitempty"`      // for an address
	Fetched    bool `json:"fetched,omitempty"`    // a program, a script, a file or a document
	Scripted   bool `json:"scripted,omitempty"`   // it has its script …
	Loaded     bool `json:"loaded,omitempty"`     // … and a file or a document since
	Installing bool `json:"installing,omitempty"` // an installer runs: an address is no sign that it is done
	Installed  bool `json:"installed,omitempty"`  // the installer is done, or somebody said so before the machine asked
}

// How long a machine is silent before its next question starts a new boot.
const (
	firmwarePause = time.Minute
	systemPause   = 10 * time.Minute
)

// starts reports whether e is the first of a new boot, after s.
func (s *sketch) starts(e event.Event) bool {
	switch e.Kind {
	case event.VMStarted, event.InstallArmed, event.PowerCycled:
		return s.Asked || s.Fetched
	case event.DHCPDiscover:
		return s.startsByAsking(e)
	case event.ScriptServed, event.ScriptRefused:
		return s.Loaded || s.Installed
	}
	return false
}

func (s *sketch) startsByAsking(e event.Event) bool {
	silent := e.At.Sub(s.Last)
	switch e.Client {
	case event.ClientPXE, event.ClientHTTP:
		return s.Fetched || s.Installed || s.Asked && silent > firmwarePause
	case event.ClientIPXE:
		return s.Scripted || s.Installed || s.Asked && silent > firmwarePause
	}
	return s.Installed || s.Asked && silent > systemPause
}

// maxAddrs bounds how many addresses are remembered of a machine: one a NIC, and those of a moment ago.
const maxAddrs = 8

// hold takes an address in that the machine was given.
func (h *head) hold(a netip.Addr) {
	if !a.IsValid() || slices.Contains(h.Addrs, a) {
		return
	}
	if len(h.Addrs) == maxAddrs {
		h.Addrs = slices.Delete(h.Addrs, 0, 1)
	}
	h.Addrs = append(h.Addrs, a)
}

// own reports whether e can be the machine's own doing. What is only claimed may come from another of its cards, or by IPv6,
// whose addresses are not given by us; else somebody asked in its name.
func (h *head) own(e event.Event) bool {
	return !e.Claimed || !e.Addr.Is4() || slices.Contains(h.Addrs, e.Addr)
}

// ended returns when the machine was heard of last, or began.
func (s *sketch) ended() time.Time {
	if s.Last.IsZero() {
		return s.Started
	}
	return s.Last
}

// count takes e into s as one of its events.
func (s *sketch) count(e event.Event) {
	if s.Started.IsZero() {
		s.Started, s.Outcome = e.At, Booting
	}
	s.Events++
	if s.MAC.IsZero() {
		s.MAC = e.MAC
	}
}

// advance notes what e, which s counts already, says of how the machine stands.
func (s *sketch) advance(e event.Event) {
	s.Last = e.At
	if stage := reached(e); order(stage) > order(s.Stage) {
		s.Stage = stage
	}
	s.note(e)
	s.judge(e)
}

// note remembers what the next event will be judged by.
func (s *sketch) note(e event.Event) {
	switch e.Kind {
	case event.DHCPDiscover:
		s.Asked = true
	case event.TFTPServed, event.TFTPFailed, event.TFTPProbe, event.FirmwareServed:
		s.Fetched = true
	case event.ScriptServed:
		s.Fetched, s.Scripted, s.Loaded = true, true, false
	case event.FileServed, event.FileAborted, event.ConfigServed:
		s.Fetched, s.Loaded = true, s.Scripted
	case event.InstallBooting, event.InstallStarted:
		s.Installing = true
	case event.InstallDone, event.InstallTimeout:
		// Of a machine that asked and has loaded nothing yet this boot is the sign: the installer was that of the boot before.
		s.Installed = s.Installing || s.Loaded || !s.Asked
	}
}

// judge decides the outcome as far as e tells. What is done stays done: an error afterwards is another story. A machine that
// was refused and asks again is still refused, until it gets an answer: a refusal that repeats itself is told once.
func (s *sketch) judge(e event.Event) {
	switch {
	case s.Outcome == Done, s.Outcome == Failed && e.Kind == event.DHCPDiscover:
	case finishes(e, s):
		s.Outcome, s.Reason = Done, ""
	case failure(e):
		s.Outcome, s.Reason = Failed, reason(e)
	case order(reached(e)) > 0:
		s.Outcome, s.Reason = Booting, ""
	}
}

func finishes(e event.Event, s *sketch) bool {
	switch e.Kind {
	case event.InstallDone, event.InstallLocalBoot, event.BackendUp:
		return true
	case event.DHCPAck:
		return s.Loaded && !s.Installing && e.Client == event.ClientOS
	}
	return false
}

// failure reports whether a boot whose last event is e has failed.
func failure(e event.Event) bool {
	switch e.Kind {
	case event.TFTPFailed, event.TFTPRefused, event.ScriptRefused, event.ScriptLoop, event.FileAborted, event.FileMissing, event.ConfigRefused,
		event.DHCPRefused, event.DHCPOtherServerChosen, event.DHCPDecline, event.DHCPNak, event.DHCPLimited, event.DHCPLoop, event.InstallLoop, event.VMFailed, event.PowerCycleFailed:
		return true
	}
	return false
}

func reason(e event.Event) string {
	parts := []string{e.Kind.Help()}
	for _, part := range []string{e.Detail, e.Err} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// reached returns the stage that e shows the machine to be at. That an installation is armed or that a backend is away
// shows nothing.
func reached(e event.Event) event.Stage {
	switch e.Kind {
	case event.InstallArmed, event.BackendDown, event.BackendDrained, event.BackendReady, event.VMStopped, event.VMDeleted,
		event.PowerCycleFailed:
		return ""
	case event.InstallBooting, event.InstallLocalBoot, event.InstallLoop:
		return event.StageScript
	}
	return e.Kind.Stage()
}

// order returns the place of a stage in a boot, from 1; 0 for a stage that is none.
func order(s event.Stage) int {
	return 1 + slices.Index([]event.Stage{
		event.StageVM, event.StageAddress, event.StageFirmware, event.StageScript, event.StageFiles, event.StageConfig,
		event.StageInstall, event.StageBalancer,
	}, s)
}

// matters reports whether e is kept when a boot has more events than are kept of one.
func matters(e event.Event) bool {
	return failure(e) || e.Kind.Stage() == event.StageInstall || e.Kind == event.ScriptServed || e.Kind == event.ConfigServed
}
