package virt

import (
	"context"
	"errors"
	"io"
)

// A Driver opens connections to hypervisors. The default runs a process with libvirt's library for each; see Processes.
type Driver interface {
	// Open returns the hypervisor at a libvirt URI. It does not block: the first call connects. While it is connected, changed is
	// called with the UUIDs of domains that were defined, started, stopped or undefined, by whomever; it may block.
	Open(uri string, changed func(uuids []string)) Hypervisor
}

// A Hypervisor is one hypervisor. Its methods connect where that is needed, and return when it has answered, the connection broke
// or ctx ended; what a call does on the hypervisor goes on then. They are safe for concurrent use, and wait for each other.
type Hypervisor interface {
	// Domains returns all domains, also those of others.
	Domains(ctx context.Context) ([]Domain, error)
	// Node returns what the machine has that the hypervisor runs on.
	Node(ctx context.Context) (Node, error)
	// Pools returns the storage pools.
	Pools(ctx context.Context) ([]Pool, error)
	// Capabilities returns what the emulator of an architecture and a machine type is able to, as XML of libvirt
	// (domainCapabilities); empty: it does not tell.
	Capabilities(ctx context.Context, arch, machine, domainType string) (string, error)
	// Interfaces returns the names of the network interfaces.
	Interfaces(ctx context.Context) ([]string, error)
	// Networks returns libvirt's networks; none if the hypervisor has no such thing.
	Networks(ctx context.Context) ([]Network, error)
	// DefineNetwork defines a network, or redefines the one with the same UUID, and starts it unless it is active. It starts with the
	// hypervisor from now on.
	DefineNetwork(ctx context.Context, xml string) error
	// DeleteNetwork stops and undefines a network. It is an error if running domains use it.
	DeleteNetwork(ctx context.Context, uuid string) error
	// Find returns the domains that have this UUID or this name.
	Find(ctx context.Context, uuid, name string) ([]Domain, error)
	// XML returns the inactive definition of a domain: the one of its next start.
	XML(ctx context.Context, uuid string) (string, error)
	// Define defines a domain, or redefines the one with the same UUID.
	Define(ctx context.Context, xml string) error
	// SetAutostart sets whether a domain starts with its hypervisor.
	SetAutostart(ctx context.Context, uuid string, on bool) error
	// Start powers a domain on.
	Start(ctx context.Context, uuid string) error
	// StartWith powers a domain on with another definition, which holds until the domain is off.
	StartWith(ctx context.Context, xml string) error
	// SetBootOrder sets the boot order of the next resets of a running domain: places from 1 on, 0 for none, of NICs by MAC and of
	// disks by device, such as vda.
	SetBootOrder(ctx context.Context, uuid string, order map[string]uint) error
	// Shutdown sends an ACPI shutdown request to a domain, and does not wait.
	Shutdown(ctx context.Context, uuid string) error
	// Destroy forces a domain off.
	Destroy(ctx context.Context, uuid string) error
	// Undefine removes the definition, with firmware variables and saved state.
	Undefine(ctx context.Context, uuid string) error
	// Volumes returns volumes in the order of their names; those that do not exist without a path.
	Volumes(ctx context.Context, ids []VolumeID) ([]Volume, error)
	// VolumeAt returns the volume with a path, one without a path if no pool has it.
	VolumeAt(ctx context.Context, path string) (Volume, error)
	// Grow makes a volume larger that is the disk of a domain with this device name, which may run.
	Grow(ctx context.Context, uuid, device string, id VolumeID, bytes uint64) error
	// CreateVolume creates a volume and returns its path.
	CreateVolume(ctx context.Context, pool, xml string) (path string, err error)
	// UploadVolume creates a volume with n bytes of content and returns its path. If that fails it deletes the volume. A large
	// upload delays no other call.
	UploadVolume(ctx context.Context, pool, xml string, content io.Reader, n uint64) (path string, err error)
	// DeleteVolume deletes a volume. A missing volume is no error.
	DeleteVolume(ctx context.Context, pool, name string) error
	// Snapshots returns the snapshots of a domain.
	Snapshots(ctx context.Context, uuid string) ([]Snapshot, error)
	// CreateSnapshot creates a snapshot of the disks, and of the memory if the domain runs.
	CreateSnapshot(ctx context.Context, uuid, xml string) error
	// Revert makes a domain what it was when a snapshot was created.
	Revert(ctx context.Context, uuid, name string) error
	// DeleteSnapshot deletes a snapshot. What it holds goes into the next one.
	DeleteSnapshot(ctx context.Context, uuid, name string) error
	// Consoles connects for serial consoles. What they write goes to sink, from one goroutine, until End.
	Consoles(ctx context.Context, sink ConsoleSink) (Consoles, error)
	// Close closes the connection. Calls in progress fail, and later ones too.
	Close()
}

// Consoles are the serial consoles of the domains of a hypervisor.
type Consoles interface {
	// Open opens the console of a running domain. take takes it from another program, such as virsh console.
	Open(ctx context.Context, uuid string, take bool) error
	// Type sends input to a console that is open.
	Type(ctx context.Context, uuid string, input []byte) error
	// Close closes a console.
	Close(ctx context.Context, uuid string) error
	// Done is closed when the connection has ended. All consoles have ended then.
	Done() <-chan struct{}
	// End ends the connection.
	End()
}

// A ConsoleSink takes what happens to consoles. Its methods must not block.
type ConsoleSink interface {
	// Output takes what a console wrote, which it may keep.
	Output(uuid string, output []byte)
	// Reset says that a machine was reset: its firmware starts.
	Reset(uuid string)
	// Ended says that a console was closed, and why.
	Ended(uuid, reason string)
}

// Unreachable marks the error of a Hypervisor that does not answer.
func Unreachable(err error) error { return unreachable{err} }

// IsUnreachable reports whether an error is that of a hypervisor that does not answer.
func IsUnreachable(err error) bool { return errors.As(err, new(unreachable)) }

type unreachable struct{ error }

// Unwrap returns the cause.
func (u unreachable) Unwrap() error { return u.error }

// A Node is the machine that a hypervisor runs on.
type Node struct {
	CPUs   int    // threads
	Memory uint64 // bytes
	Free   uint64 // bytes of memory that programs can have: unused, and caches; 0: not known
}

// A Pool is a storage pool.
type Pool struct {
	Name     string
	Active   bool
	Capacity uint64 // bytes
	Free     uint64 // bytes
}

// A Domain is one virtual machine on a hypervisor.
type Domain struct {
	Name     string
	UUID     string
	State    State
	Metadata string   // our element; empty: the domain is not ours
	Next     string   // our element of the definition for the next start, where the domain runs with another
	MACs     []string // of its interfaces, lower case
	Ports    []string // UUIDs of the ports that its NICs had in libvirt networks when it started
	Memory   uint64   // bytes
	// Autostart says that a domain of ours starts with its hypervisor.
	Autostart bool
	Run       int // libvirt's number of this run, until the domain is off; 0: it does not run
}

// A State is the state of a virtual machine.
type State string

// The states of a virtual machine. libvirt has no StateAbsent (no domain yet) and StateUnknown (no answer).
const (
	StateAbsent   State = "absent"
	StateOff      State = "off"
	StateRunning  State = "running"
	StatePaused   State = "paused"
	StateStopping State = "stopping"
	StateCrashed  State = "crashed"
	StateUnknown  State = "unknown"
)

// active reports whether the domain is running in any way.
func (s State) active() bool { return s != StateOff && s != StateAbsent && s != StateCrashed }
