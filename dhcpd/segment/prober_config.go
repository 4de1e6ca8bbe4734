package segment

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Use is what is known of an address.
type Use uint8

// The uses of an address.
const (
	Unknown Use = iota // nothing recent; as the result of a probe: no probe was sent, or frames were dropped in a flood
	Free               // probed without a reply
	InUse              // a machine answered a probe, or sent ARP of its own
)

// A Result is what is known of an address, and since when.
type Result struct {
	Addr netip.Addr
	Use  Use
	MAC  lab.MAC   // of the machine that uses it, if InUse; zero past a relay
	At   time.Time // of the observation
}

// Blocks reports whether the address must not be given to that client. Its own reply does not block it: it may still use
// the address that it requests (RFC 2131 section 3.2). Past a relay the sender of a reply is unknown.
func (r Result) Blocks(client lab.MAC) bool { return r.Use == InUse && r.MAC != client }

// A ProberConfig tunes a prober. The zero value is right for a lab.
type ProberConfig struct {
	// Wait is how long a probe waits for a reply; 0: 200 ms. It is sent twice in that time. A host sends three probes in
	// some six seconds before it uses an address (RFC 5227 section 2.1.1) and declines one that is in use, so this is the
	// first of two checks. dnsmasq waits up to 3 s, ISC dhcpd 1 s, both for ICMP.
	Wait time.Duration
	// Probes is how many calls of Probe may be under way; 0: 64. Further ones return Unknown at once, so that a rack that is
	// switched on is not slowed down.
	Probes int
	// Rate is how many addresses a second are probed ahead on each path; 0: 50.
	Rate int
	// FreeFor is how long Free holds; 0: 5 minutes. A machine that takes the address later is observed by its ARP.
	FreeFor time.Duration
	// UsedFor is how long InUse holds; 0: 10 minutes.
	UsedFor time.Duration
	// Addresses is how many addresses are remembered; 0: 16384 (about 0.7 MiB).
	Addresses int
}

func (c ProberConfig) withDefaults() ProberConfig {
	return ProberConfig{
		Wait: cmp.Or(c.Wait, 200*time.Millisecond), Probes: cmp.Or(c.Probes, 64), Rate: cmp.Or(c.Rate, 50),
		FreeFor: cmp.Or(c.FreeFor, 5*time.Minute), UsedFor: cmp.Or(c.UsedFor, 10*time.Minute), Addresses: cmp.Or(c.Addresses, 16384),
	}
}

// ProberDeps are what a prober works with. All but Heard are required.
type ProberDeps struct {
	Now func() time.Time
	// Relevant reports whether an address is to be observed: one that a pool may give. It is called for each ARP packet that
	// is received, by several goroutines.
	Relevant func(netip.Addr) bool
	// Heard is called with the sender of each ARP packet that is received, by several goroutines; nil: nobody asks.
	Heard func(netip.Addr, lab.MAC)
}

// ProberStats are the counters of a prober.
type ProberStats struct {
	Observations uint64 // of relevant addresses, probed or not
	Probed       uint64 // probes started by Probe
	ProbedAhead  uint64 // probes started ahead
	InUse        uint64 // probes with a reply
	Free         uint64 // probes without a reply
	Unknown      uint64 // probes without a reply while frames were dropped
	Unprobed     uint64 // calls of Probe without a probe: too many at a time, or it could not be sent
}
