package boot

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/host/link/neighbour"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// errConflict is the cause of a refusal: another machine has taken the address of the one in whose name it asks.
var errConflict = errors.New("two machines use this address, or one took it on purpose: find that MAC, and separate boot networks from others")

// errOther is the cause of a refusal: another machine asks, from an address of its own.
var errOther = errors.New("another machine asks")

// A client is a machine whose own request this is.
type client struct {
	host   *lab.Host
	recipe *recipe.Recipe
	mac    lab.MAC // of the NIC that asks
	addr   netip.Addr
}

// owner returns the machine with that MAC if the request is the machine's own.
func (s *Service) owner(t *Table, mac lab.MAC, from netip.Addr) (client, error) {
	h := s.asking(t, mac, from)
	if h == nil || h.Profile == nil {
		return client{}, forbidden(event.UnknownMachine, "no machine of the lab has this MAC", nil)
	}
	if !h.BootsFrom(mac) {
		return client{}, forbidden(event.UnknownMachine, h.Name+" does not boot from this NIC", nil)
	}
	if err := s.verifyRequest(t, h, mac, from); err != nil {
		return client{}, err
	}
	return client{h, t.recipes[h.Profile], mac, from}, nil
}

// verifyRequest returns an error unless a request from that address is the machine's own, as far as can be known. It applies to scripts too, as
// they carry the token of the boot.
func (s *Service) verifyRequest(t *Table, h *lab.Host, mac lab.MAC, from netip.Addr) error {
	if err := s.verifyAddress(t, h, mac, from); err != nil {
		return err
	}
	return s.verifySender(h.Name, h.AllMACs(), from, conflictOf(h))
}

// verifyReceived is verifyRequest once a script of h was received; h may be nil. The machine is not asked again: it starts its system and is silent, for a
// second or for long. To whom the script went, the kernel's entry shows.
func (s *Service) verifyReceived(t *Table, h *lab.Host, mac lab.MAC, from netip.Addr) error {
	if h == nil {
		return nil
	}
	if err := s.verifyAddress(t, h, mac, from); err != nil {
		return err
	}
	found, err := s.deps.Neighbours.Entry(from, h.AllMACs())
	if found.User == neighbour.None {
		return nil // the entry has gone since
	}
	return refusalOf(found, err, h.Name, from, conflictOf(h))
}

// verifyDatagram returns an error unless the machine h sent a request by TFTP, for a script that was acknowledged; h may be nil. verified is that
// the frame of the request shows it. Behind a router none does.
func (s *Service) verifyDatagram(h *lab.Host, by *datagram) (verified bool, err error) {
	if h == nil {
		return true, nil
	}
	from := by.from.Addr().Unmap()
	found, err := s.deps.Neighbours.Sender(by.from, h.AllMACs(), by.answered)
	if err == nil && found.User == neighbour.None {
		return false, forbidden(event.OtherMachine, "asked from "+from.String()+", but no NIC of "+h.Name+" was seen to send that request", errOther)
	}
	return found.User == neighbour.Own, refusalOf(found, err, h.Name, from, conflictOf(h))
}

// conflictOf returns what a request in the name of h by another machine is.
func conflictOf(h *lab.Host) error {
	if !h.KnownAddrs() {
		return errOther // whose address it is, is not known
	}
	return errConflict
}

// verifyAddress returns an error unless that address is one of the machine's. Where another DHCP server gives it, any may be.
func (s *Service) verifyAddress(t *Table, h *lab.Host, mac lab.MAC, from netip.Addr) error {
	if !h.KnownAddrs() {
		return nil
	}
	reserved, leased := s.addrsOf(t, mac)
	holds := "no address"
	switch {
	case from == leased || h.Pool == nil && h.Has(from): // the host made for a machine of a pool has the address that asks
		return nil
	case from.Is6() && h.IP6.IsValid():
		holds = h.IP6.String()
	case reserved.IsValid():
		holds = reserved.String()
	case leased.IsValid():
		holds = leased.String()
	}
	if found, err := s.deps.Neighbours.Entry(from, h.AllMACs()); err == nil && found.User == neighbour.Foreign {
		return refusalOf(found, nil, h.Name, from, errOther) // by IPv6 too, where any address may be the machine's own
	}
	return forbidden(event.WrongAddress, "asked from "+from.String()+", but "+h.Name+" holds "+holds, nil)
}

// verifySender returns an error if another machine than the one with these MACs sends from an address, where that can be known: on a segment of
// this machine. Its cause is then conflict.
func (s *Service) verifySender(name string, own []lab.MAC, from netip.Addr, conflict error) error {
	found, err := s.deps.Neighbours.Find(from, own)
	return refusalOf(found, err, name, from, conflict)
}

// refusalOf returns the refusal that follows from what was found, or nil.
func refusalOf(found neighbour.Found, err error, name string, from netip.Addr, conflict error) error {
	switch {
	case err != nil:
		return unavailable("", "find out which machine uses "+from.String(), err)
	case found.User == neighbour.Foreign && found.Both:
		// The machine is there: if this is its own request, it should ask again once the answer goes to it.
		return unavailable(event.OtherMachine, "asked from "+from.String()+", which "+found.MAC.String()+" uses beside "+name, conflict)
	case found.User == neighbour.Foreign:
		return forbidden(event.OtherMachine, "asked from "+from.String()+" by "+found.MAC.String()+", which is no NIC of "+name, conflict)
	case found.User == neighbour.None:
		return unavailable(event.Silent, "asked from "+from.String()+", but no machine answers "+askedBy(from)+" there", nil)
	case found.Silent:
		// The kernel's entry alone is no evidence: anybody can name the machine's MAC in an ARP packet while the machine is off.
		return unavailable(event.Silent, "asked from "+from.String()+", where "+name+" does not answer "+askedBy(from), nil)
	}
	return nil
}

// askedBy returns by what machines are asked who uses an address.
func askedBy(a netip.Addr) string {
	if a.Is4() {
		return "ARP"
	}
	return "neighbour solicitations"
}

// verifyReport returns an error unless a report in the name of a machine that the lab may not have can be the machine's own.
func (s *Service) verifyReport(t *Table, mac lab.MAC, from netip.Addr) error {
	h := t.lab.HostByMAC(mac)
	if err := s.verifyReportAddress(t, mac, h, from); err != nil {
		return err
	}
	own := []lab.MAC{mac}
	if h != nil {
		own = h.AllMACs()
	}
	return s.verifySender(mac.String(), own, from, errOther)
}

// verifyReportAddress is verifyAddress of a machine that may be no host; h may be nil.
func (s *Service) verifyReportAddress(t *Table, mac lab.MAC, h *lab.Host, from netip.Addr) error {
	n := t.lab.NetworkOf(from)
	if n == nil {
		return forbidden(event.Outside, "asked from "+from.String()+", which is in no network of the lab", nil)
	}
	if h != nil {
		return s.verifyAddress(t, h, mac, from)
	}
	if n.DHCP != lab.DHCPServer {
		return nil
	}
	if reserved, leased := s.addrsOf(t, mac); from != reserved && from != leased {
		return forbidden(event.WrongAddress, "asked from "+from.String()+", which "+mac.String()+" does not hold", nil)
	}
	return nil
}

// MarkClaimed marks e, by table t, if the request may be another machine's than e.MAC: it comes from an address that is not known to be that machine's,
// or is for a file, which is nobody's secret, and the kernel sends the answer to another MAC. Scripts and documents are refused then.
//
// The kernel is asked when a transfer has ended or was refused, as an event of some machine, and no machine by ARP. That takes some 15 µs, a
// third of a small file's time, so an answer counts for a moment. For those of a client that is no machine of the lab nothing is asked.
func (s *Service) MarkClaimed(t *Table, e *event.Event) {
	if e.Claimed = s.claimed(t, e.MAC, e.Addr); e.Claimed || !e.Kind.OfFile() {
		return
	}
	name, own := e.MAC.String(), []lab.MAC{e.MAC}
	if h := s.asking(t, e.MAC, e.Addr); h != nil {
		name, own = h.Name, h.AllMACs()
	}
	if found, err := s.neighbours.entry(s.deps.Neighbours, t, neighbourKey{e.MAC, e.Addr}, own); err == nil && found.User == neighbour.Foreign {
		by := "asked for by " + found.MAC.String() + ", which is no NIC of " + name
		if e.Err != "" {
			by += ": " + e.Err
		}
		e.Claimed, e.Reason, e.Err = true, event.OtherMachine, by
	}
}

// Who fetches files is known for neighbourLasts; a machine fetches many in that time. maxNeighbours bounds what is known.
const (
	neighbourLasts = 100 * time.Millisecond
	maxNeighbours  = 4096
)

// A neighbourCache has the last answers of the kernel about who fetches files. It is safe for concurrent use.
type neighbourCache struct {
	mu    sync.Mutex
	table *Table // that known is by
	known map[neighbourKey]cachedNeighbour
}

// A neighbourKey is whom the kernel was asked about: the machine with a MAC, at an address.
type neighbourKey struct {
	mac  lab.MAC
	addr netip.Addr
}

type cachedNeighbour struct {
	neighbour.Found
	until time.Time
}

// entry is Neighbours.Entry as of at most neighbourLasts ago.
func (c *neighbourCache) entry(n Neighbours, t *Table, of neighbourKey, own []lab.MAC) (neighbour.Found, error) {
	now := time.Now()
	c.mu.Lock()
	if t != c.table || len(c.known) >= maxNeighbours {
		c.table, c.known = t, map[neighbourKey]cachedNeighbour{}
	}
	known, ok := c.known[of]
	c.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.Found, nil
	}
	found, err := n.Entry(of.addr, own)
	if err != nil {
		return found, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t == c.table {
		c.known[of] = cachedNeighbour{found, now.Add(neighbourLasts)}
	}
	return found, nil
}

// claimed reports whether a request in the name of the machine mac comes from an address that is not known to be that machine's.
func (s *Service) claimed(t *Table, mac lab.MAC, from netip.Addr) bool {
	if h := s.asking(t, mac, from); h != nil {
		return s.verifyAddress(t, h, mac, from) != nil
	}
	return s.verifyReportAddress(t, mac, nil, from) != nil
}

// recordRefusal records that a request was refused with err, and whether another machine may have made it. Without e.Err it is err's text.
// That the client went away is no refusal. A request for a script from where no machine answers is one packet, which anybody can forge.
func (s *Service) recordRefusal(t *Table, e event.Event, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	conflict := errors.Is(err, errConflict)
	if conflict {
		e.Kind = event.AddressConflict
	}
	e.Reason = reasonOf(err)
	if e.Err == "" {
		e.Err = err.Error()
	}
	forgeable := e.Kind == event.ScriptRefused && e.Reason == event.Silent
	e.Claimed = conflict || forgeable || errors.Is(err, errOther) || s.claimed(t, e.MAC, e.Addr)
	s.deps.Events.Record(e)
}
