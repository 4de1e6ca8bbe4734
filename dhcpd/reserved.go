package dhcpd

import (
	"fmt"
	"net/netip"
	"slices"
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

// An otherUser of a reserved address is another machine than the host that it is reserved for.
type otherUser struct {
	host string
	mac  lab.MAC
}

func newTakenReservations() *sightings[netip.Addr, otherUser] {
	return &sightings[netip.Addr, otherUser]{keep: conflictTime, most: maxTaken}
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
