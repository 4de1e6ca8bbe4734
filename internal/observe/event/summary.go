package event

import (
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/observe/repeats"
)

// A class is a set of events that share a limit. What unknown clients send never uses up the limit of the lab's own machines.
type class int

const (
	unlimited      class = iota - 1 // the daemon's own events
	unknownClients                  // refusals of clients that are no host of the lab, or claim to be another machine
	hostRefusals                    // refusals of hosts
	answered                        // requests that were answered
	claims                          // of addresses, and their end
	classes        = 4
)

// newLimiters returns the limits of all classes. A host that fails shows a few of its refusals one by one, such as the names that its
// boot loader tries. Answered requests are limited far above what any boot needs; there are as many sources as machines, since they have
// to hold their address for an answer.
func newLimiters() [classes]*repeats.Limiter[Event] {
	return [classes]*repeats.Limiter[Event]{
		unknownClients: repeats.New[Event](repeats.Config{Burst: 1, Keys: 128}),
		hostRefusals:   repeats.New[Event](repeats.Config{Burst: 12, Keys: 16384}),
		answered:       repeats.New[Event](repeats.Config{Burst: 200, Keys: 8192, PassOn: true}),
		claims:         repeats.New[Event](repeats.Config{Burst: 1, Keys: 128}),
	}
}

func classOf(e Event) class {
	switch describe(e.Kind).by {
	case request:
		if e.Forgeable() {
			return unknownClients
		}
		return answered
	case refusal, retried:
		if e.Host == "" || e.Claimed {
			return unknownClients
		}
		return hostRefusals
	case claim:
		return claims
	}
	return unlimited
}

// keyOf returns what e has in common with its like. A machine's DHCP messages come from its MAC; their address is the one that it asks for.
// Claims of one address are alike, whatever MAC makes them and is named in their reason.
func keyOf(c class, e Event) repeats.Key {
	if c == claims {
		return repeats.Key{What: e.Kind.String(), Addr: e.Addr}
	}
	k := repeats.Key{What: e.Kind.String(), Addr: e.Addr, MAC: e.MAC, Reason: e.Err}
	if e.Client != "" {
		k.Addr = netip.Addr{}
	}
	if c == answered {
		k.What, k.Reason = "answered", "" // few keys: there may be thousands of machines
	}
	return k
}

// passLocked reports whether e is recorded now; if not, it is counted for a summary.
func (b *Bus) passLocked(e Event) bool {
	c := classOf(e)
	if c == unlimited || b.limiters[c].Add(e.At, keyOf(c, e), e) {
		return true
	}
	b.scheduleLocked(e.At)
	return false
}

// scheduleLocked sets the alarm to the next summary.
func (b *Bus) scheduleLocked(now time.Time) {
	for _, l := range b.limiters {
		b.alarm.Set(now, l.Next(), b.summarize)
	}
}

// summarize records the summaries that are due.
func (b *Bus) summarize() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alarm.Fired()
	now := b.cfg.Now()
	for _, l := range b.limiters {
		b.emitSummariesLocked(now, l.Due(now))
	}
	b.scheduleLocked(now)
}

// Flush records all that was counted and is not recorded yet, such as before the daemon ends.
func (b *Bus) Flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Now()
	for _, l := range b.limiters {
		b.emitSummariesLocked(now, l.Flush(now))
	}
}

func (b *Bus) emitSummariesLocked(now time.Time, all []repeats.Summary[Event]) {
	for _, s := range all {
		e := s.Last
		e.At, e.More, e.Over = now, s.More, s.Over
		b.emitLocked(e)
	}
}
