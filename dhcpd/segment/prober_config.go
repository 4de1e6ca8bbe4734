package segment

import (
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A State is what is known of an address.
type State uint8

// The states of an address.
const (
	Unknown State = iota // nothing, or nothing recent; as the result of a probe: it was not probed, or in a flood
	Free                 // probed, and nobody answered
	InUse                // somebody answered, or spoke with it unasked
)

// A Result is what is known of an address, and since when.
type Result struct {
	Addr  netip.Addr
	State State
	MAC   lab.MAC   // whose it is, if InUse; zero where a relay is between
	At    time.Time // when that was seen
}

// Blocks reports whether the address must not be given to that machine. Its own answer does not block it: it may still
// have the address that it asks for (RFC 2131 section 3.2). Past a relay nobody can tell whose answer it was.
func (r Result) Blocks(asker lab.MAC) bool { return r.State == InUse && r.MAC != asker }

// A ProberConfig tunes a prober. The zero value is right for a lab.
type ProberConfig struct {
	// Wait is how long a probe waits for an answer; 0: 200 ms. It asks twice in that time. A host asks three times over
	// some six seconds before it uses an address (RFC 5227 section 2.1.1) and declines what it finds taken, so this is
	// the first of two checks. dnsmasq waits up to 3 s, ISC dhcpd 1 s, both for ICMP.
	Wait time.Duration
	// Probes is how many addresses may be probed at a time because somebody asked; 0: 64. Beyond it the answer is
	// Unknown at once: a rack that is switched on is not slowed down.
	Probes int
	// Rate is how many addresses a second are surveyed ahead on each segment; 0: 50.
	Rate int
	// FreeFor is how long "nobody answered" holds; 0: 5 minutes. A machine that takes the address later is heard.
	FreeFor time.Duration
	// UsedFor is how long "somebody has it" holds; 0: 10 minutes.
	UsedFor time.Duration
	// Addresses is how many addresses are remembered; 0: 16384 (about 0.7 MiB if all are heard of).
	Addresses int
}

func (c ProberConfig) withDefaults() ProberConfig {
	for _, d := range []struct {
		v       *time.Duration
		defined time.Duration
	}{{&c.Wait, 200 * time.Millisecond}, {&c.FreeFor, 5 * time.Minute}, {&c.UsedFor, 10 * time.Minute}} {
		if *d.v <= 0 {
			*d.v = d.defined
		}
	}
	for _, n := range []struct {
		v       *int
		defined int
	}{{&c.Probes, 64}, {&c.Rate, 50}, {&c.Addresses, 16384}} {
		if *n.v <= 0 {
			*n.v = n.defined
		}
	}
	return c
}

// ProberDeps are what a prober works with. All are required.
type ProberDeps struct {
	Now func() time.Time
	// Relevant reports whether the server cares about an address: one of a pool or a reservation, and not one of the
	// appliance's own. What others say about other addresses is not remembered. It is called for each ARP packet that
	// is heard, by several goroutines.
	Relevant func(netip.Addr) bool
}

// ProberStats counts what a prober did since it was made.
type ProberStats struct {
	Observations uint64 // sightings of wanted addresses, asked for or not
	Probed       uint64 // probes that were started because somebody asked
	ProbedAhead  uint64 // probes that were started ahead
	InUse        uint64 // probes that somebody answered
	Free         uint64 // probes that nobody answered
	Unknown      uint64 // probes that nobody was heard to answer, in a flood
	Unprobed     uint64 // requests for a probe that were refused: too many at a time, or no way to send
}
