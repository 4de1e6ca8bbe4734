package leases

import (
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A conflict is an address that somebody uses without a lease.
type conflict struct {
	by           lab.MAC // zero: unknown
	since, until uint32
}

// maxConflicts bounds the memory. Past it the one that ends first is forgotten: a probe finds it again.
const maxConflicts = 4096

// Conflict notes that a probe found a machine at addr: nobody else is offered it until then, and [Book.All] shows it. by
// is zero if the probe cannot tell who it was, as by ICMP past a relay.
//
// It is kept in memory only. To lose it costs the next client one probe, to store it would cost a sync for each probe that
// is answered, and let anybody who answers ARP fill the store. What clients decline is stored: no probe of ours has seen it.
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
	b.reclassLocked(a)
}

// conflictLocked returns the conflict that an address is in.
func (b *Book) conflictLocked(a, now uint32) (conflict, bool) {
	if len(b.conflicts) == 0 {
		return conflict{}, false
	}
	c, ok := b.conflicts[a]
	return c, ok && now < c.until
}

func (b *Book) inConflictLocked(a uint32) bool {
	_, ok := b.conflicts[a]
	return ok
}

func (b *Book) endConflictLocked(a uint32) {
	if b.inConflictLocked(a) {
		delete(b.conflicts, a)
		b.reclassLocked(a)
	}
}

// endConflictsLocked gives back the addresses whose conflict is over.
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

// conflictsAt returns the conflicts as leases.
func (b *Book) conflictsAt(now time.Time) map[netip.Addr]Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[netip.Addr]Lease, len(b.conflicts))
	for a := range b.conflicts {
		if c, ok := b.conflictLocked(a, seconds(now)); ok {
			all[addrOf(a)] = stamp{mac: c.by, state: Conflict, start: c.since, expiry: c.until}.lease(a, "")
		}
	}
	return all
}
