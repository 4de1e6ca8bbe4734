package dhcpd

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

const (
	// quarantineTime is how long a declined address is not offered.
	quarantineTime = 10 * time.Minute
	// maxQuarantined is how many addresses are in quarantine at a time because one machine declined them, and of a small pool
	// at most a part: a client with a broken check declines whatever it gets. All machines behind one port of a relay count
	// as one.
	maxQuarantined  = 4
	quarantineShare = 3 // a third
	// maxDecliningClients bounds the memory. Most of so many at a time are made up.
	maxDecliningClients = 4096
)

// decline takes an address out of use for a while (RFC 2131 section 4.3.3). A reservation stays: the event lets an admin
// find the machine that uses the reserved address, and another address would not be the host's.
func (s *Server) decline(x *exchange) dropReason {
	r, book := &x.req, s.deps.Book
	if !r.Requested.IsValid() {
		return dropMalformed // option 50 is a MUST (RFC 2131 table 5)
	}
	offered, ok := book.OfferTo(r.MAC)
	if (r.ServerID.IsValid() && !x.isOurs(r.ServerID)) || (!book.Has(r.MAC, r.Requested) && (!ok || offered != r.Requested)) {
		return dropNotOurs
	}
	if why := s.forged(x); why != "" {
		return s.dropForged(x, why)
	}
	if x.host.reserved() {
		s.declineIgnored(x, "another machine uses this address, which is reserved; it stays reserved")
		return dropNone
	}
	if x.mayProbe() && !r.GIAddr.IsValid() && book.Has(r.MAC, r.Requested) && s.declines.AllowN(s.deps.Now(), 1) {
		return s.declineUnlessUsed(x)
	}
	return s.quarantineDeclined(x)
}

// quarantineDeclined takes the address that a machine declines out of use, unless too many are.
func (s *Server) quarantineDeclined(x *exchange) dropReason {
	r := &x.req
	most := maxQuarantined
	if x.pool != nil {
		most = min(most, max(1, x.pool.addrs.Usable()/quarantineShare))
	}
	clients := []decliningClient{{network: x.scope.network.Name, mac: r.MAC}}
	who := "this machine"
	if port := relayPort(r); port != "" {
		clients = append(clients, decliningClient{network: x.scope.network.Name, relayPort: port})
		who = "the machines behind relay port " + port
	}
	switch s.quarantine.add(clients, r.Requested, most) {
	case tooManyAddresses:
		s.declineIgnored(x, fmt.Sprintf("%s declined %d other addresses within %s; no more are quarantined", who, most, quarantineTime))
		return dropLimited
	case tooManyClients:
		s.declineIgnored(x, fmt.Sprintf("%d clients declined addresses within %s; no more are quarantined", maxDecliningClients, quarantineTime))
		return dropLimited
	}
	s.record(x, event.Event{Kind: event.DHCPDecline, Addr: r.Requested, Err: "another machine uses this address"})
	s.probeDeclined(x, r.Requested)
	s.deps.Book.Withdraw(r.MAC)
	return s.commit(x, r.Requested, leases.Declined, quarantineTime, 0)
}

// declineIgnored records a DHCPDECLINE that changes nothing.
func (s *Server) declineIgnored(x *exchange, why string) {
	s.record(x, event.Event{Kind: event.DHCPDecline, Addr: x.req.Requested, Err: why})
	if s.declines.AllowN(s.deps.Now(), 1) {
		s.probeDeclined(x, x.req.Requested)
	}
}

// A decliningClient is a machine, or a port of a relay, in a network.
type decliningClient struct {
	network   string
	mac       lab.MAC
	relayPort string
}

// A declineQuarantine knows which addresses are in quarantine, and whose DHCPDECLINE put them there. It is safe for
// concurrent use.
type declineQuarantine struct {
	now func() time.Time

	mu       sync.Mutex
	byClient map[decliningClient][]quarantined
}

type quarantined struct {
	addr  netip.Addr
	until time.Time
}

func newDeclineQuarantine(now func() time.Time) *declineQuarantine {
	return &declineQuarantine{now: now, byClient: map[decliningClient][]quarantined{}}
}

// A quarantineResult says whether an address was put into quarantine, and why not.
type quarantineResult uint8

const (
	inQuarantine     quarantineResult = iota
	tooManyAddresses                  // one of the clients has most addresses there already
	tooManyClients                    // maxDecliningClients
)

// add puts an address into quarantine for all of clients. An address that is there already counts once.
func (q *declineQuarantine) add(clients []decliningClient, addr netip.Addr, most int) quarantineResult {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.byClient)+len(clients) > maxDecliningClients {
		for c := range q.byClient {
			q.currentLocked(c)
		}
	}
	for _, c := range clients {
		have := q.currentLocked(c)
		again := slices.ContainsFunc(have, func(a quarantined) bool { return a.addr == addr })
		switch {
		case again:
		case len(have) >= most:
			return tooManyAddresses
		case len(have) == 0 && len(q.byClient) >= maxDecliningClients:
			return tooManyClients
		}
	}
	until := q.now().Add(quarantineTime)
	for _, c := range clients {
		have := slices.DeleteFunc(q.currentLocked(c), func(a quarantined) bool { return a.addr == addr })
		q.byClient[c] = append(have, quarantined{addr, until})
	}
	return inQuarantine
}

// currentLocked returns a client's addresses in quarantine, and forgets those whose time is over.
func (q *declineQuarantine) currentLocked(c decliningClient) []quarantined {
	now := q.now()
	have := slices.DeleteFunc(q.byClient[c], func(a quarantined) bool { return !now.Before(a.until) })
	if len(have) == 0 {
		delete(q.byClient, c)
		return nil
	}
	q.byClient[c] = have
	return have
}
