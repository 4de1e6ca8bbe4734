package segment

import (
	"net/netip"
	"slices"
	"time"
)

// A survey is the addresses of a segment that are likely to be offered next.
type survey struct {
	addrs []netip.Addr
	at    int       // next to look at; len(addrs): the round is over
	next  time.Time // when to look on, at the earliest
}

// maxSurvey bounds what is looked at ahead on a segment: at 50 a second a round takes 20 s.
const maxSurvey = 1024

// Survey says which addresses of a segment are likely to be offered next, in that order; nil: none. It replaces what was
// said before. The prober asks for those that it knows nothing recent of, at a bounded rate, and again before its
// knowledge grows old, so that an offer waits for nothing; while nothing changes, that is one question per address in half
// of FreeFor. Only the first 1024 are looked at.
func (p *Prober) Survey(path Path, addrs []netip.Addr) {
	addrs = addrs[:min(len(addrs), maxSurvey)]
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.surveys[path]
	switch {
	case len(addrs) == 0:
		delete(p.surveys, path)
		return
	case s == nil:
		s = &survey{}
		p.surveys[path] = s
	case slices.Equal(s.addrs, addrs):
		return
	}
	if s.at >= len(s.addrs) {
		s.next = time.Time{} // it was at rest; else the pace holds on
	}
	s.addrs, s.at = slices.Clone(addrs), 0
	p.rouse()
}

// surveyLocked asks for at most one address of each segment, and returns when to come again.
func (p *Prober) surveyLocked(now time.Time) (next time.Time) {
	for path, s := range p.surveys {
		if !now.Before(s.next) {
			p.stepLocked(path, s, now)
		}
		next = earlier(next, s.next)
	}
	return next
}

func (p *Prober) stepLocked(path Path, s *survey, now time.Time) {
	if s.at >= len(s.addrs) {
		s.at = 0
	}
	if p.wires[path] != nil {
		for ; s.at < len(s.addrs); s.at++ {
			addr := s.addrs[s.at]
			if p.freshLocked(addr, now) || p.askLocked(path, addr, now) == nil {
				continue
			}
			p.surveyed.Add(1)
			s.at++
			s.next = now.Add(time.Second / time.Duration(p.cfg.Rate))
			return
		}
	}
	s.at, s.next = len(s.addrs), now.Add(p.cfg.FreeFor/4)
}

// freshLocked reports that there is no need to ask: the answer will hold until the round after the next.
func (p *Prober) freshLocked(addr netip.Addr, now time.Time) bool {
	if !addr.Is4() || p.probes[tableKey(addr)] != nil {
		return true
	}
	r := p.knownLocked(addr, now)
	return r.State != Unknown && now.Sub(r.At) < p.cfg.FreeFor/2
}
