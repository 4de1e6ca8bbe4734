package leases

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Lease is one address and the machine that has it. It is the caller's copy.
type Lease struct {
	Addr   netip.Addr // IPv4
	MAC    lab.MAC
	State  State
	Start  time.Time // of the last commit, in whole seconds: when it was leased or last renewed durably
	Expiry time.Time // in whole seconds, not after 2106

	// What the client and the relay send, to show it and never to identify the machine. Of each, 255 bytes are kept.
	Hostname  string // one lower-case label; empty: nothing
	ClientID  []byte // option 61 as sent (RFC 2132 section 9.14)
	Vendor    string // option 60 (RFC 2132 section 9.13)
	RelayPort string // the relay port behind which the machine sits (RFC 3046), printable; empty: on the segment

	// Unnamed says that Hostname is only shown, and no DNS name: another machine had it first, or the lab has names for this one.
	Unnamed bool
}

// Live reports whether the lease holds at now.
func (l Lease) Live(now time.Time) bool { return l.State == Active && now.Before(l.Expiry) }

// A State is the state of a stored lease, or of an address in [Book.All] and [Book.Offers].
type State uint8

// The states of a lease. The zero State is none of them.
const (
	// Active is a lease that its machine has until Expiry.
	Active State = iota + 1
	// Released is a lease that was given back (RFC 2131 section 4.4.6). It is remembered, so that the machine gets the
	// same address again.
	Released
	// Declined is an address that a client found in use by an unknown machine (RFC 2131 section 4.3.3). MAC is the client that
	// declined it, and does not have it. No machine gets it until Expiry, or EndDeclined.
	Declined
	// Conflict is an address that our probe found in use. MAC is the machine that answered, zero if the probe cannot tell. No
	// other machine gets it until Expiry. It is not stored, see [Book.Conflict].
	Conflict
	// Offered is an address that is offered to a machine that has not requested it yet, until Expiry. It is not stored, see
	// [Book.Offers].
	Offered
)

// String returns the state in lower case: "active".
func (s State) String() string {
	switch s {
	case Active:
		return "active"
	case Released:
		return "released"
	case Declined:
		return "declined"
	case Conflict:
		return "conflict"
	case Offered:
		return "offered"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It refuses unknown states.
func (s *State) UnmarshalText(b []byte) error {
	for _, known := range []State{Active, Released, Declined, Conflict, Offered} {
		if string(b) == known.String() {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("unknown state %q", b)
}

// stored reports whether leases of that state are in the store.
func (s State) stored() bool { return s == Active || s == Released || s == Declined }

// What a Book refuses.
var (
	// ErrFull is returned by Offer when a pool has no address for a machine: all are leased, quarantined, or were offered to
	// others within the last seconds.
	ErrFull = errors.New("leases: no address is free")
	// ErrLeased is the outcome of a Change whose address was leased to another machine meanwhile.
	ErrLeased = errors.New("leases: address was leased to another machine meanwhile")
	// ErrStale is the outcome of a Change that another daemon on the same store prevented twice.
	ErrStale = errors.New("leases: lease changed in the store")
	// ErrRecord is returned by Open for a record that it cannot read.
	ErrRecord = errors.New("leases: not a lease record")
)

// addr4 returns an address as a number. The book knows IPv4 only; it holds nothing under any other address.
func addr4(a netip.Addr) (uint32, bool) {
	a = a.Unmap()
	if !a.Is4() {
		return 0, false
	}
	b := a.As4()
	return binary.BigEndian.Uint32(b[:]), true
}

func addrOf(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// Forever is the last moment that the book knows, in 2106: a lease that ends then never does.
var Forever = time.Unix(math.MaxUint32, 0)

// seconds returns t as the book keeps it; what is outside of 1970 to 2106 is cut to the ends.
func seconds(t time.Time) uint32 {
	return uint32(min(max(t.Unix(), 0), math.MaxUint32))
}

func timeOf(s uint32) time.Time { return time.Unix(int64(s), 0) }

// A net4 is an IPv4 prefix as numbers; the zero net4 is made by no prefix and holds only 0.0.0.0, which is never leased.
type net4 struct{ base, mask uint32 }

func netOf(p netip.Prefix) net4 {
	base, ok := addr4(p.Addr())
	if !ok || p.Bits() < 0 || p.Bits() > 32 {
		return net4{mask: math.MaxUint32}
	}
	mask := uint32(math.MaxUint32) << (32 - p.Bits())
	return net4{base & mask, mask}
}

func (n net4) contains(a uint32) bool { return a&n.mask == n.base }
