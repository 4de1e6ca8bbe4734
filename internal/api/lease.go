package api

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Lease is one line of the lease book.
type Lease struct {
	IP           netip.Addr `json:"ip"`
	MAC          lab.MAC    `json:"mac"`                     // of the client; of a declined address, of the client that declined it; may be zero
	Host         string     `json:"host,omitempty"`          // of the lab; empty: not in the lab
	Name         string     `json:"hostname,omitempty"`      // what the machine calls itself
	NameConflict bool       `json:"name_conflict,omitempty"` // Name is no DNS name: another machine with a lease had it first
	Network      string     `json:"network,omitempty"`
	Pool         string     `json:"pool,omitempty"`     // that may give the address; empty: none, as it is reserved or the appliance's, a router's or a server's
	Reserved     bool       `json:"reserved,omitempty"` // the lab file gives Host the address
	State        LeaseState `json:"state,omitempty"`    // empty: active
	Since        time.Time  `json:"since,omitzero"`     // leased, or last renewed durably
	Expires      time.Time  `json:"expires,omitzero"`
	Never        bool       `json:"never,omitempty"`        // an active lease that does not end: it has no Expires
	VendorClass  string     `json:"vendor_class,omitempty"` // option 60
	ClientID     string     `json:"client_id,omitempty"`    // option 61 in hexadecimal, with colons
	RelayPort    string     `json:"relay_port,omitempty"`   // of the relay agent (option 82) that forwards for the client; empty: same segment
}

// LeaseState is what is known of an address.
type LeaseState string

// The states of a lease.
const (
	LeaseActive   LeaseState = "active"   // its machine has it
	LeaseOffered  LeaseState = "offered"  // kept for a machine that has not asked for it yet
	LeaseExpired  LeaseState = "expired"  // remembered, so that the machine gets the same address again
	LeaseReleased LeaseState = "released" // given back; remembered as above
	LeaseDeclined LeaseState = "declined" // a client sent DHCPDECLINE: in quarantine until Expires
	LeaseConflict LeaseState = "conflict" // a probe was answered: in quarantine until Expires
)

// LeaseStates returns all states.
func LeaseStates() []LeaseState {
	return []LeaseState{LeaseActive, LeaseExpired, LeaseReleased, LeaseDeclined, LeaseConflict, LeaseOffered}
}

// Status returns the state, active where it is empty.
func (l Lease) Status() LeaseState {
	if l.State == "" {
		return LeaseActive
	}
	return l.State
}

// Holds reports whether no other client can get the address now.
func (l Lease) Holds() bool { return l.Status() != LeaseExpired && l.Status() != LeaseReleased }

// A LeaseQuery asks for one page of the lease book, in the order of addresses. The zero query asks for its numbers only.
type LeaseQuery struct {
	After netip.Addr        // the page begins behind this address; zero: at the first
	Limit int               // leases of the page; those of its last address are all there, so it may be two longer
	Keep  func(*Lease) bool // which leases; nil: all. It must not keep the pointer
}

// A LeasePage is the answer to a LeaseQuery.
type LeasePage struct {
	Leases   []Lease
	Next     netip.Addr // After of the next page; zero: there is none
	Matching int        // leases behind After that the query keeps, on this page and later
	Holding  int        // leases of the whole book that hold an address
}

// GivenBack is the answer to the release of a lease by an admin.
type GivenBack struct {
	Lease   Lease  `json:"lease"`   // as it is now
	Message string `json:"message"` // what this means for its machine
}

// A Pool is how full a pool is.
type Pool struct {
	Network string `json:"network"`
	Name    string `json:"name"`
	Range   string `json:"range"` // FIRST-LAST
	Size    int    `json:"size"`  // addresses that can be handed out: reserved and taken ones are left out
	Free    int    `json:"free"`  // of these, for a new machine, now
	// The others: leased; offered to machines that have not requested them yet; declined, or in use by machines without a lease.
	Leased      int `json:"leased,omitempty"`
	Offered     int `json:"offered,omitempty"`
	Quarantined int `json:"quarantined,omitempty"`
}

// Full reports whether a new client would get no address.
func (p Pool) Full() bool { return p.Free <= 0 }

// A LeaseFilter says which leases are wanted. The zero filter wants those that hold an address now, in whatever state.
type LeaseFilter struct {
	Network  string
	Pool     string
	Host     string           // of the lab, or what a machine calls itself
	MACs     []lab.MACPattern // any of them; empty: all
	States   []LeaseState     // any of them; empty: all that hold an address
	Expiring time.Duration    // active ones that end within this time; 0: all
}

// anyState stands for all states in a query.
const anyState = "all"

// Keep reports whether a lease is wanted at now.
func (f *LeaseFilter) Keep(l Lease, now time.Time) bool {
	is := func(want string, have ...string) bool { return want == "" || slices.Contains(have, want) }
	return is(f.Network, l.Network) && is(f.Pool, l.Pool) && is(strings.ToLower(f.Host), strings.ToLower(l.Host), strings.ToLower(l.Name)) &&
		(len(f.MACs) == 0 || slices.ContainsFunc(f.MACs, func(p lab.MACPattern) bool { return p.Match(l.MAC) })) &&
		(len(f.States) == 0 && l.Holds() || slices.Contains(f.States, l.Status())) &&
		(f.Expiring <= 0 || f.expires(l, now))
}

// expires reports whether an active lease ends soon.
func (f *LeaseFilter) expires(l Lease, now time.Time) bool {
	return l.Status() == LeaseActive && !l.Expires.IsZero() && l.Expires.Sub(now) <= f.Expiring
}

// Values returns the filter as the parameters of GET leases.
func (f *LeaseFilter) Values() url.Values {
	v := url.Values{}
	for key, text := range map[string]string{"network": f.Network, "pool": f.Pool, "host": f.Host} {
		if text != "" {
			v.Set(key, text)
		}
	}
	for _, m := range f.MACs {
		v.Add("mac", m.String())
	}
	for _, s := range f.States {
		v.Add("state", string(s))
	}
	if f.Expiring > 0 {
		v.Set("expiring", f.Expiring.String())
	}
	return v
}

// ParseLeaseFilter reads the parameters of GET leases. Several values of one parameter may be joined with commas; state=all wants all
// states. The error is an *Error that says what would be right.
func ParseLeaseFilter(v url.Values) (LeaseFilter, error) {
	f := LeaseFilter{Network: v.Get("network"), Pool: v.Get("pool"), Host: v.Get("host")}
	for _, s := range split(v["mac"]) {
		p, err := parseMACs(s)
		if err != nil {
			return f, &Error{Status: http.StatusBadRequest, Message: err.Error(), Hint: "52:54:00 alone is every MAC that begins so"}
		}
		f.MACs = append(f.MACs, p)
	}
	for _, s := range split(v["state"]) {
		switch state := LeaseState(s); {
		case s == anyState:
			f.States = LeaseStates()
		case slices.Contains(LeaseStates(), state):
			f.States = append(f.States, state)
		default:
			return f, &Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("%.60q is not the state of a lease", s), Hint: "want " + anyState + ", or any of " + stateNames()}
		}
	}
	if s := v.Get("expiring"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 {
			return f, &Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("expiring=%.60q is not a duration", s), Hint: "want one such as 30m or 1h"}
		}
		f.Expiring = d
	}
	return f, nil
}

// stateNames lists the states of leases in a sentence.
func stateNames() string {
	all := LeaseStates()
	var b strings.Builder
	for i, s := range all {
		switch i {
		case 0:
		case len(all) - 1:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(string(s))
	}
	return b.String()
}

func split(values []string) (parts []string) {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				parts = append(parts, part)
			}
		}
	}
	return parts
}

// parseMACs reads a MAC, a pattern, or the first bytes of either.
func parseMACs(s string) (lab.MACPattern, error) {
	sep := ":"
	if !strings.Contains(s, sep) && strings.Contains(s, "-") {
		sep = "-"
	}
	full := strings.TrimSuffix(s, sep)
	if missing := 5 - strings.Count(full, sep); !strings.Contains(s, "/") && missing > 0 {
		full += strings.Repeat(sep+"*", missing)
	}
	p, err := lab.ParseMACPattern(full)
	if err != nil {
		return p, fmt.Errorf("%.60q is not a MAC or MAC pattern: want 52:54:00:2c:01:10, 52:54:00:*:*:*, 52:54:00:00:00:00/20 or 52:54:00", s)
	}
	return p, nil
}
