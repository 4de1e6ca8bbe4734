package event

import (
	"net/netip"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// An Event is one thing that happened. Who emits it fills Kind and what it knows of the rest; the Bus fills Seq, At, Gen
// and, from MAC or Addr, the identity that is missing.
type Event struct {
	Seq    uint64        `json:"seq"` // counts from 1 since the daemon started, without gaps
	At     time.Time     `json:"at"`
	Gen    uint64        `json:"gen"` // the generation of the lab that was in force
	Kind   Kind          `json:"kind"`
	MAC    lab.MAC       `json:"mac,omitzero"` // of the machine; zero: there is none, or it is not known
	Addr   netip.Addr    `json:"addr,omitzero"`
	Host   string        `json:"host,omitempty"`   // its name in the lab; empty: a stranger, or no machine
	Detail string        `json:"detail,omitempty"` // what: a file name, an address offered, a backend
	Err    string        `json:"err,omitempty"`    // why it went wrong; empty: it did not
	Bytes  int64         `json:"bytes,omitempty"`  // that were sent
	Dur    time.Duration `json:"dur,omitempty"`    // nanoseconds
	Client Client        `json:"client,omitempty"` // of DHCP events: the program that asks; empty: of any other event
	// Claimed says that somebody asked in the machine's name, and was refused, from an address that is not known to be the machine's.
	Claimed bool `json:"claimed,omitempty"`
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
	// Record takes one event, which is the recorder's to keep.
	Record(Event)
}

// A BusConfig is what a Bus needs. Now is required.
type BusConfig struct {
	Now       func() time.Time
	Gen       func() uint64 // the generation in force; nil: always 0
	Identify  func(*Event)  // fills MAC and Host where they are missing; nil: leaves them
	Recorders []Recorder    // called in this order
}

// A Bus numbers events and hands each to all recorders. It is safe for concurrent use.
type Bus struct {
	cfg BusConfig

	mu  sync.Mutex
	seq uint64
}

// NewBus returns a bus.
func NewBus(cfg BusConfig) *Bus {
	if cfg.Now == nil {
		panic("event: BusConfig.Now is nil")
	}
	return &Bus{cfg: cfg}
}

// Record numbers, dates and identifies e and hands it to every recorder.
func (b *Bus) Record(e Event) {
	if b.cfg.Identify != nil {
		b.cfg.Identify(&e)
	}
	if b.cfg.Gen != nil {
		e.Gen = b.cfg.Gen()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seq++
	e.Seq = b.seq
	e.At = b.cfg.Now()
	for _, r := range b.cfg.Recorders {
		r.Record(e)
	}
}
