package api

import "time"

// A VM is one virtual machine of the lab.
type VM struct {
	Host       string `json:"host"`
	Hypervisor string `json:"hypervisor"`
	State      string `json:"state"`            // running, off, paused, stopping, crashed, absent, unknown
	Orphan     bool   `json:"orphan,omitempty"` // the host is no longer in the lab file, or on another hypervisor there
	Err        string `json:"err,omitempty"`

	At   time.Time `json:"at,omitzero"`   // when the hypervisor answered last
	Down time.Time `json:"down,omitzero"` // since when the hypervisor does not answer; zero: it does
}

// A PowerAction is what can be done to the power of a host, a virtual machine or bare metal. It changes nothing about its next boot.
type PowerAction string

// The actions on power. Off and cycle do not ask the system.
const (
	PowerStatus PowerAction = "status"
	PowerOn     PowerAction = "on"
	PowerOff    PowerAction = "off"
	PowerCycle  PowerAction = "cycle" // off and on; on, if it is off
)

// A BootDevice is what a machine boots from.
type BootDevice string

// The boot devices.
const (
	BootDefault BootDevice = "default" // the boot order of the lab file, or of the firmware
	BootNetwork BootDevice = "network"
	BootDisk    BootDevice = "disk"
	BootCD      BootDevice = "cd"
)

// A NextBoot is what a machine boots from next.
type NextBoot struct {
	Host   string     `json:"host"`
	Device BootDevice `json:"device"`
	Always bool       `json:"always,omitempty"` // at each boot, not the next one alone
	By     string     `json:"by"`               // as in Power
}

// A Power is whether a host has power.
type Power struct {
	Host  string `json:"host"`
	State string `json:"state"` // on, off, or what its controller or hypervisor says
	By    string `json:"by"`    // libvirt, redfish or ipmi, and the hypervisor or controller
}

// VMAction is what can be done to a virtual machine.
type VMAction string

// The actions on a virtual machine.
const (
	VMCreate VMAction = "create"
	VMStart  VMAction = "start"
	VMStop   VMAction = "stop" // shut down; force off if it does not respond
	VMDelete VMAction = "delete"
	VMApply  VMAction = "apply"  // make it as it is in the lab file; what runs goes on with its definition
	VMForget VMAction = "forget" // it is on a hypervisor that is gone for good
)

// A VMPlan is one virtual machine, or one libvirt network that bootlab creates, and how it differs from the lab file.
type VMPlan struct {
	Host       string      `json:"host"`              // empty: it is a network
	Network    string      `json:"network,omitempty"` // libvirt network
	Hypervisor string      `json:"hypervisor"`
	State      string      `json:"state"` // as in VM
	Condition  VMCondition `json:"condition"`
	Details    []string    `json:"details,omitempty"` // what differs, or why it is unknown
}

// A VMCondition is how a virtual machine or a libvirt network compares with the lab file.
type VMCondition string

// The conditions. They are those of package virt.
const (
	VMOK         VMCondition = "ok"
	VMMissing    VMCondition = "missing"
	VMChanged    VMCondition = "changed"
	VMDrifted    VMCondition = "drifted"
	VMUnstarted  VMCondition = "unstarted"
	VMRestart    VMCondition = "restart"
	VMOrphaned   VMCondition = "orphaned"
	VMDuplicated VMCondition = "duplicated"
	VMUnknown    VMCondition = "unknown"
)

// VMOptions are the details of an action on a virtual machine. The zero value is the default.
type VMOptions struct {
	Timeout time.Duration // of VMStop: how long the machine has to shut down before it is forced off; 0: 20 seconds
	Force   bool          // of VMStop: force it off now
	Disks   bool          // of VMDelete: delete its disks too
}

// MaxVMTimeout is the longest VMOptions.Timeout.
const MaxVMTimeout = 24 * time.Hour
