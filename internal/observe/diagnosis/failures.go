package diagnosis

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/firmware"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A failing kind of event: what it means for the boot, and what to do. HOST stands for the machine. Beside failures of boots, these are what
// may be why nothing comes.
type failing struct {
	cause string
	do    []string
	by    map[event.Reason]string // what to do where the reason is known
}

var failings = map[event.Kind]failing{
	event.DHCPRefused: {"its DHCPDISCOVER got no offer", []string{"bootlab leases shows who holds addresses; reserve one for this machine: bootlab leases reserve, or a line in the lab file"}, map[event.Reason]string{
		event.PoolFull:     "widen the pool, or release leases: bootlab leases release ADDRESS",
		event.PortLimit:    "bootlab leases shows who holds addresses behind that port; per_port of the pool is the limit",
		event.NoNetwork:    "set interface of its network in the lab file, or connect it to a segment that has a network; of a relay, want its address in a subnet",
		event.OtherNetwork: "connect it to the network of its reservation, or move its line to this network",
	}},
	event.DHCPRogueServerChosen: {"it accepted the offer of another DHCP server", []string{lab.StopRogue}, nil},
	event.DHCPDecline:           {"it declined its address, because another machine answers at it", []string{"find the other machine by its MAC, or give this host another ip"}, nil},
	event.DHCPNak:               {"it asked for an address that it may not have, and was refused", []string{"restart its network client: it must ask for a new address"}, nil},
	event.DHCPLoop:              {"its iPXE leases an address again and again and never fetches its script", []string{"check that it reaches appliance.http: a firewall, a route, an iPXE without HTTP"}, nil},
	event.TFTPFailed:            {"the TFTP transfer of its boot program", []string{"compare the MTU on the way; UDP from a high port may be filtered: appliance.tftp_single_port"}, transferAdvice},
	event.TFTPRefused:           {"it asked for a file by TFTP that it cannot get, and for nothing since", []string{"bootlab plan HOST shows the boot file that it should ask for"}, fileAdvice},
	event.ScriptRefused:         {"its request for a boot script was refused", []string{"bootlab plan HOST renders the script and shows an error in it"}, documentAdvice},
	event.ScriptLoop:            {"it fetches its boot script again and again and no system starts", []string{"check kernel, initrd and their order, then: bootlab install HOST"}, nil},
	event.FileMissing:           {"a file that it loads is not served", []string{"bootlab images pull, if an image is not pulled yet; bootlab check lists files that do not exist"}, fileAdvice},
	event.FileAborted:           {"the transfer of a file", []string{"check its memory (kernel and initrd must fit) and the link; compare the MTU on the way"}, transferAdvice},
	event.ConfigRefused:         {"its request for a config document was refused", []string{"bootlab plan HOST renders the document and shows an error in it; bootlab install HOST begins a new boot with a new token"}, documentAdvice},
	event.AddressConflict:       {"another machine uses its address", []string{"switch that machine off, or add its MAC to the host's line if it is a NIC of it"}, nil},
	event.InstallTimeout:        {"its installer sent no signal within install_timeout; it counts as installed", []string{"look at its console, then: bootlab install HOST"}, nil},
	event.VMFailed:              {"its hypervisor refused an operation", []string{"bootlab vm plan HOST"}, nil},
	event.PowerCycleFailed:      {"its BMC did not power-cycle it", []string{"bootlab power status HOST; check bmc in the lab file"}, nil},
}

// What to do by the reason, where several kinds have it.
var (
	fileAdvice = map[event.Reason]string{
		event.NotFound:   "put the file there: bootlab check lists files that do not exist, bootlab plan HOST names those that it loads",
		event.NotPulled:  "bootlab images pull",
		event.NotServed:  "name the file in the profile, or put it below files/public/",
		event.Unreadable: "let the daemon's user read the file; bootlab status shows what is wrong with a disk",
		event.Busy:       "bootlab status shows the client that has the most TFTP transfers",
	}
	transferAdvice = map[event.Reason]string{
		event.Stalled:     "look at its screen; check its link and the MTU on the way",
		event.FileChanged: "restart it; do not replace a file while machines load it",
		event.Unreadable:  fileAdvice[event.Unreadable],
		event.Busy:        fileAdvice[event.Busy],
	}
	documentAdvice = map[event.Reason]string{
		event.NotFound:     "write the document: bootlab plan HOST names it; the machine asks until it exists",
		event.NotRendered:  "fix the error; bootlab plan HOST renders script and document",
		event.AlreadyRead:  "bootlab install HOST begins a new boot; config_reads of the profile says how often one boot may read it",
		event.WrongToken:   "bootlab install HOST, then restart it: its script is of an older boot",
		event.NoBoot:       "bootlab install HOST, then restart it: only a boot that began with a script may read its document",
		event.WrongAddress: "bootlab leases shows the address that it holds; if another NIC of it asks, add the MAC to the host's line",
		event.OtherMachine: "the event has the MAC: switch that machine off, or add the MAC to the host's line if it is a NIC of it",
		event.Silent:       "check that it answers ARP, and that nothing between it and the appliance answers in its place",
		event.NotStored:    "bootlab status shows what is wrong with the disk",
	}
)

// fromImageAgain is what to do about the disk of a machine that nothing installs.
const fromImageAgain = "bootlab vm delete HOST --disks && bootlab vm create HOST makes its disk from the image again"

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
		d := c.stopped(causeOf(f.cause, e), c.advice(f, e), append(c.leadingTo(i), e)...)
		d.Reason = e.Reason
		return d, true
	}
	return Diagnosis{}, false
}

// advice returns what to do about a failure.
func (c *boot) advice(f failing, e event.Event) []string {
	if !c.m.Known && e.Reason == event.NoReservation {
		return nil // see adoption
	}
	if program := path.Base(e.Detail); e.Reason == event.NotFound && slices.Contains(firmware.Names(), program) {
		return []string{"it is a boot program: put " + program + " into a folder, and name that by bootlab serve --firmware FOLDER; bootlab firmware lists those that are missing"}
	}
	if do, ok := f.by[e.Reason]; ok {
		return c.commands(do)
	}
	return c.commands(f.do...)
}

// adoption adds to do how a machine that is in no lab file becomes a host.
func (c *boot) adoption(do []string) []string {
	switch {
	case c.m.Known && !c.m.Discover:
		return do
	case len(c.own) == 0:
		return []string{"no host of the lab file has this MAC, and no machine with it was seen: bootlab hosts --unknown lists machines that were; bootlab adopt MAC prints lab-file lines for one"}
	}
	return append(do, c.commands("bootlab adopt HOST prints lab-file lines for this machine")...)
}

// causeOf adds to a cause how far a transfer came, what the event is about, and why. What the reason does not say, such as which line of a
// template is wrong or what a hypervisor answered, the event's text does.
func causeOf(cause string, e event.Event) string {
	if e.Kind == event.FileAborted || e.Kind == event.TFTPFailed {
		cause += howFar(e)
	}
	if e.Detail != "" && e.Kind.Stage() != event.StageAddress { // there it is the client
		cause += ": " + e.Detail
	}
	why := e.Reason.Help()
	if e.Kind == event.AddressConflict { // the cause says it
		why = ""
	}
	if why != "" {
		cause += ": " + why
	}
	if e.Err != "" && (why == "" || e.Reason == event.NotRendered) {
		cause += ": " + e.Err
	}
	return cause
}

// howFar says where a transfer ended.
func howFar(e event.Event) string {
	how := " broke off"
	if e.Reason == event.Stalled {
		how = " stalled"
	}
	if e.Size > 0 {
		how += fmt.Sprintf(" at %d %% of %s", 100*e.Bytes/e.Size, lab.Size(e.Size).Rounded())
	}
	return how
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
	if failed.Kind == event.AddressConflict {
		return reached(later, event.StageFirmware) // it got an answer at its address
	}
	if failed.Kind == event.ScriptRefused && later.Client == event.ClientOS {
		return false // firmware goes on with the disk
	}
	if failed.Kind == event.FileMissing || failed.Kind == event.FileAborted {
		return later.Kind == event.FileServed && later.Detail == failed.Detail || reached(later, failed.Shows()) && later.Shows() != failed.Shows()
	}
	if failed.Shows() == event.StageFirmware && later.Kind == event.DHCPAck && later.Client == event.ClientIPXE {
		return true // iPXE runs; it asks for autoexec.ipxe in passing
	}
	return reached(later, failed.Shows())
}

// held is a machine that starts from its own disk until an admin says whether it is installed.
func (c *boot) held() Diagnosis {
	cause, i := "its install state was lost: it starts from its own disk until an admin says what it is", c.m.Install
	switch {
	case i.HeldByRestore():
		cause = "a restore holds it: it starts from its own disk, as it may have been installed after the backup was made"
	case i.Held:
		cause = "it booted too often without finishing, and is held"
	case i.Other != "":
		cause = "its install state is unknown, as " + i.Why + ": it starts from its own disk until an admin says what it is"
	}
	d := c.stopped(cause, i.Advice(c.m.Host), c.seen(event.InstallLoop, event.ScriptLoop, event.InstallUnknown)...)
	d.Stage = event.StageInstall
	return d
}

// console is a line on the serial console after which the machine did nothing more.
func (c *boot) console() (Diagnosis, bool) {
	if len(c.own) == 0 {
		return Diagnosis{}, false
	}
	e := c.own[len(c.own)-1]
	causes := map[event.Kind]failing{
		event.ConsolePanic:        {"its kernel panicked", []string{"bootlab vm log HOST shows the console; check the memory of the machine, root= and the initrd"}, nil},
		event.ConsoleEmergency:    {"its system stopped in an emergency shell", []string{"bootlab vm log HOST shows the console; bootlab vm console HOST opens it"}, nil},
		event.ConsoleNoBootDevice: {"its firmware found nothing to boot", []string{"bootlab vm plan HOST shows disks and boot order; bootlab install HOST installs it"}, nil},
	}
	if c.m.Image {
		causes[event.ConsoleNoBootDevice] = failing{"its firmware found nothing to boot", []string{"bootlab vm plan HOST shows disks and boot order; " + fromImageAgain}, nil}
	}
	f, ok := causes[e.Kind]
	if !ok {
		return Diagnosis{}, false
	}
	return c.stopped(causeOf(f.cause, e), c.commands(f.do...), append(c.leadingTo(len(c.own)-1), e)...), true
}
