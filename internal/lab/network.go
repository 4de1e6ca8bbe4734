package lab

import (
	"fmt"
	"net/netip"
	"time"
)

// DHCPMode says what the DHCP server does in a network.
type DHCPMode string

// The DHCP modes of a network.
const (
	DHCPServer DHCPMode = "server" // gives addresses and boot information
	DHCPProxy  DHCPMode = "proxy"  // boot information only, beside another server
	DHCPOff    DHCPMode = "off"    // silent
)

// What another DHCP server does to a network in mode server, and what to do about it.
const (
	RogueEffect = "machines get its addresses or ours, by chance"
	StopRogue   = "stop the other DHCP server, or set dhcp: proxy for this network"
)

// A Network is one IPv4 subnet that machines boot in.
type Network struct {
	Pos       Pos
	Name      string
	Subnet    netip.Prefix  // masked
	Subnet6   netip.Prefix  // masked; invalid: none
	Interface string        // empty: reached through a DHCP relay only
	Address   netip.Addr    // the appliance as its machines reach it, see HasAppliance; invalid where it is not known before the interface is up
	Router    netip.Addr    // option 3; invalid: none
	DNS       []netip.Addr  // option 6; Address by default
	Search    []string      // option 119
	NTP       []netip.Addr  // option 42
	MTU       int           // option 26; 0: not sent
	Lease     time.Duration // the default where the lab file has none
	DHCP      DHCPMode
	Probe     bool    // addresses of pools are probed for conflicts before they are offered
	Routes    []Route // as written; the default route is added by the server (RFC 3442)
	Options   []Option
	Pools     []*Pool // sorted by name
	BaseURL   string  // "http://ADDRESS:PORT", no final slash; empty while Address is unknown
	NoTFTP    bool    // appliance.tftp is off: nothing can be fetched by TFTP

	pools *poolIndex // of Pools
}

// HasAppliance reports whether the appliance has an address in the network. If not, its machines are behind a relay, and Address is in
// another network.
func (n *Network) HasAppliance() bool { return n.Subnet.Contains(n.Address) }

// Served reports whether the DHCP server listens on the network's interface.
func (n *Network) Served() bool { return n.Interface != "" && n.DHCP != DHCPOff }

// Relayed reports whether the network is reached through relays alone: the appliance has no address in it, or no interface.
func (n *Network) Relayed() bool { return n.Interface == "" || !n.HasAppliance() }

// Answers reports whether the DHCP server answers h in the network, and without h whether it answers machines that are no hosts.
func (n *Network) Answers(h *Host) bool { return n.DHCP != DHCPOff && (h == nil || !h.Ignored) }

// AddCommand returns the command that adds an address to the network's interface.
func (n *Network) AddCommand(a netip.Addr) string {
	return fmt.Sprintf("ip addr add %s/%d dev %s", a, n.Subnet.Bits(), n.Interface)
}

// A Pool gives addresses to machines without a reservation that match all of its criteria, and any element of each. See
// Network.PoolFor.
type Pool struct {
	Pos     Pos
	Name    string
	Network *Network
	Range   Range

	// The criteria. An empty list matches every client.
	MACs          []MACPattern
	Archs         []Arch    // option 93
	VendorClasses []Pattern // option 60
	UserClasses   []Pattern // option 77
	CircuitIDs    []Pattern // option 82 sub-option 1
	RemoteIDs     []Pattern // option 82 sub-option 2

	Routes  []Route       // nil: the network's
	Options []Option      // nil: the network's
	Lease   time.Duration // the network's by default
	PerPort int           // limit of addresses for each relay port; 0: no limit
	Profile *Profile      // nil: such a machine boots nothing from here
}

// A Range is an inclusive range of IPv4 addresses.
type Range struct{ First, Last netip.Addr }

// Contains reports whether a is in the range.
func (r Range) Contains(a netip.Addr) bool { return r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0 }

// String returns "FIRST-LAST".
func (r Range) String() string { return r.First.String() + "-" + r.Last.String() }

// A Route is a classless static route (RFC 3442).
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// An Option is a DHCP option sent as it is to machines that ask for it in option 55, or that send no option 55.
type Option struct {
	Code  uint8
	Data  []byte // up to 900 bytes; above 255 it travels in parts (RFC 3396)
	Force bool   // send it even to machines that do not ask for it
}

// AnswerOption is the DHCP option with the URL to which Proxmox' installer POSTs for its answer.
const AnswerOption = 250
