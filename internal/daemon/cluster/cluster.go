package cluster

import (
	"fmt"
	"time"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Phase is how far a cluster is.
type Phase string

// The phases of a cluster, in their order.
const (
	PhaseDown      Phase = "down"          // no machine of it runs, as far as is known
	PhaseBootstrap Phase = "bootstrapping" // the control plane does not serve
	PhaseWorkers   Phase = "joining"       // the control plane serves; the bootstrap or other machines are under way
	PhaseReady     Phase = "ready"
)

// A Stage is how far a machine is.
type Stage string

// The stages of a machine, in their order.
const (
	StageOff        Stage = "off"        // switched off, or never seen
	StageWaiting    Stage = "waiting"    // for the control plane, before it is switched on
	StageBooting    Stage = "booting"    // from the network
	StageInstalling Stage = "installing" // its installer runs
	StageStarting   Stage = "starting"   // its system starts; it passes no check yet
	StageServing    Stage = "serving"    // it passes the checks of its balancers
	StageRunning    Stage = "running"    // its system was started; no balancer checks it
	StageGone       Stage = "gone"       // the bootstrap machine, which is no longer needed
)

// Health is what the checks of a machine's balancers say.
type Health int

// What the checks of a machine's balancers say.
const (
	Unchecked Health = iota // no balancer has it, or none has checked it yet
	Failing
	Passing
)

// Completion is what the cluster's API server says of its bootstrap, in the ConfigMap kube-system/bootstrap.
type Completion int

// What the cluster's API server says of its bootstrap.
const (
	NotReported Completion = iota // it is not asked, or gives no answer
	Incomplete
	Complete
)

// Observed is what is known of one machine.
type Observed struct {
	VM      string         // running, stopped, absent, unknown; empty: it is no virtual machine
	Control bool           // the daemon can switch it on
	Install install.Status // zero: unknown
	Boot    Boot           // its last
	API     Health         // of the control plane and the bootstrap
	Since   time.Time      // API has been so since
	Check   string         // why the check of API fails
	Ingress Health
	Acting  bool   // an action is under way
	Failed  string // why the last action failed; empty: it did not

	Reported    Completion // of the bootstrap machine
	ReportError string     // why the API server, which is asked, said nothing
}

// Boot is the last network boot of a machine. The zero value is that none was seen.
type Boot struct {
	Started time.Time
	Stage   string // that it reached, as the timeline calls it
	Failed  bool
	Reason  string // of Failed
	System  bool   // of a machine that is made from an image: its system has an address
}

// A Record is what outlives a restart of the daemon.
type Record struct {
	Up       time.Time            `json:"up,omitzero"`       // an admin asked for the cluster to be brought up; zero: it is not
	Left     time.Time            `json:"left,omitzero"`     // the bootstrap machine was found to be no longer needed
	Switched map[string]time.Time `json:"switched,omitzero"` // when the machines were switched on for this Up
	Phase    Since                `json:"phase,omitzero"`    // of the cluster
	Stages   map[string]Since     `json:"stages,omitzero"`   // of its machines, by name
}

// A Since is a stage or a phase, and when it began.
type Since struct {
	Is string    `json:"is"`
	At time.Time `json:"at"`
}

// A Verb is what is to be done.
type Verb string

// What is to be done.
const (
	SwitchOn  Verb = "switch on"
	SwitchOff Verb = "switch off"
	TakeOut   Verb = "take out" // of all balancers of the cluster, until it is armed again
	PutBack   Verb = "put back" // into the balancers: it was armed again
)

// An Action is what is to be done to a machine.
type Action struct {
	Verb Verb
	Host *lab.Host
}

// A Machine is the state of one machine.
type Machine struct {
	Host  *lab.Host
	Stage Stage
	Waits string // what it waits for, in a few words; empty: nothing
	Stuck bool   // it goes on only if an admin acts: Waits says how
}

// done reports whether the machine is where it should be in the end.
func (m Machine) done() bool {
	if m.Host.Role == lab.RoleBootstrap {
		return m.Stage == StageGone && m.Waits == ""
	}
	return m.Stage == StageServing || m.Stage == StageRunning
}

// A State is that of a cluster.
type State struct {
	Phase    Phase
	Waits    string // what the cluster waits for; empty when it is ready
	Machines []Machine
	Serving  int // control-plane machines that pass the check of the API
	Members  int // control-plane machines
	Actions  []Action
}

// settle is how long the check of the bootstrap machine must have failed: a blip does not take it out.
const settle = 15 * time.Second

// Assess returns the state of a cluster by what was observed of each host, by name.
func Assess(c *lab.Cluster, observed map[string]Observed, r Record, now time.Time) State {
	a := assessment{c: c, observed: observed, record: r, now: now}
	a.count()
	for _, h := range c.Hosts {
		if h.Role != lab.RoleAppliance {
			a.machine(h)
		}
	}
	a.phase()
	return a.state
}

type assessment struct {
	c        *lab.Cluster
	observed map[string]Observed
	record   Record
	now      time.Time
	checked  int // control-plane machines that a balancer checks
	ingress  [Passing + 1]int
	state    State
}

func (a *assessment) count() {
	running := 0
	for _, h := range a.c.Hosts {
		o := a.see(h)
		a.ingress[o.Ingress]++
		if h.Role != lab.RoleControlPlane {
			continue
		}
		a.state.Members++
		if o.API == Passing && !reinstalls(o) {
			a.state.Serving++
		}
		if o.API != Unchecked {
			a.checked++
		}
		if ran(o) {
			running++
		}
	}
	if !a.hasBalancer() {
		a.state.Serving = running // nothing else can be known
	}
}

// see returns what is known of h. A virtual machine that is off serves nothing, whatever its last check said.
func (a *assessment) see(h *lab.Host) Observed {
	o := a.observed[h.Name]
	if o.off() {
		o.API, o.Ingress = min(o.API, Failing), min(o.Ingress, Failing)
	}
	return o
}

// off reports whether a virtual machine does not run.
func (o Observed) off() bool { return o.VM == "stopped" || o.VM == "absent" }

// hasBalancer reports whether a balancer of the daemon serves the cluster's API.
func (a *assessment) hasBalancer() bool { return a.checked > 0 }

// serves reports whether the control plane serves: more than half of its machines do.
func (a *assessment) serves() bool { return a.state.Members > 0 && 2*a.state.Serving > a.state.Members }

// reinstalls reports whether a machine was armed, or is being installed: what it serves is not what it will be. A host that is not armed
// is as it was found, which may be a cluster that is older than the lab file.
func reinstalls(o Observed) bool {
	return o.Install.State == install.Armed && !o.Install.Since.IsZero() || installing(o)
}

// ran reports whether the system of a machine was started.
func ran(o Observed) bool {
	switch o.Install.State {
	case install.Installed:
		return o.VM == "" || o.VM == "running"
	case install.Live:
		return (o.Boot.Stage == "config" || o.Boot.System) && !o.Boot.Failed || o.Boot.Stage == "install"
	}
	return false
}

func (a *assessment) machine(h *lab.Host) {
	o := a.see(h)
	m := Machine{Host: h}
	switch {
	case h.Role == lab.RoleBootstrap && a.bootstrapDone(h, o):
		m.Stage = StageGone
		m.Waits = a.leave(h, o)
	case h.Role == lab.RoleControlPlane && o.API == Passing && reinstalls(o): // it does not count as serving
		m.Stage, m.Waits = StageBooting, "its network boot: it is armed, and its former system serves"
		if installing(o) {
			m.Stage, m.Waits = StageInstalling, "its installer to report that it is done; if it is installed: bootlab install "+h.Name+" --done"
		}
	case o.API == Passing || h.Role != lab.RoleControlPlane && o.Ingress == Passing:
		if m.Stage = StageServing; h.Role == lab.RoleBootstrap {
			m.Waits = "the bootstrap to complete"
			if o.ReportError != "" {
				m.Waits += "; its ConfigMap cannot be read: " + o.ReportError
			}
		}
	default:
		m.Stage, m.Waits, m.Stuck = a.under(h, o)
	}
	boots := o.VM == "" && m.Stage != StageGone && a.seen(h, o) // whatever its controller answered
	if o.Failed != "" && !m.done() && !boots {                  // of the last action
		m.Waits, m.Stuck = o.Failed, true
	}
	a.state.Machines = append(a.state.Machines, m)
}

// bootstrapDone reports whether the bootstrap machine is no longer needed: it was so before and was not armed again since; or the API server
// reports that it is complete; or, where that reports nothing, the control plane serves and the machine itself does not any more: OpenShift's
// bootstrap stops its own API server when it is complete. One that is off is not needed where the control plane serves.
func (a *assessment) bootstrapDone(h *lab.Host, o Observed) bool {
	if !a.record.Left.IsZero() {
		if o.Install.State == install.Armed && o.Install.Since.After(a.record.Left) {
			a.act(PutBack, h)
			return false
		}
		return true
	}
	switch {
	case reinstalls(o) || !a.hasBalancer():
		return false
	case o.Reported == Complete:
		return a.state.Serving > 0
	}
	return a.serves() && (o.off() || o.Reported == NotReported && o.API == Failing && a.now.Sub(o.Since) >= settle)
}

// leave takes the bootstrap machine out, and switches it off while the daemon brings the cluster up. It returns what is still to be done.
func (a *assessment) leave(h *lab.Host, o Observed) (waits string) {
	if a.record.Left.IsZero() {
		a.act(TakeOut, h)
	}
	_, switched := a.record.Switched[h.Name] // of metal, that is all that says whether it is on
	if !a.record.Up.IsZero() && (o.VM == "running" || o.VM == "" && o.Control && switched) {
		a.act(SwitchOff, h)
		return "its power: it is being switched off"
	}
	return ""
}

func (a *assessment) act(v Verb, h *lab.Host) {
	a.state.Actions = append(a.state.Actions, Action{v, h})
}

// under returns the stage of a machine that is not where it should be.
func (a *assessment) under(h *lab.Host, o Observed) (stage Stage, waits string, stuck bool) {
	seen := a.seen(h, o)
	switch {
	case o.Install.HeldByRestore():
		return StageOff, "a restore holds it: bootlab install " + h.Name + ", or --done if it is installed", true
	case o.Install.Held:
		return StageBooting, "held after too many attempts: bootlab install " + h.Name, true
	case o.Install.State == install.Unknown:
		return StageOff, "its install state was lost: bootlab install " + h.Name + ", or --done if it is installed", true
	case o.VM == "unknown":
		return StageOff, "its hypervisor does not answer", true
	case o.off() || o.VM == "" && !seen && !installing(o):
		return a.off(h, o)
	case o.Boot.Failed && seen:
		return StageBooting, o.Boot.Reason, true
	case o.Install.State == install.Installing:
		return StageInstalling, atStage("its installer", o.Boot), false
	case ran(o) && o.API == Failing && o.Reported == Incomplete:
		return StageStarting, "the ConfigMap kube-system/bootstrap to say complete: " + o.Check, false
	case ran(o) && o.API == Failing && h.Role == lab.RoleBootstrap && a.serves():
		return StageStarting, "its check to fail for 15 seconds: then it is not needed any more", false
	case ran(o) && o.API == Failing:
		return StageStarting, "its check: " + o.Check, false
	case ran(o):
		return StageRunning, "", false
	case o.Install.State == install.Armed && !seen:
		return StageBooting, "its network boot", false
	}
	return StageBooting, atStage("its boot", o.Boot), false
}

// upCommand is the command that brings a cluster up: that is what one that is down waits for.
func upCommand(c *lab.Cluster) string { return "bootlab up " + c.Name }

// atStage says where a boot is that a machine waits for.
func atStage(what string, b Boot) string {
	if b.Stage == "" {
		return what
	}
	return what + ", at stage " + b.Stage
}

// seen reports whether h booted since it was switched on.
func (a *assessment) seen(h *lab.Host, o Observed) bool {
	return !o.Boot.Started.IsZero() && (a.record.Up.IsZero() || o.Boot.Started.After(a.switched(h)))
}

func installing(o Observed) bool {
	return o.Install.State == install.Installing || o.Install.State == install.Booting
}

// switched returns when h was switched on, or else when the cluster was asked to come up.
func (a *assessment) switched(h *lab.Host) time.Time {
	if at, ok := a.record.Switched[h.Name]; ok {
		return at
	}
	return a.record.Up
}

// off returns what a machine that is off waits for, and switches it on when it may be.
func (a *assessment) off(h *lab.Host, o Observed) (stage Stage, waits string, stuck bool) {
	if a.record.Up.IsZero() {
		if o.VM == "" && o.Install.State == install.Installed {
			return StageRunning, "", false // of metal, nothing says that it is off
		}
		return StageOff, upCommand(a.c), false
	}
	if h.Role != lab.RoleControlPlane && h.Role != lab.RoleBootstrap && !a.serves() {
		return StageWaiting, "the control plane", false
	}
	_, switched := a.record.Switched[h.Name]
	switch {
	case o.VM == "" && !o.Control && o.Install.State == install.Installed:
		return StageStarting, "its check: nothing else says whether it is on", false
	case !o.Control:
		return StageOff, "an admin has to switch it on: it has no bmc and is no virtual machine", true
	case o.VM == "" && switched && o.Failed != "": // its controller did not
		a.act(SwitchOn, h)
		return StageOff, o.Failed, true
	case o.VM == "" && switched && o.Acting:
		return StageBooting, "its power: it is being switched on", false
	case o.VM == "" && switched:
		return StageBooting, "its first request: it was switched on", false
	}
	a.act(SwitchOn, h)
	return StageBooting, "its power: it is being switched on", false
}

// phase sets the phase of the cluster and what it waits for.
func (a *assessment) phase() {
	s := &a.state
	seen, all := false, true
	var first Machine // that Waits is about
	for _, m := range s.Machines {
		seen = seen || m.Stage != StageOff && m.Stage != StageWaiting && m.Stage != StageGone
		if m.done() {
			continue
		}
		all = false
		if s.Waits == "" || first.Host.Role == lab.RoleBootstrap { // the bootstrap waits for the others
			s.Waits, first = fmt.Sprintf("%s: %s", m.Host.Name, m.Waits), m
		}
	}
	switch {
	case len(s.Machines) == 0:
		s.Phase, s.Waits = PhaseDown, "it has no hosts"
	case all && a.ingress[Failing] > 0 && a.ingress[Passing] == 0:
		s.Phase, s.Waits = PhaseWorkers, "a router: no machine passes the check of *.apps"
	case all && (a.serves() || s.Members == 0):
		s.Phase, s.Waits = PhaseReady, ""
	case a.serves():
		s.Phase = PhaseWorkers
	case seen || !a.record.Up.IsZero():
		s.Phase = PhaseBootstrap
		s.Waits = fmt.Sprintf("the control plane: %d of %s serve", s.Serving, lab.Plural(s.Members, "machine"))
		if s.Members == 1 {
			s.Waits += "s"
		}
	default:
		s.Phase = PhaseDown
		if first.Waits == upCommand(a.c) { // all wait for it
			s.Waits = first.Waits
		}
	}
}
