package diagnosis

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/internal/observe/timeline"
)

// The states of a machine's last boot.
const (
	Done    = "done"    // nothing is wrong
	Booting = "booting" // under way: its last request is not old enough to say that it stopped
	Stopped = "stopped" // it goes on only if an admin acts, or nothing came for too long
	Unknown = "unknown" // nothing that bootlab sees can tell
)

// A Machine is what is known of a machine beside its boots. State is what that, and what its cluster knows, make of it: see machine.Of.
type Machine struct {
	machine.Observation
	State      machine.State
	Known      bool   // it is in the lab, or of a pool with a profile
	Discover   bool   // it is in no lab file, and the profile of its pool holds it until it is adopted
	Network    string // that it boots from
	Reserved   bool   // it has an address of its own; else it needs one of a pool
	NoMAC      bool   // it is known by its names and addresses alone
	Profile    string // empty: nothing to boot
	VM         bool   // it is virtual
	Image      bool   // its virtual machine is made from an image: nothing installs it, it starts from its disk
	BMC        string // on, off, or what else its controller says; unknown: the controller does not answer; empty: it has none
	BMCProblem string // why BMC is unknown

	Servers      []Server // that do not serve everywhere
	FullPools    []string // of its network, without a free address
	Problems     []string // of its network's interface, its hypervisor and what it boots, measured now
	ConflictText string   // what Conflict says, with the address
	Store        string   // why leases are not stored now; empty: they are
	Checks       []Check  // that fail now
	Cluster      string   // what its cluster waits for; empty: nothing
}

// A Server is one that does not serve everywhere.
type Server struct {
	Name, State, Err string // State is as everywhere else: partly serving
	Down             bool   // it serves nowhere
}

// A Check is one by which a balancer finds the machine unhealthy.
type Check struct{ Balancer, Reason string }

// A Diagnosis says where a boot stopped, and why. It converts to api.Diagnosis.
type Diagnosis struct {
	Host     string
	State    string // Done, Booting, Stopped, Unknown
	Stage    event.Stage
	Since    time.Time    // of the event that State is about; zero: no event
	Reason   event.Reason // of the refusal or the transfer that Cause is about; empty: it is about none
	Cause    string       // one sentence
	Evidence []event.Event
	Facts    []string // measured beside the events
	Do       []string // what to do about it

	HypervisorSilent bool // its hypervisor does not answer: Facts say why

	MachineStage, MachineWhy string // of Machine.State

	Install string // as hosts shows it; empty: nothing to install
}

// maxEvidence bounds Evidence.
const maxEvidence = 8

// Of returns the diagnosis of a machine's last boot. boots are those that the timeline has, the oldest first.
func Of(boots []timeline.Boot, m Machine) Diagnosis {
	boots = ofOne(boots)
	c := &boot{m: m, boots: boots}
	if n := len(boots); n > 0 {
		c.Boot = boots[n-1]
		c.own = ownEvents(c.Boot.Events)
	}
	c.dropConflicts()
	c.dropPrograms()
	d := c.diagnose()
	d.Host, d.State = m.Host, states[m.State.Stage]
	if m.Known {
		d.MachineStage, d.MachineWhy = string(m.State.Stage), m.State.Why
		d.Install = m.Install.Text()
	}
	d = c.addressConflict(d)
	d.Do = c.adoption(d.Do)
	d.Evidence = slices.Clone(d.Evidence) // rules share their events
	slices.SortStableFunc(d.Evidence, func(a, b event.Event) int { return a.At.Compare(b.At) })
	d.Evidence = slices.Compact(d.Evidence)
	if len(d.Evidence) > maxEvidence {
		d.Evidence = d.Evidence[len(d.Evidence)-maxEvidence:]
	}
	if d.State != Done {
		d.Facts = append(d.Facts, c.conflict...)
		d.Facts = append(d.Facts, m.facts()...)
	}
	return d
}

// addressConflict adds to what is not done that another machine uses the address now, unless d is about that.
func (c *boot) addressConflict(d Diagnosis) Diagnosis {
	f := failings[event.AddressConflict]
	if c.m.ConflictText == "" || d.State == Done || strings.HasPrefix(d.Cause, f.cause) {
		return d
	}
	for i := len(c.boots) - 1; i >= 0; i-- {
		if seen := (&boot{Boot: c.boots[i]}).seen(event.AddressConflict); len(seen) > 0 {
			d.Evidence = append(slices.Clone(d.Evidence), seen...)
			break
		}
	}
	d.Facts = append(d.Facts, f.cause+": "+c.m.ConflictText)
	d.Do = append(slices.Clone(d.Do), c.commands(f.do...)...)
	return d
}

// states are what machines at their stages are, to somebody who asks why. The appliance has none.
var states = map[machine.Stage]string{
	machine.Waiting: Booting, machine.Booting: Booting, machine.Installing: Booting, machine.Starting: Booting, machine.Unknown: Unknown, machine.Off: Stopped,
	machine.Stopped: Stopped, machine.Failing: Stopped, machine.Serving: Done, machine.Running: Done, machine.Gone: Done, "": Done,
}

// ofOne returns the boots since a virtual machine was created: those before are another's, which was deleted and had the same name.
func ofOne(boots []timeline.Boot) []timeline.Boot {
	for i := len(boots) - 1; i >= 0; i-- {
		if slices.ContainsFunc(boots[i].Events, func(e event.Event) bool { return e.Kind == event.VMCreated }) {
			return boots[i:]
		}
	}
	return boots
}

// facts are what is wrong beside the boot.
func (m Machine) facts() (facts []string) {
	for _, s := range m.Servers {
		text := "server " + s.Name + " is " + s.State
		if s.Err != "" {
			text += ": " + s.Err
		}
		facts = append(facts, text)
	}
	if !m.Reserved {
		for _, p := range m.FullPools {
			facts = append(facts, "pool "+p+" is full")
		}
	}
	if m.BMCProblem != "" {
		facts = append(facts, "its BMC does not answer: "+m.BMCProblem)
	}
	facts = append(facts, m.Problems...)
	if m.Cluster != "" {
		facts = append(facts, "its cluster waits for "+m.Cluster)
	}
	return facts
}

// down returns the server of that name if it serves nowhere.
func (m Machine) down(name string) *Server {
	if i := slices.IndexFunc(m.Servers, func(s Server) bool { return s.Name == name && s.Down }); i >= 0 {
		return &m.Servers[i]
	}
	return nil
}

// A boot is the last one of a machine, with what is known beside it.
type boot struct {
	timeline.Boot
	m     Machine
	boots []timeline.Boot
	own   []event.Event // of the machine itself, without checks

	conflict []string // about its address, that stops nothing
}

// dropConflicts takes conflicts about the address of a machine away from its events if its installer runs, which needs nothing more
// from here: anybody on its segment can cause them.
func (c *boot) dropConflicts() {
	if c.m.Install.State != install.Installing {
		return
	}
	c.own = slices.DeleteFunc(c.own, func(e event.Event) bool {
		if e.Kind != event.AddressConflict {
			return false
		}
		c.conflict = []string{failings[e.Kind].cause + ": " + e.Err}
		return true
	})
}

// dropPrograms takes requests away from the events of a machine that was marked as installed and has begun no boot since: programs of
// its system sent them.
func (c *boot) dropPrograms() {
	if c.Outcome == timeline.None {
		c.own = slices.DeleteFunc(c.own, func(e event.Event) bool { return reached(e, event.StageAddress) && e.Kind.Refusal() })
	}
}

// ownEvents returns the events that the machine caused, and conflicts about its address.
func ownEvents(events []event.Event) (own []event.Event) {
	for _, e := range events {
		if e.Shows().Order() > 0 && (!e.Claimed || e.Kind == event.AddressConflict) {
			own = append(own, e)
		}
	}
	return own
}

// diagnose explains the state of the machine.
func (c *boot) diagnose() Diagnosis {
	switch s := c.m.State; {
	case states[s.Stage] == Done:
		return c.well()
	case s.Stage == machine.Waiting:
		return c.later()
	case s.Stage == machine.Starting, s.Stage == machine.Failing:
		return c.check()
	case s.Stage.UnderWay():
		return c.underWay()
	case s.Stage == machine.Off, s.Cause == machine.Hypervisor:
		return c.power()
	case s.Cause == machine.Unseen && c.m.Install.State == install.Installed: // whatever failed before
		return c.unseen()
	case s.Cause == machine.Held:
		return c.held()
	case s.Cause == machine.DiskReturns:
		return c.diskReturns()
	case s.Cause == machine.FromDisk:
		return c.fromDisk()
	}
	for _, rule := range []func() (Diagnosis, bool){c.console, c.unstored, c.failure} { // what is certain comes before what is likely
		if d, ok := rule(); ok {
			return d
		}
	}
	switch {
	case c.m.State.Cause == machine.Unseen:
		return c.unseen()
	case c.m.State.Cause == machine.Silent && len(c.own) > 0:
		return c.silent(c.own[len(c.own)-1])
	}
	return c.stopped(c.m.State.Why, c.commands("bootlab timeline HOST shows its last requests; look at its console"))
}

// reached reports whether an event shows the machine at a stage of its boot, or after it.
func reached(e event.Event, stage event.Stage) bool { return e.Shows().Order() >= stage.Order() }

// seen returns the last event of those kinds, if there is one.
func (c *boot) seen(kinds ...event.Kind) []event.Event {
	for i := len(c.Events) - 1; i >= 0; i-- {
		if slices.Contains(kinds, c.Events[i].Kind) {
			return c.Events[i : i+1 : i+1]
		}
	}
	return nil
}

// stopped is the diagnosis of a boot that stopped with the last of events.
func (c *boot) stopped(cause string, do []string, events ...event.Event) (d Diagnosis) {
	d = Diagnosis{Stage: cmp.Or(c.Stage, event.StageMachine), Cause: cause, Do: do, Evidence: events}
	if n := len(events); n > 0 {
		d.Since = events[n-1].At
	}
	return d
}
