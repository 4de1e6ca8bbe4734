package diagnosis

import (
	"cmp"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/machine"
)

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

// networkBoot says how an armed machine comes to boot from the network.
func (c *boot) networkBoot() string {
	if !c.m.VM && c.m.BMC == "" {
		return "select the network in its boot menu: nothing here can restart it"
	}
	return "restart it: bootlab install HOST --now"
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
