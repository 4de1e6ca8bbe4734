package api

import (
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// An Unknown is a machine that is not in the lab and was heard of. What it told of itself is its own word, made printable.
type Unknown struct {
	MAC     lab.MAC     `json:"mac"`
	MACs    []lab.MAC   `json:"macs,omitempty"` // of all its NICs, as far as it told
	IP      netip.Addr  `json:"ip,omitzero"`    // that it has or had
	Network string      `json:"network,omitempty"`
	Pool    string      `json:"pool,omitempty"`     // that its address is from
	Name    string      `json:"hostname,omitempty"` // what it calls itself by DHCP
	First   time.Time   `json:"first,omitzero"`     // it told what it is; zero: it never did
	Last    time.Time   `json:"last"`               // it was heard of
	Stage   event.Stage `json:"stage,omitempty"`    // where its last boot is or stopped
	Event   string      `json:"event,omitempty"`    // the last one
	Reason  string      `json:"reason,omitempty"`   // why that went wrong: no pool takes it, the pool is full

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

// Model is what people call such a machine.
func (u Unknown) Model() string {
	switch {
	case u.Manufacturer == "" || u.Product == "":
		return u.Manufacturer + u.Product
	default:
		return u.Manufacturer + " " + u.Product
	}
}

// An Adoption is how a machine could become a host of the lab.
type Adoption struct {
	Unknown
	Names  []string   `json:"names"`           // that it could have, the best first; none is taken
	Wanted netip.Addr `json:"wanted,omitzero"` // the address that it could have for good; zero: none is free, or its network is not known
	From   string     `json:"from,omitempty"`  // where that address is from, in words
}
