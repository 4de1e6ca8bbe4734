package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/internal/observe/timeline"
)

// A Phase is how far a cluster is.
type Phase string

// The phases of a cluster.
const (
	PhaseUnknown    Phase = "unknown"       // nothing was measured yet, or what would tell does not answer
	PhaseDown       Phase = "down"          // no machine of it runs, as far as is known
	PhaseBootstrap  Phase = "bootstrapping" // the control plane does not serve yet
	PhaseNotServing Phase = "not serving"   // the control plane does not serve any more
	PhaseWorkers    Phase = "joining"       // the control plane serves; the bootstrap or other machines are under way
	PhaseDegraded   Phase = "degraded"      // the control plane serves, nobody brings the cluster up, and machines are not where they should be
	PhaseReady      Phase = "ready"
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
	machine.Observation // without what Assess knows: Host, Role, Wait, Switching, Switched and Gone. Check is that of the API

	Ingress machine.Check
	Control bool   // the daemon can switch it on
	Acting  bool   // an action is under way
	Failed  string // why the last action failed; empty: it did not

	Reported    Completion // of the bootstrap machine
	ReportError string     // why the API server, which is asked, said nothing
}

// check returns the check that counts for a machine. The router runs on some of the workers: where it does not, connections are refused, which
// is no failure.
func (o Observed) check(role string) machine.Check {
	if o.Check.Health == machine.NotChecked && role != lab.RoleControlPlane && (o.Ingress.Health != machine.CheckFailing || o.Ingress.Unreachable) {
		return o.Ingress
	}
	return o.Check
}

// refuses reports whether a check shows that the machine is on, though what is checked does not run.
func (o Observed) refuses() bool {
	return slices.ContainsFunc([]machine.Check{o.Check, o.Ingress}, func(c machine.Check) bool { return c.Health == machine.CheckFailing && !c.Unreachable })
}

// A Record is what outlives a restart of the daemon.
type Record struct {
	Up       time.Time            `json:"up,omitzero"`       // an admin asked for the cluster to be brought up; zero: it is not
	Removed  time.Time            `json:"left,omitzero"`     // the bootstrap machine was removed from the balancers, as it is no longer needed; zero: it was not
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
	SwitchOn       Verb = "switch on"
	SwitchOnIfOff  Verb = "switch on if it is off" // it has a system, which runs if the machine is on
	SwitchOff      Verb = "switch off"
	RemoveBackends Verb = "remove from balancers" // of its cluster, until it is armed again
	AddBackends    Verb = "add to balancers"      // it was armed again
)

// An Action is what is to be done to a machine.
type Action struct {
	Verb Verb
	Host *lab.Host
}

// A Machine is the state of one machine.
type Machine struct {
	Host *lab.Host
	machine.State
	NeedsUp bool // it waits for an admin to bring its cluster up

	on       bool // it runs, or is under way
	pending  bool // what would tell has not answered yet
	measured bool // whether it serves, or may serve soon, was measured
}

// done reports whether the machine is where it should be in the end.
func (m Machine) done() bool {
	if m.Host.Role == lab.RoleBootstrap {
		return m.Stage == machine.Gone && m.Waits == ""
	}
	return m.Stage.Good()
}

// A State is that of a cluster.
type State struct {
	Phase        Phase
	Waits        string // what the cluster waits for; empty when it is ready
	NeedsUp      bool   // that is an admin who brings it up
	Machines     []Machine
	Serving      int // control-plane machines that pass the check of the API
	ControlPlane int // control-plane machines
	Actions      []Action
}

// settle is how long the check of the bootstrap machine must have failed: a blip does not take it out.
const settle = 15 * time.Second

// Assess returns the state of a cluster by what was observed of each host, by name.
func Assess(c *lab.Cluster, observed map[string]Observed, r Record, now time.Time) State {
	a := assessment{c: c, observed: observed, record: r, now: now}
	a.count()
	for _, h := range c.Hosts {
		if h.Role != lab.RoleAppliance {
			a.state.Machines = append(a.state.Machines, a.machine(h))
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
	checked  bool // a balancer of the daemon serves the cluster's API
	router   [machine.CheckPassing + 1]int
	state    State
}

// count counts the machines of the control plane that serve. Without a balancer nothing else can be known than that their systems run.
func (a *assessment) count() {
	stages := map[machine.Stage]int{}
	for _, h := range a.c.Hosts {
		o := a.observed[h.Name]
		if o.IsOff() {
			o.Ingress.Health = min(o.Ingress.Health, machine.CheckFailing)
		}
		a.router[o.Ingress.Health]++
		if h.Role == lab.RoleControlPlane {
			a.state.ControlPlane++
			a.checked = a.checked || o.Check.Health != machine.NotChecked
			stages[machine.Of(a.observation(h), a.now).Stage]++
		}
	}
	if a.state.Serving = stages[machine.Serving]; !a.checked {
		a.state.Serving = stages[machine.Running]
	}
}

// observation returns what is known of a machine. A boot before it was switched on for this cluster to come up says nothing; of bare metal, nor one
// before the cluster was asked to, unless it is installed and on.
func (a *assessment) observation(h *lab.Host) machine.Observation {
	o := a.observed[h.Name].Observation
	o.Host, o.Role, o.Check = h.Name, h.Role, a.observed[h.Name].check(h.Role)
	at, switched := a.record.Switched[h.Name]
	if on := o.Install.State == install.Installed && a.observed[h.Name].refuses(); !switched && o.Power == "" && !on {
		at = a.record.Up
	}
	if !at.IsZero() && !o.Boot.Started.After(at) {
		o.Boot = timeline.Summary{}
	}
	return o
}

// serves reports whether the control plane serves: more than half of its machines do.
func (a *assessment) serves() bool {
	return a.state.ControlPlane > 0 && 2*a.state.Serving > a.state.ControlPlane
}

func (a *assessment) machine(h *lab.Host) Machine {
	o, seen := a.observed[h.Name], a.observation(h)
	if seen.Gone = h.Role == lab.RoleBootstrap && a.bootstrapDone(h, o); seen.Gone {
		s := machine.Of(seen, a.now)
		if s.Waits = a.removeBootstrap(h, o); s.Waits != "" && o.Failed != "" {
			s.Waits, s.Stuck = o.Failed, true
		}
		return Machine{Host: h, State: s}
	}
	if !a.record.Up.IsZero() && h.Role != lab.RoleControlPlane && h.Role != lab.RoleBootstrap && !a.serves() {
		seen.Wait = "the control plane"
	}
	m := Machine{Host: h, State: machine.Of(seen, a.now)}
	if m.Idle && m.Stage != machine.Waiting {
		m.State, m.NeedsUp = a.idle(h, o, seen, m.State), a.record.Up.IsZero() && m.Conflict == ""
	}
	if h.Role == lab.RoleBootstrap {
		m.Waits = a.bootstrapWaits(m, o)
	}
	if o.Failed != "" && !m.done() && (seen.Power != "" || m.Idle) { // of the last action; metal may boot whatever its controller answered
		m.Why, m.Waits, m.Stuck, m.NeedsUp = o.Failed, o.Failed, true, false
	}
	held := seen.Install.Held || seen.Install.State == install.Unknown
	m.on = m.Stage.UnderWay() && m.Stage != machine.Waiting || m.Stage.Good() || m.Stage == machine.Failing && !m.Unseen() || m.Stage == machine.Stopped && !held
	m.pending = seen.Check.Health == machine.CheckPending || seen.Power == machine.PowerUnasked
	m.measured = seen.Check.Health == machine.CheckPassing || seen.IsOff() ||
		(seen.Power == "" || seen.Power == machine.PowerOn) && (seen.Check.Health == machine.CheckFailing || m.Stage != machine.Unknown && !m.Unseen() && !seen.Install.HeldByRestore())
	return m
}

// bootstrapDone reports whether the bootstrap machine is no longer needed: it was so before and was not armed again since; or the API server
// reports that it is complete; or, where that reports nothing, the control plane serves and the machine itself does not any more: OpenShift's
// bootstrap stops its own API server when it is complete. One that is off is not needed where the control plane serves.
func (a *assessment) bootstrapDone(h *lab.Host, o Observed) bool {
	if !a.record.Removed.IsZero() {
		if o.Install.State == install.Armed && o.Install.Since.After(a.record.Removed) {
			a.act(AddBackends, h)
			return false
		}
		return true
	}
	switch {
	case o.Reinstalls():
		return false
	case !a.checked:
		return a.serves() && o.IsOff()
	case o.Reported == Complete:
		return a.state.Serving > 0
	}
	return a.serves() && (o.IsOff() || o.Reported == NotReported && o.Check.Health == machine.CheckFailing && a.now.Sub(o.Check.Since) >= settle)
}

// bootstrapWaits returns what a bootstrap machine waits for that is still needed.
func (a *assessment) bootstrapWaits(m Machine, o Observed) string {
	system := m.Stage == machine.Starting || m.Stage == machine.Failing
	switch {
	case !a.checked && m.Stage == machine.Running:
		return "to be switched off by an admin once the bootstrap is complete: no machine of the cluster has an address at which its API can be checked"
	case m.Stage == machine.Serving && o.ReportError != "":
		return "the bootstrap to complete; its ConfigMap cannot be read: " + o.ReportError
	case m.Stage == machine.Serving:
		return "the bootstrap to complete"
	case system && o.Reported == Incomplete:
		return "the ConfigMap kube-system/bootstrap to say complete: " + o.Check.Reason
	case system && a.serves():
		return "its check to fail for 15 seconds: then it is not needed any more"
	}
	return m.Waits
}

// removeBootstrap removes the bootstrap machine from the balancers, and switches it off while the daemon brings the cluster up. It returns what is still to be done.
func (a *assessment) removeBootstrap(h *lab.Host, o Observed) (waits string) {
	if a.record.Removed.IsZero() {
		a.act(RemoveBackends, h)
	}
	_, switched := a.record.Switched[h.Name] // of bare metal, that is all that says whether it is on
	if !a.record.Up.IsZero() && (o.Power == machine.PowerOn || o.Power == "" && o.Control && switched) {
		a.act(SwitchOff, h)
		return "its power: it is being switched off"
	}
	return ""
}

func (a *assessment) act(v Verb, h *lab.Host) {
	a.state.Actions = append(a.state.Actions, Action{v, h})
}

// idle returns the state of a machine that is off, or of which nothing tells that it is on, and switches it on when it may be.
func (a *assessment) idle(h *lab.Host, o Observed, seen machine.Observation, s machine.State) machine.State {
	metal := seen.Power == ""
	at, switched := a.record.Switched[h.Name]
	switch {
	case a.record.Up.IsZero() && s.Conflict != "": // what has its address goes first
		return s
	case a.record.Up.IsZero():
		s.Waits, s.Stuck = "bootlab up "+a.c.Name, false
		return s
	case metal && !o.Control && o.Install.State == install.Installed: // it may be on
		return s
	case !o.Control:
		s.Waits, s.Stuck = "an admin has to switch it on: it has no bmc and is no virtual machine", true
		return s
	case metal && switched && o.Failed != "": // its controller did not
		a.act(SwitchOn, h)
		return s
	case metal && switched && !o.Acting:
		seen.Switched = at
		return machine.Of(seen, a.now)
	case metal && !switched && !o.Reinstalls(): // its controller knows whether it is on: a reset would end what runs there
		a.act(SwitchOnIfOff, h)
	case !metal || !switched:
		a.act(SwitchOn, h)
	}
	seen.Switching = true
	return machine.Of(seen, a.now)
}

// phase sets the phase of the cluster and what it waits for.
func (a *assessment) phase() {
	s := &a.state
	var on, wrong, pending, measured, failing bool
	all := true
	var first Machine // that Waits is about
	for _, m := range s.Machines {
		on = on || m.on
		measured = measured || m.measured && (m.Host.Role == lab.RoleControlPlane || s.ControlPlane == 0)
		pending = pending || m.pending && m.Host.Role == lab.RoleControlPlane
		failing = failing || m.Stage == machine.Failing && !m.Unseen() && m.Host.Role == lab.RoleControlPlane
		if m.done() {
			continue
		}
		all = false
		wrong = wrong || !m.Stage.UnderWay() && !m.pending && m.Host.Role != lab.RoleBootstrap
		if s.Waits == "" || first.Host.Role == lab.RoleBootstrap { // the bootstrap waits for the others
			s.Waits, first = fmt.Sprintf("%s: %s", m.Host.Name, m.Waits), m
		}
	}
	up := !a.record.Up.IsZero()
	lacksRouter := all && a.router[machine.CheckFailing] > 0 && a.router[machine.CheckPassing] == 0
	if lacksRouter {
		s.Waits = "a router: no machine passes the check of *.apps"
	}
	switch {
	case len(s.Machines) == 0:
		s.Phase, s.Waits = PhaseDown, "it has no hosts"
	case all && !lacksRouter && (a.serves() || s.ControlPlane == 0):
		s.Phase, s.Waits = PhaseReady, ""
	case (a.serves() || all) && !up && (wrong || lacksRouter):
		s.Phase = PhaseDegraded
	case a.serves() || all:
		s.Phase = PhaseWorkers
	case !measured && (pending || !up):
		s.Phase = PhaseUnknown
	case on || up:
		s.Phase = PhaseBootstrap
		if !a.record.Removed.IsZero() || failing && !up {
			s.Phase = PhaseNotServing
		}
		s.Waits = fmt.Sprintf("the control plane: %d of %s serve", s.Serving, lab.Plural(s.ControlPlane, "machine"))
		if s.ControlPlane == 1 {
			s.Waits += "s"
		}
		return
	default:
		s.Phase = PhaseDown
	}
	s.NeedsUp = first.NeedsUp
	if (s.Phase == PhaseDown || s.Phase == PhaseUnknown) && s.NeedsUp { // all wait for it
		s.Waits = first.Waits
	}
}
