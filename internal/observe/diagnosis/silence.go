package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/internal/observe/timeline"
)

// later is a machine that its cluster creates or switches on when its turn comes.
func (c *boot) later() (Diagnosis, bool) {
	does := map[machine.Power]string{machine.PowerAbsent: "bootlab up creates its virtual machine", machine.PowerOff: "bootlab up starts its virtual machine", "": "bootlab up switches it on"}[c.m.VM]
	if c.m.VM == "" && c.m.BMC == "" {
		does = "an admin has to switch it on"
	}
	if c.m.State.Stage != machine.Waiting || does == "" {
		return Diagnosis{}, false
	}
	return Diagnosis{State: Booting, Stage: event.StageVM, Cause: "it waits for " + c.m.State.Waits + ": " + does + " then"}, true
}

// power is a machine that cannot boot because it is off, or does not exist.
func (c *boot) power() (Diagnosis, bool) {
	var cause, do string
	switch c.m.VM {
	case "":
		if c.m.BMC != "off" {
			return Diagnosis{}, false
		}
		cause, do = "it is off, its BMC says", "bootlab power on HOST"
	case machine.PowerAbsent:
		cause, do = "its virtual machine does not exist", "bootlab vm create HOST"
	case machine.PowerOff:
		cause, do = "its virtual machine is off", "bootlab vm start HOST"
	case machine.PowerCrashed:
		cause, do = "its virtual machine crashed", "bootlab vm start HOST"
	case machine.PowerPaused:
		cause, do = "its hypervisor has paused it", "look at the disks of the hypervisor, a full one pauses its machines; then: virsh resume HOST"
	case machine.PowerSilent, machine.PowerUnasked: // what failed on a hypervisor that does not answer has the same error, which is said once
		d := Diagnosis{State: Unknown, Stage: event.StageVM, Cause: "its hypervisor does not answer", Do: []string{"bootlab status shows when it answers again"}}
		if c.m.VM == machine.PowerUnasked {
			d.Cause = "its hypervisor has not answered yet"
		}
		if c.m.VMProblem != "" {
			d.Facts, d.HypervisorSilent = []string{c.m.VMProblem}, true
		}
		return d, true
	default:
		return Diagnosis{}, false
	}
	last := c.seen(event.VMStopped, event.VMDeleted, event.VMCreated, event.VMChanged, event.VMFailed)
	if len(last) > 0 && last[0].Kind == event.VMFailed {
		cause, do = cause+": "+cmp.Or(last[0].Err, last[0].Detail), "bootlab vm plan HOST; remove the cause, then: "+do
	}
	d := c.stopped(cause, c.commands(do), last...)
	d.Stage = event.StageVM
	return d, true
}

// serves is a machine whose balancer says that it is well, whatever its last boot shows.
func (c *boot) serves() (Diagnosis, bool) {
	if c.m.State.Stage != machine.Serving {
		return Diagnosis{}, false
	}
	d := Diagnosis{State: Done, Stage: c.Stage, Evidence: c.seen(event.BackendUp), Cause: "nothing is wrong: " + c.m.State.Why}
	if len(d.Evidence) > 0 {
		d.Since = d.Evidence[0].At
	}
	return d, true
}

// taken is a machine whose system was started, and whose address another machine uses.
func (c *boot) taken() (Diagnosis, bool) {
	if c.m.State.Conflict == "" {
		return Diagnosis{}, false
	}
	return c.stopped(c.m.State.Why, c.commands(failings[event.AddressConflict].do...), c.seen(event.AddressConflict)...), true
}

// finished is a boot that came to its end, and the health of the system since.
func (c *boot) finished() (Diagnosis, bool) {
	up := len(c.own) > 0 && c.own[len(c.own)-1].Kind == event.BackendUp
	if c.Outcome != timeline.Done && !up {
		return Diagnosis{}, false
	}
	var last []event.Event
	for i := len(c.own) - 1; i >= 0 && len(last) == 0; i-- {
		switch e := c.own[i]; e.Kind {
		case event.InstallDone, event.InstallLocalBoot, event.BackendUp, event.DHCPAck:
			last = []event.Event{e}
		}
	}
	d := Diagnosis{State: Done, Stage: c.Stage, Since: c.Ended, Evidence: last, Cause: "nothing is wrong: its last boot is complete"}
	if len(last) > 0 {
		d.Since = last[0].At
	}
	if len(c.m.Checks) > 0 {
		first := c.m.Checks[0]
		if machine.Starts(first.Since, d.Since, c.now) {
			d.State, d.Stage = Booting, event.StageBalancer
			d.Cause = fmt.Sprintf("its system was started, and does not pass the check of balancer %s yet: %s", first.Balancer, first.Reason)
			return d, true
		}
		d.State, d.Stage, d.Since = Stopped, event.StageBalancer, latest(d.Since, first.Since)
		d.Cause = fmt.Sprintf("its system was started, and fails the check of balancer %s: %s", first.Balancer, first.Reason)
		d.Do = c.commands("look at the service on the machine; bootlab backend list shows all checks")
		for _, e := range c.Events {
			if e.Kind == event.BackendDown || e.Kind == event.BackendNew {
				d.Evidence = append(d.Evidence, e)
			}
		}
	}
	return d, true
}

// fromDisk is a machine that started from its disk though it is to be installed.
func (c *boot) fromDisk() (Diagnosis, bool) {
	since := c.own
	if c.Outcome == timeline.Done { // what its system has done since is kept with the boot
		since = slices.DeleteFunc(slices.Clone(since), func(e event.Event) bool { return !e.At.After(c.Ended) })
	}
	if c.m.Install != "armed" || len(since) == 0 || since[len(since)-1].Shows() != event.StageSystem || fetched(since) ||
		!slices.ContainsFunc(since, func(e event.Event) bool { return e.Kind == event.DHCPDiscover }) {
		return Diagnosis{}, false
	}
	return c.stopped("its own system asked for an address: it started from its disk, not from the network, and is to be installed",
		c.commands("set the network first in its boot order, or "+c.networkBoot()), c.own[len(c.own)-1]), true
}

// fetched reports whether the machine fetched anything to boot.
func fetched(own []event.Event) bool {
	return slices.ContainsFunc(own, func(e event.Event) bool { return reached(e, event.StageFirmware) && !reached(e, event.StageSystem) })
}

// runs is a system that was started, of a machine with nothing to install.
func (c *boot) runs() (Diagnosis, bool) {
	last := c.own[len(c.own)-1]
	switch at := last.Shows(); {
	case at == event.StageSystem && !fetched(c.own), c.m.Install == "" && reached(last, event.StageSystem) && !(at == event.StageSystem && c.m.Document):
		return Diagnosis{State: Done, Stage: c.Stage, Since: last.At, Evidence: []event.Event{last}, Cause: "nothing is wrong: its system runs"}, true
	}
	return Diagnosis{}, false
}

// returnsShown is how many times that a machine was sent to its disk are the evidence.
const returnsShown = 3

// diskReturns is an installed machine that comes back to the network each time it is sent to its disk.
func (c *boot) diskReturns() (Diagnosis, bool) {
	if !c.m.Returns {
		return Diagnosis{}, false
	}
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
		c.commands("check the boot order and the disk of its firmware, or install it again: bootlab install HOST"), sent...), true
}

// unseen is a machine of which no packet was received since it was switched on.
func (c *boot) unseen() (Diagnosis, bool) {
	last := event.Event{}
	for _, e := range c.own {
		if reached(e, event.StageAddress) && !(e.Kind == event.InstallDone && c.Outcome == timeline.None) { // that mark is an admin's
			return Diagnosis{}, false
		}
		last = e
	}
	patience := map[event.Kind]time.Duration{event.VMStarted: machine.FirmwarePatience, event.PowerCycled: machine.PowerPatience}[last.Kind]
	if c.now.Sub(last.At) < patience {
		return c.underWay(last), true
	}
	d := Diagnosis{State: Stopped, Stage: cmp.Or(c.Stage, event.StageAddress), Evidence: c.own, Since: last.At}
	switch {
	case c.m.NoMAC:
		d.State = Unknown
		d.Cause = "it has no mac in the lab file: what it sends to boot is not known to be from it"
		d.Do = c.commands("add its mac to the lab file if it boots from the network; bootlab hosts --unknown lists machines that tried")
	case c.m.down("dhcpd") != nil:
		d.Cause, d.Do = "the DHCP server does not serve, and no request of the machine was received", c.commands("bootlab status")
	case last.Kind == event.InstallArmed:
		d.State, d.Stage = Unknown, event.StageVM
		d.Cause = "it is to be installed at its next network boot, and no packet of it was received since it was armed"
		d.Do = c.commands(c.networkBoot())
	case last.Kind == event.InstallDone:
		d.State, d.Stage = Unknown, event.StageVM
		d.Cause = "it was marked as installed, and no packet of it was received since"
	case last.Kind == event.PowerCycled:
		d.Cause = "it was power-cycled, and no packet of it was received"
		d.Do = c.commands("check boot order, cable, VLAN, and the MAC in the lab file (bootlab hosts --unknown lists others)")
	case last.Kind == event.Unknown && (c.m.VM == machine.PowerOn || c.m.BMC == "on"):
		d.State = Unknown
		d.Cause = "it is on, and no packet of it was received since bootlab knows it: its system may have run all the time"
		d.Do = c.commands("restart it to see it boot; if nothing comes then, check boot order, cable, VLAN, and the MAC in the lab file (bootlab hosts --unknown lists others)")
	case c.m.VM == machine.PowerOn && c.m.Image:
		d.Cause = "its virtual machine runs, and no DHCP packet of it was received"
		d.Do = c.commands("its system starts from its disk: bootlab vm console HOST shows it; check that its NIC is on the bridge of network " + c.m.Network)
	case c.m.VM == machine.PowerOn:
		d.Cause = "its virtual machine runs, and no DHCP packet of it was received"
		d.Do = c.commands("check that its NIC is on the bridge of network " + c.m.Network + " and boots first: bootlab vm plan HOST")
	case c.m.BMC != "":
		d.State = Unknown
		d.Cause = "no packet of it was received: whether it is on is not known here"
		d.Do = c.commands("bootlab power status HOST; then boot order, cable, VLAN, and the MAC in the lab file (bootlab hosts --unknown lists others)")
	default:
		d.State = Unknown
		d.Cause = "no packet of it was received: it is off, does not boot from the network, is in another network, or has another MAC than in the lab file"
		d.Do = c.commands("switch it on; bootlab hosts --unknown lists machines with another MAC")
	}
	return d, true
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
	if c.m.VM == "" && c.m.BMC == "" {
		return "select the network in its boot menu: nothing here can restart it"
	}
	return "restart it: bootlab install HOST --now"
}

// underWay is a boot whose last event is too young to say more. A boot before it that failed is the better hint.
func (c *boot) underWay(last event.Event) Diagnosis {
	d := Diagnosis{State: Booting, Stage: c.Stage, Since: last.At, Evidence: []event.Event{last}, Cause: "it is booting: " + last.Kind.Help()}
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
	s := c.silenceAfter(last)
	if c.now.Sub(latest(last.At, c.Ended)) < machine.Patience(last.Shows(), c.m.Document) { // of a long boot the last events are counted, not kept
		return c.underWay(last)
	}
	if srv := c.m.down(s.server); srv != nil {
		s.cause, s.do = s.cause+": server "+srv.Name+" does not serve", "bootlab status shows why"
	}
	if c.m.OwnScript && last.Shows() == event.StageScript {
		return Diagnosis{State: Unknown, Stage: c.Stage, Since: last.At, Evidence: []event.Event{last},
			Cause: "it fetched an iPXE script of your own, and nothing from bootlab since: what the script does elsewhere is not seen here"}
	}
	return c.stopped(s.cause, c.commands(s.do), append(c.seen(event.DHCPRogue), last)...)
}

func latest(a, b time.Time) time.Time {
	return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare)
}

func (c *boot) silenceAfter(last event.Event) silence {
	switch at := last.Shows(); {
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
		return silence{"", "it was offered an address and did not request it; another DHCP server answers in its network: " + other[0].Detail, lab.StopOtherServer}
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
