package api

import (
	"net/netip"

	"github.com/bootlab/bootlab/internal/lab"
)

// LeaseImport is the answer to an import of leases.
type LeaseImport struct {
	Imported int            `json:"imported"`
	Replaced int            `json:"replaced"` // of these, how many ended another lease
	Skipped  []SkippedLease `json:"skipped"`
	Checked  bool           `json:"checked,omitempty"` // nothing was changed: it was asked what an import would do
}

// A SkippedLease is a lease that is not imported.
type SkippedLease struct {
	IP     netip.Addr `json:"ip"`
	MAC    lab.MAC    `json:"mac,omitzero"`
	Name   string     `json:"hostname,omitempty"`
	Kind   SkipKind   `json:"kind"`
	Reason string     `json:"reason"`
}

// A SkipKind says in a word or two why a lease is not imported, to count.
type SkipKind string

// The reasons to skip a lease.
const (
	SkipExpired    SkipKind = "expired"
	SkipNotActive  SkipKind = "not active"           // released, declined, in conflict
	SkipOutside    SkipKind = "outside our networks" // or in one where bootlab gives no addresses
	SkipNoPool     SkipKind = "in no pool"           // of the machine
	SkipReserved   SkipKind = "reserved"             // the address for another, or another address for the machine
	SkipDouble     SkipKind = "double"               // another lease of the file has the address, or the machine
	SkipLeased     SkipKind = "already leased"       // here, to this machine or another
	SkipNoEthernet SkipKind = "not IPv4 and Ethernet"
	SkipFailed     SkipKind = "not stored"
)

// Overwrite says whether an import may end leases.
type Overwrite int

// The ways to import.
const (
	KeepLeases    Overwrite = iota // what is leased here stays
	ReplaceLeases                  // the imported lease goes before
)

// Rehearse says whether an import changes anything.
type Rehearse int

// The values of Rehearse.
const (
	DoImport    Rehearse = iota
	CheckImport          // only answer what an import would do
)
