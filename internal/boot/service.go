package boot

import (
	"net/netip"

	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/boot/discovered"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// Leases are the addresses that machines hold.
type Leases interface {
	// AddrOf returns the address that is leased to mac.
	AddrOf(mac lab.MAC) (netip.Addr, bool)
}

// Deps are what a Service needs; all are required.
type Deps struct {
	Table      func() *Table
	Installs   *install.Machine
	Discovered *discovered.Book
	Leases     Leases
	Loops      *bootloop.Detector // shared with the DHCP server
	Events     event.Recorder
}

// A Service decides what machines boot. It is safe for concurrent use. Each request uses one Table, to the end of what the request
// causes.
type Service struct {
	deps     Deps
	scripts  scriptCache
	repeated repeatedRefusals
}

// New returns a service.
func New(deps Deps) *Service {
	switch {
	case deps.Table == nil:
		panic("boot: Deps.Table is nil")
	case deps.Installs == nil:
		panic("boot: Deps.Installs is nil")
	case deps.Discovered == nil:
		panic("boot: Deps.Discovered is nil")
	case deps.Leases == nil:
		panic("boot: Deps.Leases is nil")
	case deps.Loops == nil:
		panic("boot: Deps.Loops is nil")
	case deps.Events == nil:
		panic("boot: Deps.Events is nil")
	}
	return &Service{deps: deps}
}

// addrOf returns the address that mac holds: its lease, else its reservation.
func (s *Service) addrOf(t *Table, mac lab.MAC) (netip.Addr, bool) {
	if addr, ok := s.deps.Leases.AddrOf(mac); ok {
		return addr, true
	}
	if h := t.lab.HostByMAC(mac); h != nil && h.IP.IsValid() {
		return h.IP, true
	}
	return netip.Addr{}, false
}

// machine returns the host with that MAC, or the machine of the pool that its address is from, or nil.
func (s *Service) machine(t *Table, mac lab.MAC, from netip.Addr) *lab.Host {
	if addr, ok := s.addrOf(t, mac); ok {
		from = addr
	}
	return t.lab.MachineOf(mac, from)
}

// owner returns the machine with that MAC if the request comes from the address that it holds.
func (s *Service) owner(t *Table, mac lab.MAC, from netip.Addr) (*lab.Host, *recipe.Recipe, error) {
	h := s.machine(t, mac, from)
	if h == nil || h.Profile == nil {
		return nil, nil, forbidden("no machine of the lab has this MAC", nil)
	}
	if err := s.mayAsk(t, h, mac, from); err != nil {
		return nil, nil, err
	}
	return h, t.recipes[h.Profile], nil
}

// mayAsk returns an error unless a request from that address can be the machine's own. It applies to scripts too, as they carry the
// token of the boot. In a network whose addresses another DHCP server leases, the holder of an address is not known here.
func (s *Service) mayAsk(t *Table, h *lab.Host, mac lab.MAC, from netip.Addr) error {
	if h.Network != nil && h.Network.DHCP != lab.DHCPServer {
		return nil
	}
	holds, ok := s.addrOf(t, mac)
	switch {
	case from == holds || from == h.IP || from == h.IP6:
		return nil
	case !ok:
		return forbidden("asked from "+from.String()+", but "+h.Name+" holds no address", nil)
	default:
		return forbidden("asked from "+from.String()+", but "+h.Name+" holds "+holds.String(), nil)
	}
}

// mayReport returns an error unless a machine that the lab may not have can report from that address.
func (s *Service) mayReport(t *Table, mac lab.MAC, from netip.Addr) error {
	n := t.lab.NetworkOf(from)
	if n == nil {
		return forbidden("asked from "+from.String()+", which is in no network of the lab", nil)
	}
	if n.DHCP != lab.DHCPServer {
		return nil
	}
	if holds, ok := s.addrOf(t, mac); !ok || holds != from {
		return forbidden("asked from "+from.String()+", which "+mac.String()+" does not hold", nil)
	}
	return nil
}

// Claimed reports whether a request in the name of the machine mac comes from an address that is not known to be that machine's.
func (s *Service) Claimed(mac lab.MAC, from netip.Addr) bool {
	return s.claimed(s.deps.Table(), mac, from)
}

// claimed reports whether a request comes from an address that is not known to be that machine's.
func (s *Service) claimed(t *Table, mac lab.MAC, from netip.Addr) bool {
	if h := s.machine(t, mac, from); h != nil {
		return s.mayAsk(t, h, mac, from) != nil
	}
	return s.mayReport(t, mac, from) != nil
}
