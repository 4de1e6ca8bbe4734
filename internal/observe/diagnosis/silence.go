package diagnosis

import (
	"cmp"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
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
		return c.stopped(c.m.State.Why, c.commands(failings[event.AddressConflict].do...), c.seen(event.AddressConflict)...)
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

// way is what to check where nothing of a machine arrives.
const way = "boot order, cable, VLAN, and the MAC in the lab file (bootlab hosts --unknown lists others)"

// unseen is a machine of which no packet was received since it was switched on. Its install state, not an event, says what it boots next: a
// crash or a restore can lose events.
func (c *boot) unseen() Diagnosis {
	last := event.Event{}
	if n := len(c.own); n > 0 {
		last = c.own[n-1]
	}
	d := Diagnosis{Stage: cmp.Or(c.Stage, event.StageAddress), Evidence: c.own, Since: last.At}
	on := c.m.Power == machine.PowerOn || c.m.BMC == "on"
	switch {
	case c.m.NoMAC:
		d.Cause = "it has no mac in the lab file: what it sends to boot is not known to be from it"
		d.Do = c.commands("add its mac to the lab file if it boots from the network; bootlab hosts --unknown lists machines that tried")
	case c.m.down("dhcpd") != nil:
		d.Cause, d.Do = "the DHCP server does not serve, and no request of the machine was received", c.commands("bootlab status")
	case c.m.State.Stage == machine.Stopped:
		d.Cause, d.Do = c.m.State.Why, c.commands("check "+way)
	case c.m.Install.State == install.Armed && !c.m.Install.Since.IsZero():
		d.Cause = "it is to be installed at its next network boot, and no packet of it was received since it was armed"
		d.Do = c.commands(c.networkBoot())
	case c.m.Install.State == install.Installed:
		d.Cause = "it is installed, and no packet of it was received since"
	case on:
		d.Cause = "it is on, and no packet of it was received since bootlab knows it: its system may have run all the time"
		d.Do = c.commands("restart it to see it boot; if nothing comes then, check " + way)
	case c.m.BMC != "":
		d.Cause = "no packet of it was received: whether it is on is not known here"
		d.Do = c.commands("bootlab power status HOST; then " + way)
	default:
		d.Cause = "no packet of it was received: it is off, does not boot from the network, is in another network, or has another MAC than in the lab file"
		d.Do = c.commands("switch it on; bootlab hosts --unknown lists machines with another MAC")
	}
	return d
}

// afterPower is what it can mean that a machine was switched on, and no packet of it was received.
func (c *boot) afterPower() silence {
	bridge := "check that its NIC is on the bridge of network " + c.m.Network
	switch {
	case !c.m.VM:
		return silence{"dhcpd", "it was power-cycled, and no packet of it was received", "check " + way}
	case c.m.Image:
		return silence{"dhcpd", "its virtual machine runs, and no DHCP packet of it was received", "its system starts from its disk: bootlab vm console HOST shows it; " + bridge}
	}
	return silence{"dhcpd", "its virtual machine runs, and no DHCP packet of it was received", bridge + " and boots first: bootlab vm plan HOST"}
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

// networkBoot says how an armed machine comes to boot from the network.
func (c *boot) networkBoot() string {
	if !c.m.VM && c.m.BMC == "" {
		return "select the network in its boot menu: nothing here can restart it"
	}
	return "restart it: bootlab install HOST --now"
}

// underWay is a machine that goes on by itself. What failed in its boot, or the boot before, is the better hint if it does not.
func (c *boot) underWay() Diagnosis {
	d := Diagnosis{Stage: c.Stage, Cause: c.m.State.Why, Evidence: c.own[max(0, len(c.own)-1):]}
	if len(d.Evidence) > 0 {
		d.Since = d.Evidence[0].At
	}
	if f, ok := c.failure(); ok {
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

// A silence is what it can mean that nothing came after an event.
type silence struct {
	server    string // that answers the next request; if it does not serve, that is the cause
	cause, do string
}

// silent is a boot whose last event is no failure.
func (c *boot) silent(last event.Event) Diagnosis {
	if c.m.State.Stage == machine.Unknown { // what a script of the admin's own does elsewhere is not seen here
		return Diagnosis{Stage: c.Stage, Since: last.At, Evidence: []event.Event{last}, Cause: c.m.State.Why}
	}
	if failed := c.mirrorFailed(); len(failed) > 0 {
		return c.stopped(mirrorText(failed[0])+"; it has sent nothing since", c.commands(mirrorAdvice), last, failed[0])
	}
	s := c.silenceAfter(last)
	if srv := c.m.down(s.server); srv != nil {
		s.cause, s.do = s.cause+": server "+srv.Name+" does not serve", "bootlab status shows why"
	}
	return c.stopped(s.cause, c.commands(s.do), append(c.seen(event.DHCPRogue), last)...)
}

// mirrorAdvice is what to do about a mirror without an upstream.
const mirrorAdvice = "bootlab status shows whether an upstream of the mirror answers again; then look at its console, or restart it: bootlab install HOST"

// mirrorFailed returns the last event of the boot by which it did not get a file of a mirror, if nothing that the machine did came after it.
func (c *boot) mirrorFailed() []event.Event {
	for i, e := range slices.Backward(c.Events) {
		switch {
		case e.Claimed:
		case e.Kind == event.MirrorFailed:
			return c.Events[i : i+1 : i+1]
		case e.Shows().Order() > 0 && e.Shows() != event.StageBalancer:
			return nil
		}
	}
	return nil
}

func mirrorText(e event.Event) string {
	return "mirror " + e.Mirror + " could not give it " + e.Detail + ": " + e.Err
}

func latest(a, b time.Time) time.Time {
	return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare)
}

func (c *boot) silenceAfter(last event.Event) silence {
	switch at := last.Shows(); {
	case at == event.StageMachine:
		return c.afterPower()
	case at == event.StageAddress:
		return c.afterAddress(last)
	case at == event.StageFirmware && last.Kind == event.TFTPProbe:
		return silence{"tftpd", "it asked for the size of its boot program and never transferred it", "UDP from a high port may be filtered: appliance.tftp_single_port"}
	case at == event.StageFirmware:
		return silence{"dhcpd", "it fetched its boot program, which has asked for nothing since: it did not start (Secure Boot, a wrong architecture), or has no driver for the NIC", "look at its screen; docs/secure-boot.md; try another firmware in its profile"}
	case at == event.StageScript:
		return silence{"httpd", "it has its boot script, and finished no file since", "look at its screen; a large file over a slow link may still be on its way"}
	case at == event.StageFiles:
		return silence{"dhcpd", "it fetched its last file, and no system asked for an address or a config document since: the kernel did not start, or has no network in its initrd", "look at its console; check the kernel's arguments, its NIC driver and its memory: bootlab plan HOST"}
	case at == event.StageSystem && c.m.Document:
		return silence{"httpd", "its system has asked for an address and for no config document", "check the kernel's arguments that name the document: bootlab plan HOST"}
	}
	return silence{"httpd", "its installer or system has sent nothing since, and has not reported that it is done", "look at its console; bootlab install HOST --done if it is installed"}
}

func (c *boot) afterAddress(last event.Event) silence {
	other := c.seen(event.DHCPRogue)
	switch {
	case last.Kind == event.DHCPDiscover:
		return silence{"dhcpd", "its DHCPDISCOVER got no offer, and no reason was recorded", "another DHCP server may answer it; bootlab plan HOST shows its reservation"}
	case last.Kind == event.DHCPOffer && len(other) > 0:
		return silence{"", "it was offered an address and did not request it; another DHCP server answers in its network: " + other[0].Detail, lab.StopRogue}
	case last.Kind == event.DHCPOffer, last.Kind == event.DHCPProxyOffer:
		return silence{"", "it was offered an address and did not request it: the offer does not reach it, or another DHCP server answered", "check relay, VLAN and firewall between it and the appliance"}
	case last.Client == event.ClientIPXE:
		return silence{"httpd", "its iPXE has an address and has not fetched its script", "check that it reaches appliance.http: a firewall, a route"}
	case c.m.Image:
		return silence{"", "it is made from an image, and its firmware tries the network: its disk does not boot", fromImageAgain}
	case c.m.Profile == "":
		return silence{"", "it has an address, and no profile: bootlab has nothing for it to boot", "give the host a profile in the lab file"}
	}
	return silence{"tftpd", "it has an address and a boot file, and has not fetched it", "check that the firmware boots from the network by IPv4, and a firewall for UDP 69"}
}
