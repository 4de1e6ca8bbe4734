package diagnosis_test

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/diagnosis"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/internal/observe/timeline"
	"github.com/bootlab/bootlab/test/support/storetest"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// ev is an event of a boot. Events of a test are a second apart.
func ev(k event.Kind, more ...string) event.Event {
	e := event.Event{Kind: k}
	if len(more) > 0 {
		e.Detail = more[0]
	}
	if len(more) > 1 {
		e.Err = more[1]
	}
	return e
}

// because is an event that failed for that reason.
func because(k event.Kind, r event.Reason, detail, err string) event.Event {
	return event.Event{Kind: k, Reason: r, Detail: detail, Err: err}
}

func dhcp(k event.Kind, c event.Client) event.Event { return event.Event{Kind: k, Client: c} }

// leased are the DHCP messages of one client that gets its address.
func leased(c event.Client) []event.Event {
	return []event.Event{dhcp(event.DHCPDiscover, c), dhcp(event.DHCPOffer, c), dhcp(event.DHCPAck, c)}
}

// toScript is a boot up to its script, and from there on.
func toScript(more ...event.Event) (all []event.Event) {
	all = append(all, leased(event.ClientPXE)...)
	all = append(all, ev(event.TFTPServed, "ipxe.efi"))
	all = append(all, leased(event.ClientIPXE)...)
	all = append(all, ev(event.ScriptServed, "boot.ipxe"), ev(event.InstallBooting))
	return append(all, more...)
}

// toKernel is a boot whose kernel asked for an address, and from there on.
func toKernel(more ...event.Event) []event.Event {
	all := toScript(ev(event.FileServed, "k"), ev(event.FileServed, "i"))
	return append(append(all, leased(event.ClientOS)...), more...)
}

// boot dates events from at on.
func boot(outcome string, at time.Time, events ...event.Event) timeline.Boot {
	b := timeline.Boot{Host: "a", Started: at, Outcome: outcome}
	for i, e := range events {
		e.At = at.Add(time.Duration(i) * time.Second)
		b.Events, b.Ended = append(b.Events, e), e.At
	}
	return b
}

func TestOf(t *testing.T) {
	t.Parallel()
	host := machineOf(install.Armed)
	with := func(change func(*diagnosis.Machine)) diagnosis.Machine { m := host; change(&m); return m }
	vm := func(state machine.Power) diagnosis.Machine {
		return with(func(m *diagnosis.Machine) { m.VM, m.Power = true, state })
	}
	image := func(state machine.Power) diagnosis.Machine {
		return with(func(m *diagnosis.Machine) {
			m.VM, m.Power, m.Image, m.Profile, m.Document, m.Install.State = true, state, true, "", false, install.Live
		})
	}
	later := machine.State{Stage: machine.Waiting, Waits: "the control plane"}
	live, installed := machineOf(install.Live), machineOf(install.Installed)
	marked := with(func(m *diagnosis.Machine) {
		m.Install = install.Status{State: install.Installed, ByAdmin: true, Since: start.Add(time.Hour)}
	})
	discovered := with(func(m *diagnosis.Machine) {
		m.Discover, m.Reserved, m.Profile, m.Install.State = true, false, "", install.Live
		m.State = machine.State{Stage: machine.Booting, Why: "it boots from the network"}
	})
	armed := with(func(m *diagnosis.Machine) { m.Install.Since = start })
	for _, tt := range []struct {
		name    string
		machine diagnosis.Machine
		outcome string // of the boot, if not booting
		events  []event.Event
		state   string
		stage   event.Stage
		cause   string // that the cause contains
		do      string // that the advice contains
		fact    string
	}{
		{name: "never seen", machine: host, state: diagnosis.Unknown, stage: event.StageAddress, cause: "no packet of it was received: it is off, does not boot", do: "hosts --unknown"},
		{name: "never seen, without a MAC", machine: with(func(m *diagnosis.Machine) { m.NoMAC = true }), state: diagnosis.Unknown, stage: event.StageAddress, cause: "it has no mac in the lab file", do: "add its mac"},
		{name: "never seen, off", machine: vm("off"), state: diagnosis.Stopped, stage: event.StageMachine, cause: "virtual machine is off", do: "bootlab vm start a"},
		{name: "paused", machine: vm("paused"), events: toScript(), state: diagnosis.Stopped, stage: event.StageMachine, cause: "paused it", do: "virsh resume a"},
		{name: "never created", machine: vm("absent"), state: diagnosis.Stopped, stage: event.StageMachine, cause: "does not exist", do: "bootlab vm create a"},
		{name: "created later by up", machine: with(func(m *diagnosis.Machine) { m.VM, m.Power, m.State = true, machine.PowerAbsent, later }), state: diagnosis.Booting, stage: event.StageMachine, cause: "it waits for the control plane: bootlab up creates its virtual machine then"},
		{name: "switched on later by up", machine: with(func(m *diagnosis.Machine) { m.VM, m.Power, m.State = true, machine.PowerOff, later }), state: diagnosis.Booting, stage: event.StageMachine, cause: "it waits for the control plane: bootlab up starts its virtual machine then"},
		{name: "bare metal, switched on later by up", machine: with(func(m *diagnosis.Machine) { m.BMC, m.State = "off", later }), state: diagnosis.Booting, stage: event.StageMachine, cause: "it waits for the control plane: bootlab up switches it on then"},
		{name: "bare metal without a BMC, later", machine: with(func(m *diagnosis.Machine) { m.State = later }), state: diagnosis.Booting, stage: event.StageMachine, cause: "it waits for the control plane: an admin has to switch it on then"},
		{name: "not created, the hypervisor refused", machine: vm("absent"), outcome: timeline.Failed, events: []event.Event{ev(event.VMDeleted, "kvm1"), ev(event.VMFailed, "create on kvm1", "storage pool gone is not active")}, state: diagnosis.Stopped, stage: event.StageMachine, cause: "its virtual machine does not exist: storage pool gone is not active", do: "then: bootlab vm create a"},
		{name: "not started, the hypervisor refused", machine: vm("off"), outcome: timeline.Failed, events: []event.Event{ev(event.VMCreated, "kvm1"), ev(event.VMFailed, "start on kvm1", "no memory")}, state: diagnosis.Stopped, stage: event.StageMachine, cause: "its virtual machine is off: no memory", do: "then: bootlab vm start a"},
		{name: "deleted after a failure", machine: vm("absent"), events: []event.Event{ev(event.VMFailed, "start on kvm1", "no memory"), ev(event.VMDeleted, "kvm1")}, state: diagnosis.Stopped, stage: event.StageMachine, cause: "does not exist", do: "bootlab vm create a"},
		{name: "of an image, disk does not boot", machine: image("running"), outcome: timeline.Failed, events: []event.Event{ev(event.VMStarted), ev(event.ConsoleNoBootDevice)}, state: diagnosis.Stopped, stage: event.StageMachine, cause: "found nothing to boot", do: "bootlab vm delete a --disks && bootlab vm create a"},
		{name: "of an image, no packet", machine: image("running"), events: []event.Event{ev(event.VMStarted)}, state: diagnosis.Stopped, stage: event.StageMachine, cause: "no DHCP packet", do: "its system starts from its disk: bootlab vm console a"},
		{name: "of an image, firmware asks the network", machine: image("running"), events: append([]event.Event{ev(event.VMStarted)}, leased(event.ClientPXE)...), state: diagnosis.Stopped, stage: event.StageAddress, cause: "it is made from an image, and its firmware tries the network: its disk does not boot", do: "bootlab vm create a"},
		{name: "of an image, runs", machine: image("running"), events: append([]event.Event{ev(event.VMStarted)}, leased(event.ClientOS)...), state: diagnosis.Done, cause: "nothing is wrong: its system was started"},
		{name: "hypervisor silent", machine: with(func(m *diagnosis.Machine) { m.VM, m.Power, m.Problem = true, machine.PowerSilent, "no route" }), state: diagnosis.Unknown, stage: event.StageMachine, cause: "hypervisor does not answer", do: "bootlab status", fact: "no route"},
		{name: "hypervisor not asked yet", machine: vm("unasked"), state: diagnosis.Unknown, stage: event.StageMachine, cause: "has not answered yet", do: "bootlab status"},
		{name: "runs, no packet", machine: vm("running"), events: []event.Event{ev(event.VMStarted)}, state: diagnosis.Stopped, stage: event.StageMachine, cause: "runs, and no DHCP packet", do: "bridge of network lan"},
		{name: "a snapshot is no step of a boot", machine: vm("running"), events: toScript(ev(event.FileServed, "k"), ev(event.VMSnapshot)), state: diagnosis.Stopped, stage: event.StageFiles, cause: "it fetched its last file", do: "look at its console"},
		{name: "armed, no packet", machine: armed, events: []event.Event{ev(event.InstallArmed)}, state: diagnosis.Unknown, stage: event.StageAddress, cause: "since it was armed", do: "select the network in its boot menu"},
		{name: "armed, with a BMC, no packet", machine: with(func(m *diagnosis.Machine) { m.BMC, m.Install = "on", armed.Install }), events: []event.Event{ev(event.InstallArmed)}, state: diagnosis.Unknown, stage: event.StageAddress, cause: "since it was armed", do: "bootlab install a --now"},
		{name: "marked as installed, no packet", machine: installed, outcome: timeline.None, events: []event.Event{ev(event.InstallDone), ev(event.BackendDrained)}, state: diagnosis.Unknown, stage: event.StageAddress, cause: "it is installed, and no packet"},
		{name: "installed, and a restore or a crash lost that event", machine: installed, outcome: timeline.None, events: []event.Event{ev(event.InstallArmed)}, state: diagnosis.Unknown, stage: event.StageAddress, cause: "it is installed, and no packet"},
		{name: "installed, and a restore or a crash lost all its events", machine: installed, state: diagnosis.Unknown, stage: event.StageAddress, cause: "it is installed, and no packet"},
		{name: "marked as installed after a boot that failed, and a crash lost that event", machine: marked, events: toScript(because(event.FileMissing, event.NotFound, "k", "x")), state: diagnosis.Unknown, stage: event.StageFiles, cause: "it is installed, and no packet"},
		{name: "armed, and a restore or a crash lost that event", machine: armed, outcome: timeline.None, events: []event.Event{ev(event.InstallDone)}, state: diagnosis.Unknown, stage: event.StageAddress, cause: "since it was armed", do: "select the network in its boot menu"},
		{name: "never seen, off", machine: with(func(m *diagnosis.Machine) { m.BMC, m.Power = "off", machine.PowerOff }), state: diagnosis.Stopped, stage: event.StageMachine, cause: "it is off, its BMC says", do: "bootlab power on a"},
		{name: "its script was refused, and its disk started", machine: host, events: slices.Concat(leased(event.ClientIPXE), []event.Event{because(event.ScriptRefused, event.NotRendered, "boot.ipxe", "{{.Host.Vars.rack}} is not set")}, leased(event.ClientOS)), state: diagnosis.Stopped, stage: event.StageScript, cause: "boot script was refused: boot.ipxe", do: "fix the error"},
		{name: "its script was refused, and its disk started, after it loaded iPXE", machine: host, events: slices.Concat(leased(event.ClientPXE), []event.Event{ev(event.TFTPServed, "ipxe.efi"), because(event.ScriptRefused, event.NotRendered, "boot.ipxe", "{{.Host.Vars.rack}} is not set")}, leased(event.ClientOS)), state: diagnosis.Stopped, stage: event.StageScript, cause: "boot script was refused: boot.ipxe", do: "fix the error"},
		{name: "its own disk started", machine: host, events: leased(event.ClientOS), state: diagnosis.Stopped, cause: "it started from its disk, not from the network", do: "boot order"},
		{name: "stopped at its kernel, and off", machine: with(func(m *diagnosis.Machine) { m.BMC, m.Power = "off", machine.PowerOff }), events: toScript(ev(event.FileServed, "k")), state: diagnosis.Stopped, stage: event.StageMachine, cause: "it is off, its BMC says", do: "bootlab power on a"},
		{name: "never seen, on", machine: with(func(m *diagnosis.Machine) { m.BMC = "on" }), state: diagnosis.Unknown, stage: event.StageAddress, cause: "it is on, and no packet", do: "boot order"},
		{name: "never seen, the BMC is silent", machine: with(func(m *diagnosis.Machine) { m.BMC, m.BMCProblem = "unknown", "no route" }), state: diagnosis.Unknown, fact: "its BMC does not answer: no route", stage: event.StageAddress, cause: "whether it is on is not known", do: "bootlab power status a"},
		{name: "power-cycled, no packet", machine: host, events: []event.Event{ev(event.InstallArmed), ev(event.PowerCycled)}, state: diagnosis.Stopped, stage: event.StageMachine, cause: "it was power-cycled, and no packet", do: "boot order"},
		{name: "BMC failed", machine: host, outcome: timeline.Failed, events: []event.Event{ev(event.InstallArmed), ev(event.PowerCycleFailed, "ipmi 10.0.0.9", "timeout")}, state: diagnosis.Stopped, stage: event.StageMachine, cause: "BMC did not power-cycle it: ipmi 10.0.0.9: timeout", do: "bootlab power status a"},
		{name: "DHCP server down", machine: with(func(m *diagnosis.Machine) {
			m.Servers = []diagnosis.Server{{Name: "dhcpd", State: "not serving", Down: true, Err: "port 67 in use"}}
		}), state: diagnosis.Unknown, stage: event.StageAddress, cause: "DHCP server does not serve", fact: "server dhcpd is not serving: port 67 in use"},
		{name: "no offer", machine: host, events: leased(event.ClientPXE)[:1], state: diagnosis.Stopped, stage: event.StageAddress, cause: "got no offer, and no reason was recorded", do: "another DHCP server"},
		{name: "pool full", machine: with(func(m *diagnosis.Machine) { m.Reserved, m.FullPools = false, []string{"lan/p"} }), outcome: timeline.Failed,
			events: []event.Event{dhcp(event.DHCPDiscover, event.ClientPXE), because(event.DHCPRefused, event.PoolFull, "pxe", "pool p of network lan is full: of its 2 addresses 2 are leased"), dhcp(event.DHCPDiscover, event.ClientPXE)},
			state:  diagnosis.Stopped, stage: event.StageAddress, cause: "got no offer: the pool is full", do: "release leases", fact: "pool lan/p is full"},
		{name: "unknown machine", machine: diagnosis.Machine{Observation: machine.Observation{Host: "02:00:00:00:00:01", Install: install.Status{State: install.Live}}}, outcome: timeline.Failed,
			events: []event.Event{because(event.DHCPRefused, event.NoReservation, "pxe", "no reservation, and no pool of network lan takes this machine")}, state: diagnosis.Stopped, stage: event.StageAddress, cause: "got no offer: it has no reservation", do: "bootlab adopt 02:00:00:00:00:01"},
		{name: "waits in discovery", machine: discovered, events: toScript()[:8], state: diagnosis.Booting, stage: event.StageScript, cause: "it is not in the lab file: it waits until it is adopted", do: "bootlab adopt a"},
		{name: "firmware of a machine to be discovered", machine: discovered, events: toScript()[:5], state: diagnosis.Booting, stage: event.StageFirmware, do: "bootlab adopt a"},
		{name: "offer not taken", machine: host, events: leased(event.ClientPXE)[:2], state: diagnosis.Stopped, stage: event.StageAddress, cause: "did not request it: the offer does not reach it"},
		{name: "offer not taken, rogue", machine: host, events: append(leased(event.ClientPXE)[:2:2], ev(event.DHCPRogue, "10.0.0.7 on br0")), state: diagnosis.Stopped, stage: event.StageAddress, cause: "another DHCP server answers in its network: 10.0.0.7", do: "dhcp: proxy"},
		{name: "its system took no offer", machine: with(func(m *diagnosis.Machine) { m.Profile, m.Install.State = "", install.Live }), events: leased(event.ClientOS)[:2], state: diagnosis.Stopped, stage: event.StageAddress, cause: "it was offered an address and did not request it", do: "VLAN"},
		{name: "its system got no offer", machine: with(func(m *diagnosis.Machine) { m.Profile, m.Install.State = "", install.Live }), events: leased(event.ClientOS)[:1], state: diagnosis.Stopped, stage: event.StageAddress, cause: "got no offer"},
		{name: "the system of an unknown machine took no offer", machine: diagnosis.Machine{Observation: machine.Observation{Host: "02:00:00:00:00:01", Install: install.Status{State: install.Live}}}, events: leased(event.ClientOS)[:2], state: diagnosis.Stopped, stage: event.StageAddress, cause: "did not request it"},
		{name: "marked as installed, and its system took no offer", machine: installed, outcome: timeline.None, events: append([]event.Event{ev(event.InstallDone)}, leased(event.ClientOS)[:2]...), state: diagnosis.Stopped, cause: "did not request it"},
		{name: "another server chosen", machine: host, outcome: timeline.Failed, events: append(leased(event.ClientPXE)[:2:2], ev(event.DHCPRogueServerChosen)), state: diagnosis.Stopped, stage: event.StageAddress, cause: "accepted the offer of another"},
		{name: "declined", machine: host, outcome: timeline.Failed, events: append(leased(event.ClientPXE), ev(event.DHCPDecline)), state: diagnosis.Stopped, stage: event.StageAddress, cause: "declined its address"},
		{name: "no boot program fetched", machine: host, events: leased(event.ClientPXE), state: diagnosis.Stopped, stage: event.StageAddress, cause: "has not fetched it", do: "UDP 69"},
		{name: "no boot program fetched, TFTP down", machine: with(func(m *diagnosis.Machine) {
			m.Servers = []diagnosis.Server{{Name: "tftpd", State: "not serving", Down: true}}
		}), events: leased(event.ClientPXE), state: diagnosis.Stopped, stage: event.StageAddress, cause: "server tftpd does not serve", do: "bootlab status"},
		{name: "no profile", machine: with(func(m *diagnosis.Machine) { m.Profile = "" }), events: leased(event.ClientPXE), state: diagnosis.Stopped, stage: event.StageAddress, cause: "no profile"},
		{name: "size asked only", machine: host, events: append(leased(event.ClientPXE), ev(event.TFTPProbe)), state: diagnosis.Stopped, stage: event.StageFirmware, cause: "never transferred", do: "tftp_single_port"},
		{name: "TFTP refused", machine: host, outcome: timeline.Failed, events: append(leased(event.ClientPXE), because(event.TFTPRefused, event.NotFound, "x.efi", "no such file")), state: diagnosis.Stopped, stage: event.StageFirmware, cause: "x.efi: it does not exist", do: "bootlab plan a"},
		{name: "boot program that is not built in", machine: host, outcome: timeline.Failed, events: append(leased(event.ClientPXE), because(event.TFTPRefused, event.NotFound, "boot/52-54-00-78-00-10/ipxe-ia32.efi", "no such file")), state: diagnosis.Stopped, stage: event.StageFirmware, cause: "ipxe-ia32.efi: it does not exist", do: "put ipxe-ia32.efi into a folder, and name that by bootlab serve --firmware FOLDER"},
		{name: "boot program by HTTP that is not built in", machine: host, outcome: timeline.Failed, events: append(leased(event.ClientHTTP), because(event.FileMissing, event.NotFound, "boot/52-54-00-78-00-10/ipxe-ia32.efi", "file not found")), state: diagnosis.Stopped, stage: event.StageFiles, cause: "ipxe-ia32.efi: it does not exist", do: "put ipxe-ia32.efi into a folder"},
		{name: "TFTP full", machine: host, outcome: timeline.Failed, events: append(leased(event.ClientPXE), because(event.TFTPRefused, event.Busy, "x.efi", "all transfers are in use")), state: diagnosis.Stopped, stage: event.StageFirmware, cause: "x.efi: all transfers by TFTP were in use", do: "bootlab status"},
		{name: "boot program does not start", machine: host, events: append(leased(event.ClientPXE), ev(event.TFTPRefused, "probe"), ev(event.TFTPServed)), state: diagnosis.Stopped, stage: event.StageFirmware, cause: "Secure Boot"},
		{name: "iPXE without a script", machine: host, events: toScript()[:7], state: diagnosis.Stopped, stage: event.StageFirmware, cause: "iPXE has an address and has not fetched", do: "appliance.http"},
		{name: "iPXE without a script, and httpd lacks an address", machine: with(func(m *diagnosis.Machine) {
			m.Servers = []diagnosis.Server{{Name: "httpd", State: "partly serving", Err: "[fd00::1]:8080: cannot assign"}}
		}), events: toScript()[:7], state: diagnosis.Stopped, stage: event.StageFirmware, cause: "iPXE has an address and has not fetched its script", do: "appliance.http", fact: "server httpd is partly serving: [fd00::1]:8080"},
		{name: "script refused", machine: host, outcome: timeline.Failed, events: append(toScript()[:7:7], because(event.ScriptRefused, event.NotRendered, "boot.ipxe", "template: x")), state: diagnosis.Stopped, stage: event.StageScript, cause: "boot.ipxe: a template or a document has an error: template: x", do: "fix the error"},
		{name: "kernel missing", machine: host, outcome: timeline.Failed, events: toScript(because(event.FileMissing, event.NotFound, "files/k", "file not found")), state: diagnosis.Stopped, stage: event.StageFiles, cause: "files/k: it does not exist", do: "bootlab check"},
		{name: "kernel not pulled", machine: host, outcome: timeline.Failed, events: toScript(because(event.FileMissing, event.NotPulled, "files/k", "x")), state: diagnosis.Stopped, stage: event.StageFiles, cause: "files/k: it is an image that is not pulled yet", do: "bootlab images pull"},
		{name: "a failure of another version", machine: host, outcome: timeline.Failed, events: toScript(because(event.FileMissing, "moved_to_mars", "files/k", "it is on Mars")), state: diagnosis.Stopped, stage: event.StageFiles, cause: "files/k: it is on Mars", do: "bootlab images pull"},
		{name: "kernel missing, and its script again", machine: host, outcome: timeline.Failed, events: toScript(ev(event.FileMissing, "files/k", "file not found"), ev(event.ScriptServed), ev(event.FileMissing, "files/k", "file not found")), state: diagnosis.Stopped, stage: event.StageFiles, cause: "files/k"},
		{name: "initrd broken off", machine: host, outcome: timeline.Failed, events: toScript(ev(event.FileServed, "k"), event.Event{Kind: event.FileAborted, Reason: event.Closed, Detail: "i", Bytes: 3 << 20, Size: 8 << 20, Err: "connection reset by peer"}), state: diagnosis.Stopped, stage: event.StageFiles, cause: "the transfer of a file broke off at 37 % of 8.0 MiB: i: the client ended it", do: "memory"},
		{name: "initrd stalled", machine: host, outcome: timeline.Failed, events: toScript(ev(event.FileServed, "k"), event.Event{Kind: event.FileAborted, Reason: event.Stalled, Detail: "i", Bytes: 3 << 20, Size: 8 << 20, Err: "the client accepted no data for 1m0s"}), state: diagnosis.Stopped, stage: event.StageFiles, cause: "the transfer of a file stalled at 37 % of 8.0 MiB: i", do: "its screen"},
		{name: "boot program stalled", machine: host, outcome: timeline.Failed, events: append(leased(event.ClientPXE), event.Event{Kind: event.TFTPFailed, Reason: event.Stalled, Detail: "x.efi", Bytes: 0, Size: 1 << 20}), state: diagnosis.Stopped, stage: event.StageFirmware, cause: "boot program stalled at 0 % of 1.0 MiB: x.efi", do: "MTU"},
		{name: "initrd broken off and repeated", machine: host, events: toScript(ev(event.FileAborted, "i", "reset"), ev(event.FileServed, "i")), state: diagnosis.Stopped, stage: event.StageFiles, cause: "kernel did not start"},
		{name: "initrd missing, the rest fetched", machine: host, events: toScript(ev(event.FileServed, "k"), ev(event.FileMissing, "i", "file not found"), ev(event.FileServed, "r")), state: diagnosis.Stopped, stage: event.StageFiles, cause: "is not served: i: file not found"},
		{name: "iPXE tries autoexec.ipxe in passing", machine: host, events: append(append(leased(event.ClientPXE), ev(event.TFTPServed), ev(event.TFTPRefused, "autoexec.ipxe")), leased(event.ClientIPXE)...), state: diagnosis.Stopped, stage: event.StageFirmware, cause: "has not fetched its script"},
		{name: "no file", machine: host, events: toScript(), state: diagnosis.Stopped, stage: event.StageScript, cause: "finished no file"},
		{name: "own script", machine: with(func(m *diagnosis.Machine) { m.OwnScript, m.Install.State = true, install.Live }), events: toScript()[:8], state: diagnosis.Unknown, stage: event.StageScript, cause: "script of your own"},
		{name: "no document", machine: host, events: toKernel(), state: diagnosis.Stopped, stage: event.StageFiles, cause: "for no config document", do: "kernel's arguments"},
		{name: "document refused", machine: host, outcome: timeline.Failed, events: toKernel(because(event.ConfigRefused, event.AlreadyRead, "config", "not for this boot of a: x")), state: diagnosis.Stopped, stage: event.StageConfig, cause: "config: this boot has read the document as often", do: "config_reads"},
		{name: "document does not exist", machine: host, outcome: timeline.Failed, events: toKernel(because(event.ConfigRefused, event.NotFound, "config", "x")), state: diagnosis.Stopped, stage: event.StageConfig, cause: "config: it does not exist", do: "write the document"},
		{name: "address conflict", machine: host, outcome: timeline.Failed, events: toKernel(event.Event{Kind: event.AddressConflict, Claimed: true, Reason: event.OtherMachine, Err: "02:00:00:00:00:09 uses it"}), state: diagnosis.Stopped, stage: event.StageFiles, cause: "another machine uses its address: 02:00:00:00:00:09"},
		{name: "address conflict while it installs", machine: machineOf(install.Installing), events: toKernel(ev(event.ConfigServed), event.Event{Kind: event.AddressConflict, Claimed: true, Reason: event.OtherMachine, Err: "02:00:00:00:00:09 uses it"}), state: diagnosis.Stopped, stage: event.StageConfig, cause: "its installer or system has sent nothing since", fact: "another machine uses its address: 02:00:00:00:00:09 uses it"},
		{name: "address conflict, and it goes on", machine: host, events: append(leased(event.ClientPXE), event.Event{Kind: event.AddressConflict, Claimed: true, Reason: event.OtherMachine, Err: "02:00:00:00:00:09 uses it"}, ev(event.TFTPServed)), state: diagnosis.Stopped, stage: event.StageFirmware, cause: "it did not start"},
		{name: "address conflict, and it boots", machine: with(func(m *diagnosis.Machine) {
			m.State = machine.State{Stage: machine.Booting, Why: "it boots from the network, at stage script"}
		}), events: toScript(event.Event{Kind: event.AddressConflict, Claimed: true, Reason: event.OtherMachine, Err: "02:00:00:00:00:09 uses it"}), state: diagnosis.Booting, stage: event.StageScript, cause: "it boots from the network, at stage script"},
		{name: "its disk is full", machine: with(func(m *diagnosis.Machine) { m.Reserved, m.Store = false, "no space left on device" }), events: []event.Event{dhcp(event.DHCPDiscover, event.ClientPXE), dhcp(event.DHCPOffer, event.ClientPXE)}, state: diagnosis.Stopped, stage: event.StageAddress, cause: "the store takes no lease: no space left on device", do: "bootlab status"},
		{name: "its disk is full, and it has a reservation", machine: with(func(m *diagnosis.Machine) { m.Store = "no space left on device" }), events: []event.Event{dhcp(event.DHCPDiscover, event.ClientPXE), dhcp(event.DHCPOffer, event.ClientPXE)}, state: diagnosis.Stopped, stage: event.StageAddress, cause: "the offer does not reach it"},
		{name: "armed, off, and its address is in use", machine: with(func(m *diagnosis.Machine) {
			m.Install, m.ConflictText, m.Conflict = armed.Install, "02:00:00:00:00:09 uses 10.0.0.1", "02:00:00:00:00:09"
		}), outcome: timeline.None, events: []event.Event{ev(event.InstallArmed)}, state: diagnosis.Stopped, stage: event.StageAddress, cause: "another machine uses its address: 02:00:00:00:00:09", do: "switch that machine off"},
		{name: "others in its name", machine: host, events: toKernel(ev(event.ConfigServed), event.Event{Kind: event.ConfigRefused, Claimed: true, Addr: netip.MustParseAddr("10.0.0.99"), Err: "wrong address"}), state: diagnosis.Stopped, stage: event.StageConfig, cause: "has not reported that it is done"},
		{name: "held", machine: with(func(m *diagnosis.Machine) { m.Install.State, m.Install.Held = install.Booting, true }), outcome: timeline.Failed, events: toScript(ev(event.InstallLoop)), state: diagnosis.Stopped, stage: event.StageInstall, cause: "is held", do: "bootlab install a --done"},
		{name: "held by a restore, and off", machine: with(func(m *diagnosis.Machine) {
			m.Install.Held, m.Install.Why, m.VM, m.Power = true, "not in the backup", true, machine.PowerOff
		}), events: toScript(ev(event.InstallLoop)), state: diagnosis.Stopped, stage: event.StageInstall, cause: "a restore holds it", do: "bootlab install a --done"},
		{name: "held by a restore", machine: with(func(m *diagnosis.Machine) { m.Install.Held, m.Install.Why = true, "not in the backup" }), events: toScript(ev(event.InstallLoop)), state: diagnosis.Stopped, stage: event.StageInstall, cause: "a restore holds it", do: "bootlab install a --done"},
		{name: "state lost", machine: machineOf(install.Unknown), state: diagnosis.Unknown, stage: event.StageInstall, cause: "was lost", do: "put the state back first"},
		{name: "the state of another machine", machine: with(func(m *diagnosis.Machine) {
			m.Install = install.Status{State: install.Unknown, Other: "b", Why: "this machine has a state as b"}
		}), state: diagnosis.Unknown, stage: event.StageInstall, cause: "its install state is unknown, as this machine has a state as b: it starts from its own disk", do: "bootlab install a --done"},
		{name: "panic", machine: vm("running"), outcome: timeline.Failed, events: toKernel(ev(event.ConsolePanic, "Kernel panic - not syncing")), state: diagnosis.Stopped, stage: event.StageFiles, cause: "its kernel panicked: Kernel panic", do: "bootlab vm log a"},
		{name: "nothing to boot, then off", machine: vm("off"), outcome: timeline.Failed, events: toKernel(ev(event.ConsoleNoBootDevice), ev(event.VMStopped)), state: diagnosis.Stopped, stage: event.StageMachine, cause: "its virtual machine is off", do: "bootlab vm start a"},
		{name: "panic, then on", machine: vm("running"), outcome: timeline.Done, events: toKernel(ev(event.ConsolePanic), ev(event.InstallDone)), state: diagnosis.Done, cause: "nothing is wrong"},
		{name: "done", machine: installed, outcome: timeline.Done, events: toKernel(ev(event.ConfigServed), ev(event.InstallDone)), state: diagnosis.Done, cause: "nothing is wrong"},
		{name: "done, check fails", machine: with(func(m *diagnosis.Machine) {
			m.Install.State, m.Check = install.Installed, machine.Check{Health: machine.CheckFailing, Since: start.Add(time.Hour), Reason: "refused"}
			m.Checks = []diagnosis.Check{{Balancer: "api", Reason: "refused"}}
		}), outcome: timeline.Done, events: toKernel(ev(event.InstallDone)), state: diagnosis.Stopped, stage: event.StageBalancer, cause: "fails its check: refused", fact: "the check of balancer api fails: refused"},
		{name: "counts as installed", machine: with(func(m *diagnosis.Machine) { m.Install = install.Status{State: install.Installed, Assumed: true} }), events: toKernel(ev(event.ConfigServed), ev(event.InstallTimeout)), state: diagnosis.Unknown, stage: event.StageInstall, cause: "no signal within install_timeout", do: "look at its console"},
		{name: "live", machine: live, events: toKernel(ev(event.ConfigServed)), state: diagnosis.Done, cause: "nothing is wrong: its system was started"},
		{name: "live, and its document is refused", machine: live, events: toKernel(because(event.ConfigRefused, event.NotRendered, "live.ign", "x")), state: diagnosis.Stopped, stage: event.StageConfig, cause: "its request for a config document was refused: live.ign", do: "bootlab plan a"},
		{name: "from its disk", machine: installed, events: leased(event.ClientOS), state: diagnosis.Done, cause: "nothing is wrong: its system was started"},
		{name: "from its disk though armed", machine: host, events: leased(event.ClientOS), state: diagnosis.Stopped, stage: event.StageAddress, cause: "from its disk, not from the network", do: "nothing here can restart it"},
		{name: "its system requests a file", machine: installed, outcome: timeline.Done, events: append(leased(event.ClientOS), ev(event.FileMissing, "files/nosuch")), state: diagnosis.Done, cause: "nothing is wrong"},
		{name: "marked as installed, and its system requests a file", machine: installed, outcome: timeline.None, events: []event.Event{ev(event.InstallDone), ev(event.FileMissing, "files/nosuch")}, state: diagnosis.Unknown, cause: "it is installed, and no packet"},
		{name: "serves", machine: host, events: append(toKernel(), ev(event.BackendUp)), state: diagnosis.Done, cause: "nothing is wrong"},
		{name: "serves, whatever its last boot shows", machine: with(func(m *diagnosis.Machine) { m.State = machine.State{Stage: machine.Serving, Why: "it passes"} }), outcome: timeline.Failed, events: toScript(ev(event.FileMissing, "k"), ev(event.BackendUp), ev(event.FileMissing, "x")), state: diagnosis.Done, cause: "nothing is wrong: it passes"},
		{name: "done, and another machine uses its address", machine: with(func(m *diagnosis.Machine) {
			m.State = machine.State{Stage: machine.Failing, Conflict: "02:00:00:00:00:09", Why: "another machine uses its address: 02:00:00:00:00:09"}
		}), outcome: timeline.Done, events: toKernel(ev(event.InstallDone), event.Event{Kind: event.AddressConflict, Claimed: true, Reason: event.OtherMachine, Err: "02:00:00:00:00:09 uses it"}), state: diagnosis.Stopped, stage: event.StageAddress, cause: "another machine uses its address: 02:00:00:00:00:09", do: "switch that machine off"},
		{name: "its cluster waits", machine: with(func(m *diagnosis.Machine) { m.Cluster = "the control plane" }), events: toScript(), state: diagnosis.Stopped, stage: event.StageScript, fact: "its cluster waits for the control plane"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			reason := event.Reason("")
			for _, e := range tt.events {
				reason = cmp.Or(e.Reason, reason)
			}
			var boots []timeline.Boot
			if tt.events != nil {
				boots = []timeline.Boot{boot(cmp.Or(tt.outcome, timeline.Booting), start, tt.events...)}
			}
			d := of(t, boots, tt.machine, start.Add(3*time.Hour))
			// Of what is not about its power, its address, its check or a hold, hosts and the timeline name the same stage.
			if last, _ := record(t, boots).Last("a"); machine.Booted(last) && d.Stage != last.Stage && !strings.HasPrefix(d.Cause, "another machine uses its address") && d.Stage != event.StageMachine && d.Stage != event.StageBalancer && !tt.machine.Install.Held {
				t.Errorf("stage %q, the timeline has %q", d.Stage, last.Stage)
			}
			if d.State != tt.state || tt.stage != "" && d.Stage != tt.stage || !strings.Contains(d.Cause, tt.cause) {
				t.Errorf("%s at %q: %s; want %s at %q: %s", d.State, d.Stage, d.Cause, tt.state, tt.stage, tt.cause)
			}
			if tt.outcome == timeline.Failed && tt.state != diagnosis.Done && d.Stage != event.StageMachine && d.Reason != reason {
				t.Errorf("reason %q, want %q", d.Reason, reason)
			}
			if do := strings.Join(d.Do, "\n"); !strings.Contains(do, tt.do) || strings.Contains(do, "HOST") || d.State == diagnosis.Stopped && do == "" {
				t.Errorf("to do: %q, want %q", do, tt.do)
			}
			if facts := strings.Join(d.Facts, "\n"); !strings.Contains(facts, tt.fact) {
				t.Errorf("facts: %q, want %q", facts, tt.fact)
			}
			for _, e := range d.Evidence {
				if e.At.IsZero() {
					t.Errorf("evidence without a time: %v", e.Kind)
				}
			}
		})
	}
}

// TestEverySilence: after each prefix of a boot the machine is booting at first, and has stopped hours later; and the sentence is about it.
func TestEverySilence(t *testing.T) {
	t.Parallel()
	all := toKernel(ev(event.ConfigServed), ev(event.InstallStarted))
	m := machineOf(install.Installing)
	for n := 1; n <= len(all); n++ {
		b := []timeline.Boot{boot(timeline.Booting, start, all[:n]...)}
		soon, late := of(t, b, m, b[0].Ended.Add(time.Second)), of(t, b, m, b[0].Ended.Add(3*time.Hour))
		if soon.State != diagnosis.Booting || late.State != diagnosis.Stopped || late.Cause == "" || !late.Since.Equal(b[0].Ended) {
			t.Errorf("after %v: %s, then %s since %v: %s", all[n-1].Kind, soon.State, late.State, late.Since, late.Cause)
		}
	}
}

// TestConflictIsNoSignOfLife: that another machine uses the address of one that boots is said once, and says nothing of when it did something.
func TestConflictIsNoSignOfLife(t *testing.T) {
	t.Parallel()
	own := toScript()
	b := boot(timeline.Booting, start, append(own, event.Event{Kind: event.AddressConflict, Claimed: true, Reason: event.OtherMachine, Err: "02:00:00:00:00:09 uses it"})...)
	m := machineOf(install.Armed)
	m.State, m.ConflictText = machine.State{Stage: machine.Booting, Why: "it boots from the network, at stage script"}, "02:00:00:00:00:09 uses it"
	d := of(t, []timeline.Boot{b}, m, b.Ended.Add(time.Second))
	if want := b.Events[len(own)-1].At; !d.Since.Equal(want) {
		t.Errorf("since %v, want %v", d.Since, want)
	}
	if facts := strings.Join(d.Facts, "\n"); facts != "another machine uses its address: 02:00:00:00:00:09 uses it" {
		t.Errorf("facts: %s", facts)
	}
	if !slices.ContainsFunc(d.Evidence, func(e event.Event) bool { return e.Kind == event.AddressConflict }) {
		t.Errorf("evidence: %v", d.Evidence)
	}
}

// TestCheckOfANewSystem: the check of a balancer that failed while the machine was installed says nothing of the new system at first, and
// later no more than since it was started. One that failed after that says since when.
func TestCheckOfANewSystem(t *testing.T) {
	t.Parallel()
	b := boot(timeline.Done, start, toKernel(ev(event.ConfigServed), ev(event.InstallStarted), ev(event.InstallDone))...)
	for _, tt := range []struct {
		name         string
		failed, look time.Duration // after the end of the boot
		state        string
		since        time.Duration
	}{
		{"it has just been installed", -10 * time.Minute, 0, diagnosis.Booting, 0},
		{"it starts", -10 * time.Minute, 4 * time.Minute, diagnosis.Booting, 0},
		{"it has never served", -10 * time.Minute, 2 * time.Hour, diagnosis.Stopped, 0},
		{"it served", time.Hour, 2 * time.Hour, diagnosis.Stopped, time.Hour},
		{"it served a minute ago", time.Minute, 2 * time.Minute, diagnosis.Stopped, time.Minute},
	} {
		m := machineOf(install.Installed)
		m.Check = machine.Check{Health: machine.CheckFailing, Since: b.Ended.Add(tt.failed), Reason: "refused"}
		d := of(t, []timeline.Boot{b}, m, b.Ended.Add(tt.look))
		if d.State != tt.state || d.Stage != event.StageBalancer || !d.Since.Equal(b.Ended.Add(tt.since)) || !strings.Contains(d.Cause, "check") || !strings.Contains(d.Cause, "refused") {
			t.Errorf("%s: %s at %s since %v: %s", tt.name, d.State, d.Stage, d.Since.Sub(b.Ended), d.Cause)
		}
	}
}

// TestBackendAlone: of a machine that is a backend and boots nothing from here, its check is the diagnosis, and no boot that it never makes.
func TestBackendAlone(t *testing.T) {
	t.Parallel()
	m := machineOf(install.Live)
	m.Profile, m.Elsewhere = "", true
	m.Check = machine.Check{Health: machine.CheckFailing, Since: start, Reason: "no answer within 2s", Unreachable: true, Kind: lab.CheckTCP, Balancer: "web", Addr: netip.MustParseAddrPort("10.0.0.5:80")}
	m.Checks = []diagnosis.Check{{Balancer: "web", Reason: m.Check.Reason}}
	d := of(t, nil, m, start.Add(time.Hour))
	want := "it does not answer at its backend address 10.0.0.5:80: the tcp check of balancer web fails: no answer within 2s"
	if d.State != diagnosis.Stopped || d.Cause != want || d.Stage != event.StageBalancer || !d.Since.Equal(start) || len(d.Facts) > 0 || len(d.Do) != 1 {
		t.Errorf("%+v, want stopped since %v: %s", d, start, want)
	}
	if d.MachineStage != string(machine.Failing) {
		t.Errorf("it is %s", d.MachineStage)
	}
}

// TestBootsInARow: what one boot cannot show.
func TestBootsInARow(t *testing.T) {
	t.Parallel()
	m := machineOf(install.Installed)
	local := append(toScript()[:8:8], ev(event.InstallLocalBoot))
	row := func(apart time.Duration) (bs []timeline.Boot) {
		for i := range 3 {
			bs = append(bs, boot(timeline.Done, start.Add(time.Duration(i)*apart), local...))
		}
		return bs
	}
	soon, hourly := of(t, row(time.Minute), m, start.Add(5*time.Minute)), of(t, row(time.Hour), m, start.Add(5*time.Hour))
	if d := soon; d.State != diagnosis.Stopped || !strings.Contains(d.Cause, "the disk does not boot") || len(d.Evidence) != 3 {
		t.Errorf("sent to its disk three times in three minutes: %+v", d)
	}
	if d := hourly; d.State != diagnosis.Done {
		t.Errorf("started once an hour: %+v", d)
	}
	long := boot(timeline.Booting, start, toKernel()...)
	long.Ended, long.Stage = start.Add(3*time.Hour), event.StageConfig
	if d := of(t, []timeline.Boot{long}, m, long.Ended.Add(time.Second)); d.State != diagnosis.Booting || d.Stage != long.Stage {
		t.Errorf("a boot whose last events were not kept: %+v", d)
	}
	failed := boot(timeline.Failed, start, toScript(ev(event.FileMissing, "k"))...)
	failed.Reason = "k is missing"
	next := boot(timeline.Booting, start.Add(time.Minute), leased(event.ClientPXE)...)
	if d := of(t, []timeline.Boot{failed, next}, m, next.Ended); d.State != diagnosis.Booting || !strings.Contains(strings.Join(d.Facts, ""), "k is missing") {
		t.Errorf("boots again after a failure: %+v", d)
	}
}

// TestSameScriptAgain: a machine that starts again at once gets the same script, and its kernel an address, which is not the end of its
// installation: neither timeline nor diagnosis say done, and both the same.
func TestSameScriptAgain(t *testing.T) {
	t.Parallel()
	m := machineOf(install.Booting)
	refused := because(event.ConfigRefused, event.NotRendered, "worker.ign", "line 3")
	failed := boot(timeline.Booting, start, toKernel(refused)...)
	again := append(leased(event.ClientIPXE), ev(event.ScriptServed, "boot.ipxe"), ev(event.FileServed, "k"))
	again = append(again, leased(event.ClientOS)...)
	for _, tt := range []struct {
		events         []event.Event
		outcome, state string
	}{
		{again, timeline.Booting, diagnosis.Booting},
		{append(again[:len(again):len(again)], refused), timeline.Failed, diagnosis.Stopped},
	} {
		boots := []timeline.Boot{failed, boot(timeline.Booting, failed.Ended.Add(time.Second), tt.events...)}
		last, _ := record(t, boots).Last("a")
		if d := of(t, boots, m, boots[1].Ended); last.Outcome != tt.outcome || d.State != tt.state {
			t.Errorf("after %v: %s in the timeline, %s in the diagnosis; want %s, %s", tt.events[len(tt.events)-1].Kind, last.Outcome, d.State, tt.outcome, tt.state)
		}
	}
}

// TestMachineMadeAgain: what a virtual machine did that was deleted says nothing about the next one of that name.
func TestMachineMadeAgain(t *testing.T) {
	t.Parallel()
	m := machineOf(install.Installed)
	m.VM, m.Power = true, machine.PowerOn
	sent := func(after time.Duration, before ...event.Event) timeline.Boot {
		return boot(timeline.Done, start.Add(after), append(append(before, leased(event.ClientPXE)...), ev(event.InstallLocalBoot))...)
	}
	old := []timeline.Boot{sent(0), sent(2 * time.Minute)}
	again := append(old[:2:2], sent(4*time.Minute, ev(event.VMCreated), ev(event.VMStarted)))
	if d := of(t, append(old[:2:2], sent(4*time.Minute)), m, start.Add(time.Hour)); d.State != diagnosis.Stopped {
		t.Errorf("one machine that returns three times: %+v", d)
	}
	if d := of(t, again, m, start.Add(time.Hour)); d.State != diagnosis.Done {
		t.Errorf("the first boot of one that was made again: %+v", d)
	}
	failed := boot(timeline.Failed, start, append(leased(event.ClientPXE), ev(event.TFTPFailed, "x.efi", "timeout"), ev(event.VMDeleted))...)
	failed.Reason = "a TFTP transfer failed"
	now := boot(timeline.Booting, start.Add(time.Hour), ev(event.VMCreated), ev(event.VMStarted))
	m.Install.State = install.Armed
	if d := of(t, []timeline.Boot{failed, now}, m, now.Ended); d.State != diagnosis.Booting || len(d.Facts) > 0 {
		t.Errorf("what is known of the boot before: %+v", d)
	}
}

// machineOf is machine a, in an install state.
func machineOf(state install.State) diagnosis.Machine {
	return diagnosis.Machine{Observation: machine.Observation{Host: "a", Install: install.Status{State: state}, Document: true}, Known: true, Reserved: true, Network: "lan", Profile: "p"}
}

// of is diagnosis.Of with the state that package machine decides by what the timeline says of the boots, unless m has one.
func of(t *testing.T, boots []timeline.Boot, m diagnosis.Machine, now time.Time) diagnosis.Diagnosis {
	t.Helper()
	m.Boot, _ = record(t, boots).Last("a")
	if n := len(boots); n > 0 {
		b := &boots[n-1]
		b.Stage, m.Boot.Stage = cmp.Or(b.Stage, m.Boot.Stage), cmp.Or(b.Stage, m.Boot.Stage)
		if b.Outcome != timeline.Booting { // the case says so
			m.Boot.Outcome = b.Outcome
		}
		if b.Ended.After(m.Boot.Active) {
			m.Boot.Active = b.Ended
		}
	}
	if m.State.Stage == "" {
		m.State = machine.Of(m.Observation, now)
	}
	return diagnosis.Of(boots, m)
}

// record records the events of boots of machine a.
func record(t *testing.T, boots []timeline.Boot) *timeline.Recorder {
	t.Helper()
	r, err := timeline.Open(t.Context(), timeline.Config{}, timeline.Deps{Store: storetest.Memory(), Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range boots {
		for _, e := range b.Events {
			e.Host = "a"
			r.Record(e)
		}
	}
	return r
}

// TestStateOfTheMachine: whatever the events show, a diagnosis has the state that the machine has everywhere else, a cause, and what to do where
// it stopped.
func TestStateOfTheMachine(t *testing.T) {
	t.Parallel()
	twice := because(event.ConfigRefused, event.AlreadyRead, "config", "x")
	for name, events := range map[string][]event.Event{
		"never seen":             nil,
		"reads a document twice": toKernel(ev(event.ConfigServed), ev(event.InstallStarted), twice, dhcp(event.DHCPAck, event.ClientOS)),
		"done":                   toKernel(ev(event.ConfigServed), ev(event.InstallDone)),
		"boots":                  toScript(),
	} {
		for stage, want := range map[machine.Stage]string{
			machine.Waiting: diagnosis.Booting, machine.Booting: diagnosis.Booting, machine.Installing: diagnosis.Booting, machine.Starting: diagnosis.Booting,
			machine.Stopped: diagnosis.Stopped, machine.Failing: diagnosis.Stopped, machine.Off: diagnosis.Stopped,
			machine.Serving: diagnosis.Done, machine.Running: diagnosis.Done, machine.Gone: diagnosis.Done, machine.Unknown: diagnosis.Unknown,
		} {
			for _, cause := range []machine.Cause{"", machine.Held, machine.Hypervisor, machine.BootFailed, machine.DiskReturns, machine.FromDisk, machine.Unseen, machine.Silent} {
				m := machineOf(install.Installing)
				m.State = machine.State{Stage: stage, Cause: cause, Why: "of its state", Waits: "its turn"}
				if stage == machine.Off {
					m.Power = machine.PowerOff
				}
				var boots []timeline.Boot
				if events != nil {
					boots = []timeline.Boot{boot(timeline.Booting, start, events...)}
				}
				d := of(t, boots, m, start.Add(3*time.Hour))
				if d.State != want || d.MachineStage != string(stage) || d.Cause == "" || d.State == diagnosis.Stopped && cause != machine.Held && len(d.Do) == 0 {
					t.Errorf("%s, which is %s (%s): %s, %s, to do %q", name, stage, cause, d.State, d.Cause, d.Do)
				}
				if name == "reads a document twice" && (stage == machine.Booting || stage == machine.Installing) && !strings.Contains(strings.Join(d.Facts, ""), "as often as it may") {
					t.Errorf("%s: no word of it in %q", name, d.Facts)
				}
			}
		}
	}
}

// TestEveryFailure: of each kind of event by which a boot fails, a diagnosis says what it means and what to do.
func TestEveryFailure(t *testing.T) {
	t.Parallel()
	without := []event.Kind{event.InstallLoop, event.InstallUnknown, event.ConsolePanic, event.ConsoleEmergency, event.ConsoleNoBootDevice} // a reason
	for _, k := range event.Kinds() {
		b := boot(timeline.Booting, start, toScript(because(k, "of_another_version", "", "x"))...)
		last, _ := record(t, []timeline.Boot{b}).Last("a")
		if fails := last.Outcome == timeline.Failed; fails != k.Failure() {
			t.Errorf("%v: the boot is %s", k, last.Outcome)
		}
		m := machineOf(install.Booting)
		m.Install.Held = k == event.InstallLoop
		if k == event.InstallUnknown {
			m.Install.State = install.Unknown
		}
		d := of(t, []timeline.Boot{b}, m, start.Add(3*time.Hour))
		if k.Failure() && (!slices.Contains(without, k) && d.Reason != "of_another_version" || strings.HasPrefix(d.Cause, k.Help()) || len(d.Do) == 0) {
			t.Errorf("%v: %s, to do %q", k, d.Cause, d.Do)
		}
	}
}

// TestEvidence: each event is shown once, in the order of time, whatever rule found it.
func TestEvidence(t *testing.T) {
	t.Parallel()
	m := machineOf(install.Armed)
	m.VM = true
	for name, events := range map[string][]event.Event{
		"another server answered after the last step": append(leased(event.ClientPXE), ev(event.TFTPServed), ev(event.DHCPRogue, "10.0.0.7 on br0")),
		"a check that failed":                         append(toKernel(ev(event.BackendUp), ev(event.BackendDown), ev(event.BackendNew)), ev(event.BackendUp), ev(event.BackendDown)),
		"twice the same in a millisecond":             append(leased(event.ClientPXE), ev(event.VMFailed), ev(event.VMFailed)),
	} {
		for _, vm := range []machine.Power{machine.PowerOn, machine.PowerOff} {
			m.Power, m.Check = vm, machine.Check{Health: machine.CheckFailing, Reason: "refused", Since: start.Add(time.Hour)}
			b := boot(timeline.Booting, start, events...)
			n := len(b.Events)
			b.Events[n-1].At = b.Events[n-2].At // it was recorded later, and says when it happened
			d := of(t, []timeline.Boot{b}, m, start.Add(3*time.Hour))
			for i, e := range d.Evidence {
				if i > 0 && (e.At.Before(d.Evidence[i-1].At) || e == d.Evidence[i-1]) {
					t.Errorf("%s, %s: %v", name, vm, d.Evidence)
				}
			}
		}
	}
}

// TestMirrorFailed: a machine that a mirror could not give a file is said to wait for that, until it does something else.
func TestMirrorFailed(t *testing.T) {
	t.Parallel()
	failed := event.Event{Kind: event.MirrorFailed, Mirror: "debian", Detail: "dists/sid/Release", Err: "no route to host"}
	want := "mirror debian could not give it dists/sid/Release: no route to host"
	started := toKernel(ev(event.ConfigServed), ev(event.InstallStarted), failed)
	m := machineOf(install.Installing)
	b := []timeline.Boot{boot(timeline.Booting, start, started...)}
	if d := of(t, b, m, b[0].Ended.Add(3*time.Hour)); d.State != diagnosis.Stopped || !strings.Contains(d.Cause, want) || !slices.ContainsFunc(d.Evidence, func(e event.Event) bool { return e.Kind == event.MirrorFailed }) || len(d.Do) == 0 {
		t.Errorf("silent since: %+v", d)
	}
	if d := of(t, b, m, b[0].Ended.Add(time.Minute)); d.State != diagnosis.Booting || !slices.Contains(d.Facts, want) {
		t.Errorf("a minute later: %+v", d)
	}
	b = []timeline.Boot{boot(timeline.Booting, start, append(started, ev(event.FileServed, "late"))...)}
	if d := of(t, b, m, b[0].Ended.Add(3*time.Hour)); strings.Contains(d.Cause, want) {
		t.Errorf("after another file: %+v", d)
	}
}
