package event

import (
	"fmt"
	"log/slog"
)

// A Kind is what sort of thing happened. The table below is the only place that describes it.
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
	DHCPOtherServerChosen
	DHCPProxyOffer
	DHCPLimited
	DHCPConflict
	DHCPRogue
	DHCPLoop

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

	MirrorDown
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

	MachineReported
	PowerCycled
	PowerCycleFailed

	BackendUp
	BackendDown
	BackendDrained
	BackendReady

	VMCreated
	VMStarted
	VMStopped
	VMDeleted
	VMFailed

	DaemonReady
	DaemonStopping
	LabApplied
	LabRefused

	kinds // how many there are
)

// A Stage is the part of a boot, or of the house, that a kind belongs to.
type Stage string

// The stages, in the order of a boot.
const (
	StageVM       Stage = "machine"
	StageAddress  Stage = "address"
	StageFirmware Stage = "firmware"
	StageScript   Stage = "script"
	StageFiles    Stage = "files"
	StageConfig   Stage = "config"
	StageInstall  Stage = "install"
	StageBalancer Stage = "balancer"
	StageLab      Stage = "lab"
)

type description struct {
	name  string
	stage Stage
	level slog.Level
	help  string
}

// describe returns the row of the table that describes k.
func describe(k Kind) description {
	if int(k) >= len(table) {
		return table[Unknown]
	}
	return table[k]
}

// table describes every kind: its name in metrics and API, its stage, its level in the log, and what it means.
var table = [kinds]description{
	Unknown: {"unknown", StageLab, slog.LevelWarn, "an event that this version does not know"},

	DHCPDiscover:          {"dhcp_discover", StageAddress, slog.LevelDebug, "a machine asks for an address"},
	DHCPOffer:             {"dhcp_offer", StageAddress, slog.LevelDebug, "an address was offered"},
	DHCPAck:               {"dhcp_ack", StageAddress, slog.LevelInfo, "an address was leased or renewed"},
	DHCPNak:               {"dhcp_nak", StageAddress, slog.LevelInfo, "a request for a wrong address was refused"},
	DHCPDecline:           {"dhcp_decline", StageAddress, slog.LevelWarn, "a machine found its address in use by another"},
	DHCPRelease:           {"dhcp_release", StageAddress, slog.LevelDebug, "a machine gave its address back"},
	DHCPRefused:           {"dhcp_refused", StageAddress, slog.LevelWarn, "no address for this machine: no reservation, no pool, or the pool is full"},
	DHCPOtherServerChosen: {"dhcp_other_server_chosen", StageAddress, slog.LevelWarn, "a machine took the offer of another DHCP server"},
	DHCPProxyOffer:        {"dhcp_proxy_offer", StageAddress, slog.LevelDebug, "boot information was given beside another DHCP server"},
	DHCPLimited:           {"dhcp_limited", StageAddress, slog.LevelWarn, "newcomers come faster than a pool that is no longer half empty gives to them"},
	DHCPConflict:          {"dhcp_conflict", StageAddress, slog.LevelWarn, "an address of a pool is used by a machine that did not get it here"},
	DHCPRogue:             {"dhcp_rogue", StageAddress, slog.LevelWarn, "another DHCP server answers where this one gives the addresses"},
	DHCPLoop:              {"dhcp_loop", StageAddress, slog.LevelWarn, "iPXE is told its script's name again and again and never fetches it; it gets no boot file for some minutes"},

	TFTPProbe:   {"tftp_probe", StageFirmware, slog.LevelDebug, "firmware asked for a file's size and hung up, as UEFI does"},
	TFTPServed:  {"tftp_served", StageFirmware, slog.LevelInfo, "a file was fetched by TFTP"},
	TFTPFailed:  {"tftp_failed", StageFirmware, slog.LevelWarn, "a TFTP transfer broke off"},
	TFTPRefused: {"tftp_refused", StageFirmware, slog.LevelInfo, "a file asked for by TFTP is not there or not to be served"},

	FirmwareServed: {"firmware_served", StageFirmware, slog.LevelInfo, "firmware fetched its network boot program by HTTP"},
	ScriptServed:   {"script_served", StageScript, slog.LevelInfo, "a machine fetched its boot script"},
	ScriptRefused:  {"script_refused", StageScript, slog.LevelWarn, "no boot script for this machine"},
	ScriptLoop:     {"script_loop", StageScript, slog.LevelWarn, "a machine fetches its script again and again and no system comes"},
	FileServed:     {"file_served", StageFiles, slog.LevelInfo, "a file was fetched by HTTP"},
	FileAborted:    {"file_aborted", StageFiles, slog.LevelWarn, "a machine hung up in the middle of a file"},
	FileMissing:    {"file_missing", StageFiles, slog.LevelWarn, "a file is not there or not to be served"},
	ConfigServed:   {"config_served", StageConfig, slog.LevelInfo, "a machine fetched its config document"},
	ConfigRefused:  {"config_refused", StageConfig, slog.LevelWarn, "a config document was refused: wrong address, token or time"},

	MirrorDown:     {"mirror_down", StageFiles, slog.LevelWarn, "no upstream of a mirror answers; what is kept is given out, even if it is old"},
	MirrorUp:       {"mirror_up", StageFiles, slog.LevelInfo, "an upstream of a mirror answers again"},
	MirrorBypassed: {"mirror_bypassed", StageFiles, slog.LevelWarn, "files of a mirror cannot be kept and are passed through: no room, or the disk refuses"},
	MirrorCorrupt:  {"mirror_corrupt", StageFiles, slog.LevelError, "a file from upstream has a wrong checksum and was thrown away"},

	InstallArmed:     {"install_armed", StageInstall, slog.LevelInfo, "the next boot installs this machine"},
	InstallBooting:   {"install_booting", StageInstall, slog.LevelInfo, "an installer is booting"},
	InstallStarted:   {"install_started", StageInstall, slog.LevelInfo, "an installer has its config document"},
	InstallDone:      {"install_done", StageInstall, slog.LevelInfo, "the install is done: its installer says so, or what the detail tells"},
	InstallLocalBoot: {"install_local_boot", StageInstall, slog.LevelInfo, "an installed machine was sent to its own disk"},
	InstallLoop:      {"install_loop", StageInstall, slog.LevelWarn, "a machine keeps installing and never finishes; held until armed again"},

	InstallTimeout: {"install_timeout", StageInstall, slog.LevelWarn, "an installer said nothing for too long; its machine counts as installed until somebody says otherwise"},

	MachineReported: {"machine_reported", StageScript, slog.LevelInfo, "a machine that is not in the lab told what it is"},

	PowerCycled:      {"power_cycled", StageVM, slog.LevelInfo, "a machine was power-cycled through its controller, to boot from the network"},
	PowerCycleFailed: {"power_cycle_failed", StageVM, slog.LevelWarn, "a machine's controller did not power-cycle it"},

	BackendUp:      {"backend_up", StageBalancer, slog.LevelInfo, "a backend became healthy"},
	BackendDown:    {"backend_down", StageBalancer, slog.LevelWarn, "a backend became unhealthy"},
	BackendDrained: {"backend_drained", StageBalancer, slog.LevelInfo, "a backend was taken out by hand"},
	BackendReady:   {"backend_ready", StageBalancer, slog.LevelInfo, "a backend was taken back in by hand"},

	VMCreated: {"vm_created", StageVM, slog.LevelInfo, "a virtual machine was created"},
	VMStarted: {"vm_started", StageVM, slog.LevelInfo, "a virtual machine was started"},
	VMStopped: {"vm_stopped", StageVM, slog.LevelInfo, "a virtual machine was stopped"},
	VMDeleted: {"vm_deleted", StageVM, slog.LevelInfo, "a virtual machine was deleted"},
	VMFailed:  {"vm_failed", StageVM, slog.LevelError, "a hypervisor refused"},

	DaemonReady:    {"daemon_ready", StageLab, slog.LevelInfo, "all servers answer"},
	DaemonStopping: {"daemon_stopping", StageLab, slog.LevelInfo, "the daemon is stopping"},
	LabApplied:     {"lab_applied", StageLab, slog.LevelInfo, "a lab came into force"},
	LabRefused:     {"lab_refused", StageLab, slog.LevelError, "a lab was refused; the last good one stays in force"},
}

// Kinds returns all kinds but Unknown, in the order of the table.
func Kinds() []Kind {
	ks := make([]Kind, 0, kinds-1)
	for k := Unknown + 1; k < kinds; k++ {
		ks = append(ks, k)
	}
	return ks
}

// String returns the kind's name in metrics and API.
func (k Kind) String() string { return describe(k).name }

// Stage returns the stage that the kind belongs to.
func (k Kind) Stage() Stage { return describe(k).stage }

// Level returns the level at which the kind is logged.
func (k Kind) Level() slog.Level { return describe(k).level }

// Help returns what the kind means, in a few words.
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
