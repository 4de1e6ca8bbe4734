package event

import (
	"net/netip"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/repeats"
)

// An Event is one thing that happened. Its sender sets Kind and what it knows of the rest. The Bus sets Seq, At and Gen, and derives MAC
// and Host where they are missing.
type Event struct {
	Seq  uint64     `json:"seq"` // from 1 at the start of the daemon, without gaps
	At   time.Time  `json:"at"`
	Gen  uint64     `json:"gen"` // generation of the lab
	Kind Kind       `json:"kind"`
	MAC  lab.MAC    `json:"mac,omitzero"` // of the machine; zero: none, or unknown
	Addr netip.Addr `json:"addr,omitzero"`
	Host string     `json:"host,omitempty"` // its name in the lab; empty: an unknown machine, or none
	// What the event is of, by its name in the lab.
	Network  string `json:"network,omitempty"`  // of DHCP events: the network that the client asks from
	Balancer string `json:"balancer,omitempty"` // of backends
	Backend  string `json:"backend,omitempty"`  // its name, with the port or as addr:port where others have that name, as in metrics
	Mirror   string `json:"mirror,omitempty"`

	Detail string        `json:"detail,omitempty"` // for people: a file name, a boot file; see Text
	Err    string        `json:"err,omitempty"`    // why it failed, for people; empty: it did not
	Reason Reason        `json:"reason,omitempty"` // why it failed
	Bytes  int64         `json:"bytes,omitempty"`  // sent
	Size   int64         `json:"size,omitempty"`   // of a transfer that ended early: what was to be sent, in bytes; 0: not known
	Dur    time.Duration `json:"dur,omitempty"`    // nanoseconds
	Client Client        `json:"client,omitempty"` // of DHCP events, and of InstallDone where one shows it: the program that asks; empty: of any other event
	// Claimed marks a request in the machine's name from an address that is not known to be the machine's, or that another machine uses, or
	// where nobody has shown that he receives: see Forgeable.
	Claimed bool `json:"claimed,omitempty"`
	// ByAdmin marks what an admin did to a lease or an install state: it shows nothing of what the machine does.
	ByAdmin bool `json:"by_admin,omitempty"`
	// Unverified marks a request by a datagram that nobody acknowledged, so that anybody can have sent it. Whether it is Claimed depends on
	// what the machine does at the time.
	Unverified bool `json:"-"`
	// More is set in a summary of events like this one that were not recorded one by one: how many they are. The other fields are those
	// of the last of them, but for At.
	More int           `json:"more,omitempty"`
	Over time.Duration `json:"over,omitempty"` // nanoseconds; of a summary: the time in which they came
}

// Text is what e is about, for people: its balancer and backend, or its mirror, and its detail. A network is not named: the address is.
func (e Event) Text() string {
	of := e.Balancer
	if e.Backend != "" {
		of += " " + e.Backend
	}
	switch {
	case e.Mirror != "" && e.Detail != "":
		return e.Mirror + "/" + e.Detail
	case e.Detail == "":
		return of + e.Mirror
	case of == "":
		return e.Detail
	}
	return of + " " + e.Detail
}

// Forgeable reports whether e is claimed and shows nothing of the machine, from its own address either: another machine has the address, or
// nobody has shown that he receives there.
func (e Event) Forgeable() bool {
	return e.Claimed && (e.Reason == OtherMachine || e.Reason == Silent || e.Reason == Unacknowledged)
}

// ClaimedBy says for people where a claimed request came from: "claimed by 192.168.16.99"; "" for an event that is not claimed, and for an
// address conflict, whose address is the one that both use.
func (e Event) ClaimedBy() string {
	switch {
	case !e.Claimed, e.Kind == AddressConflict:
		return ""
	case !e.Addr.IsValid():
		return "claimed"
	case e.Reason == Silent || e.Reason == Unacknowledged:
		return "claimed by " + e.Addr.String() + ", perhaps forged"
	}
	return "claimed by " + e.Addr.String()
}

// A Client is the kind of program that sends a machine's DHCP messages.
type Client string

// The DHCP clients of a boot, in their order.
const (
	ClientPXE  Client = "pxe"  // firmware that loads by TFTP
	ClientHTTP Client = "http" // firmware that loads by HTTP
	ClientIPXE Client = "ipxe"
	ClientOS   Client = "os" // an installer, or an installed system
)

// A Recorder takes events. Record must not block: a recorder that writes to disk or to a person queues, and drops and
// counts when its queue is full. The Bus calls its recorders in order, never concurrently.
type Recorder interface {
	// Record takes one event, which the recorder may keep.
	Record(Event)
}

// A BusConfig is what a Bus needs. Now is required.
type BusConfig struct {
	Now       func() time.Time
	Identify  func(Event) Event // sets Gen, and MAC and Host where they are missing, of one lab; nil: leaves them
	Recorders []Recorder        // called in this order; many similar events that unknown clients cause reach them in summaries
	Counters  []Recorder        // called with every event, none of which is a summary; before Recorders, and without a Seq
}

// A Bus numbers events and hands them to its recorders. It is safe for concurrent use.
type Bus struct {
	cfg BusConfig

	mu       sync.Mutex
	seq      uint64
	limiters [classes]*repeats.Limiter[Event]
	alarm    repeats.Alarm // of the next summary
}

// NewBus returns a bus.
func NewBus(cfg BusConfig) *Bus {
	if cfg.Now == nil {
		panic("event: BusConfig.Now is nil")
	}
	return &Bus{cfg: cfg, limiters: newLimiters()}
}

// Record numbers, dates and identifies e and hands it to every recorder, or counts it for a summary.
func (b *Bus) Record(e Event) {
	if b.cfg.Identify != nil {
		e = b.cfg.Identify(e)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e.At = b.cfg.Now()
	for _, r := range b.cfg.Counters {
		r.Record(e)
	}
	if b.passLocked(e) {
		b.emitLocked(e)
	}
}

func (b *Bus) emitLocked(e Event) {
	b.seq++
	e.Seq = b.seq
	for _, r := range b.cfg.Recorders {
		r.Record(e)
	}
}
