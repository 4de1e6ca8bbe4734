package leases

import (
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A conflict is an address that a machine uses without a lease.
type conflict struct {
	by           lab.MAC // zero: unknown
	since, until uint32
}

func (c conflict) lease(a uint32) Lease {
	return stamp{mac: c.by, state: Conflict, start: c.since, expiry: c.until}.brief(a, "")
}

// maxConflicts bounds the memory. Beyond it the conflict that ends first is forgotten: a probe finds it again.
const maxConflicts = 4096

// Conflict records that a probe found a machine at addr: it is offered to no other machine until then, and [Book.All] shows
// it. by is zero if the probe cannot tell the machine, as with ICMP through a relay.
//
// It is kept in memory only. To lose it costs the next client one probe. To store it would cost a sync for each probe that
// is answered, and would let any machine that answers ARP fill the store. Declined addresses are stored: no probe found them.
func (b *Book) Conflict(addr netip.Addr, by lab.MAC, until time.Time) {
	a, ok := addr4(addr)
	now, end := seconds(b.now()), seconds(until)
	if !ok || end <= now {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, again := b.conflicts[a]; !again && len(b.conflicts) >= maxConflicts {
		b.forgetConflictLocked()
	}
	if len(b.conflicts) == 0 || end < b.conflictsEnd {
		b.conflictsEnd = end
	}
	b.conflicts[a] = conflict{by: by, since: now, until: end}
	b.updateAddrLocked(a)
}

// Conflicts returns the conflicts of a pool that no probe has found since some time, at most n. Whether they last is for the caller to find
// out.
func (b *Book) Conflicts(p *Pool, since time.Time, n int) (found []Lease) {
	before, now := seconds(since), seconds(b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	for a, c := range b.conflicts {
		if len(found) < n && p.gives(a) && c.since <= before && now < c.until {
			found = append(found, c.lease(a))
		}
	}
	return found
}

// EndConflict ends the conflict of an address at which nobody answers any more.
func (b *Book) EndConflict(addr netip.Addr) {
	a, _ := addr4(addr)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endConflictLocked(a)
}

func (b *Book) endConflictLocked(a uint32) {
	if _, ok := b.conflicts[a]; ok {
		delete(b.conflicts, a)
		b.updateAddrLocked(a)
	}
}

// endConflictsLocked ends the conflicts whose time is over.
func (b *Book) endConflictsLocked(now uint32) {
	b.conflictsEnd = ^uint32(0)
	for a, c := range b.conflicts {
		if c.until <= now {
			b.endConflictLocked(a)
			continue
		}
		b.conflictsEnd = min(b.conflictsEnd, c.until)
	}
}

func (b *Book) forgetConflictLocked() {
	first, end := uint32(0), ^uint32(0)
	for a, c := range b.conflicts {
		if c.until <= end {
			first, end = a, c.until
		}
	}
	b.endConflictLocked(first)
}
