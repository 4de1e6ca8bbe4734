package lab

import (
	"net/netip"
	"slices"
	"time"
)

// A Lab is one resolved lab file. It is immutable: readers share it without locks, and a reload makes a new one.
// All slices are sorted by name, so that everything derived from a Lab is reproducible.
type Lab struct {
	Name   string   // shown to people
	Domain string   // without a final dot; hosts of no cluster are <host>.<Domain>
	Dir    string   // absolute folder of the lab file; relative paths start here
	Files  []string // the files that were read, absolute, in the order they were merged

	Appliance    Appliance
	StoreAt      Pos // of appliance.store in the file, which may differ from the Appliance in use
	Networks     []*Network
	Profiles     []*Profile
	Mirrors      []*Mirror
	Images       []*Image
	Hosts        []*Host
	Clusters     []*Cluster
	Hypervisors  []*Hypervisor
	Redfish      Redfish // no Listen: off
	DNS          DNS
	Zones        []*Zone     // static and derived, sorted by Origin
	Balancers    []*Balancer // those of the lab file, and derived from clusters, sorted by Name
	Certificates []FileAt    // of Balancers and Redfish
	Warnings     Problems    // not errors (yet), such as missing files
	IfMissing    Problems    // of each file that the lab names, the warning that holds while it does not exist

	index index
}

// A FileAt is a file and the place of the lab file that names it.
type FileAt struct {
	Pos  Pos
	Key  string
	Path string // absolute
}

// An Appliance is what the daemon itself needs; a change takes effect at the next start.
type Appliance struct {
	State       string // absolute folder of learned state
	Store       StoreConfig
	Files       string         // absolute root of images, documents, templates and public/
	HTTP        Listen         // for machines
	HTTPPort    uint16         // in the URLs that machines get
	TFTP        Listen         // empty: none
	TFTPSingle  bool           // answers leave from the port of TFTP itself
	TFTPAllow   []netip.Prefix // clients outside the networks that TFTP answers
	DNS         Listen         // UDP and TCP; empty: none
	Admin       Listen         // of the admin API and the dashboard
	Addresses   AddressMode    // who adds the addresses of clusters and balancers to interfaces
	AdminHosts  []string       // names in lower case, and addresses, by which browsers may reach the admin API beside its own
	AdminSocket string         // absolute path
	User        string         // to drop to when started as root; "root": no drop
	Confine     bool           // the process opens only its own files and makes no system call that it does not need
	UserDefault bool           // appliance.user is not set: without such a user the daemon keeps root, with a warning
}

// A StoreConfig names where learned state is kept. No etcd endpoints means a file below Appliance.State.
type StoreConfig struct {
	Etcd   []string
	Prefix string
	CAFile string // absolute, or empty
}

// AddressMode says who adds the addresses of clusters and balancers to the interfaces of their networks.
type AddressMode string

// The address modes.
const (
	AddressHold AddressMode = "hold" // the daemon
	AddressOff  AddressMode = "off"  // an admin, keepalived, a router
)

// HoldsAddresses reports whether the daemon adds the addresses of clusters and balancers to interfaces.
func (a Appliance) HoldsAddresses() bool { return a.Addresses != AddressOff }

// The roles that have a meaning: the host that is this daemon itself, and the members of clusters that names and balancers
// follow from.
const (
	RoleAppliance    = "appliance"
	RoleBootstrap    = "bootstrap"
	RoleControlPlane = "control-plane"
	RoleWorker       = "worker"

	RolePool = "pool" // of machines that the lab does not list, in a pool with a profile
)

// A Host is one machine. Fields that the lab file leaves out are zero.
type Host struct {
	Pos         Pos
	Name        string
	FQDN        string // without a final dot
	Domain      string // what FQDN ends in: the cluster's or the lab's domain
	MACs        []MAC  // the first is the one it boots from unless firmware says otherwise
	IP          netip.Addr
	IP6         netip.Addr
	Network     *Network
	NICs        []NIC  // in further networks; MACs, IP, IP6 and Network are those of the NIC that boots
	Model       string // libvirt model of the NIC that boots, of a VM; empty: virtio
	NICName     string // of the NIC that boots, where FQDN has the addresses of another; without a final dot
	Named       int    // whose addresses the FQDN has: 0 those of the NIC that boots, else those of NICs[Named-1]
	Cluster     *Cluster
	Role        string   // one of the Role constants, or any other word
	RoleSynonym string   // the word for Role in the lab file, such as "master"; empty: Role itself
	Profile     *Profile // nil: this machine boots nothing from here
	Chain       Chain    // empty for hosts that no lab file has: iPXE
	Aliases     []string // absolute names without a final dot
	Routes      []Route  // nil: the network's
	Options     []Option // nil: the network's
	Lease       time.Duration
	Ignored     bool // DHCP does not answer it
	Vars        map[string]any
	Serial      string    // of a VM: its name; of bare metal: unknown until it boots
	Local       LocalBoot // empty for hosts that no lab file has: as auto
	VM          *VM
	BMC         *BMC
	Pool        *Pool // set only for a PoolHost: the pool whose profile it boots
}

// A NIC is one that a host does not boot from, in another network.
type NIC struct {
	Network *Network
	MAC     MAC
	IP      netip.Addr // invalid: from a pool
	IP6     netip.Addr
	Model   string // libvirt model, of a VM; empty: virtio
	FQDN    string // <host>-<network>.<domain>, without a final dot
}

// WrittenRole returns the role as the lab file has it. Templates see it, so that documents may be named by it.
func (h *Host) WrittenRole() string {
	if h.RoleSynonym != "" {
		return h.RoleSynonym
	}
	return h.Role
}

// A VM is what a host needs to be a virtual machine.
type VM struct {
	Hypervisor *Hypervisor   // nil: bootlab chooses one of Candidates
	Candidates []*Hypervisor // sorted by name; nil: Hypervisor is set
	CPUs       int
	Memory     Size
	Disks      []Disk
	Firmware   Firmware
	CPU        string // libvirt cpu mode or model; empty: the hypervisor's default
	Machine    string // libvirt machine type; q35 by default, for aarch64 virt
	Arch       string // x86_64 (also if empty) or aarch64
	TPM        bool   // an emulated TPM 2.0
	Video      string // vga (also if empty), virtio, qxl or none; none: no VNC either
	HugePages  Size   // size of the pages that back its memory; 0: ordinary ones
	Shared     bool   // its memory is shared with other processes of the hypervisor, as virtiofs needs
	Autostart  bool   // it starts with its hypervisor
	XML        []XMLChange
}

// An XMLChange changes a VM's domain XML. At is a path of elements below the domain, such as devices/disk[1]; all that it finds change.
type XMLChange struct {
	Pos    Pos
	At     string
	Add    string // elements, which become the last children
	AddPos Pos
	Set    map[string]string // attributes
	Remove bool
}

// MayRunOn reports whether the lab file lets the VM run on h.
func (vm *VM) MayRunOn(h *Hypervisor) bool {
	return vm.Hypervisor == h || slices.Contains(vm.Candidates, h)
}

// ArchARM64 is the VM.Arch of 64-bit ARM.
const ArchARM64 = "aarch64"

// A Disk is one disk of a VM.
type Disk struct {
	Size   Size   // 0 with Volume, or to have the size of an image
	Bus    string // virtio (default), scsi, sata, ide …
	Cache  string // libvirt's driver cache mode; empty: its default
	Pool   string // storage pool; empty: the hypervisor's
	Format string // DiskQCOW2 (also if empty) or DiskRaw
	Volume string // an existing volume, which is never changed or deleted; empty: bootlab creates one
}

// The formats of disks.
const (
	DiskQCOW2 = "qcow2"
	DiskRaw   = "raw"
)

// Firmware is what a VM starts with.
type Firmware string

// The firmware of a VM.
const (
	FirmwareBIOS       Firmware = "bios"
	FirmwareUEFI       Firmware = "uefi"
	FirmwareUEFISecure Firmware = "uefi-secure"
)

// UEFIOf returns the firmware of a libvirt domain with UEFI, by what its definition says of Secure Boot: the loader's attribute secure, and
// the features secure-boot and enrolled-keys, each yes, no or empty. Secure Boot is wanted if one of them says yes and no feature says no:
// firmware that has the feature and no keys enforces nothing.
func UEFIOf(loader, feature, keys string) Firmware {
	if feature == "no" || keys == "no" || loader != "yes" && feature != "yes" && keys != "yes" {
		return FirmwareUEFI
	}
	return FirmwareUEFISecure
}

// A BMC is how to reach a machine's management controller: one of Redfish and IPMI.
type BMC struct {
	Redfish      string
	IPMI         string
	Username     string
	PasswordFile string // absolute
	CAFile       string // absolute; empty: the system's authorities
	Insecure     bool   // take any certificate
	// Firmware is what the machine boots with where the next boot is set: FirmwareBIOS or FirmwareUEFI; empty: the controller decides.
	Firmware Firmware
}

// A Hypervisor is a libvirt connection.
type Hypervisor struct {
	Pos        Pos
	Name       string
	URI        string
	URIPos     Pos          // zero: not from a file
	Bridges    []Attachment // sorted by Network name
	Pool       string
	DomainType string // kvm or qemu
}

// An Attachment maps a lab network to what carries it on a hypervisor: exactly one of Bridge, OVS, Macvtap and LibvirtNetwork is set.
type Attachment struct {
	Pos            Pos // of the name of what carries it
	Network        *Network
	Bridge         string // Linux bridge
	OVS            string // Open vSwitch bridge
	Macvtap        string // interface; the hypervisor itself does not reach the machine then
	LibvirtNetwork string
	Create         *LibvirtNetwork // how bootlab creates LibvirtNetwork; nil: it exists
	PortGroup      string          // of LibvirtNetwork; empty: its default
	VLAN           int             // tag, of OVS and LibvirtNetwork; 0: none
}

// A LibvirtNetwork is a libvirt network that bootlab creates. It never has libvirt's own DHCP or DNS.
type LibvirtNetwork struct {
	Pos     Pos
	Forward NetworkForward
	Bridge  string       // name of its Linux bridge, which exists with ForwardBridge; empty: libvirt chooses
	Address netip.Prefix // of the hypervisor in the network; invalid: none
}

// NetworkForward is where the traffic of a libvirt network goes.
type NetworkForward string

// Where traffic goes.
const (
	ForwardBridge   NetworkForward = "bridge"   // a Linux bridge that exists
	ForwardNAT      NetworkForward = "nat"      // the hypervisor routes it, with its own address as the source
	ForwardIsolated NetworkForward = "isolated" // nowhere
)
