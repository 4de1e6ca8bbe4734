package dhcpd

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

const (
	// quarantine is how long a declined address is not handed out.
	quarantine = 10 * time.Minute
	// asideMost is how many addresses are set aside at a time because one machine declines them, and of a small pool at most
	// a part: a client with a broken check declines whatever it gets. All machines behind one port of a relay count as one.
	asideMost  = 4
	asideShare = 3 // a third
	// maxDecliners bounds the memory. Of so many at a time most are made up.
	maxDecliners = 4096
)

// decline takes an address out of use for a while (RFC 2131 section 4.3.3). A reservation stays: whoever sits on a reserved
// address is found by the operator, whom the event calls, and not by giving the machine another one.
func (s *Server) decline(x *exchange) dropReason {
	r, book := &x.req, s.deps.Book
	offered, _ := book.Held(r.MAC)
	if (r.ServerID.IsValid() && !s.isUs(x, r.ServerID)) || (!book.Has(r.MAC, r.Requested) && offered != r.Requested) {
		return dropNotOurs
	}
	most := x.mostAside()
	switch {
	case x.res != nil:
		s.unheeded(x, "another machine uses this address, which is reserved; it stays reserved")
		return dropNone
	case !s.asides.allow(x.decliners(), r.Requested, most):
		s.unheeded(x, fmt.Sprintf("%s declined %d others within %s; no more are set aside", x.whoDeclines(), most, quarantine))
		return dropLimited
	}
	s.record(x, event.Event{Kind: event.DHCPDecline, Addr: r.Requested, Err: "another machine uses this address"})
	s.lookFor(x, r.Requested)
	book.Withdraw(r.MAC)
	return s.enqueue(s.newJob(x, r.Requested, leases.Declined, quarantine, jobSilent))
}

// unheeded tells of a machine that goes on declining, once a minute.
func (s *Server) unheeded(x *exchange, why string) {
	if !s.quiet.first(event.DHCPDecline, x.req.MAC) {
		return
	}
	s.record(x, event.Event{Kind: event.DHCPDecline, Addr: x.req.Requested, Err: why})
	s.lookFor(x, x.req.Requested)
}

func (x *exchange) whoDeclines() string {
	if line := lineOf(&x.req); line != "" {
		return "the machines behind relay port " + line
	}
	return "this machine"
}

// lookFor asks the wire who uses an address that a machine declines. Somebody who answers is told of, and the address is
// nobody else's, however much the machine has declined. Past a relay it might be the machine itself that answers.
func (s *Server) lookFor(x *exchange, addr netip.Addr) {
	if x.in.sock == nil || x.pool == nil || !x.scope.network.Probe || x.req.GIAddr.IsValid() {
		return
	}
	pool, mac := x.pool, x.req.MAC
	s.prober.Forget(addr) // it was silent before it was given
	s.prober.Probe(x.path(), addr, mac, func(r segment.Result) {
		if r.Blocks(mac) {
			defer s.contain()
			s.conflict(pool, r)
		}
	})
}

// mostAside is how many addresses are set aside at a time for one machine.
func (x *exchange) mostAside() int {
	if x.pool == nil {
		return asideMost
	}
	return min(asideMost, max(1, x.pool.range_.Usable()/asideShare))
}

// decliners are those for whom an address is set aside: the machine, and the relay's port that it sits behind.
func (x *exchange) decliners() []decliner {
	n := x.scope.network.Name
	who := []decliner{{network: n, mac: x.req.MAC}}
	if line := lineOf(&x.req); line != "" {
		who = append(who, decliner{network: n, line: line})
	}
	return who
}

// A decliner is a machine, or a port of a relay, in a network.
type decliner struct {
	network string
	mac     lab.MAC
	line    string
}

// asides knows for whom addresses are set aside. It is safe for concurrent use.
type asides struct {
	now func() time.Time

	mu sync.Mutex
	by map[decliner][]aside
}

// An aside is one address until its time is over.
type aside struct {
	addr  netip.Addr
	until time.Time
}

func newAsides(now func() time.Time) *asides {
	return &asides{now: now, by: map[decliner][]aside{}}
}

// allow reports whether an address may be set aside for all of who, which then have it, since none of them has the most
// already. One that is set aside for them may be so again, and counts once.
func (a *asides) allow(who []decliner, addr netip.Addr, most int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.by)+len(who) > maxDecliners {
		a.sweepLocked()
	}
	for _, d := range who {
		have := a.liveLocked(d)
		again := slices.ContainsFunc(have, func(x aside) bool { return x.addr == addr })
		if !again && (len(have) >= most || len(have) == 0 && len(a.by) >= maxDecliners) {
			return false
		}
	}
	end := a.now().Add(quarantine)
	for _, d := range who {
		have := slices.DeleteFunc(a.liveLocked(d), func(x aside) bool { return x.addr == addr })
		a.by[d] = append(have, aside{addr, end})
	}
	return true
}

// liveLocked returns what is set aside for d, and forgets what is over.
func (a *asides) liveLocked(d decliner) []aside {
	now := a.now()
	have := slices.DeleteFunc(a.by[d], func(x aside) bool { return !now.Before(x.until) })
	if len(have) == 0 {
		delete(a.by, d)
		return nil
	}
	a.by[d] = have
	return have
}

func (a *asides) sweepLocked() {
	for d := range a.by {
		a.liveLocked(d)
	}
}
