package segment

import (
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// Anybody can send ARP for any address. Such a claim keeps an address from clients only until it is probed: free addresses that are claimed
// are probed ahead, and Probe asks. A machine that claims many addresses and answers at none is not believed for a while.
const (
	maxUnanswered = 16
	maxClaimants  = 1024
	// claimWait is how long a claim waits for its probe at most, where nothing else is to be probed: a flood of claims is one round of probes.
	claimWait = time.Second
)

// claims counts the claims that were found wrong, by machine. The prober locks it.
type claims struct {
	by      map[lab.MAC]claimant
	ignored []lab.MAC // since the last tick
}

type claimant struct {
	unanswered int
	last       time.Time
}

// unanswered counts a claim at whose address nobody answered.
func (c *claims) unanswered(mac lab.MAC, now time.Time) {
	if c.by == nil || len(c.by) >= maxClaimants {
		c.by = map[lab.MAC]claimant{}
	}
	x := c.by[mac]
	x.unanswered, x.last = x.unanswered+1, now
	c.by[mac] = x
	if x.unanswered == maxUnanswered {
		c.ignored = append(c.ignored, mac)
	}
}

// ignores reports whether the claims of a machine are ignored.
func (c *claims) ignores(mac lab.MAC, now time.Time) bool {
	x, ok := c.by[mac]
	if ok && now.Sub(x.last) >= usedFor {
		delete(c.by, mac)
		return false
	}
	return x.unanswered >= maxUnanswered
}

// claim records a machine that says by ARP that it uses an address. It ends no probe of it: a machine that is there answers.
func (p *Prober) claim(addr netip.Addr, mac lab.MAC) {
	if !p.deps.Relevant(addr) {
		return
	}
	now := p.deps.Now()
	p.observations.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claimLocked(addr, mac, now)
}

func (p *Prober) claimLocked(addr netip.Addr, mac lab.MAC, now time.Time) {
	if p.claims.ignores(mac, now) {
		return
	}
	was := p.knownLocked(addr, now)
	answered := was.Answered && was.MAC == mac // it was asked already
	p.observed.put(addr, observation{at: now.UnixNano(), mac: mac, use: InUse, answered: answered})
	if answered {
		return
	}
	for _, s := range p.ahead {
		if s.index >= len(s.addrs) && s.next.After(now.Add(claimWait)) {
			s.next = now.Add(claimWait)
			p.wakeUp()
		}
	}
}
