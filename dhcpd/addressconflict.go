package dhcpd

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// maxAddressConflicts bounds the addresses in use by others: anybody can send ARP for all of them.
const maxAddressConflicts = 256

// An AddressConflict is an address that is reserved for a host or leased to a machine, and that another machine uses.
type AddressConflict struct {
	Addr        netip.Addr
	Owner       Owner
	MAC         lab.MAC   // of the other machine
	Since, Last time.Time // when its ARP was received first, and last
}

// An Owner of an address is the machine that it is reserved for or leased to.
type Owner struct {
	Host     string // its name; "": it is no host of the lab
	MAC      lab.MAC
	Reserved bool // and not leased from a pool
}

// String is "w0", or the MAC of a machine that is no host.
func (o Owner) String() string { return cmp.Or(o.Host, o.MAC.String()) }

// Holds is "reserved for w0", or "leased to" a machine.
func (o Owner) Holds() string {
	if o.Reserved {
		return "reserved for " + o.String()
	}
	return "leased to " + o.String()
}

// An otherUser of an address is another machine than its owner.
type otherUser struct {
	owner Owner
	mac   lab.MAC
}

// AddressConflicts returns those whose other machine sent ARP within the last ten minutes, sorted by address. It is what ARP shows that
// reaches the appliance: announcements, and requests and replies of that machine. One that is silent is asked every few seconds, and no
// longer among them if it does not answer; but for networks with probe: false.
func (s *Server) AddressConflicts() (all []AddressConflict) {
	for addr, x := range s.addressConflicts.fresh(s.deps.Now()) {
		all = append(all, AddressConflict{addr, x.value.owner, x.value.mac, x.since, x.last})
	}
	slices.SortFunc(all, func(x, y AddressConflict) int { return x.Addr.Compare(y.Addr) })
	return all
}

// arpReceived takes the sender of an ARP packet. own says that its frame came from that machine.
func (s *Server) arpReceived(addr netip.Addr, mac lab.MAC, own bool) {
	t := s.deps.Table()
	if own && t.isPooled(addr) && s.deps.Book.SeenAt(mac, addr) {
		return
	}
	if owner, ok := s.otherOwner(t, addr, mac); ok && s.addressConflicts.note(addr, otherUser{owner, mac}, s.deps.Now()) {
		s.recordAddressConflict(t, addr)
	}
}

// recheckAddressConflicts asks the other machines that sent no ARP for a while.
func (s *Server) recheckAddressConflicts(t *Table) {
	now := s.deps.Now()
	for addr, x := range s.addressConflicts.fresh(now) {
		sc := scopeOf(t.scopes, addr)
		if sc == nil || !sc.network.Probe || sc.network.Relayed() || now.Sub(x.last) < recheckAfter {
			continue
		}
		s.prober.Forget(addr)
		s.prober.Probe(segment.Path{Interface: sc.network.Interface}, addr, x.value.owner.MAC, func(r segment.Result) {
			if r.Use != segment.Unknown { // a probe was sent, and its time is over
				s.addressConflicts.end(addr, now)
			}
		})
	}
}

// otherOwner returns whose an address is, if not of the machine that mac is a NIC of.
func (s *Server) otherOwner(t *Table, addr netip.Addr, mac lab.MAC) (o Owner, ok bool) {
	if h := t.reservedTo(addr); h != nil {
		return Owner{h.Name, h.MACs[0], true}, !slices.Contains(h.AllMACs(), mac)
	}
	if !t.isPooled(addr) {
		return o, false
	}
	l, ok := s.deps.Book.ByAddr(addr)
	if !ok || l.MAC == mac {
		return o, false
	}
	o.MAC = l.MAC
	if h := t.hosts[l.MAC]; h != nil {
		o.Host, ok = h.Name, !slices.Contains(h.AllMACs(), mac)
	}
	return o, ok
}

// recordAddressConflict records that another machine uses an address, if one does.
func (s *Server) recordAddressConflict(t *Table, addr netip.Addr) {
	x, ok := s.addressConflicts.at(addr, s.deps.Now())
	if !ok {
		return
	}
	o, ok := s.otherOwner(t, addr, x.value.mac)
	if !ok || o != x.value.owner {
		return // the lab or the lease has changed
	}
	advice := "switch that machine off"
	if o.Host != "" {
		advice += ", or add the MAC to the host's line if it is a NIC of it"
	}
	s.deps.Events.Record(event.Event{Kind: event.AddressConflict, Host: o.Host, MAC: o.MAC, Addr: addr, Claimed: true, Reason: event.OtherMachine,
		Err: fmt.Sprintf("%s uses %s, which is %s: %s", x.value.mac, addr, o.Holds(), advice)})
}
