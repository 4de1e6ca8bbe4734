package event

import (
	"fmt"
	"log/slog"
	"slices"
)

// A Kind is a kind of event. The table below is the only place that describes it.
type Kind uint8

// The kinds of event.
const (
	Unknown Kind = iota

	DHCPDiscover
	DHCPOffer
	DHCPAck
	DHCPNak
	DHCPDecline
	DHCPRelease
	DHCPRefused
	DHCPRogueServerChosen
	DHCPProxyOffer
	DHCPFlood
	DHCPPoolConflict
	DHCPRogue
	DHCPLoop
	DHCPNameConflict

	TFTPProbe
	TFTPServed
	TFTPFailed
	TFTPRefused

	FirmwareServed
	ScriptServed
	ScriptRefused
	ScriptLoop
	FileServed
	FileAborted
	FileMissing
	ConfigServed
	ConfigRefused
	AddressConflict

	MirrorDown
	MirrorFailed
	MirrorUp
	MirrorBypassed
	MirrorCorrupt

	InstallArmed
	InstallBooting
	InstallStarted
	InstallDone
	InstallLocalBoot
	InstallLoop
	InstallTimeout
	InstallUnknown

	MachineReported
	PowerCycled
	PowerCycleFailed

	BackendUp
	BackendDown
	BackendNew
	BackendDrained
	BackendReady
	BackendAdded
	BackendRemoved
	BackendWeight

	VMCreated
	VMChanged
	VMStarted
	VMStopped
	VMDeleted
	VMNetworkDefined
	VMNetworkDeleted
	VMMediaInserted
	VMMediaEjected
	VMSnapshot
	VMReverted
	VMSnapshotDeleted
	VMFailed

	ConsolePanic
	ConsoleEmergency
	ConsoleNoBootDevice

	BootstrapRemoved
	ClusterReady

	VIPUp
	VIPInUse
	VIPConflict
	VIPLeased
	VIPMissing

	DaemonReady
	DaemonStopping
	ClockJumped
	LabApplied
	LabRefused
	StateLost
	StateAccepted

	kinds // how many there are
)

// A Stage is the part of a boot, or of the daemon, that a kind belongs to.
type Stage string

// The stages, in the order of a boot.
const (
	StageMachine  Stage = "machine"
	StageAddress  Stage = "address"
	StageFirmware Stage = "firmware"
	StageScript   Stage = "script"
	StageFiles    Stage = "files"
	StageConfig   Stage = "config"
	StageInstall  Stage = "install"
	StageBalancer Stage = "balancer"
	StageLab      Stage = "lab"
)

// StageSystem is where a machine is whose operating system has an address. It is no stage of a timeline.
const StageSystem Stage = "system"

// Order returns the position of a stage in a boot, from 1; 0 if it is no stage of a boot.
func (s Stage) Order() int {
	return 1 + slices.Index([]Stage{StageMachine, StageAddress, StageFirmware, StageScript, StageFiles, StageSystem, StageConfig, StageInstall, StageBalancer}, s)
}

type description struct {
	name  string
	stage Stage
	level slog.Level
	by    origin
	help  string
}

// An origin is what causes the events of a kind.
type origin uint8

const (
	own     origin = iota // the daemon, an admin, or a machine at a step that it takes once
	failed                // the same, where the boot of the machine failed by it
	mark                  // an admin, of a machine that has sent nothing; the end of an installation may also be reported by its system
	change                // an admin or the lab file, of a virtual machine that is not started by it
	request               // a request that was answered
	refusal               // a request that was refused or failed, or what failed in the machine: its boot failed, unless it goes on
	retried               // a request that failed for now, and is to be repeated: its boot goes on
	notice                // whatever else anybody on the network can send
	claim                 // of the address of the event, by a MAC that the sender may have made up
)

// describe returns the row of the table that describes k.
func describe(k Kind) description {
	if int(k) >= len(table) {
		return table[Unknown]
	}
	return table[k]
}

// table describes every kind: its name in metrics and API, its stage, its level in the log, what causes it, and what it means.
var table = [kinds]description{
	Unknown: {"unknown", StageLab, slog.LevelWarn, own, "an event that this version does not know"},

	DHCPDiscover:          {"dhcp_discover", StageAddress, slog.LevelDebug, request, "a machine sent a DISCOVER"},
	DHCPOffer:             {"dhcp_offer", StageAddress, slog.LevelDebug, request, "the server offered an address"},
	DHCPAck:               {"dhcp_ack", StageAddress, slog.LevelInfo, request, "an address was leased, or its lease renewed"},
	DHCPNak:               {"dhcp_nak", StageAddress, slog.LevelInfo, refusal, "a REQUEST for a wrong address was refused"},
	DHCPDecline:           {"dhcp_decline", StageAddress, slog.LevelWarn, refusal, "a machine declined its address, because another machine uses it"},
	DHCPRelease:           {"dhcp_release", StageAddress, slog.LevelDebug, request, "a machine released its address, or an admin its lease"},
	DHCPRefused:           {"dhcp_refused", StageAddress, slog.LevelWarn, refusal, "no address for this machine: no reservation, no pool, or the pool is full"},
	DHCPRogueServerChosen: {"dhcp_rogue_server_chosen", StageAddress, slog.LevelWarn, refusal, "a machine accepted the offer of another DHCP server"},
	DHCPProxyOffer:        {"dhcp_proxy_offer", StageAddress, slog.LevelDebug, request, "boot information was offered beside another DHCP server"},
	DHCPFlood:             {"dhcp_flood", StageAddress, slog.LevelWarn, notice, "at many addresses of a pool that are leased, declined or claimed by ARP no machine answers"},
	DHCPPoolConflict:      {"dhcp_pool_conflict", StageAddress, slog.LevelWarn, claim, "an address of a pool is in use without a lease"},
	DHCPRogue:             {"dhcp_rogue", StageAddress, slog.LevelWarn, notice, "another DHCP server answers on a network with dhcp: server"},
	DHCPLoop:              {"dhcp_loop", StageAddress, slog.LevelWarn, refusal, "iPXE asks for its boot file again and again without fetching it; for some minutes it gets the boot program by TFTP, or no boot file"},
	DHCPNameConflict:      {"dhcp_name_conflict", StageAddress, slog.LevelWarn, notice, "a machine without a reservation gets no DNS name: another one with a lease has the host name that it sends (RFC 4703)"},

	TFTPProbe:   {"tftp_probe", StageFirmware, slog.LevelDebug, request, "firmware asked for a file's size only, as UEFI does"},
	TFTPServed:  {"tftp_served", StageFirmware, slog.LevelInfo, request, "a TFTP transfer is complete"},
	TFTPFailed:  {"tftp_failed", StageFirmware, slog.LevelWarn, refusal, "a TFTP transfer failed"},
	TFTPRefused: {"tftp_refused", StageFirmware, slog.LevelInfo, refusal, "a TFTP request was refused: no such file, the file may not be served, or all transfers are in use"},

	FirmwareServed: {"firmware_served", StageFirmware, slog.LevelInfo, request, "firmware fetched its network boot program by HTTP"},
	ScriptServed:   {"script_served", StageScript, slog.LevelInfo, request, "a machine fetched its boot script"},
	ScriptRefused:  {"script_refused", StageScript, slog.LevelWarn, refusal, "a request for a boot script was refused"},
	ScriptLoop:     {"script_loop", StageScript, slog.LevelWarn, refusal, "a machine fetches its boot script again and again, and no system starts"},
	FileServed:     {"file_served", StageFiles, slog.LevelDebug, request, "a file was fetched by HTTP"},
	FileAborted:    {"file_aborted", StageFiles, slog.LevelWarn, refusal, "a machine closed the connection in the middle of a file"},
	FileMissing:    {"file_missing", StageFiles, slog.LevelWarn, refusal, "an HTTP request was refused: no such file or path, or the file may not be served"},
	ConfigServed:   {"config_served", StageConfig, slog.LevelInfo, request, "a machine fetched its config document"},
	ConfigRefused:  {"config_refused", StageConfig, slog.LevelWarn, refusal, "a request for a config document was refused: wrong address, token or install state"},

	AddressConflict: {"address_conflict", StageAddress, slog.LevelWarn, claim, "another machine uses the reserved or leased address of this one: its ARP was received, or a request of it, which was refused"},

	MirrorDown:     {"mirror_down", StageFiles, slog.LevelWarn, own, "no upstream of a mirror answers; cached files are served, even if stale"},
	MirrorFailed:   {"mirror_failed", StageFiles, slog.LevelWarn, retried, "a machine got 503 for a file of a mirror: it is not cached, and no upstream answers"},
	MirrorUp:       {"mirror_up", StageFiles, slog.LevelInfo, own, "an upstream of a mirror answers again"},
	MirrorBypassed: {"mirror_bypassed", StageFiles, slog.LevelWarn, notice, "files of a mirror are passed through without being cached: the cache is full, or the disk failed"},
	MirrorCorrupt:  {"mirror_corrupt", StageFiles, slog.LevelError, notice, "a file from upstream has a wrong checksum and was discarded"},

	InstallArmed:     {"install_armed", StageInstall, slog.LevelInfo, mark, "the next boot installs this machine"},
	InstallBooting:   {"install_booting", StageInstall, slog.LevelInfo, own, "an installer is booting"},
	InstallStarted:   {"install_started", StageInstall, slog.LevelInfo, own, "an installer fetched its config document"},
	InstallDone:      {"install_done", StageInstall, slog.LevelInfo, mark, "the installation is complete; the detail names the signal"},
	InstallLocalBoot: {"install_local_boot", StageInstall, slog.LevelInfo, own, "an installed machine boots from its own disk"},
	InstallLoop:      {"install_loop", StageInstall, slog.LevelWarn, failed, "a machine installs again and again without finishing; it is held until it is armed again"},
	InstallTimeout:   {"install_timeout", StageInstall, slog.LevelWarn, own, "an installer sent no signal for too long; its machine counts as installed until it is armed again"},
	InstallUnknown:   {"install_unknown", StageInstall, slog.LevelWarn, failed, "a machine whose install state was lost boots from its own disk"},

	MachineReported: {"machine_reported", StageScript, slog.LevelInfo, request, "an unknown machine reported its hardware"},

	PowerCycled:      {"power_cycled", StageMachine, slog.LevelInfo, own, "a machine was power-cycled through its BMC, to boot from the network"},
	PowerCycleFailed: {"power_cycle_failed", StageMachine, slog.LevelWarn, failed, "the BMC of a machine did not power-cycle it"},

	BackendUp:      {"backend_up", StageBalancer, slog.LevelInfo, own, "a backend became healthy"},
	BackendDown:    {"backend_down", StageBalancer, slog.LevelWarn, own, "a backend became unhealthy"},
	BackendNew:     {"backend_new", StageBalancer, slog.LevelInfo, own, "a backend that was never healthy fails its check, as one that is not installed yet; the detail says so"},
	BackendDrained: {"backend_drained", StageBalancer, slog.LevelInfo, own, "a backend was drained by an admin"},
	BackendReady:   {"backend_ready", StageBalancer, slog.LevelInfo, own, "a drained backend was set ready by an admin"},
	BackendAdded:   {"backend_added", StageBalancer, slog.LevelInfo, own, "an admin added a backend to a balancer at run time"},
	BackendRemoved: {"backend_removed", StageBalancer, slog.LevelInfo, own, "an admin removed a backend that was added at run time"},
	BackendWeight:  {"backend_weight", StageBalancer, slog.LevelInfo, own, "an admin set the weight of a backend"},

	VMCreated:         {"vm_created", StageMachine, slog.LevelInfo, change, "a virtual machine was created"},
	VMChanged:         {"vm_changed", StageMachine, slog.LevelInfo, change, "a virtual machine was changed to be as in the lab file"},
	VMStarted:         {"vm_started", StageMachine, slog.LevelInfo, own, "a virtual machine was started"},
	VMStopped:         {"vm_stopped", StageMachine, slog.LevelInfo, change, "a virtual machine was stopped"},
	VMDeleted:         {"vm_deleted", StageMachine, slog.LevelInfo, change, "a virtual machine was deleted"},
	VMNetworkDefined:  {"vm_network_defined", StageMachine, slog.LevelInfo, own, "a libvirt network was created or redefined"},
	VMNetworkDeleted:  {"vm_network_deleted", StageMachine, slog.LevelInfo, own, "a libvirt network was deleted"},
	VMMediaInserted:   {"vm_media_inserted", StageMachine, slog.LevelInfo, change, "a virtual medium was inserted for the next start of a virtual machine"},
	VMMediaEjected:    {"vm_media_ejected", StageMachine, slog.LevelInfo, change, "the virtual medium of a virtual machine was removed"},
	VMSnapshot:        {"vm_snapshot", StageMachine, slog.LevelInfo, change, "a snapshot of a virtual machine was created"},
	VMReverted:        {"vm_reverted", StageMachine, slog.LevelWarn, change, "a virtual machine was reverted to a snapshot"},
	VMSnapshotDeleted: {"vm_snapshot_deleted", StageMachine, slog.LevelInfo, change, "a snapshot of a virtual machine was deleted"},

	VMFailed: {"vm_failed", StageMachine, slog.LevelError, change, "a hypervisor refused an operation"},

	ConsolePanic:        {"console_panic", StageMachine, slog.LevelWarn, refusal, "the kernel of a virtual machine wrote on its console that it panicked"},
	ConsoleEmergency:    {"console_emergency", StageMachine, slog.LevelWarn, refusal, "the system of a virtual machine stopped in an emergency shell"},
	ConsoleNoBootDevice: {"console_no_boot_device", StageMachine, slog.LevelWarn, refusal, "the firmware of a virtual machine found nothing to boot"},

	BootstrapRemoved: {"bootstrap_removed", StageBalancer, slog.LevelInfo, own, "the control plane of a cluster serves and its bootstrap machine does not any more: it was removed from the balancers"},
	ClusterReady:     {"cluster_ready", StageLab, slog.LevelInfo, own, "a cluster that was brought up is ready"},

	VIPUp:       {"vip_up", StageLab, slog.LevelInfo, claim, "an interface has the address of a cluster or balancer (VIP)"},
	VIPInUse:    {"vip_in_use", StageLab, slog.LevelWarn, claim, "another machine uses a VIP, which bootlab does not add until it is free"},
	VIPConflict: {"vip_conflict", StageLab, slog.LevelWarn, claim, "another machine uses a VIP, too, that this machine has"},
	VIPLeased:   {"vip_leased", StageLab, slog.LevelWarn, claim, "another machine has a lease of a VIP"},
	VIPMissing:  {"vip_missing", StageLab, slog.LevelWarn, own, "a VIP is on no interface"},

	DaemonReady:    {"daemon_ready", StageLab, slog.LevelInfo, own, "all servers were started; bootlab status shows one that does not serve yet"},
	DaemonStopping: {"daemon_stopping", StageLab, slog.LevelInfo, own, "the daemon is stopping"},
	ClockJumped:    {"clock_jumped", StageLab, slog.LevelWarn, own, "the system clock was set forward or back; leases keep the time that they were given for"},
	LabApplied:     {"lab_applied", StageLab, slog.LevelInfo, own, "a lab was applied"},
	LabRefused:     {"lab_refused", StageLab, slog.LevelError, own, "a lab was refused; the running one stays in force"},
	StateLost:      {"state_lost", StageLab, slog.LevelError, own, "install states were lost; no machine with install: once is installed until an admin says so"},
	StateAccepted:  {"state_accepted", StageLab, slog.LevelInfo, own, "an admin accepted the state: hosts whose install state was unknown are armed"},
}

// Kinds returns all kinds but Unknown, in the order of the table.
func Kinds() []Kind {
	ks := make([]Kind, 0, kinds-1)
	for k := Unknown + 1; k < kinds; k++ {
		ks = append(ks, k)
	}
	return ks
}

// FromAddress reports whether the kind is of requests whose Addr says who asked: all but those of DHCP.
func (k Kind) FromAddress() bool {
	d := describe(k)
	return d.by >= request && d.stage != StageAddress
}

// OfFile reports whether the kind is of requests for files that any machine may fetch, by HTTP or TFTP.
func (k Kind) OfFile() bool {
	d := describe(k)
	return d.by >= request && (d.stage == StageFirmware || d.stage == StageFiles)
}

// String returns the kind's name in metrics and API.
func (k Kind) String() string { return describe(k).name }

// Stage returns the stage that the kind belongs to.
func (k Kind) Stage() Stage { return describe(k).stage }

// Reached returns the stage that an event of the kind shows its machine to be at; empty: none.
func (k Kind) Reached() Stage {
	switch k {
	case InstallArmed, VMChanged, VMStopped, VMDeleted, VMSnapshot, VMSnapshotDeleted, PowerCycleFailed:
		return ""
	case InstallBooting, InstallLocalBoot, InstallLoop, InstallUnknown:
		return StageScript
	}
	if k.Stage() == StageBalancer {
		return "" // a check, or what an admin did to a backend
	}
	return k.Stage()
}

// Shows returns where e shows its machine to be; empty: it shows nothing of a boot.
func (e Event) Shows() Stage {
	if e.ByAdmin && !e.Kind.Mark() {
		return ""
	}
	switch e.Kind {
	case VMMediaInserted, VMMediaEjected, MachineReported, DHCPRogue, DHCPPoolConflict, DHCPFlood, DHCPNameConflict, MirrorFailed:
		return "" // what a machine gets of a mirror is not recorded
	case BackendUp:
		return StageBalancer
	case InstallArmed, PowerCycleFailed:
		return StageMachine
	case DHCPAck: // an offer may reach nobody
		if e.Client == ClientOS {
			return StageSystem
		}
	}
	if at := e.Kind.Reached(); at.Order() > 0 {
		return at
	}
	return ""
}

// Level returns the level at which the kind is logged.
func (k Kind) Level() slog.Level { return describe(k).level }

// Mark reports whether the kind, of a machine that has sent nothing, is what an admin made of it: to be installed, or installed.
func (k Kind) Mark() bool { return describe(k).by == mark }

// Change reports whether the kind is of what was done to a virtual machine, or failed, and did not start it.
func (k Kind) Change() bool { return describe(k).by == change }

// Refusal reports whether the kind is of what anybody on the network can cause without end: requests that were refused or failed,
// and claims of addresses.
func (k Kind) Refusal() bool { return describe(k).by >= refusal }

// Failure reports whether a boot has failed whose last event is of the kind.
func (k Kind) Failure() bool {
	by := describe(k).by
	return by == refusal || by == failed
}

// Help returns what the kind means.
func (k Kind) Help() string { return describe(k).help }

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(b []byte) error {
	for i, d := range table {
		if d.name == string(b) {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("%q is not a kind of event", b)
}
