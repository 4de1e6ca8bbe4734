package api

import (
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// An UnknownMachine is a machine that sent requests and is not in the lab. Its own report is made printable, but is not verified.
type UnknownMachine struct {
	MAC     lab.MAC     `json:"mac"`
	MACs    []lab.MAC   `json:"macs,omitempty"` // of all its NICs, as far as reported
	IP      netip.Addr  `json:"ip,omitzero"`    // its last known address
	Network string      `json:"network,omitempty"`
	Pool    string      `json:"pool,omitempty"`     // of that address
	Name    string      `json:"hostname,omitempty"` // option 12 of its DHCP requests
	First   time.Time   `json:"first,omitzero"`     // its first report; zero: it sent none
	Last    time.Time   `json:"last"`               // its last request
	Stage   event.Stage `json:"stage,omitempty"`    // where its last boot is or stopped
	Event   string      `json:"event,omitempty"`    // kind of its last event
	Reason  string      `json:"reason,omitempty"`   // why its last boot failed, such as a full pool

	UUID         string `json:"uuid,omitempty"`
	Serial       string `json:"serial,omitempty"`
	Asset        string `json:"asset,omitempty"`
	Board        string `json:"board,omitempty"` // serial number of the board
	Manufacturer string `json:"manufacturer,omitempty"`
	Product      string `json:"product,omitempty"`
	Arch         string `json:"arch,omitempty"`     // of its iPXE: i386 also runs on 64-bit machines
	Platform     string `json:"platform,omitempty"` // pcbios or efi
	IPXE         string `json:"ipxe,omitempty"`
	NIC          string `json:"nic,omitempty"`
	MemoryMiB    int    `json:"memory_mib,omitempty"` // at least
}

// Model returns manufacturer and product.
func (m UnknownMachine) Model() string {
	switch {
	case m.Manufacturer == "" || m.Product == "":
		return m.Manufacturer + m.Product
	default:
		return m.Manufacturer + " " + m.Product
	}
}

// An Adoption is how a machine could become a host of the lab.
type Adoption struct {
	UnknownMachine
	Names  []string   `json:"names"`           // free host names, the best first
	Wanted netip.Addr `json:"wanted,omitzero"` // an address to reserve; zero: none is free, or the network is unknown
	From   string     `json:"from,omitempty"`  // why that address, for people
}
