package redfish

import (
	"context"

	"github.com/bootlab/bootlab/internal/lab"
)

// Machines are the virtual machines, and what clients may do with them. An error that wraps ErrBusy or ErrDown makes clients try
// again.
type Machines interface {
	// List returns all machines, sorted by name.
	List(ctx context.Context) []Machine
	// Get returns one, and whether it is in the lab.
	Get(ctx context.Context, name string) (Machine, bool)
	// Reset switches the power of a machine. GracefulShutdown and PushPowerButton return when the request was sent;
	// GracefulRestart when the machine was started again.
	Reset(ctx context.Context, name string, how ResetType) error
	// SetBoot sets the boot source override.
	SetBoot(ctx context.Context, name string, b Boot) error
	// Insert downloads an image and puts it into the CD drive that the machine has from its next start on.
	Insert(ctx context.Context, name string, i Image) error
	// Eject removes the medium.
	Eject(ctx context.Context, name string) error
}

// A Machine is one virtual machine.
type Machine struct {
	Name       string
	FQDN       string
	UUID       string
	Serial     string
	Hypervisor string
	Power      PowerState
	Absent     bool   // not created yet
	Err        string // why Power is unknown
	ARM        bool   // 64-bit ARM; else x86-64
	CPUs       int
	Memory     lab.Size
	Disks      []lab.Size
	NICs       []lab.MAC
	Firmware   lab.Firmware
	Boot       Boot
	Media      string // URL of the medium in its CD drive; empty: none
}

// A PowerState is a value of Redfish's PowerState.
type PowerState string

// The power states. PowerUnknown is null.
const (
	PowerUnknown     PowerState = ""
	PowerOn          PowerState = "On"
	PowerOff         PowerState = "Off"
	PowerPaused      PowerState = "Paused"
	PowerPoweringOff PowerState = "PoweringOff"
)

// A Target is a value of Redfish's BootSource.
type Target string

// The targets. UefiHttp is the network, or with HttpBootUri a medium.
const (
	TargetNone     Target = "None"
	TargetPxe      Target = "Pxe"
	TargetHdd      Target = "Hdd"
	TargetCd       Target = "Cd"
	TargetUEFIHTTP Target = "UefiHttp"
)

// A Boot is a boot source override.
type Boot struct {
	Target     Target
	Continuous bool // at every start; else at the next one
}

// An Image is an image that a client wants in the CD drive.
type Image struct {
	URL            string
	User, Password string
}

// A ResetType is a value of Redfish's ResetType.
type ResetType string

// The reset types.
const (
	ResetOn               ResetType = "On"
	ResetForceOn          ResetType = "ForceOn"
	ResetForceOff         ResetType = "ForceOff"
	ResetForceRestart     ResetType = "ForceRestart"
	ResetPowerCycle       ResetType = "PowerCycle"
	ResetGracefulShutdown ResetType = "GracefulShutdown"
	ResetGracefulRestart  ResetType = "GracefulRestart"
	ResetPushPowerButton  ResetType = "PushPowerButton"
)

var resetTypes = []ResetType{
	ResetOn, ResetForceOn, ResetForceOff, ResetForceRestart, ResetPowerCycle, ResetGracefulShutdown, ResetGracefulRestart, ResetPushPowerButton,
}
