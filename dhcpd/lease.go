package dhcpd

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"bootlab/internal/lab"
)

// A State is what is known of a lease.
type State string

// The states of a lease.
const (
	Active   State = "active"   // until Expiry
	Released State = "released" // given back; remembered, so that the machine gets the same address again
	Declined State = "declined" // found in use by somebody unknown; not handed out until Expiry
)

// A Lease is one address and who has it.
type Lease struct {
	Addr     netip.Addr
	MAC      lab.MAC
	State    State
	Start    time.Time // of the last commit: when it was leased or last renewed durably
	Expiry   time.Time
	Hostname string // what the client calls itself, one lower-case label; empty: nothing
	ClientID []byte // option 61 as sent; for people, never for identity. Not to be changed
	Line     string // the relay's port, circuit and remote id in hexadecimal digits, "6574/"; empty: no relay told
}

// Live reports whether the lease holds at now.
func (l Lease) Live(now time.Time) bool { return l.State == Active && now.Before(l.Expiry) }

// leasePrefix is where the book lives in the store: one key for each address.
const leasePrefix = "lease/"

// recordVersion is written into every record. A newer one is not read: it may say what this program would not respect.
const recordVersion = 1

// A record is a lease as it is stored.
type record struct {
	Version  int     `json:"v"`
	MAC      lab.MAC `json:"mac"`
	State    State   `json:"state"`
	Start    int64   `json:"start"` // Unix seconds
	Expiry   int64   `json:"end"`
	Hostname string  `json:"name,omitempty"`
	ClientID []byte  `json:"id,omitempty"`
	Line     string  `json:"line,omitempty"`
}

func leaseKey(a netip.Addr) string { return leasePrefix + a.String() }

// encodeLease is deterministic: the bytes of a lease in memory are those in the store, and serve as the condition that
// nobody changed it.
func encodeLease(l *Lease) []byte {
	b, err := json.Marshal(record{
		Version: recordVersion, MAC: l.MAC, State: l.State, Start: l.Start.Unix(), Expiry: l.Expiry.Unix(),
		Hostname: l.Hostname, ClientID: l.ClientID, Line: l.Line,
	})
	if err != nil {
		panic(err) // no field can fail
	}
	return b
}

func decodeLease(key string, value []byte) (Lease, error) {
	addr, err := netip.ParseAddr(strings.TrimPrefix(key, leasePrefix))
	if err != nil || !addr.Is4() {
		return Lease{}, fmt.Errorf("read lease %q: want %s<IPv4 address>", key, leasePrefix)
	}
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return Lease{}, fmt.Errorf("read lease %s: %w", key, err)
	}
	if r.Version != recordVersion {
		return Lease{}, fmt.Errorf("read lease %s: version %d, this program knows %d", key, r.Version, recordVersion)
	}
	switch r.State {
	case Active, Released, Declined:
	default:
		return Lease{}, fmt.Errorf("read lease %s: unknown state %q", key, r.State)
	}
	return Lease{
		Addr: addr, MAC: r.MAC, State: r.State, Start: time.Unix(r.Start, 0), Expiry: time.Unix(r.Expiry, 0),
		Hostname: r.Hostname, ClientID: r.ClientID, Line: r.Line,
	}, nil
}
