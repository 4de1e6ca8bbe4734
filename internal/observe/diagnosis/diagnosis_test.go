package diagnosis_test

import (
	"cmp"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/boot/install"
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
	host := diagnosis.Machine{Host: "a", Known: true, Reserved: true, Network: "lan", Profile: "p", Document: true, Install: "armed"}
	with := func(change func(*diagnosis.Machine)) diagnosis.Machine { m := host; change(&m); return m }
	vm := func(state machine.Power) diagnosis.Machine {
		return with(func(m *diagnosis.Machine) { m.VM = state })
	}
	image := func(state machine.Power) diagnosis.Machine {
		return with(func(m *diagnosis.Machine) {
			m.VM, m.Image, m.Profile, m.Document, m.Install = state, true, "", false, ""
		})
	}
	later := machine.State{Stage: machine.Waiting, Waits: "the control plane"}
	live := with(func(m *diagnosis.Machine) { m.Install = "" })
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
		{name: "never seen, off", machine: vm("off"), state: diagnosis.Stopped, stage: event.StageVM, cause: "virtual machine is off", do: "bootlab vm start a"},
		{name: "paused", machine: vm("paused"), events: toScript(), state: diagnosis.Stopped, stage: event.StageVM, cause: "paused it", do: "virsh resume a"},
		{name: "never created", machine: vm("absent"), state: diagnosis.Stopped, stage: event.StageVM, cause: "does not exist", do: "bootlab vm create a"},
		{name: "created later by up", machine: with(func(m *diagnosis.Machine) { m.VM, m.State = "absent", later }), state: diagnosis.Booting, stage: event.StageVM, cause: "it waits for the control plane: bootlab up creates its virtual machine then"},
		{name: "switched on later by up", machine: with(func(m *diagnosis.Machine) { m.VM, m.State = "off", later }), state: diagnosis.Booting, stage: event.StageVM, cause: "it waits for the control plane: bootlab up starts its virtual machine then"},
		{name: "of metal, switched on later by up", machine: with(func(m *diagnosis.Machine) { m.BMC, m.State = "off", later }), state: diagnosis.Booting, stage: event.StageVM, cause: "it waits for the control plane: bootlab up switches it on then"},
		{name: "of metal without a BMC, later", machine: with(func(m *diagnosis.Machine) { m.State = later }), state: diagnosis.Booting, stage: event.StageVM, cause: "it waits for the control plane: an admin has to switch it on then"},
		{name: "not created, the hypervisor refused", machine: vm("absent"), outcome: timeline.Failed, events: []event.Event{ev(event.VMDeleted, "kvm1"), ev(event.VMFailed, "create on kvm1", "storage pool gone is not active")}, state: diagnosis.Stopped, stage: event.StageVM, cause: "its virtual machine does not exist: storage pool gone is not active", do: "then: bootlab vm create a"},
		{name: "not started, the hypervisor refused", machine: vm("off"), outcome: timeline.Failed, events: []event.Event{ev(event.VMCreated, "kvm1"), ev(event.VMFailed, "start on kvm1", "no memory")}, state: diagnosis.Stopped, stage: event.StageVM, cause: "its virtual machine is off: no memory", do: "then: bootlab vm start a"},
		{name: "deleted after a failure", machine: vm("absent"), events: []event.Event{ev(event.VMFailed, "start on kvm1", "no memory"), ev(event.VMDeleted, "kvm1")}, state: diagnosis.Stopped, stage: event.StageVM, cause: "does not exist", do: "bootlab vm create a"},
		{name: "of an image, disk does not boot", machine: image("running"), outcome: timeline.Failed, events: []event.Event{ev(event.VMStarted), ev(event.ConsoleNoBootDevice)}, state: diagnosis.Stopped, stage: event.StageVM, cause: "found nothing to boot", do: "bootlab vm delete a --disks && bootlab vm create a"},
		{name: "of an image, no packet", machine: image("running"), events: []event.Event{ev(event.VMStarted)}, state: diagnosis.Stopped, stage: event.StageVM, cause: "no DHCP packet", do: "its system starts from its disk: bootlab vm console a"},
		{name: "of an image, firmware asks the network", machine: image("running"), events: append([]event.Event{ev(event.VMStarted)}, leased(event.ClientPXE)...), state: diagnosis.Stopped, stage: event.StageAddress, cause: "it is made from an image, and its firmware tries the network: its disk does not boot", do: "bootlab vm create a"},
		{name: "of an image, runs", machine: image("running"), events: append([]event.Event{ev(event.VMStarted)}, leased(event.ClientOS)...), state: diagnosis.Done, cause: "its system runs"},
		{name: "hypervisor silent", machine: with(func(m *diagnosis.Machine) { m.VM, m.VMProblem = "unknown", "no route" }), state: diagnosis.Unknown, stage: event.StageVM, cause: "hypervisor does not answer", do: "bootlab status", fact: "no route"},
		{name: "hypervisor not asked yet", machine: vm("unasked"), state: diagnosis.Unknown, stage: event.StageVM, cause: "has not answered yet", do: "bootlab status"},
		{name: "runs, no packet", machine: vm("running"), events: []event.Event{ev(event.VMStarted)}, state: diagnosis.Stopped, stage: event.StageVM, cause: "runs, and no DHCP packet", do: "bridge of network lan"},
		{name: "a snapshot is no step of a boot", machine: vm("running"), events: toScript(ev(event.FileServed, "k"), ev(event.VMSnapshot)), state: diagnosis.Stopped, stage: event.StageFiles, cause: "it fetched its last file", do: "look at its console"},
		{name: "armed, no packet", machine: host, events: []event.Event{ev(event.InstallArmed)}, state: diagnosis.Unknown, stage: event.StageVM, cause: "since it was armed", do: "select the network in its boot menu"},
		{name: "armed, with a BMC, no packet", machine: with(func(m *diagnosis.Machine) { m.BMC = "on" }), events: []event.Event{ev(event.InstallArmed)}, state: diagnosis.Unknown, stage: event.StageVM, cause: "since it was armed", do: "bootlab install a --now"},
		{name: "marked as installed, no packet", machine: host, outcome: timeline.None, events: []event.Event{ev(event.InstallDone), ev(event.BackendDrained)}, state: diagnosis.Unknown, stage: event.StageVM, cause: "it was marked as installed, and no packet"},
		{name: "never seen, off", machine: with(func(m *diagnosis.Machine) { m.BMC = "off" }), state: diagnosis.Stopped, stage: event.StageVM, cause: "it is off, its BMC says", do: "bootlab power on a"},
		{name: "stopped at its kernel, and off", machine: with(func(m *diagnosis.Machine) { m.BMC = "off" }), events: toScript(ev(event.FileServed, "k")), state: diagnosis.Stopped, stage: event.StageVM, cause: "it is off, its BMC says", do: "bootlab power on a"},
		{name: "never seen, on", machine: with(func(m *diagnosis.Machine) { m.BMC = "on" }), state: diagnosis.Unknown, stage: event.StageAddress, cause: "it is on, and no packet", do: "boot order"},
		{name: "never seen, the BMC is silent", machine: with(func(m *diagnosis.Machine) { m.BMC, m.BMCProblem = "unknown", "no route" }), state: diagnosis.Unknown, fact: "its BMC does not answer: no route", stage: event.StageAddress, cause: "whether it is on is not known", do: "bootlab power status a"},
		{name: "power-cycled, no packet", machine: host, events: []event.Event{ev(event.InstallArmed), ev(event.PowerCycled)}, state: diagnosis.Stopped, stage: event.StageVM, cause: "it was power-cycled, and no packet", do: "boot order"},
		{name: "BMC failed", machine: host, outcome: timeline.Failed, events: []event.Event{ev(event.InstallArmed), ev(event.PowerCycleFailed, "ipmi 10.0.0.9", "timeout")}, state: diagnosis.Stopped, stage: event.StageVM, cause: "BMC did not power-cycle it: ipmi 10.0.0.9: timeout", do: "bootlab power status a"},
		{name: "DHCP server down", machine: with(func(m *diagnosis.Machine) {
			m.Servers = []diagnosis.Server{{Name: "dhcpd", State: "not serving", Down: true, Err: "port 67 in use"}}
		}), state: diagnosis.Stopped, stage: event.StageAddress, cause: "DHCP server does not serve", fact: "server dhcpd is not serving: port 67 in use"},
		{name: "no offer", machine: host, events: leased(event.ClientPXE)[:1], state: diagnosis.Stopped, stage: event.StageAddress, cause: "got no offer, and no reason was recorded", do: "another DHCP server"},
		{name: "pool full", machine: with(func(m *diagnosis.Machine) { m.Reserved, m.FullPools = false, []string{"lan/p"} }), outcome: timeline.Failed,
			events: []event.Event{dhcp(event.DHCPDiscover, event.ClientPXE), because(event.DHCPRefused, event.PoolFull, "pxe", "pool p of network lan is full: of its 2 addresses 2 are leased"), dhcp(event.DHCPDiscover, event.ClientPXE)},
			state:  diagnosis.Stopped, stage: event.StageAddress, cause: "got no offer: the pool is full", do: "release leases", fact: "pool lan/p is full"},
		{name: "unknown machine", machine: diagnosis.Machine{Host: "02:00:00:00:00:01"}, outcome: timeline.Failed,
			events: []event.Event{because(event.DHCPRefused, event.NoReservation, "pxe", "no reservation, and no pool of network lan takes this machine")}, state: diagnosis.Stopped, stage: event.StageAddress, cause: "got no offer: it has no reservation", do: "bootlab adopt 02:00:00:00:00:01"},
		{name: "offer not taken", machine: host, events: leased(event.ClientPXE)[:2], state: diagnosis.Stopped, stage: event.StageAddress, cause: "did not request it: the offer does not reach it"},
		{name: "offer not taken, rogue", machine: host, events: append(leased(event.ClientPXE)[:2:2], ev(event.DHCPRogue, "10.0.0.7 on br0")), state: diagnosis.Stopped, stage: event.StageAddress, cause: "another DHCP server answers in its network: 10.0.0.7", do: "dhcp: proxy"},
		{name: "its system took no offer", machine: with(func(m *diagnosis.Machine) { m.Profile, m.Install = "", "" }), events: leased(event.ClientOS)[:2], state: diagnosis.Stopped, stage: event.StageAddress, cause: "it was offered an address and did not request it", do: "VLAN"},
		{name: "its system got no offer", machine: with(func(m *diagnosis.Machine) { m.Profile, m.Install = "", "" }), events: leased(event.ClientOS)[:1], state: diagnosis.Stopped, stage: event.StageAddress, cause: "got no offer"},
		{name: "the system of an unknown machine took no offer", machine: diagnosis.Machine{Host: "02:00:00:00:00:01"}, events: leased(event.ClientOS)[:2], state: diagnosis.Stopped, stage: event.StageAddress, cause: "did not request it"},
		{name: "marked as installed, and its system took no offer", machine: with(func(m *diagnosis.Machine) { m.Install = "installed" }), outcome: timeline.None, events: append([]event.Event{ev(event.InstallDone)}, leased(event.ClientOS)[:2]...), state: diagnosis.Stopped, cause: "did not request it"},
		{name: "another server chosen", machine: host, outcome: timeline.Failed, events: append(leased(event.ClientPXE)[:2:2], ev(event.DHCPOtherServerChosen)), state: diagnosis.Stopped, stage: event.StageAddress, cause: "accepted the offer of another"},
		{name: "declined", machine: host, outcome: timeline.Failed, events: append(leased(event.ClientPXE), ev(event.DHCPDecline)), state: diagnosis.Stopped, stage: event.StageAddress, cause: "declined its address"},
		{name: "no boot program fetched", machine: host, events: leased(event.ClientPXE), state: diagnosis.Stopped, stage: event.StageAddress, cause: "has not fetched it", do: "UDP 69"},
		{name: "no boot program fetched, TFTP down", machine: with(func(m *diagnosis.Machine) {
			m.Servers = []diagnosis.Server{{Name: "tftpd", State: "not serving", Down: true}}
		}), events: leased(event.ClientPXE), state: diagnosis.Stopped, stage: event.StageAddress, cause: "server tftpd does not serve", do: "bootlab status"},
		{name: "no profile", machine: with(func(m *diagnosis.Machine) { m.Profile = "" }), events: leased(event.ClientPXE), state: diagnosis.Stopped, stage: event.StageAddress, cause: "no profile"},
		{name: "size asked only", machine: host, events: append(leased(event.ClientPXE), ev(event.TFTPProbe)), state: diagnosis.Stopped, stage: event.StageFirmware, cause: "never transferred", do: "tftp_single_port"},
		{name: "TFTP refused", machine: host, outcome: timeline.Failed, events: append(leased(event.ClientPXE), because(event.TFTPRefused, event.NotFound, "x.efi", "no such file")), state: diagnosis.Stopped, stage: event.StageFirmware, cause: "x.efi: it does not exist", do: "bootlab plan a"},
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
		{name: "initrd missing, the rest fetched", machine: host, events: toScript(ev(event.FileServed, "k"), ev(event.FileMissing, "i", "file not found"), ev(event.FileServed, "r")), state: diagnosis.Stopped, stage: event.StageFiles, cause: "cannot be had: i: file not found"},
		{name: "iPXE tries autoexec.ipxe in passing", machine: host, events: append(append(leased(event.ClientPXE), ev(event.TFTPServed), ev(event.TFTPRefused, "autoexec.ipxe")), leased(event.ClientIPXE)...), state: diagnosis.Stopped, stage: event.StageFirmware, cause: "has not fetched its script"},
		{name: "no file", machine: host, events: toScript(), state: diagnosis.Stopped, stage: event.StageScript, cause: "finished no file"},
		{name: "own script", machine: with(func(m *diagnosis.Machine) { m.OwnScript, m.Install = true, "" }), events: toScript()[:8], state: diagnosis.Unknown, stage: event.StageScript, cause: "not seen here"},
		{name: "no document", machine: host, events: toKernel(), state: diagnosis.Stopped, stage: event.StageFiles, cause: "for no config document", do: "kernel's arguments"},
		{name: "document refused", machine: host, outcome: timeline.Failed, events: toKernel(because(event.ConfigRefused, event.AlreadyRead, "config", "not for this boot of a: x")), state: diagnosis.Stopped, stage: event.StageConfig, cause: "config: this boot has read the document as often", do: "config_reads"},
		{name: "document does not exist", machine: host, outcome: timeline.Failed, events: toKernel(because(event.ConfigRefused, event.NotFound, "config", "x")), state: diagnosis.Stopped, stage: event.StageConfig, cause: "config: it does not exist", do: "write the document"},
		{name: "address conflict", machine: host, outcome: timeline.Failed, events: toKernel(event.Event{Kind: event.AddressConflict, Claimed: true, Reason: event.OtherMachine, Err: "02:00:00:00:00:09 uses it"}), state: diagnosis.Stopped, stage: event.StageFiles, cause: "another machine uses its address: 02:00:00:00:00:09"},
		{name: "address conflict while it installs", machine: with(func(m *diagnosis.Machine) { m.Install = "installing" }), events: toKernel(ev(event.ConfigServed), event.Event{Kind: event.AddressConflict, Claimed: true, Reason: event.OtherMachine, Err: "02:00:00:00:00:09 uses it"}), state: diagnosis.Stopped, stage: event.StageConfig, cause: "its installer or system has sent nothing since", fact: "another machine uses its address: 02:00:00:00:00:09 uses it"},
		{name: "address conflict, and it goes on", machine: host, events: append(leased(event.ClientPXE), event.Event{Kind: event.AddressConflict, Claimed: true, Reason: event.OtherMachine, Err: "02:00:00:00:00:09 uses it"}, ev(event.TFTPServed)), state: diagnosis.Stopped, stage: event.StageFirmware, cause: "it did not start"},
		{name: "address conflict, and it boots", machine: with(func(m *diagnosis.Machine) {
			m.State = machine.State{Stage: machine.Booting, Why: "it boots from the network, at stage script"}
		}), events: toScript(event.Event{Kind: event.AddressConflict, Claimed: true, Reason: event.OtherMachine, Err: "02:00:00:00:00:09 uses it"}), state: diagnosis.Booting, stage: event.StageScript, cause: "it boots from the network, at stage script"},
		{name: "its disk is full", machine: diagnosis.Machine{Host: "a", Known: true, Network: "lan", Store: "no space left on device"}, events: []event.Event{dhcp(event.DHCPDiscover, event.ClientPXE), dhcp(event.DHCPOffer, event.ClientPXE)}, state: diagnosis.Stopped, stage: event.StageAddress, cause: "the store takes no lease: no space left on device", do: "bootlab status"},
		{name: "its disk is full, and it has a reservation", machine: with(func(m *diagnosis.Machine) { m.Store = "no space left on device" }), events: []event.Event{dhcp(event.DHCPDiscover, event.ClientPXE), dhcp(event.DHCPOffer, event.ClientPXE)}, state: diagnosis.Stopped, stage: event.StageAddress, cause: "the offer does not reach it"},
		{name: "armed, off, and its address is in use", machine: with(func(m *diagnosis.Machine) { m.Taken = "02:00:00:00:00:09 uses 10.0.0.1" }), outcome: timeline.None, events: []event.Event{ev(event.InstallArmed)}, state: diagnosis.Unknown, stage: event.StageVM, cause: "no packet of it was received since it was armed", do: "switch that machine off", fact: "another machine uses its address: 02:00:00:00:00:09 uses 10.0.0.1"},
		{name: "others in its name", machine: host, events: toKernel(ev(event.ConfigServed), event.Event{Kind: event.ConfigRefused, Claimed: true, Err: "wrong address"}), state: diagnosis.Stopped, stage: event.StageConfig, cause: "has not reported that it is done"},
		{name: "held", machine: with(func(m *diagnosis.Machine) { m.Install, m.Advice = "held", []string{"mark it"} }), outcome: timeline.Failed, events: toScript(ev(event.InstallLoop)), state: diagnosis.Stopped, stage: event.StageInstall, cause: "is held", do: "mark it"},
		{name: "held by a restore, and off", machine: with(func(m *diagnosis.Machine) {
			m.Install, m.Advice, m.Restored, m.VM = "held", []string{"mark it"}, true, machine.PowerOff
		}), events: toScript(ev(event.InstallLoop)), state: diagnosis.Stopped, stage: event.StageInstall, cause: "a restore holds it", do: "mark it"},
		{name: "held by a restore", machine: with(func(m *diagnosis.Machine) { m.Install, m.Advice, m.Restored = "held", []string{"mark it"}, true }), events: toScript(ev(event.InstallLoop)), state: diagnosis.Unknown, stage: event.StageInstall, cause: "a restore holds it", do: "mark it"},
		{name: "state lost", machine: with(func(m *diagnosis.Machine) { m.Install, m.Advice = "unknown", []string{"put it back", "mark it"} }), state: diagnosis.Unknown, stage: event.StageInstall, cause: "was lost", do: "put it back\nmark it"},
		{name: "the state of another machine", machine: with(func(m *diagnosis.Machine) {
			m.Install, m.OfAnother, m.Advice = "unknown", "this machine has a state as b", []string{"mark it"}
		}), state: diagnosis.Unknown, stage: event.StageInstall, cause: "its install state is unknown, as this machine has a state as b: it starts from its own disk", do: "mark it"},
		{name: "panic", machine: vm("running"), outcome: timeline.Failed, events: toKernel(ev(event.ConsolePanic, "Kernel panic - not syncing")), state: diagnosis.Stopped, stage: event.StageFiles, cause: "its kernel panicked: Kernel panic", do: "bootlab vm log a"},
		{name: "nothing to boot, then off", machine: vm("off"), outcome: timeline.Failed, events: toKernel(ev(event.ConsoleNoBootDevice), ev(event.VMStopped)), state: diagnosis.Stopped, stage: event.StageVM, cause: "its virtual machine is off", do: "bootlab vm start a"},
		{name: "panic, then on", machine: vm("running"), outcome: timeline.Done, events: toKernel(ev(event.ConsolePanic), ev(event.InstallDone)), state: diagnosis.Done, cause: "nothing is wrong"},
		{name: "done", machine: with(func(m *diagnosis.Machine) { m.Install = "installed" }), outcome: timeline.Done, events: toKernel(ev(event.ConfigServed), ev(event.InstallDone)), state: diagnosis.Done, cause: "nothing is wrong"},
		{name: "done, check fails", machine: with(func(m *diagnosis.Machine) {
			m.Checks = []diagnosis.Check{{Balancer: "api", Reason: "refused", Since: start}}
		}), outcome: timeline.Done, events: toKernel(ev(event.InstallDone)), state: diagnosis.Stopped, stage: event.StageBalancer, cause: "balancer api: refused"},
		{name: "counts as installed", machine: with(func(m *diagnosis.Machine) { m.Install = "installed" }), events: toKernel(ev(event.ConfigServed), ev(event.InstallTimeout)), state: diagnosis.Unknown, stage: event.StageInstall, cause: "no signal within install_timeout", do: "look at its console"},
		{name: "live", machine: live, events: toKernel(ev(event.ConfigServed)), state: diagnosis.Done, cause: "its system runs"},
		{name: "from its disk", machine: with(func(m *diagnosis.Machine) { m.Install = "installed" }), events: leased(event.ClientOS), state: diagnosis.Done, cause: "its system runs"},
		{name: "from its disk though armed", machine: host, events: leased(event.ClientOS), state: diagnosis.Stopped, stage: event.StageAddress, cause: "from its disk, not from the network", do: "nothing here can restart it"},
		{name: "its system requests a file", machine: with(func(m *diagnosis.Machine) { m.Install = "installed" }), outcome: timeline.Done, events: append(leased(event.ClientOS), ev(event.FileMissing, "files/nosuch")), state: diagnosis.Done, cause: "nothing is wrong"},
		{name: "marked as installed, and its system requests a file", machine: with(func(m *diagnosis.Machine) { m.Install = "installed" }), outcome: timeline.None, events: []event.Event{ev(event.InstallDone), ev(event.FileMissing, "files/nosuch")}, state: diagnosis.Unknown, cause: "it was marked as installed"},
		{name: "serves", machine: host, events: append(toKernel(), ev(event.BackendUp)), state: diagnosis.Done, cause: "nothing is wrong"},
		{name: "serves, whatever its last boot shows", machine: with(func(m *diagnosis.Machine) { m.State = machine.State{Stage: machine.Serving, Why: "it passes"} }), outcome: timeline.Failed, events: toScript(ev(event.FileMissing, "k"), ev(event.BackendUp), ev(event.FileMissing, "x")), state: diagnosis.Done, cause: "nothing is wrong: it passes"},
		{name: "done, and another machine uses its address", machine: with(func(m *diagnosis.Machine) {
			m.State = machine.State{Stage: machine.Failing, Conflict: "02:00:00:00:00:09", Why: "another machine uses its address: 02:00:00:00:00:09"}
		}), outcome: timeline.Done, events: toKernel(ev(event.InstallDone), event.Event{Kind: event.AddressConflict, Claimed: true, Reason: event.OtherMachine, Err: "02:00:00:00:00:09 uses it"}), state: diagnosis.Stopped, stage: event.StageInstall, cause: "another machine uses its address: 02:00:00:00:00:09", do: "switch that machine off"},
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
				if tt.outcome == "" {
					tt.outcome = timeline.Booting
				}
				boots = []timeline.Boot{boot(tt.outcome, start, tt.events...)}
				last, _ := record(t, boots).Last("a")
				boots[0].Stage = last.Stage
			}
			d := diagnosis.Of(boots, tt.machine, start.Add(3*time.Hour))
			agrees(t, boots, tt.machine, d)
			// Of what is not about its power, its check or a hold, hosts and the timeline name the same stage.
			if last, _ := record(t, boots).Last("a"); machine.Booted(last) && d.Stage != last.Stage && d.Stage != event.StageVM && d.Stage != event.StageBalancer && tt.machine.Install != "held" {
				t.Errorf("stage %q, the timeline has %q", d.Stage, last.Stage)
			}
			if d.State != tt.state || tt.stage != "" && d.Stage != tt.stage || !strings.Contains(d.Cause, tt.cause) {
				t.Errorf("%s at %q: %s; want %s at %q: %s", d.State, d.Stage, d.Cause, tt.state, tt.stage, tt.cause)
			}
			if tt.outcome == timeline.Failed && tt.state != diagnosis.Done && d.Stage != event.StageVM && d.Reason != reason {
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

// TestFromItsDiskThoughArmed: what a system does is kept with the boot that was done before. If the machine was armed since, by a reload, and
// starts from its disk, that is no complete boot; a lease that its system renews is.
func TestFromItsDiskThoughArmed(t *testing.T) {
	t.Parallel()
	for state, later := range map[string][]event.Event{diagnosis.Stopped: leased(event.ClientOS), diagnosis.Done: {dhcp(event.DHCPAck, event.ClientOS)}} {
		b := boot(timeline.Done, start, toKernel(later...)...)
		b.Ended = b.Events[len(b.Events)-len(later)-1].At
		d := diagnosis.Of([]timeline.Boot{b}, diagnosis.Machine{Host: "a", Known: true, Profile: "p", Install: "armed"}, start.Add(3*time.Hour))
		if d.State != state || state == diagnosis.Stopped && !strings.Contains(d.Cause, "from its disk, not from the network") {
			t.Errorf("%s: %s, want %s", d.State, d.Cause, state)
		}
	}
}

// TestEverySilence: after each prefix of a boot the machine is booting at first, and has stopped hours later; and the sentence is about it.
func TestEverySilence(t *testing.T) {
	t.Parallel()
	all := toKernel(ev(event.ConfigServed), ev(event.InstallStarted))
	m := diagnosis.Machine{Host: "a", Known: true, Profile: "p", Document: true, Install: "installing"}
	for n := 1; n <= len(all); n++ {
		b := []timeline.Boot{boot(timeline.Booting, start, all[:n]...)}
		soon, late := diagnosis.Of(b, m, b[0].Ended.Add(time.Second)), diagnosis.Of(b, m, b[0].Ended.Add(3*time.Hour))
		if soon.State != diagnosis.Booting || late.State != diagnosis.Stopped || late.Cause == "" || !late.Since.Equal(b[0].Ended) {
			t.Errorf("after %v: %s, then %s since %v: %s", all[n-1].Kind, soon.State, late.State, late.Since, late.Cause)
		}
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
		m := diagnosis.Machine{Host: "a", Known: true, Profile: "p", Document: true, Install: "installed",
			Checks: []diagnosis.Check{{Balancer: "api", Reason: "refused", Since: b.Ended.Add(tt.failed)}}}
		d := diagnosis.Of([]timeline.Boot{b}, m, b.Ended.Add(tt.look))
		if d.State != tt.state || d.Stage != event.StageBalancer || !d.Since.Equal(b.Ended.Add(tt.since)) || !strings.Contains(d.Cause, "balancer api") || !strings.Contains(d.Cause, "refused") {
			t.Errorf("%s: %s at %s since %v: %s", tt.name, d.State, d.Stage, d.Since.Sub(b.Ended), d.Cause)
		}
	}
}

// TestBootsInARow: what one boot cannot show.
func TestBootsInARow(t *testing.T) {
	t.Parallel()
	m := diagnosis.Machine{Host: "a", Known: true, Profile: "p", Install: "installed"}
	local := append(toScript()[:8:8], ev(event.InstallLocalBoot))
	row := func(apart time.Duration) (bs []timeline.Boot) {
		for i := range 3 {
			bs = append(bs, boot(timeline.Done, start.Add(time.Duration(i)*apart), local...))
		}
		return bs
	}
	soon, hourly := ofRecorded(t, row(time.Minute), m, start.Add(5*time.Minute)), ofRecorded(t, row(time.Hour), m, start.Add(5*time.Hour))
	agrees(t, row(time.Minute), m, soon)
	agrees(t, row(time.Hour), m, hourly)
	if d := soon; d.State != diagnosis.Stopped || !strings.Contains(d.Cause, "the disk does not boot") || len(d.Evidence) != 3 {
		t.Errorf("sent to its disk three times in three minutes: %+v", d)
	}
	if d := hourly; d.State != diagnosis.Done {
		t.Errorf("started once an hour: %+v", d)
	}
	long := boot(timeline.Booting, start, toKernel()...)
	long.Ended, long.Stage = start.Add(3*time.Hour), event.StageConfig
	if d := diagnosis.Of([]timeline.Boot{long}, m, long.Ended.Add(time.Second)); d.State != diagnosis.Booting || d.Stage != long.Stage {
		t.Errorf("a boot whose last events were not kept: %+v", d)
	}
	failed := boot(timeline.Failed, start, toScript(ev(event.FileMissing, "k"))...)
	failed.Reason = "k is missing"
	next := boot(timeline.Booting, start.Add(time.Minute), leased(event.ClientPXE)...)
	if d := diagnosis.Of([]timeline.Boot{failed, next}, m, next.Ended); d.State != diagnosis.Booting || !strings.Contains(strings.Join(d.Facts, ""), "k is missing") {
		t.Errorf("boots again after a failure: %+v", d)
	}
}

// TestMachineMadeAgain: what a virtual machine did that was deleted says nothing about the next one of that name.
func TestMachineMadeAgain(t *testing.T) {
	t.Parallel()
	m := diagnosis.Machine{Host: "a", Known: true, Reserved: true, Network: "lan", Profile: "p", Install: "installed", VM: "running"}
	sent := func(after time.Duration, before ...event.Event) timeline.Boot {
		return boot(timeline.Done, start.Add(after), append(append(before, leased(event.ClientPXE)...), ev(event.InstallLocalBoot))...)
	}
	old := []timeline.Boot{sent(0), sent(2 * time.Minute)}
	again := append(old[:2:2], sent(4*time.Minute, ev(event.VMCreated), ev(event.VMStarted)))
	agrees(t, again, m, ofRecorded(t, again, m, start.Add(time.Hour)))
	if d := ofRecorded(t, append(old[:2:2], sent(4*time.Minute)), m, start.Add(time.Hour)); d.State != diagnosis.Stopped {
		t.Errorf("one machine that returns three times: %+v", d)
	}
	if d := ofRecorded(t, again, m, start.Add(time.Hour)); d.State != diagnosis.Done {
		t.Errorf("the first boot of one that was made again: %+v", d)
	}
	failed := boot(timeline.Failed, start, append(leased(event.ClientPXE), ev(event.TFTPFailed, "x.efi", "timeout"), ev(event.VMDeleted))...)
	failed.Reason = "a TFTP transfer failed"
	now := boot(timeline.Booting, start.Add(time.Hour), ev(event.VMCreated), ev(event.VMStarted))
	if d := diagnosis.Of([]timeline.Boot{failed, now}, m, now.Ended); d.State != diagnosis.Booting || len(d.Facts) > 0 {
		t.Errorf("what is known of the boot before: %+v", d)
	}
}

// ofRecorded is diagnosis.Of with what the timeline says of the boots in a row.
func ofRecorded(t *testing.T, boots []timeline.Boot, m diagnosis.Machine, now time.Time) diagnosis.Diagnosis {
	t.Helper()
	last, _ := record(t, boots).Last("a")
	m.Returns = last.Returns
	return diagnosis.Of(boots, m, now)
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

// agrees fails the test unless package machine says the same of a machine as its diagnosis, by the timeline's summary of the same boots.
func agrees(t *testing.T, boots []timeline.Boot, m diagnosis.Machine, d diagnosis.Diagnosis) {
	t.Helper()
	if m.State.Stage != "" || m.Servers != nil && len(boots) == 0 { // the case sets it, or what is wrong is not the machine's
		return
	}
	r := record(t, boots)
	o := machine.Observation{Host: "a", Power: m.VM, Document: m.Document, OwnScript: m.OwnScript}
	o.Boot, _ = r.Last("a")
	if len(boots) > 0 && boots[len(boots)-1].Outcome != timeline.Booting { // the case says so
		o.Boot.Outcome = boots[len(boots)-1].Outcome
	}
	switch {
	case m.Install == "held":
		o.Install = install.Status{State: install.Booting, Held: true}
		if m.Restored {
			o.Install.Why = "not in the backup"
		}
	case m.Install == "":
		o.Install.State = install.Live
	default:
		o.Install.State, o.Install.Assumed = install.State(m.Install), o.Boot.Last.Kind == event.InstallTimeout
	}
	if m.VM == "" && (m.BMC == "on" || m.BMC == "off") {
		o.Power = map[string]machine.Power{"on": machine.PowerOn, "off": machine.PowerOff}[m.BMC]
	}
	if len(m.Checks) > 0 {
		o.Check = machine.Check{Health: machine.CheckFailing, Since: m.Checks[0].Since, Reason: m.Checks[0].Reason}
	}
	s := machine.Of(o, start.Add(3*time.Hour))
	states := map[machine.Stage]string{
		machine.Unknown: diagnosis.Unknown, machine.Off: diagnosis.Stopped, machine.Stopped: diagnosis.Stopped, machine.Failing: diagnosis.Stopped,
		machine.Booting: diagnosis.Booting, machine.Installing: diagnosis.Booting, machine.Starting: diagnosis.Booting, machine.Serving: diagnosis.Done, machine.Running: diagnosis.Done,
	}
	if states[s.Stage] != d.State {
		t.Errorf("package machine says %s (%s), the diagnosis %s (%s); %+v", s.Stage, s.Why, d.State, d.Cause, o.Boot)
	}
}

// TestStateOfTheMachine: whatever the events show, a diagnosis has the state that the machine has everywhere else; what is not known there, as
// its power, says more than that nothing is known.
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
			machine.Serving: diagnosis.Done, machine.Running: diagnosis.Done, machine.Gone: diagnosis.Done, machine.Unknown: "",
		} {
			m := diagnosis.Machine{Host: "a", Known: true, Profile: "p", Install: "installing", State: machine.State{Stage: stage, Why: "of its state", Waits: "its turn"}}
			if stage == machine.Off {
				m.BMC = "off"
			}
			d := diagnosis.Of([]timeline.Boot{boot(timeline.Booting, start, events...)}, m, start.Add(3*time.Hour))
			if d.State != want && (want != "" || d.State == diagnosis.Done) || d.Cause == "" || d.State == diagnosis.Stopped && len(d.Do) == 0 {
				t.Errorf("%s, which is %s: %s, %s, to do %q", name, stage, d.State, d.Cause, d.Do)
			}
			if name == "reads a document twice" && want == diagnosis.Booting && stage != machine.Waiting && !strings.Contains(strings.Join(d.Facts, ""), "as often as it may") {
				t.Errorf("%s: no word of it in %q", name, d.Facts)
			}
		}
	}
}

// TestEveryFailure: of each kind of event by which a boot fails, a diagnosis says what it means and what to do.
func TestEveryFailure(t *testing.T) {
	t.Parallel()
	without := map[event.Kind]string{event.InstallLoop: "held", event.InstallUnknown: "unknown", event.ConsolePanic: "", event.ConsoleEmergency: "", event.ConsoleNoBootDevice: ""} // a reason
	for _, k := range event.Kinds() {
		b := boot(timeline.Failed, start, toScript(because(k, "of_another_version", "", "x"))...)
		last, _ := record(t, []timeline.Boot{b}).Last("a")
		if fails := last.Outcome == timeline.Failed; fails != k.Failure() {
			t.Errorf("%v: the boot is %s", k, last.Outcome)
		}
		install, known := without[k]
		m := diagnosis.Machine{Host: "a", Known: true, Reserved: true, Profile: "p", Install: cmp.Or(install, "booting"), Advice: []string{"mark it"}}
		d := diagnosis.Of([]timeline.Boot{b}, m, start.Add(3*time.Hour))
		if k.Failure() && (!known && d.Reason != "of_another_version" || strings.Contains(d.Cause, "has sent nothing") || len(d.Do) == 0) {
			t.Errorf("%v: %s, to do %q", k, d.Cause, d.Do)
		}
	}
}

// TestEvidence: each event is shown once, in the order of time, whatever rule found it.
func TestEvidence(t *testing.T) {
	t.Parallel()
	m := diagnosis.Machine{Host: "a", Known: true, Reserved: true, Network: "lan", Profile: "p", Document: true, Install: "armed", VM: "off"}
	for name, events := range map[string][]event.Event{
		"another server answered after the last step": append(leased(event.ClientPXE), ev(event.TFTPServed), ev(event.DHCPRogue, "10.0.0.7 on br0")),
		"a check that failed":                         append(toKernel(ev(event.BackendUp), ev(event.BackendDown), ev(event.BackendNew)), ev(event.BackendUp), ev(event.BackendDown)),
		"twice the same in a millisecond":             append(leased(event.ClientPXE), ev(event.VMFailed), ev(event.VMFailed)),
	} {
		for _, vm := range []machine.Power{machine.PowerOn, machine.PowerOff} {
			m.VM, m.Checks = vm, []diagnosis.Check{{Balancer: "api", Reason: "refused", Since: start.Add(time.Hour)}}
			b := boot(timeline.Booting, start, events...)
			n := len(b.Events)
			b.Events[n-1].At = b.Events[n-2].At // it was recorded later, and says when it happened
			d := diagnosis.Of([]timeline.Boot{b}, m, start.Add(3*time.Hour))
			for i, e := range d.Evidence {
				if i > 0 && (e.At.Before(d.Evidence[i-1].At) || e == d.Evidence[i-1]) {
					t.Errorf("%s, %s: %v", name, vm, d.Evidence)
				}
			}
		}
	}
}
