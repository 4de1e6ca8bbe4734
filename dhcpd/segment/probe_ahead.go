package segment

import (
	"net/netip"
	"slices"
	"time"
)

// An aheadList is the addresses of a path that are likely to be offered next.
type aheadList struct {
	addrs []netip.Addr
	index int       // next to probe; len(addrs): the round is over
	next  time.Time // when to probe again, at the earliest
}

// maxAhead is how many addresses of a path are probed ahead: at 50 a second a round takes 20 s.
const maxAhead = 1024

// ProbeAhead sets the addresses of a path that are likely to be offered next, in that order; nil: none. The prober probes
// those without a recent observation, at a bounded rate, and again before an observation is too old, so that an offer need
// not wait; while nothing changes, that is one probe per address in half of FreeFor. Only the first 1024 are probed.
func (p *Prober) ProbeAhead(path Path, addrs []netip.Addr) {
	addrs = addrs[:min(len(addrs), maxAhead)]
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.ahead[path]
	switch {
	case len(addrs) == 0:
		delete(p.ahead, path)
		return
	case s == nil:
		s = &aheadList{}
		p.ahead[path] = s
	case slices.Equal(s.addrs, addrs):
		return
	}
	if s.index >= len(s.addrs) {
		s.next = time.Time{} // it was idle; else the rate limit holds
	}
	s.addrs, s.index = slices.Clone(addrs), 0
	p.wakeUp()
}

// aheadLocked probes at most one address of each path, and returns when to call it again.
func (p *Prober) aheadLocked(now time.Time) (next time.Time) {
	for path, s := range p.ahead {
		if !now.Before(s.next) {
			p.nextAheadLocked(path, s, now)
		}
		next = earlier(next, s.next)
	}
	return next
}

func (p *Prober) nextAheadLocked(path Path, s *aheadList, now time.Time) {
	if s.index >= len(s.addrs) {
		s.index = 0
	}
	if p.senders[path] != nil {
		for ; s.index < len(s.addrs); s.index++ {
			addr := s.addrs[s.index]
			if p.freshLocked(addr, now) || p.probeLocked(path, addr, now) == nil {
				continue
			}
			p.probedAhead.Add(1)
			s.index++
			s.next = now.Add(time.Second / aheadRate)
			return
		}
	}
	s.index, s.next = len(s.addrs), now.Add(freeFor/4)
}

// freshLocked reports whether an address needs no probe: the observation holds until the round after the next.
func (p *Prober) freshLocked(addr netip.Addr, now time.Time) bool {
	if !addr.Is4() || p.probes[tableKey(addr)] != nil {
		return true
	}
	r := p.knownLocked(addr, now)
	return (r.Use == Free || r.Answered) && now.Sub(r.At) < freeFor/2
}
