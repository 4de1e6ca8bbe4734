package virt

import "io"

// A Driver opens connections to hypervisors. libvirt is the one that Deps gets by default.
type Driver interface {
	// Dial connects to the hypervisor at a libvirt URI. It may block for as long as the network lets it.
	Dial(uri string) (Hypervisor, error)
	// Close ends what the driver keeps running. Connections are closed before.
	Close()
}

// A Hypervisor is a connection to one machine that runs virtual machines. Its methods block until the other side answers
// or the connection breaks; they are safe for concurrent use. Errors say what to do, where that is known.
type Hypervisor interface {
	// Domains returns all domains, ours and others.
	Domains() ([]Domain, error)
	// XML returns the definition that a domain starts with next time.
	XML(uuid string) (string, error)
	// Define makes a domain, or redefines the one of the same UUID.
	Define(xml string) error
	// Start powers a domain on.
	Start(uuid string) error
	// Shutdown asks the guest to power off, and returns before it does.
	Shutdown(uuid string) error
	// Destroy pulls the plug.
	Destroy(uuid string) error
	// Undefine takes the definition away, with firmware variables and saved state.
	Undefine(uuid string) error
	// VolumePath returns where a volume lies, or "" if the pool has none of that name.
	VolumePath(pool, name string) (string, error)
	// VolumeBytes returns the length of a volume as it lies on disk.
	VolumeBytes(pool, name string) (uint64, error)
	// CreateVolume makes a volume and returns where it lies.
	CreateVolume(pool, xml string) (path string, err error)
	// UploadVolume makes a volume, writes n bytes of content into it and returns where it lies. If that fails there is no
	// volume.
	UploadVolume(pool, xml string, content io.Reader, n uint64) (path string, err error)
	// DeleteVolume deletes a volume; one that is not there is no error.
	DeleteVolume(pool, name string) error
	// Alive reports whether the connection still stands, as far as is known without asking.
	Alive() bool
	// Close gives the connection up.
	Close()
}

// A Domain is what a hypervisor says of one virtual machine.
type Domain struct {
	Name  string
	UUID  string
	State State
	Mark  string // our metadata element; empty: the domain is not ours
}

// State is what a virtual machine does.
type State string

// The states of a virtual machine. StateAbsent and StateUnknown are ours: there is no domain yet, and its hypervisor
// does not answer.
const (
	StateAbsent   State = "absent"
	StateOff      State = "off"
	StateRunning  State = "running"
	StatePaused   State = "paused"
	StateStopping State = "stopping"
	StateCrashed  State = "crashed"
	StateUnknown  State = "unknown"
)

// active reports whether there is something to stop.
func (s State) active() bool { return s != StateOff && s != StateAbsent && s != StateCrashed }
