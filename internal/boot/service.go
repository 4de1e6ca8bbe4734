package boot

import (
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/boot/discovered"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/host/link/neighbour"
	"github.com/bootlab/bootlab/internal/host/required"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// Leases are the addresses that machines hold.
type Leases interface {
	// AddrOf returns the address that is leased to mac.
	AddrOf(mac lab.MAC) (netip.Addr, bool)
}

// Neighbours know who uses an address.
type Neighbours interface {
	// Find returns who uses addr, which belongs to the machine with these MACs.
	Find(addr netip.Addr, own []lab.MAC) (neighbour.Found, error)
	// Entry is Find without asking a machine.
	Entry(addr netip.Addr, own []lab.MAC) (neighbour.Found, error)
	// Sender returns who sent the TFTP request that was answered from that time on.
	Sender(from netip.AddrPort, own []lab.MAC, answered time.Time) (neighbour.Found, error)
}

// Deps are what a Service needs; all are required.
type Deps struct {
	Table      func() *Table
	Installs   *install.Machine
	Discovered *discovered.Book
	Leases     Leases
	Neighbours Neighbours
	Loops      *bootloop.Detector // shared with the DHCP server
	Events     event.Recorder
	Now        func() time.Time
}

// A Service decides what machines boot. It is safe for concurrent use. Each request uses one Table, to the end of what the request
// causes.
type Service struct {
	deps       Deps
	scripts    scriptCache
	rendered   renderings
	repeated   repeatedRefusals
	neighbours neighbourCache
}

// New returns a service.
func New(deps Deps) *Service {
	required.Fields(deps)
	return &Service{deps: deps}
}

// addrsOf returns the addresses that mac holds: the reserved one, and the one leased to it, which is another until the machine renews, if it had
// that before the lab file reserved one. One that is not valid is none.
func (s *Service) addrsOf(t *Table, mac lab.MAC) (reserved, leased netip.Addr) {
	if h := t.lab.HostByMAC(mac); h != nil {
		reserved = h.AddrOf(mac)
	}
	leased, _ = s.deps.Leases.AddrOf(mac)
	return reserved, leased
}

// asking returns the machine with that MAC that asks from an address, or nil: a host, or one of the pool that holds its lease or, where another server
// leases, that address.
func (s *Service) asking(t *Table, mac lab.MAC, from netip.Addr) *lab.Host {
	if addr, ok := s.deps.Leases.AddrOf(mac); ok { // a reservation is a host's, whatever its address
		from = addr
	}
	return t.lab.MachineOf(mac, from)
}
