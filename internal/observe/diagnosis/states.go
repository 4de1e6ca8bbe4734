package diagnosis

import (
	"cmp"
	"slices"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/internal/observe/timeline"
)

// later is a machine that its cluster creates or switches on when its turn comes.
func (c *boot) later() Diagnosis {
	does := "an admin has to switch it on"
	switch {
	case c.m.Power == machine.PowerAbsent:
		does = "bootlab up creates its virtual machine"
	case c.m.VM:
		does = "bootlab up starts its virtual machine"
	case c.m.BMC != "":
		does = "bootlab up switches it on"
	}
	return Diagnosis{Stage: event.StageMachine, Cause: "it waits for " + c.m.State.Waits + ": " + does + " then"}
}

// power is a machine that cannot boot because it is off, or does not exist, or of which its hypervisor does not say that.
func (c *boot) power() Diagnosis {
	var cause, do string
	switch c.m.Power {
	case machine.PowerAbsent:
		cause, do = "its virtual machine does not exist", "bootlab vm create HOST"
	case machine.PowerOff:
		cause, do = "its virtual machine is off", "bootlab vm start HOST"
		if !c.m.VM {
			cause, do = "it is off, its BMC says", "bootlab power on HOST"
		}
	case machine.PowerCrashed:
		cause, do = "its virtual machine crashed", "bootlab vm start HOST"
	case machine.PowerPaused:
		cause, do = "its hypervisor has paused it", "look at the disks of the hypervisor, a full one pauses its machines; then: virsh resume HOST"
	default: // what failed on a hypervisor that does not answer has the same error, which is said once
		d := Diagnosis{Stage: event.StageMachine, Cause: "its hypervisor does not answer", Do: []string{"bootlab status shows when it answers again"}}
		if c.m.Power == machine.PowerUnasked {
			d.Cause = "its hypervisor has not answered yet"
		}
		if c.m.Problem != "" {
			d.Facts, d.HypervisorSilent = []string{c.m.Problem}, true
		}
		return d
	}
	last := c.seen(event.VMStopped, event.VMDeleted, event.VMCreated, event.VMChanged, event.VMFailed)
	if len(last) > 0 && last[0].Kind == event.VMFailed {
		cause, do = cause+": "+cmp.Or(last[0].Err, last[0].Detail), "bootlab vm plan HOST; remove the cause, then: "+do
	}
	d := c.stopped(cause, c.commands(do), last...)
	d.Stage = event.StageMachine
	return d
}

// well is a machine whose system runs, whatever its last boot shows.
func (c *boot) well() Diagnosis {
	last := c.seen(event.BackendUp)
	if c.m.State.Stage != machine.Serving {
		last = c.seen(event.InstallDone, event.InstallLocalBoot, event.BackendUp, event.DHCPAck)
	}
	d := Diagnosis{Stage: c.Stage, Since: c.Ended, Evidence: last, Cause: "nothing is wrong: " + cmp.Or(c.m.State.Why, "it is the appliance")}
	if len(last) > 0 {
		d.Since = last[0].At
	}
	return d
}

// check is a machine whose system was started and does not pass its check, or whose address another machine uses.
func (c *boot) check() Diagnosis {
	if c.m.State.Conflict != "" {
		d := c.stopped(c.m.State.Why, c.commands(failings[event.AddressConflict].do...), c.seen(event.AddressConflict)...)
		d.Stage = event.StageAddress
		return d
	}
	d := c.well()
	d.Stage, d.Cause = event.StageBalancer, c.m.State.Why
	for _, check := range c.m.Checks {
		if c.m.Elsewhere && check.Balancer == c.m.Check.Balancer {
			continue // the cause says it
		}
		d.Facts = append(d.Facts, "the check of balancer "+check.Balancer+" fails: "+check.Reason)
	}
	if c.m.State.Stage == machine.Starting {
		return d
	}
	d.Since = latest(d.Since, c.m.Check.Since)
	d.Do = c.commands("look at the service on the machine; bootlab backend list shows all checks")
	for _, e := range c.Events {
		if e.Kind == event.BackendDown || e.Kind == event.BackendNew {
			d.Evidence = append(d.Evidence[:len(d.Evidence):len(d.Evidence)], e)
		}
	}
	return d
}

// returnsShown is how many times that a machine was sent to its disk are the evidence.
const returnsShown = 3

// diskReturns is an installed machine that comes back to the network each time it is sent to its disk.
func (c *boot) diskReturns() Diagnosis {
	var sent []event.Event
	for _, b := range c.boots {
		for _, e := range slices.Backward(b.Events) {
			if e.Kind == event.InstallLocalBoot {
				sent = append(sent, e)
				break
			}
		}
	}
	sent = sent[max(0, len(sent)-returnsShown):]
	return c.stopped("it is installed and sent to its own disk, and comes back to the network each time: the disk does not boot",
		c.commands("check the boot order and the disk of its firmware, or install it again: bootlab install HOST"), sent...)
}

// fromDisk is a machine that is to be installed, and whose own system started: as its script was refused, after which firmware goes on with the
// disk, or as it did not boot from the network.
func (c *boot) fromDisk() Diagnosis {
	if d, ok := c.failure(); ok && d.Evidence[len(d.Evidence)-1].Kind == event.ScriptRefused {
		return d
	}
	return c.stopped(c.m.State.Why, c.commands("set the network first in its boot order, or "+c.networkBoot()), c.own[max(0, len(c.own)-1):]...)
}

// unstored is a machine that needs a lease of a pool while leases cannot be stored: it gets offers, and no acknowledgement.
func (c *boot) unstored() (Diagnosis, bool) {
	if c.m.Store == "" || c.m.Reserved || len(c.own) == 0 {
		return Diagnosis{}, false
	}
	last := c.own[len(c.own)-1]
	if last.Kind != event.DHCPDiscover && last.Kind != event.DHCPOffer {
		return Diagnosis{}, false
	}
	return c.stopped("it was offered an address, which is not acknowledged, as the store takes no lease: "+c.m.Store,
		c.commands("bootlab status says what is wrong with the disk of the state; machines with a reservation or a lease are still answered"), last), true
}

// underWay is a machine that goes on by itself. What failed in its boot, or the boot before, is the better hint if it does not.
func (c *boot) underWay() Diagnosis {
	did := slices.DeleteFunc(slices.Clone(c.own), func(e event.Event) bool { return e.Kind == event.AddressConflict }) // another machine did that
	d := Diagnosis{Stage: c.Stage, Cause: c.m.State.Why, Evidence: did[max(0, len(did)-1):]}
	if c.m.Discover && c.Stage == event.StageScript {
		d.Cause = "it is not in the lab file: it waits until it is adopted"
	}
	if len(d.Evidence) > 0 {
		d.Since = d.Evidence[0].At
	}
	if f, ok := c.failure(); ok && (c.m.ConflictText == "" || f.Evidence[len(f.Evidence)-1].Kind != event.AddressConflict) { // else addressConflict says it
		d.Facts = append(d.Facts, "before: "+f.Cause)
	}
	if failed := c.mirrorFailed(); len(failed) > 0 {
		d.Facts, d.Evidence = append(d.Facts, mirrorText(failed[0])), append(d.Evidence, failed...)
	}
	if n := len(c.boots); n > 1 && c.boots[n-2].Outcome == timeline.Failed {
		d.Facts = append(d.Facts, "the boot before it failed: "+c.boots[n-2].Reason)
	}
	return d
}
