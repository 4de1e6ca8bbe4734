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
	Booting = "booting" // under way, or without an event since
	Done    = "done"    // installed, sent to its disk, running, or serving
	Failed  = "failed"  // its last event is an error
	Ended   = "ended"   // its virtual machine was deleted before it was done
	None    = "none"    // no boot: it was armed, marked or changed, or others used its name or address, and nothing was started
)

// A Boot is one boot of one machine, as it happened. It converts to api.Boot.
type Boot struct {
	Host    string
	MAC     lab.MAC
	Started time.Time
	Ended   time.Time   // when it was done, or else of the last event
	Stage   event.Stage // the furthest it reached
	Outcome string      // Booting, Done, Failed, Ended or None
	Reason  string      // why it failed
	Claimed int         // events that other machines caused: requests in this one's name, conflicts about its address; the first of them are among Events
	Events  []event.Event
}

// A Summary is the state of a machine.
type Summary struct {
	Key     string      // the host's name, or the MAC of an unknown machine
	Started time.Time   // of its last boot
	Stage   event.Stage // the furthest that boot reached
	Outcome string
	Reason  string
	Last    event.Event // about the machine, whoever caused it

	Active  time.Time   // of the last event that the machine itself caused; zero: it caused none
	At      event.Stage // where that shows it to be
	Done    time.Time   // when Outcome became Done
	Asked   bool        // it began to ask for an address: it was started, and renews no lease
	Fetched bool        // it fetched something to boot
	Served  bool        // it passed the check of a balancer, and was not armed since
	Returns bool        // it was sent to its disk several times in a row, and no system came of it
}

// A bootSummary is a boot without its events: enough to show it in a list, and to decide which events belong to it. It is stored as JSON.
type bootSummary struct {
	Started time.Time   `json:"started"`
	Last    time.Time   `json:"last"`          // zero: no event is the machine's own
	Done    time.Time   `json:"done,omitzero"` // when Outcome became Done
	Stage   event.Stage `json:"stage,omitempty"`
	Outcome string      `json:"outcome"`
	Reason  string      `json:"reason,omitempty"`
	Events  int         `json:"events"`            // but for refusals
	Refused int         `json:"refused,omitempty"` // own refusals and failures; a summary counts as one
	Others  int         `json:"others,omitempty"`  // requests of other machines; a summary counts as one
	Claimed int         `json:"claimed,omitempty"` // how many events those were
	MAC     lab.MAC     `json:"mac,omitzero"`
	Local   bool        `json:"local,omitempty"` // it was sent to its disk
	At      event.Stage `json:"at,omitempty"`    // where the last event of its own shows the machine to be

	Asked      bool `json:"asked,omitempty"`      // for an address
	Fetched    bool `json:"fetched,omitempty"`    // a program, a script, a file or a document
	Scripted   bool `json:"scripted,omitempty"`   // its script
	Loaded     bool `json:"loaded,omitempty"`     // a file or a document after its script
	Document   bool `json:"document,omitempty"`   // it was served its config document
	Loading    bool `json:"loading,omitempty"`    // its firmware or boot loader is at work, and may load by TFTP
	Installing bool `json:"installing,omitempty"` // an installer runs: an address is no sign that it is done
	Unfinished bool `json:"unfinished,omitempty"` // likewise, that the boot before has begun
	Installed  bool `json:"installed,omitempty"`  // the installer is done, or was marked so before the machine asked
	Served     bool `json:"served,omitempty"`     // it passed the check of a balancer
	System     bool `json:"system,omitempty"`     // once the machine had a system, it asked for an address as one: what firmware does next is another boot
	Another    bool `json:"another,omitempty"`    // its first event is a request of another machine
	Armed      bool `json:"armed,omitempty"`      // by an admin, and no installer has booted since
	OwnSystem  bool `json:"own_system,omitempty"` // it is done, as its system has an address, and nothing was fetched
	Created    bool `json:"created,omitempty"`    // its virtual machine
	Deleted    bool `json:"deleted,omitempty"`    // likewise: what comes is about another of that name
}

// How long a machine sends nothing before its next DISCOVER starts a new boot. What is at a prompt may load after systemPause at most.
const (
	firmwarePause = time.Minute
	systemPause   = 10 * time.Minute
)

// How many boots in a row that end at the disk, and how close to each other, show that the disk does not boot.
const (
	diskReturns       = 3
	diskReturnsWithin = 5 * time.Minute // from one to the next
)

// returns reports whether a machine comes back to the network each time it is sent to its disk.
func returns(boots []bootSummary) bool {
	if len(boots) < diskReturns {
		return false
	}
	boots = boots[len(boots)-diskReturns:]
	for i, b := range boots {
		if !b.Local || b.System || i > 0 && (b.Created || b.Done.Sub(boots[i-1].Done) > diskReturnsWithin) {
			return false
		}
	}
	return true
}

// others reports whether all events of s are requests of other machines.
func (s *bootSummary) others() bool { return s.Last.IsZero() && (s.Another || s.Outcome != None) }

// starts reports whether e is the first of a new boot, after s.
func (s *bootSummary) starts(e event.Event) bool {
	switch e.Kind {
	case event.VMCreated:
		return s.Deleted || s.Created || s.Asked || s.Fetched
	case event.VMStarted, event.InstallArmed, event.PowerCycled:
		return s.Deleted || s.Asked || s.Fetched || s.OwnSystem
	case event.DHCPDiscover:
		return s.Deleted || s.startsByDiscover(e)
	case event.ScriptServed:
		return s.Deleted || s.Loaded || s.Installed || s.System
	case event.ScriptRefused:
		return s.Deleted || (s.Loaded || s.Installed) && !s.runs()
	}
	return false
}

// runs reports whether the machine's system was started, or was there before the first event.
func (s *bootSummary) runs() bool { return s.Outcome == Done || s.Outcome == None && s.Installed }

// byProgram reports whether e is of a request that a program of a system that runs can send, such as curl or a DHCP client: it tells nothing
// of a boot.
func (s *bootSummary) byProgram(e event.Event) bool {
	switch e.Kind {
	case event.DHCPDiscover, event.DHCPOffer, event.DHCPAck:
		return s.runs() && e.Client == event.ClientOS
	case event.ConfigRefused:
		return s.runs() && !s.lacks(e)
	case event.TFTPRefused, event.TFTPFailed:
		return s.runs() && !s.OwnSystem
	case event.FileServed, event.FileAborted, event.FileMissing, event.MirrorFailed, event.ScriptRefused:
		return s.runs()
	}
	return false
}

// lacks reports whether e refuses a system that was fetched and has an address the first document of its boot, for a fault of ours: it is not
// done yet. Only its boot has the token that such a request needs.
func (s *bootSummary) lacks(e event.Event) bool {
	if e.Kind != event.ConfigRefused || !s.Scripted || s.Document || s.Installed || s.Local {
		return false
	}
	return e.Reason == event.NotRendered || e.Reason == event.NotFound || e.Reason == event.NotStored
}

func (s *bootSummary) startsByDiscover(e event.Event) bool {
	silent := e.At.Sub(s.Last)
	switch e.Client {
	case event.ClientPXE, event.ClientHTTP:
		return s.Fetched || s.Installed || s.System || s.OwnSystem || s.Asked && silent > firmwarePause
	case event.ClientIPXE:
		return s.Scripted || s.Installed || s.System || s.OwnSystem || s.Asked && silent > firmwarePause
	}
	return !s.runs() && (s.Installed || s.Asked && silent > systemPause)
}

// maxAddrs bounds the addresses that are kept of a machine: one for each NIC, and those before.
const maxAddrs = 8

// addAddr remembers an address that the machine leased.
func (h *head) addAddr(a netip.Addr) {
	if !a.IsValid() || slices.Contains(h.Addrs, a) {
		return
	}
	if len(h.Addrs) == maxAddrs {
		h.Addrs = slices.Delete(h.Addrs, 0, 1)
	}
	h.Addrs = append(h.Addrs, a)
}

// own reports whether e can be the machine's own. A claimed request may come from another of its NICs, or by IPv6, whose addresses DHCP
// does not assign; else another machine sent it, or may have forged it.
func (h *head) own(e event.Event) bool {
	return !e.Claimed || !e.Forgeable() && (!e.Addr.Is4() || slices.Contains(h.Addrs, e.Addr))
}

// ended returns when the boot was done, or else the time of the last event, or of the first.
func (s *bootSummary) ended() time.Time {
	for _, at := range []time.Time{s.Done, s.Last} {
		if !at.IsZero() {
			return at
		}
	}
	return s.Started
}

// count adds e to the events of s, each under the bound of its own sort, and reports whether e is kept. So neither another machine's
// requests nor its own failures take the place of what a machine did. The own says whether the machine itself caused e.
func (s *bootSummary) count(e event.Event, own bool, c Config) (kept bool) {
	if s.Started.IsZero() {
		s.Started, s.Outcome = e.At, Booting
		if s.Another = !own; s.Another || e.Kind.Change() || e.Kind.Mark() {
			s.Outcome = None
		}
	}
	if s.MAC.IsZero() {
		s.MAC = e.MAC
	}
	switch {
	case !own:
		s.Others++
		s.Claimed += max(1, e.More)
		return s.Others <= c.Claimed
	case e.Kind.Refusal():
		s.Refused++
		return s.Refused <= c.Refused
	}
	s.Events++
	return s.Events <= c.Events || matters(e) && s.Events <= 2*c.Events
}

// byOthers reports whether e is what a balancer saw, or an admin did to it or to a lease: it is no boot, nor anything that the machine
// itself did.
func byOthers(e event.Event) bool {
	return e.Kind.Stage() == event.StageBalancer || e.ByAdmin && !e.Kind.Mark()
}

// advance updates the state by e, an event of the machine itself, or what others did, that is counted already.
func (s *bootSummary) advance(e event.Event) {
	switch {
	case e.Kind == event.BackendUp:
		s.Served = true
		s.updateOutcome(e)
		return
	case byOthers(e):
		return
	case e.ByAdmin: // a mark
		s.updateProgress(e)
		if s.Outcome != None {
			s.updateOutcome(e)
		}
		return
	}
	s.Last = e.At
	if at := e.Shows(); at != "" {
		s.At = at
	}
	if s.byProgram(e) {
		s.System = s.System || e.Kind == event.DHCPDiscover
		return
	}
	if s.Outcome == None && e.Kind.Mark() {
		s.updateProgress(e)
		return
	}
	if stage := e.Kind.Reached(); stage.Order() > s.Stage.Order() {
		s.Stage = stage
	}
	s.updateProgress(e)
	s.updateOutcome(e)
}

// updateProgress updates what the meaning of later events depends on.
func (s *bootSummary) updateProgress(e event.Event) {
	s.updateLoading(e)
	switch e.Kind {
	case event.DHCPDiscover:
		s.Asked = true
	case event.TFTPServed, event.TFTPFailed, event.TFTPProbe, event.FirmwareServed:
		s.Fetched = true
	case event.ScriptServed:
		s.Fetched, s.Scripted, s.Loaded = true, true, false
	case event.FileServed, event.FileAborted, event.ConfigServed:
		s.Fetched, s.Loaded, s.Document = true, s.Scripted, s.Document || e.Kind == event.ConfigServed
	case event.InstallArmed:
		s.Installed, s.Served, s.Unfinished, s.Armed = false, false, false, true
	case event.InstallBooting, event.InstallStarted:
		s.Installing, s.Armed = true, false
	case event.InstallDone, event.InstallTimeout:
		// If the machine asked and has loaded nothing yet, the installer of the boot before is done.
		s.Installed, s.Installing, s.Unfinished, s.Armed = s.Installing || s.Loaded || !s.Asked, false, false, false
	case event.InstallLocalBoot:
		s.Local = true
	case event.VMCreated:
		s.Created = true
	case event.VMDeleted:
		s.Deleted = true
	}
}

// updateLoading updates whether the machine may load by TFTP next: its firmware or iPXE has an address, or it has just loaded by TFTP. A
// script may name files of either protocol; what it loads by HTTP, its disk and its system end that.
func (s *bootSummary) updateLoading(e event.Event) {
	switch e.Kind {
	case event.DHCPAck, event.DHCPProxyOffer:
		s.Loading = e.Client != event.ClientOS && e.Client != ""
	case event.TFTPServed:
		s.Loading = s.Loading || !e.Unverified
	case event.FileServed, event.FileAborted, event.FileMissing, event.ConfigServed, event.ConfigRefused,
		event.InstallLocalBoot, event.InstallStarted, event.InstallDone, event.InstallTimeout:
		s.Loading = false
	}
}

// updateOutcome updates the outcome by e. Done stays done, whatever fails later, but for the document of a live system. A refused machine that asks again is still refused until
// it gets an answer, as a repeated refusal is recorded once. Of one that was refused its document, an address is no answer.
func (s *bootSummary) updateOutcome(e event.Event) {
	switch {
	case s.Outcome == Done && !s.lacks(e) && !s.reopens(e), s.Outcome == Failed && (e.Kind == event.DHCPDiscover || e.Client == event.ClientOS && s.Stage == event.StageConfig && !s.Document):
	case finishes(e, s):
		s.Outcome, s.Reason, s.Done, s.OwnSystem = Done, "", e.At, e.Kind == event.DHCPAck && !s.Fetched
	case e.Kind.Failure():
		s.Outcome, s.Reason, s.Done = Failed, reason(e), time.Time{}
	case e.Kind == event.VMDeleted && s.Outcome == Booting:
		s.Outcome = Ended
	case e.Kind.Reached().Order() > 0 && !e.Kind.Change():
		s.Outcome, s.Reason, s.Done, s.OwnSystem = Booting, "", time.Time{}, false
	}
}

// reopens reports whether e shows that what has an address is no system of the machine's own: it boots from here, such as firmware whose DHCP
// client looks like that of a system, or an installer from other media.
func (s *bootSummary) reopens(e event.Event) bool {
	return s.OwnSystem && (s.Fetched || s.Installing || e.Kind == event.TFTPRefused) && e.Kind.Reached().Order() > event.StageAddress.Order()
}

func finishes(e event.Event, s *bootSummary) bool {
	switch e.Kind {
	case event.InstallDone, event.InstallLocalBoot:
		return true
	case event.BackendUp: // its system serves, if it has loaded one
		return s.Loaded
	case event.ConfigServed: // of a live system
		return s.Loaded && !s.installing()
	case event.DHCPAck: // a script may load its system from elsewhere
		loaded := s.Loaded || s.Scripted && s.Outcome != Failed
		return (loaded || s.fromDisk()) && !s.installing() && e.Client == event.ClientOS
	}
	return false
}

// fromDisk reports whether a system that has an address was there before: it has fetched nothing. One that an admin armed was to be
// installed, if it was restarted since.
func (s *bootSummary) fromDisk() bool { return !s.Fetched && !(s.Armed && s.Asked) }

// installing reports whether an installer runs: an address is no sign that it is done.
func (s *bootSummary) installing() bool { return s.Installing || s.Unfinished }

// next returns the boot that begins at that time, after s. Soon after a script its machine gets the same again, which records no
// event.InstallBooting.
func (s *bootSummary) next(at time.Time) bootSummary {
	return bootSummary{Unfinished: s.installing() && !s.Deleted && at.Sub(s.Last) < firmwarePause, Armed: s.Armed && !s.Deleted}
}

// reason says why e failed. The reasons that its kind can have are not named beside the one that it has.
func reason(e event.Event) string {
	parts := []string{e.Kind.Help()}
	if e.Err != "" {
		parts[0], _, _ = strings.Cut(parts[0], ": ")
	}
	for _, part := range []string{e.Text(), e.Err} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// matters reports whether e is kept when a boot has more events than are kept of one.
func matters(e event.Event) bool {
	return e.Kind.Failure() || e.Kind == event.VMFailed || e.Kind.Stage() == event.StageInstall || e.Kind == event.ScriptServed || e.Kind == event.ConfigServed || e.Kind == event.VMDeleted
}
