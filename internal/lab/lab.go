package lab

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
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
	Zones        []*Zone     // authored and derived, sorted by Origin
	Balancers    []*Balancer // authored and derived from clusters, sorted by Name
	Certificates []FileAt    // of Balancers and Redfish
	Warnings     Problems    // not errors (yet), such as missing files

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

// The roles that have a meaning: the host that is this daemon itself, and the members of clusters that names and balancers
// follow from.
const (
	RoleAppliance    = "appliance"
	RoleBootstrap    = "bootstrap"
	RoleControlPlane = "control-plane"
	RoleWorker       = "worker"
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

// DNS is the part of the lab file about recursion and transfers. Zones are in Lab.Zones.
type DNS struct {
	Forward      []NameServer
	ForwardZones []ForwardZone  // sorted by Domain
	Allow        []netip.Prefix // may use the forwarder, beside the lab's networks
	Transfer     []Access       // may AXFR and IXFR
	Notify       []Secondary    // notified of changes
	Keys         []TSIGKey      // sorted by Name
	RateLimit    int            // replies per second to a network outside of the lab; 0: no limit
	CacheEntries int            // answers that the forwarder caches; 0: its default
	CacheSize    Size           // memory for them; 0: its default
}

// A TSIGKey is a secret shared with a secondary or with a client that updates zones (RFC 8945).
type TSIGKey struct {
	Pos        Pos
	Name       string // lower case, with a final dot
	Algorithm  string // such as hmac-sha256; a file that names one has precedence
	SecretFile string // absolute path
}

// An Access is a rule about who may do something. All that it names must hold.
type Access struct {
	From netip.Prefix // not valid: any address
	Key  string       // the name of the TSIG key that the request is signed with; empty: none is needed
}

// String returns the rule as the lab file has it.
func (a Access) String() string {
	var parts []string
	if a.From.IsValid() {
		parts = append(parts, a.From.String())
	}
	if a.Key != "" {
		parts = append(parts, "key "+strings.TrimSuffix(a.Key, "."))
	}
	return strings.Join(parts, " ")
}

// A Secondary is a name server that holds copies of zones.
type Secondary struct {
	Addr netip.AddrPort
	Key  string // the name of the TSIG key that messages to it are signed with; empty: they are not signed
}

// String returns the secondary as the lab file has it.
func (s Secondary) String() string {
	if s.Key == "" {
		return s.Addr.String()
	}
	return s.Addr.String() + " key " + strings.TrimSuffix(s.Key, ".")
}

// A NameServer is another server that questions are forwarded to, or a file that names some.
type NameServer struct {
	Pos    Pos
	Addr   netip.AddrPort // invalid: see File
	TLS    string         // the name that its certificate must have, in lower case (RFC 7858); empty: UDP and TCP
	CAFile string         // absolute; who may sign that certificate; empty: the system's authorities
	File   string         // absolute path of a resolv.conf
}

// String returns the server as the lab file may have it.
func (n NameServer) String() string {
	switch {
	case n.File != "":
		return n.File
	case n.TLS != "":
		return n.Addr.String() + "#" + n.TLS
	}
	return n.Addr.String()
}

// A ForwardZone sends questions below Domain to its own servers.
type ForwardZone struct {
	Domain  string
	Servers []NameServer
}

// A Zone is one DNS zone. The lab answers for all names below its origin.
type Zone struct {
	Pos     Pos
	Origin  string // lower case, with a final dot
	Derived bool
	// ForwardMissing says that others have names below Origin too: those that the zone does not have are forwarded, if there is a
	// forwarder.
	ForwardMissing bool
	Records        []Record // sorted by Name, then Type
	Lines          []Line   // zone-file lines as authored, relative to Origin
	File           string   // absolute path of a zone file; empty: none
	Update         []Access // who may update it (RFC 2136); each has a key
	UpdateReserved []string // names for which ReservedName holds, and that updates may have nevertheless
	Leases         bool     // transfers have the names of DHCP clients
}

// A Line is one authored zone-file line.
type Line struct {
	Pos  Pos
	Text string
}

// A Record is one derived resource record.
type Record struct {
	Name   string // owner, lower case, absolute with a final dot; may start with "*."
	Type   string // A, AAAA, PTR, SRV, CNAME, NS
	Addr   netip.Addr
	Target string // absolute with a final dot, for PTR, SRV, CNAME, NS
	// Priority, Weight and Port are of SRV records (RFC 2782).
	Priority, Weight, Port uint16
	Source                 string // what it was derived from, such as "host master-0": for people
	// Follows is the balancer whose member has Addr: the record is answered while the member is healthy. nil: always.
	Follows *Balancer
	// Then is answered instead of Addr once the bootstrap machine of the cluster that Follows belongs to has left; zero: Addr stays. It is
	// the node of a single-node cluster.
	Then netip.Addr
}

// BalanceMode is the layer that a balancer works on.
type BalanceMode string

// The modes of a balancer.
const (
	ModeTCP  BalanceMode = "tcp"
	ModeHTTP BalanceMode = "http"
	ModeUDP  BalanceMode = "udp"
)

// Algorithm is how a balancer picks a backend.
type Algorithm string

// The algorithms of a balancer.
const (
	RoundRobin Algorithm = "roundrobin"
	LeastConn  Algorithm = "leastconn"
	SourceHash Algorithm = "source"
)

// A Balancer is one frontend and its backends.
type Balancer struct {
	Pos            Pos
	Name           string   // a derived one is "<cluster>-<service>", such as mycluster-api
	Cluster        *Cluster // nil: authored
	Listen         Binds
	Mode           BalanceMode
	Balance        Algorithm
	Check          Check
	Backends       []Backend
	Match          Match
	SendProxy      int            // PROXY protocol version to backends: 0 off, 1, 2
	AcceptProxy    []netip.Prefix // peers whose PROXY header is accepted
	MaxConnections int            // 0: no limit
	Queue          int            // clients that may wait while every backend has its MaxConnections
	Timeouts       Timeouts
	Log            AccessLog
	OnDown         OnDown
	Certificates   []string // absolute files; without ACME none: no TLS termination
	ACME           *ACME    // nil: none
	Protocol       BackendProtocol
	BackendTLS     BackendTLS
	Redirect       Redirect
	TrustedProxies []netip.Prefix // peers whose Forwarded and X-Forwarded fields are kept
	Sticky         string         // name of the cookie that keeps a client at its backend; empty: none
	Names          []string       // in DNS, without a final dot
	Responses      int            // of mode udp: datagrams that a member answers to each of a client's; AnyResponses: not known
	Health         bool           // Names have the addresses of healthy members, not that of Listen
}

// AnyResponses is the Balancer.Responses of a protocol whose sessions end when they are idle.
const AnyResponses = -1

// MaxWeight is the largest weight of a backend, as HAProxy's; the smallest is 1.
const MaxWeight = 256

// A Backend is one member of a balancer.
type Backend struct {
	Name string // the host's name where it is a host, else the address
	Host *Host  // nil: an address from outside the lab
	// With port 0: the port that the client has connected to. Without an address: that of Host's lease, else those of Name in DNS.
	Addr   netip.AddrPort
	Backup bool // used only while every other member is down
	Weight int  // share of new connections, relative to the others; 0: 1

	MaxConnections int // at one time; 0: no limit

	NotFor []netip.Addr // clients that it never gets, sorted
}

// Dynamic reports whether the address of a member is learned at run time.
func (b *Backend) Dynamic() bool { return !b.Addr.Addr().IsValid() }

// AddrText returns the address of a member, or its name if it is dynamic, without a port if it has the client's.
func (b *Backend) AddrText() string {
	if b.Dynamic() && b.Addr.Port() != 0 {
		return b.Name + ":" + strconv.Itoa(int(b.Addr.Port()))
	} else if b.Dynamic() {
		return b.Name
	}
	return MemberText(b.Addr)
}

// MemberText returns the address of a member, without a port if it has the client's; empty: it has none.
func MemberText(a netip.AddrPort) string {
	switch {
	case !a.Addr().IsValid():
		return ""
	case a.Port() == 0:
		return a.Addr().String()
	}
	return a.String()
}

// Match says which connections of a shared listen address are this balancer's. Empty matches everything that no other
// balancer of the address matches. Patterns are lower case, "*.example.com" matches any name below example.com.
//
// Where Host and Path are given, both must match. A path matches itself and what is below it; it has no "/" at the end.
type Match struct {
	SNI  []string
	Host []string
	Path []string // of mode http
}

// CheckKind is how a backend's health is checked.
type CheckKind string

// The kinds of health check.
const (
	CheckNone  CheckKind = "none"
	CheckTCP   CheckKind = "tcp"
	CheckTLS   CheckKind = "tls" // a handshake, certificate not verified
	CheckHTTP  CheckKind = "http"
	CheckHTTPS CheckKind = "https"
	CheckDNS   CheckKind = "dns" // a query over UDP
)

// Statuses are HTTP statuses, as "200,301-302"; empty: any 2xx or 3xx. They are text so that checks can be compared.
type Statuses string

// Has reports whether a status is one of them.
func (s Statuses) Has(status int) bool {
	if s == "" {
		return status >= 200 && status <= 399
	}
	for part := range strings.SplitSeq(string(s), ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		low, _ := strconv.Atoi(from)
		high, _ := strconv.Atoi(to)
		if status >= low && status <= high {
			return true
		}
	}
	return false
}

// String says which they are.
func (s Statuses) String() string {
	if s == "" {
		return "2xx or 3xx"
	}
	return strings.ReplaceAll(string(s), ",", ", ")
}

// A Check is a health check.
type Check struct {
	Kind         CheckKind
	Path         string
	Port         uint16 // 0: the backend's own
	Expect       Statuses
	Name         string // whose SOA record is asked for, in lower case, without a final dot; empty: the root, with any answer
	Host         string // of the request; empty: the address
	SNI          string // TLS server name; empty: none
	CAFile       string // absolute file that certificates are verified with; empty: any certificate passes
	Interval     time.Duration
	FastInterval time.Duration // while the condition may be about to change; 0: Interval
	Timeout      time.Duration
	Rise         int // successes in a row that make a member healthy
	Fall         int // failures in a row that make it unhealthy
}

// Timeouts are a balancer's.
type Timeouts struct {
	Connect time.Duration
	Idle    time.Duration // no byte in either direction
	Queue   time.Duration // the wait while every backend has its MaxConnections

	// Of mode http.
	Server    time.Duration // from the request to the head of the response
	Request   time.Duration // for a request's head
	Body      time.Duration // between two parts of a request's body
	KeepAlive time.Duration // between two requests of a connection
}

// WithDefaults returns t with the defaults of mode http for what is zero.
func (t Timeouts) WithDefaults() Timeouts {
	t.Queue = cmp.Or(t.Queue, t.Connect, 5*time.Second)
	t.Server = cmp.Or(t.Server, time.Minute)
	t.Request = cmp.Or(t.Request, 10*time.Second)
	t.Body = cmp.Or(t.Body, time.Minute)
	t.KeepAlive = cmp.Or(t.KeepAlive, time.Minute)
	return t
}

// AccessLog is which requests of mode http are logged.
type AccessLog string

// The access logs.
const (
	LogNone     AccessLog = "none"
	LogErrors   AccessLog = "errors" // what ended early, and 5xx
	LogRequests AccessLog = "requests"
)

// Redirect is where a balancer of mode http sends clients instead of proxying their requests.
type Redirect string

// The redirects.
const (
	RedirectOff   Redirect = "off"
	RedirectHTTPS Redirect = "https" // requests without TLS get the same URL with https
)

// BackendProtocol is what backends of mode http speak.
type BackendProtocol string

// The protocols of backends.
const (
	BackendHTTP1 BackendProtocol = "http1"
	BackendH2C   BackendProtocol = "h2c" // HTTP/2 without TLS, as gRPC servers in a lab do
	BackendH2    BackendProtocol = "h2"  // HTTP/2 with TLS
)

// ACME is where a balancer gets certificates (RFC 8555).
type ACME struct {
	Directory string   // URL
	CAFile    string   // absolute, of who signs the server's own certificate; empty: the system's authorities
	Email     string   // of the account; empty: none
	Names     []string // lower case, each gets a certificate
}

// EndsTLS reports whether b ends its clients' TLS.
func (b *Balancer) EndsTLS() bool { return len(b.Certificates) > 0 || b.ACME != nil }

// BackendTLS is how TLS is spoken with backends of mode http. The zero value is: not.
type BackendTLS struct {
	On         bool
	CAFile     string // absolute; empty: the system's authorities
	Name       string // that certificates must have; empty: the backend's FQDN or address
	Unverified bool   // any certificate will do
}

// OnDown is what becomes of the open connections of a backend that goes down.
type OnDown string

// What becomes of connections.
const (
	OnDownKeep  OnDown = "keep"
	OnDownClose OnDown = "close"
)

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
