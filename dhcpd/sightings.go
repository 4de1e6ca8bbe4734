package dhcpd

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A sighting is what was seen, and when it was first and last.
type sighting[V any] struct {
	value       V
	since, last time.Time
}

// A sightings keeps, by key, what was seen within a time before now, and no more than a number of them: anybody can send packets with made-up
// addresses. While it is empty, a look-up takes no lock.
type sightings[K, V comparable] struct {
	keep time.Duration // after it was seen last
	most int

	n    atomic.Int32 // of seen
	mu   sync.Mutex
	seen map[K]sighting[V]
}

// note notes that value was seen, and reports whether that is new.
func (s *sightings[K, V]) note(key K, value V, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known := s.seen[key]
	if known && was.value == value && now.Sub(was.last) < s.keep {
		was.last = now
		s.seen[key] = was
		return false
	}
	s.pruneLocked(now)
	if s.seen == nil {
		s.seen = map[K]sighting[V]{}
	}
	if !known && len(s.seen) >= s.most {
		return false
	}
	s.seen[key] = sighting[V]{value, now, now}
	s.n.Store(int32(len(s.seen)))
	return true
}

func (s *sightings[K, V]) pruneLocked(now time.Time) {
	maps.DeleteFunc(s.seen, func(_ K, x sighting[V]) bool { return now.Sub(x.last) >= s.keep })
	s.n.Store(int32(len(s.seen)))
}

// at returns the one of a key.
func (s *sightings[K, V]) at(key K, now time.Time) (x sighting[V], ok bool) {
	if s.n.Load() == 0 {
		return x, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok = s.seen[key]
	return x, ok && now.Sub(x.last) < s.keep
}

// fresh returns all.
func (s *sightings[K, V]) fresh(now time.Time) map[K]sighting[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pruneLocked(now)
	return maps.Clone(s.seen)
}

const (
	// otherServerFor is how long another server is reported after its last reply: it answers when a machine asks, and a lab may be quiet.
	otherServerFor  = time.Hour
	maxOtherServers = 64 // anybody can send replies with made-up addresses
)

// An OtherServer is another DHCP server that answers where this one gives the addresses.
type OtherServer struct {
	Interface   string
	Addr        netip.Addr
	MAC         lab.MAC   // of the server, or of a relay
	Since, Last time.Time // of its first and its last reply
}

// A replier is what distinguishes another server. Several may use one address.
type replier struct {
	iface string
	addr  netip.Addr
	mac   lab.MAC
}

// OtherServers returns those that answered within the last hour, sorted by interface and address.
func (s *Server) OtherServers() (all []OtherServer) {
	for by, x := range s.others.fresh(s.deps.Now()) {
		all = append(all, OtherServer{by.iface, by.addr, by.mac, x.since, x.last})
	}
	slices.SortFunc(all, func(x, y OtherServer) int {
		return cmp.Or(cmp.Compare(x.Interface, y.Interface), x.Addr.Compare(y.Addr), x.MAC.Compare(y.MAC))
	})
	return all
}

// maxTaken bounds the reserved addresses in use by others: anybody can send ARP for all of them.
const maxTaken = 256

// A TakenReservation is an address that is reserved for a host, and that another machine uses.
type TakenReservation struct {
	Addr        netip.Addr
	Host        string
	MAC         lab.MAC   // of the other machine
	Since, Last time.Time // when it was heard first, and last
}

// An otherUser of a reserved address is another machine than the host that it is reserved for.
type otherUser struct {
	host string
	mac  lab.MAC
}

// TakenReservations returns those whose other machine was heard within the last ten minutes, sorted by address. It is what ARP shows that
// reaches the appliance: announcements, and requests and replies of that machine. None is asked.
func (s *Server) TakenReservations() (all []TakenReservation) {
	for addr, x := range s.taken.fresh(s.deps.Now()) {
		all = append(all, TakenReservation{addr, x.value.host, x.value.mac, x.since, x.last})
	}
	slices.SortFunc(all, func(x, y TakenReservation) int { return x.Addr.Compare(y.Addr) })
	return all
}

// heard takes the sender of an ARP packet.
func (s *Server) heard(addr netip.Addr, mac lab.MAC) {
	t := s.deps.Table()
	h := t.reservedTo(addr)
	if h == nil || slices.Contains(h.AllMACs(), mac) {
		return
	}
	if s.taken.note(addr, otherUser{h.Name, mac}, s.deps.Now()) {
		s.recordTaken(t, addr)
	}
}

// recordTaken records that another machine uses a reserved address, if one does.
func (s *Server) recordTaken(t *Table, addr netip.Addr) {
	x, ok := s.taken.at(addr, s.deps.Now())
	if !ok {
		return
	}
	h := t.reservedTo(addr)
	if h == nil || h.Name != x.value.host {
		return // the lab has changed
	}
	s.deps.Events.Record(event.Event{Kind: event.AddressConflict, Host: h.Name, MAC: h.MACs[0], Addr: addr, Claimed: true, Reason: event.OtherMachine,
		Err: fmt.Sprintf("%s uses %s, which is reserved for %s: switch that machine off, or add the MAC to the host's line if it is a NIC of it", x.value.mac, addr, h.Name)})
}
