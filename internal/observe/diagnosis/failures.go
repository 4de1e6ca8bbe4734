package diagnosis

import (
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/observe/event"
)

// A failing kind of event: what it means for the boot, and what to do. HOST stands for the machine.
type failing struct {
	cause string
	do    []string
}

var failings = map[event.Kind]failing{
	event.DHCPRefused:           {"its DHCPDISCOVER got no offer", []string{"bootlab leases shows who holds addresses; reserve one for this machine: bootlab leases reserve, or a line in the lab file"}},
	event.DHCPOtherServerChosen: {"it accepted the offer of another DHCP server", []string{"switch the other DHCP server off, or set dhcp: proxy for this network"}},
	event.DHCPDecline:           {"it declined its address, because another machine answers at it", []string{"find the other machine by its MAC, or give this host another ip"}},
	event.DHCPNak:               {"it asked for an address that it may not have, and was refused", []string{"restart its network client: it must ask for a new address"}},
	event.DHCPLoop:              {"its iPXE leases an address again and again and never fetches its script", []string{"check that it reaches appliance.http: a firewall, a route, an iPXE without HTTP"}},
	event.TFTPFailed:            {"the TFTP transfer of its boot program broke off", []string{"compare the MTU on the way; UDP from a high port may be filtered: appliance.tftp_single_port"}},
	event.TFTPRefused:           {"it asked for a file by TFTP that it cannot get, and for nothing since", []string{"bootlab plan HOST shows the boot file that it should ask for"}},
	event.ScriptRefused:         {"its request for a boot script was refused", []string{"bootlab plan HOST renders the script and shows an error in it"}},
	event.ScriptLoop:            {"it fetches its boot script again and again and no system starts", []string{"check kernel, initrd and their order, then: bootlab install HOST"}},
	event.FileMissing:           {"a file that it loads cannot be had", []string{"bootlab images pull, if an image is not pulled yet; bootlab check lists files that do not exist"}},
	event.FileAborted:           {"it broke the transfer of a file off", []string{"check its memory (kernel and initrd must fit) and the link; compare the MTU on the way"}},
	event.ConfigRefused:         {"its request for a config document was refused", []string{"bootlab plan HOST renders the document and shows an error in it; bootlab install HOST begins a new boot with a new token"}},
	event.AddressConflict:       {"another machine uses its address", []string{"the event has the MAC: switch that machine off, or add the MAC to the host's line if it is a NIC of it"}},
	event.InstallTimeout:        {"its installer sent no signal within install_timeout; it counts as installed", []string{"look at its console, then: bootlab install HOST"}},
	event.VMFailed:              {"its hypervisor refused an operation", []string{"bootlab vm plan HOST"}},
	event.PowerCycleFailed:      {"its BMC did not power-cycle it", []string{"bootlab power status HOST; check bmc in the lab file"}},
}

// commands puts the machine into advice.
func (c *boot) commands(do ...string) []string {
	out := make([]string, len(do))
	for i, line := range do {
		out[i] = strings.ReplaceAll(line, "HOST", c.m.Host)
	}
	return out
}

// failure finds the last failure that nothing later made good.
func (c *boot) failure() (Diagnosis, bool) {
	for i := len(c.own) - 1; i >= 0; i-- {
		e := c.own[i]
		f, ok := failings[e.Kind]
		if !ok || slices.ContainsFunc(c.own[i+1:], func(later event.Event) bool { return makesGood(e, later) }) {
			continue
		}
		if e.Kind == event.DHCPRefused {
			return c.refused(e), true
		}
		evidence := append(c.leadingTo(i), e)
		return stopped(quoting(f.cause, e), c.commands(f.do...), evidence...), true
	}
	return Diagnosis{}, false
}

// quoting adds to a cause what the event says, as it is.
func quoting(cause string, e event.Event) string {
	if e.Detail != "" && e.Kind.Stage() != event.StageAddress { // there it is the client
		cause += ": " + e.Detail
	}
	if e.Err != "" {
		cause += ": " + e.Err
	}
	return cause
}

// refused is the diagnosis of a DHCPDISCOVER without an offer.
func (c *boot) refused(e event.Event) Diagnosis {
	do := failings[event.DHCPRefused].do
	switch {
	case !c.m.Known:
		do = []string{"bootlab adopt HOST prints the lab-file lines for this machine"}
	case !c.m.Reserved && len(c.m.FullPools) > 0:
		do = []string{"widen the pool, or release leases: bootlab leases release ADDRESS"}
	}
	return stopped(quoting(failings[event.DHCPRefused].cause, e), c.commands(do...), e)
}

// leadingTo returns the last good step before an event.
func (c *boot) leadingTo(i int) []event.Event {
	for k := i - 1; k >= 0; k-- {
		if _, bad := failings[c.own[k].Kind]; !bad {
			return []event.Event{c.own[k]}
		}
	}
	return nil
}

// makesGood reports whether a later event shows that a failure did not stop the boot. A file that is missing or broken off is made good by
// that file, or by what comes after files; a request that was repeated, by its answer.
func makesGood(failed, later event.Event) bool {
	if _, bad := failings[later.Kind]; bad || later.Kind == event.DHCPDiscover {
		return false
	}
	if failed.Kind == event.FileMissing || failed.Kind == event.FileAborted {
		return later.Kind == event.FileServed && later.Detail == failed.Detail || rank(later) > rank(failed)
	}
	if rank(failed) == 3 && later.Kind == event.DHCPAck && later.Client == event.ClientIPXE {
		return true // iPXE runs; it asks for autoexec.ipxe in passing
	}
	return rank(later) >= rank(failed)
}

// held is a machine that bootlab itself keeps from booting.
func (c *boot) held() (Diagnosis, bool) {
	switch c.m.Install {
	case "held":
		d := stopped("it booted too often without finishing, and is held", c.commands("fix its profile, then: bootlab install HOST"), c.seen(event.InstallLoop, event.ScriptLoop)...)
		d.Stage = event.StageInstall
		return d, true
	case "unknown":
		d := stopped("its install state was lost: it starts from its own disk until an admin says what it is",
			c.commands("bootlab install HOST installs it; bootlab install HOST --done says that it is installed"), c.seen(event.InstallUnknown)...)
		d.Stage = event.StageInstall
		return d, true
	}
	return Diagnosis{}, false
}

// console is a line on the serial console after which the machine did nothing more.
func (c *boot) console() (Diagnosis, bool) {
	if len(c.own) == 0 {
		return Diagnosis{}, false
	}
	e := c.own[len(c.own)-1]
	causes := map[event.Kind]failing{
		event.ConsolePanic:        {"its kernel panicked", []string{"bootlab vm log HOST shows the console; check the memory of the machine, root= and the initrd"}},
		event.ConsoleEmergency:    {"its system stopped in an emergency shell", []string{"bootlab vm log HOST shows the console; bootlab vm console HOST opens it"}},
		event.ConsoleNoBootDevice: {"its firmware found nothing to boot", []string{"bootlab vm plan HOST shows disks and boot order; bootlab install HOST installs it"}},
	}
	f, ok := causes[e.Kind]
	if !ok {
		return Diagnosis{}, false
	}
	return stopped(quoting(f.cause, e), c.commands(f.do...), append(c.leadingTo(len(c.own)-1), e)...), true
}
