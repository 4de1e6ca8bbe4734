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

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A sighting is what was seen, and when it was first and last.
type sighting[V any] struct {
	value       V
	since, last time.Time
	over        bool // it was looked for, and not seen any more
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
		if was.last = now; was.over {
			was.since, was.over = now, false
		}
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
	s.seen[key] = sighting[V]{value: value, since: now, last: now}
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
	return x, ok && !x.over && now.Sub(x.last) < s.keep
}

// fresh returns all that are not over.
func (s *sightings[K, V]) fresh(now time.Time) map[K]sighting[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pruneLocked(now)
	all := maps.Clone(s.seen)
	maps.DeleteFunc(all, func(_ K, x sighting[V]) bool { return x.over })
	return all
}

// end marks the one of a key as over, unless it was seen after a time. It is not new if it is seen again soon.
func (s *sightings[K, V]) end(key K, after time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, ok := s.seen[key]; ok && !x.last.After(after) {
		x.over = true
		s.seen[key] = x
	}
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

// maxTaken bounds the addresses in use by others: anybody can send ARP for all of them.
const maxTaken = 256

// A TakenAddress is reserved for a host or leased to a machine, and another machine uses it.
type TakenAddress struct {
	Addr        netip.Addr
	Owner       Owner
	MAC         lab.MAC   // of the other machine
	Since, Last time.Time // when it was heard first, and last
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

// TakenAddresses returns those whose other machine was heard within the last ten minutes, sorted by address. It is what ARP shows that
// reaches the appliance: announcements, and requests and replies of that machine. One that is silent is asked every few seconds, and no
// longer among them if it does not answer; but for networks with probe: false.
func (s *Server) TakenAddresses() (all []TakenAddress) {
	for addr, x := range s.taken.fresh(s.deps.Now()) {
		all = append(all, TakenAddress{addr, x.value.owner, x.value.mac, x.since, x.last})
	}
	slices.SortFunc(all, func(x, y TakenAddress) int { return x.Addr.Compare(y.Addr) })
	return all
}

// heard takes the sender of an ARP packet. own says that its frame came from that machine.
func (s *Server) heard(addr netip.Addr, mac lab.MAC, own bool) {
	t := s.deps.Table()
	if own && t.isPooled(addr) && s.deps.Book.SeenAt(mac, addr) {
		return
	}
	if owner, ok := s.otherOwner(t, addr, mac); ok && s.taken.note(addr, otherUser{owner, mac}, s.deps.Now()) {
		s.recordTaken(t, addr)
	}
}

// lookForTaken asks the other machines that were not heard for a while.
func (s *Server) lookForTaken(t *Table) {
	now := s.deps.Now()
	for addr, x := range s.taken.fresh(now) {
		sc := scopeOf(t.scopes, addr)
		if sc == nil || !sc.network.Probe || sc.network.Relayed() || now.Sub(x.last) < recheckAfter {
			continue
		}
		s.prober.Forget(addr)
		s.prober.Probe(segment.Path{Interface: sc.network.Interface}, addr, x.value.owner.MAC, func(r segment.Result) {
			if r.Use != segment.Unknown { // a probe was sent, and its time is over
				s.taken.end(addr, now)
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

// recordTaken records that another machine uses an address, if one does.
func (s *Server) recordTaken(t *Table, addr netip.Addr) {
	x, ok := s.taken.at(addr, s.deps.Now())
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
