package virt

import "io"

// A Driver opens connections to hypervisors. The default is libvirt.
type Driver interface {
	// Dial connects to the hypervisor at a libvirt URI. It may block for as long as the network lets it.
	Dial(uri string) (Hypervisor, error)
	// Close ends the goroutines of the driver. Its connections are closed first.
	Close()
}

// A Hypervisor is a connection to one hypervisor. Its methods block until it answers or the connection breaks; they are
// safe for concurrent use.
type Hypervisor interface {
	// Domains returns all domains, also those of others.
	Domains() ([]Domain, error)
	// XML returns the inactive definition of a domain: the one of its next start.
	XML(uuid string) (string, error)
	// Define defines a domain, or redefines the one with the same UUID.
	Define(xml string) error
	// Start powers a domain on.
	Start(uuid string) error
	// Shutdown sends the guest an ACPI shutdown request, and does not wait.
	Shutdown(uuid string) error
	// Destroy forces a domain off.
	Destroy(uuid string) error
	// Undefine removes the definition, with firmware variables and saved state.
	Undefine(uuid string) error
	// VolumePath returns the path of a volume, or "" if the pool has none of that name.
	VolumePath(pool, name string) (string, error)
	// VolumeBytes returns the length of the file of a volume.
	VolumeBytes(pool, name string) (uint64, error)
	// CreateVolume creates a volume and returns its path.
	CreateVolume(pool, xml string) (path string, err error)
	// UploadVolume creates a volume with n bytes of content and returns its path. If that fails it deletes the volume.
	UploadVolume(pool, xml string, content io.Reader, n uint64) (path string, err error)
	// DeleteVolume deletes a volume. A missing volume is no error.
	DeleteVolume(pool, name string) error
	// Alive reports whether the connection is not known to be broken. It does not block.
	Alive() bool
	// Close closes the connection.
	Close()
}

// A Domain is one virtual machine on a hypervisor.
type Domain struct {
	Name     string
	UUID     string
	State    State
	Metadata string // our element; empty: the domain is not ours
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
