package dhcpd

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// maxTaken bounds the reserved addresses in use by others: anybody can send ARP for all of them.
const maxTaken = 256

// A TakenReservation is an address that is reserved for a host, and that another machine uses.
type TakenReservation struct {
	Addr        netip.Addr
	Host        string
	MAC         lab.MAC   // of the other machine
	Since, Last time.Time // when it was heard first, and last
}

// TakenReservations returns those whose other machine was heard within the last ten minutes, sorted by address. It is what ARP shows that
// reaches the appliance: announcements, and requests and replies of that machine. None is asked.
func (s *Server) TakenReservations() []TakenReservation { return s.taken.fresh(s.deps.Now()) }

// takenReservations are kept from ARP, and looked up for each DHCPACK: while there is none, that takes no lock.
type takenReservations struct {
	n  atomic.Int32 // of seen
	mu sync.Mutex
	// seen is by address: the last other machine that was heard.
	seen map[netip.Addr]TakenReservation
}

// note notes that mac uses an address of host, and reports whether that is new.
func (r *takenReservations) note(addr netip.Addr, host string, mac lab.MAC, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.seen[addr]
	if known && was.MAC == mac && was.Host == host && now.Sub(was.Last) < conflictTime {
		was.Last = now
		r.seen[addr] = was
		return false
	}
	r.pruneLocked(now)
	if r.seen == nil {
		r.seen = map[netip.Addr]TakenReservation{}
	}
	if !known && len(r.seen) >= maxTaken {
		return false
	}
	r.seen[addr] = TakenReservation{addr, host, mac, now, now}
	r.n.Store(int32(len(r.seen)))
	return true
}

func (r *takenReservations) pruneLocked(now time.Time) {
	for addr, x := range r.seen {
		if now.Sub(x.Last) >= conflictTime {
			delete(r.seen, addr)
		}
	}
	r.n.Store(int32(len(r.seen)))
}

// at returns the one of an address.
func (r *takenReservations) at(addr netip.Addr, now time.Time) (x TakenReservation, ok bool) {
	if r.n.Load() == 0 {
		return x, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x, ok = r.seen[addr]
	return x, ok && now.Sub(x.Last) < conflictTime
}

func (r *takenReservations) fresh(now time.Time) (all []TakenReservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pruneLocked(now)
	for _, x := range r.seen {
		all = append(all, x)
	}
	slices.SortFunc(all, func(x, y TakenReservation) int { return x.Addr.Compare(y.Addr) })
	return all
}

// heard takes the sender of an ARP packet.
func (s *Server) heard(addr netip.Addr, mac lab.MAC) {
	h := s.deps.Table().reservedTo(addr)
	if h == nil || slices.Contains(h.AllMACs(), mac) {
		return
	}
	if s.taken.note(addr, h.Name, mac, s.deps.Now()) {
		s.recordTaken(addr)
	}
}

// recordTaken records that another machine uses a reserved address, if one does.
func (s *Server) recordTaken(addr netip.Addr) {
	x, ok := s.taken.at(addr, s.deps.Now())
	if !ok {
		return
	}
	h := s.deps.Table().reservedTo(addr)
	if h == nil || h.Name != x.Host {
		return // the lab has changed
	}
	s.deps.Events.Record(event.Event{Kind: event.AddressConflict, Host: h.Name, MAC: h.MACs[0], Addr: addr, Claimed: true, Reason: event.OtherMachine,
		Err: fmt.Sprintf("%s uses %s, which is reserved for %s: switch that machine off, or add the MAC to the host's line if it is a NIC of it", x.MAC, addr, h.Name)})
}
