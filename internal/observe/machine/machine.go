package machine

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/timeline"
)

// A Stage is what a machine is.
type Stage string

// The stages of a machine.
const (
	Unknown    Stage = "unknown"    // nothing was measured, or nothing that can be measured tells
	Off        Stage = "off"        // its hypervisor or controller says so, or it does not exist
	Waiting    Stage = "waiting"    // for its cluster, before it is switched on
	Booting    Stage = "booting"    // from the network
	Stopped    Stage = "stopped"    // its boot or its installation failed, was silent for too long, or is held
	Installing Stage = "installing" // its installer runs
	Starting   Stage = "starting"   // its system was started; it passes no check yet
	Serving    Stage = "serving"    // it passes the check of its balancer
	Running    Stage = "running"    // its system was started; no balancer checks it
	Failing    Stage = "failing"    // its system was started, or nothing here boots it, and its check fails; or another machine uses its address
	Gone       Stage = "gone"       // a bootstrap machine that is no longer needed
)

// Good reports whether a machine at that stage is where it should be in the end.
func (s Stage) Good() bool { return s == Serving || s == Running }

// UnderWay reports whether a machine at that stage goes on by itself.
func (s Stage) UnderWay() bool {
	return slices.Contains([]Stage{Waiting, Booting, Installing, Starting}, s)
}

// Bad reports whether something went wrong with a machine at that stage.
func (s Stage) Bad() bool { return s == Stopped || s == Failing }

// A Power is what a hypervisor or a controller says of a machine.
type Power string

// The powers. A bare-metal machine has the zero Power while its controller is not asked.
const (
	PowerOn      Power = "running"
	PowerOff     Power = "off"
	PowerPaused  Power = "paused" // by its hypervisor, as where a disk of that is full
	PowerCrashed Power = "crashed"
	PowerAbsent  Power = "absent"  // its virtual machine does not exist
	PowerSilent  Power = "unknown" // its hypervisor does not answer
	PowerUnasked Power = "unasked" // its hypervisor has not answered yet
)

// Off reports whether nothing runs.
func (p Power) Off() bool { return p == PowerOff || p == PowerAbsent || p == PowerCrashed }

// Known reports whether a hypervisor or a controller says anything of the machine.
func (p Power) Known() bool { return p != "" && p != PowerSilent && p != PowerUnasked }

// Health is what the check of a machine's balancer says.
type Health int

// What a check says.
const (
	NotChecked   Health = iota // no balancer checks it
	CheckPending               // no check has ended yet
	CheckFailing
	CheckPassing
)

// A Check is the check of a machine's balancer.
type Check struct {
	Health Health
	Since  time.Time // it has been so
	Reason string    // why it fails

	Kind     lab.CheckKind
	Balancer string
	Addr     netip.AddrPort // of the backend

	Unreachable bool // it fails, and nobody answers: not even to refuse the connection
}

// An Observation is what was measured of one machine. What cannot be measured has the zero value.
type Observation struct {
	Host      string // its name
	Role      string // in its cluster, as lab.Host has it
	Power     Power
	Problem   string // why Power is PowerSilent
	Install   install.Status
	Document  bool             // its profile has a config document
	Elsewhere bool             // nothing here boots it: its check is all that is known of it
	OwnScript bool             // its profile is an iPXE script of the admin's own: what that loads need not come from bootlab
	Boot      timeline.Summary // its last
	Check     Check
	Conflict  string    // the MAC of another machine that uses its address
	Wait      string    // what its cluster waits for before it is switched on
	Switching bool      // it is being switched on
	Switched  time.Time // it was switched on from here
	Gone      bool      // it is a bootstrap machine that is no longer needed
}

// A Cause is why a machine is Stopped, Unknown, or Failing without a boot, for a diagnosis that goes on from there. Others have no word but State.Why.
type Cause string

// The causes.
const (
	Held        Cause = "held"         // until an admin says whether it is installed
	Hypervisor  Cause = "hypervisor"   // it has paused the machine, or does not say what that is
	BootFailed  Cause = "boot failed"  // the last one
	DiskReturns Cause = "disk returns" // it is sent to its disk, and comes back to the network each time
	FromDisk    Cause = "from disk"    // it is to be installed, and did not boot from the network
	Unseen      Cause = "unseen"       // no request of it was received
	Silent      Cause = "silent"       // nothing of it was received for longer than its stage takes
)

// A State is what a machine is, and why.
type State struct {
	Stage Stage
	Cause Cause
	Why   string // one sentence without a full stop
	Waits string // what it waits for, in a few words; empty: nothing
	Stuck bool   // it goes on only if an admin acts
	Idle  bool   // it is off, or nothing tells that it is on: who wants it to boot has to switch it on

	Check    Check  // the check that counts for it
	Conflict string // the MAC of another machine that uses its address, where it is Failing for that
}

// Unseen reports whether the machine is Failing for a conflict alone: nothing tells that it is on.
func (s State) Unseen() bool { return s.Stage == Failing && s.Cause == Unseen }

// IsOff reports whether it was measured that the machine does not run.
func (o Observation) IsOff() bool {
	return o.Power.Off()
}

// Booted reports whether the machine was started, as far as its own timeline shows. A check, an admin's mark, a change of its virtual machine
// and the boots of a virtual machine that was deleted are no boot.
func Booted(s timeline.Summary) bool {
	return s.Stage != "" && s.Outcome != "" && s.Outcome != timeline.None && s.Outcome != timeline.Ended && !s.Active.IsZero()
}

// unseen reports whether nothing tells that the machine was ever switched on: no boot, no request, no installer. One that is installed and
// runs, as its hypervisor says, was.
func (o Observation) unseen() bool {
	runs := o.Power == PowerOn && o.Install.State == install.Installed
	return !runs && (o.marked() || !Booted(o.Boot) && o.Boot.At != event.StageAddress && !o.Boot.Served && !o.system() && !installing(o.Install))
}

// marked reports whether nothing but an admin says that the machine has a system: nothing was received since, and no system before.
func (o Observation) marked() bool {
	return o.Install.ByAdmin && !o.Boot.Active.After(o.Install.Since) && !o.Boot.Served && !o.system()
}

// Reinstalls reports whether what the machine serves is not what it will serve: it was armed, or is being installed. A host that nobody armed
// is as it was found, which may be older than the lab file.
func (o Observation) Reinstalls() bool {
	return o.Install.State == install.Armed && !o.Install.Since.IsZero() || installing(o.Install)
}

func installing(s install.Status) bool {
	return s.State == install.Installing || s.State == install.Booting
}

// system reports whether the last request came from the machine's own system, and it has loaded nothing.
func (o Observation) system() bool {
	return o.Boot.At == event.StageSystem && !o.Boot.Fetched && o.Boot.Outcome != timeline.Ended
}

// Of returns what a machine is.
func Of(o Observation, now time.Time) State {
	check := o.Check
	if o.IsOff() && o.Check.Health == CheckPassing {
		o.Check.Health = CheckFailing // the last check of a machine that is off says nothing
	}
	s := o.serving()
	if s.Stage == "" {
		s = o.before(now)
	}
	if s.Stage == "" {
		s = o.started(now)
	}
	if o.Conflict != "" && (s.Stage.Good() || s.Stage == Starting || s.Stage == Unknown && s.Cause == Unseen) {
		s = State{
			Stage: Failing, Cause: s.Cause, Why: "another machine uses its address: " + o.Conflict, Waits: "its address, which " + o.Conflict + " uses",
			Stuck: true, Idle: s.Idle, Conflict: o.Conflict,
		}
	}
	s.Check = check
	return s
}

// serving decides about a machine that is gone or passes its check. A machine of the control plane that is installed again does not serve
// its new cluster yet; what other machines serve is theirs, whatever their next boot does.
func (o Observation) serving() State {
	switch {
	case o.Gone:
		return State{Stage: Gone, Why: "its cluster does not need it any more"}
	case o.Check.Health != CheckPassing:
		return State{}
	case o.Role != lab.RoleControlPlane || !o.Reinstalls():
		return State{Stage: Serving, Why: "it passes the check of its balancer"}
	case installing(o.Install):
		return State{Stage: Installing, Why: "it passes its check, and its installer has not reported that it is done",
			Waits: "its installer to report that it is done; if it is installed: bootlab install " + o.Host + " --done"}
	}
	return State{Stage: Booting, Why: "it is armed, and its former system serves", Waits: "its network boot: it is armed, and its former system serves"}
}

// before decides about a machine whose system was not started, as far as is known.
func (o Observation) before(now time.Time) State {
	switch i := o.Install; {
	case i.HeldByRestore():
		return stuck(Stopped, Held, "a restore holds it: "+o.advice())
	case i.State == install.Unknown && i.Other != "":
		return o.fromOwnDisk("its install state is unknown, as " + i.Why)
	case i.State == install.Unknown:
		return o.fromOwnDisk("its install state was lost")
	case i.Held:
		return stuck(Stopped, Held, "held after too many attempts: "+o.advice())
	case o.Power == PowerSilent:
		s := stuck(Unknown, Hypervisor, "its hypervisor does not answer")
		if o.Problem != "" {
			s.Why += ": " + o.Problem
		}
		return s
	case o.Power == PowerUnasked:
		return State{Stage: Unknown, Cause: Hypervisor, Why: "its hypervisor has not answered yet", Waits: "the first answer of its hypervisor"}
	case o.Power == PowerPaused:
		return stuck(Stopped, Hypervisor, "its hypervisor has paused it")
	case o.Elsewhere && o.Check.Health == CheckFailing && !o.IsOff() && o.unseen():
		return o.unanswered()
	case o.IsOff() || o.unseen():
		s := o.silent(now)
		s.Idle = o.Power != PowerOn
		return s
	case Booted(o.Boot) && o.Boot.Outcome == timeline.Failed && !o.done():
		return stuck(Stopped, BootFailed, o.Boot.Reason)
	case o.Boot.Returns:
		return stuck(Stopped, DiskReturns, "it is sent to its own disk, and comes back to the network each time: the disk does not boot")
	case !o.up():
		return o.underWay(now)
	}
	return State{}
}

// unanswered is a machine that is a backend alone, and fails its check.
func (o Observation) unanswered() State {
	c := o.Check
	does := "it fails its check"
	if c.Unreachable {
		does = "it does not answer"
	}
	if c.Addr.IsValid() {
		does += " at its backend address " + c.Addr.String()
	}
	why := fmt.Sprintf("%s: the %s check of balancer %s fails: %s", does, c.Kind, c.Balancer, c.Reason)
	return State{Stage: Failing, Why: why, Waits: "its check: " + c.Reason}
}

// fromOwnDisk is a machine whose install state is unknown: it starts from its own disk until an admin says whether it is installed, and may well run.
func (o Observation) fromOwnDisk(why string) State {
	at := Unknown
	if o.IsOff() {
		at = Stopped
	}
	return stuck(at, Held, why+": "+o.advice())
}

// advice is what an admin does about a machine of which bootlab does not know whether it is installed.
func (o Observation) advice() string { return strings.Join(o.Install.Advice(o.Host), "; then ") }

// silent decides about a machine that is off, or of which nothing was received.
func (o Observation) silent(now time.Time) State {
	off := map[Power]string{PowerOff: "it is off", PowerAbsent: "its virtual machine does not exist", PowerCrashed: "its virtual machine crashed"}[o.Power]
	switch {
	case o.Switching:
		return State{Stage: Booting, Why: "it is being switched on", Waits: "its power: it is being switched on"}
	case o.Wait != "":
		return State{Stage: Waiting, Why: "it is switched on after " + o.Wait, Waits: o.Wait}
	case off == "" && o.Boot.Outcome == timeline.Failed && !o.marked(): // its controller did not switch it on
		return stuck(Stopped, BootFailed, o.Boot.Reason)
	case off != "":
		return State{Stage: Off, Why: off, Waits: "its power: " + off}
	case !o.Switched.IsZero() && now.Sub(o.Switched) < PowerPatience:
		return State{Stage: Booting, Why: "it was switched on, and no request of it was received yet", Waits: "its first request: it was switched on"}
	case !o.Switched.IsZero():
		return stuck(Stopped, Unseen, "it was switched on, and no request of it was received")
	case o.Power == PowerOn:
		return State{Stage: Unknown, Cause: Unseen, Why: "it runs, and no request of it was received", Waits: "its network boot"}
	case o.Install.State == install.Installed:
		return State{Stage: Unknown, Cause: Unseen, Why: "it is installed, and no request of it was received since", Waits: "its check: nothing else says whether it is on"}
	}
	return State{Stage: Unknown, Cause: Unseen, Why: "no request of it was received: it is off, or does not boot from the network", Waits: "its network boot"}
}

// assumed reports whether nothing but install_timeout says that the machine's system was started.
func (o Observation) assumed() bool {
	return o.Install.Assumed && o.Boot.At == event.StageInstall && o.Boot.Outcome != timeline.Done
}

// done reports whether the machine's last boot is done. An install state is on disk before its event is recorded, which a crash or a restore
// can lose: what was installed after all that was received is done, whatever the timeline has.
func (o Observation) done() bool {
	if o.Install.State == install.Installed && !o.Install.Assumed && o.Install.Since.After(o.Boot.Active) {
		return Booted(o.Boot)
	}
	return o.Boot.Outcome == timeline.Done && !installing(o.Install)
}

// up reports whether the machine's system was started: it has passed a check, its boot is done, its own system asks for an address, it has all
// that a system that is not installed loads, it counts as installed, or its installer is done and its hypervisor says that it runs.
func (o Observation) up() bool {
	at := o.Boot.At
	switch {
	case o.Boot.Served && o.Install.State == install.Installed:
		return true
	case o.system(): // its boot is done, too: the timeline does not know what was to be installed
		return o.Install.State != install.Armed || !o.Boot.Asked // to be installed, it was to boot from the network
	case o.done(), o.Boot.Outcome == timeline.Done:
		return o.done()
	case o.assumed():
		return true
	case o.Install.State == install.Live:
		return at == event.StageConfig || at == event.StageInstall || at == event.StageSystem && !o.Document
	case o.Install.State == install.Installed && o.Power == PowerOn:
		return !o.Boot.Fetched && at.Order() <= event.StageMachine.Order()
	}
	return false
}

// underWay decides about a boot or an installation that is neither done nor failed.
func (o Observation) underWay(now time.Time) State {
	b := o.Boot
	if o.system() {
		return stuck(Stopped, FromDisk, "its own system asked for an address: it started from its disk, not from the network, and is to be installed")
	}
	at := ""
	if b.Stage != "" {
		at = ", at stage " + string(b.Stage)
	}
	s := State{Stage: Booting, Why: "it boots from the network" + at, Waits: "its boot" + at}
	if o.Install.State == install.Installing {
		s = State{Stage: Installing, Why: "its installer runs" + at, Waits: "its installer" + at}
	}
	last := latest(b.Active, b.Done)
	patience := Patience(b.At, o.Document)
	if o.Power == "" && b.At == event.StageMachine {
		patience = PowerPatience
	}
	switch {
	case now.Sub(last) < patience || last.IsZero():
	case o.OwnScript && (b.At == event.StageScript || b.At == event.StageFiles):
		return State{Stage: Unknown, Cause: Silent, Waits: "a lease of its system, or its check",
			Why: "it fetched an iPXE script of your own, and nothing was received since: what that boots from elsewhere is not seen here"}
	default:
		return stuck(Stopped, Silent, "it has sent nothing for more than "+patienceText(patience)+at)
	}
	return s
}

// started decides about a machine whose system was started.
func (o Observation) started(now time.Time) State {
	since := latest(o.Boot.Started, o.Boot.Done)
	if o.Install.State == install.Installed {
		since = latest(since, o.Install.Since)
	}
	c := o.Check
	check := State{Why: "its system was started, and fails its check: " + c.Reason, Waits: "its check: " + c.Reason}
	switch {
	case c.Health == NotChecked && o.assumed():
		return State{Stage: Unknown, Cause: Silent, Why: "its installer sent no signal within install_timeout; it counts as installed, and no request of " +
			"its system was received", Waits: "a request of its system"}
	case c.Health == NotChecked:
		return State{Stage: Running, Why: "its system was started; no balancer checks it"}
	case c.Health == CheckPending:
		return State{Stage: Unknown, Why: "its system was started, and no check has ended yet", Waits: cmp.Or(c.Reason, "its first check")}
	case Starts(c.Since, since, now):
		check.Stage, check.Why = Starting, "its system was started, and does not pass its check yet: "+c.Reason
	default:
		check.Stage = Failing
	}
	return check
}

// stuck is a machine that goes on only if an admin acts.
func stuck(at Stage, cause Cause, why string) State {
	return State{Stage: at, Cause: cause, Why: why, Waits: why, Stuck: true}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
