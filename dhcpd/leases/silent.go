package leases

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A made-up machine that requests what it is offered gets a lease like any other. Its lease is unproven: nothing shows that the machine
// exists, and messages of DHCP do not, since anybody can repeat them. A machine is proven once the server says that it was seen at its
// address, and stays so as long as the book remembers it, over restarts and with its next leases. No reply waits for the store to know:
// StoreProven tells it later, and a daemon that is killed before forgets it.

// unprovenLocked reports whether a change leaves a lease of a machine that is unproven.
func (b *Book) unprovenLocked(p *planned) bool {
	if p.State == Declined || p.Exists {
		return false
	}
	for i := b.byMAC[p.MAC]; i != 0; i = b.slots.at(i).sameMAC {
		if !b.slots.at(i).unproven() {
			return false
		}
	}
	return true
}

func (e *slot) unproven() bool { return e.flags&(unproven|proven) == unproven }

// SeenAt notes that a machine was seen at an address, and reports whether it has a live lease of it.
func (b *Book) SeenAt(m lab.MAC, addr netip.Addr) bool {
	now := seconds(b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.liveLeaseLocked(m, addr, now)
	if e != nil {
		b.proveLocked(e)
	}
	return e != nil
}

// AskedAgain notes that a machine sent a message some time after it got its lease in the subnet, where nothing better shows that it exists.
func (b *Book) AskedAgain(m lab.MAC, subnet netip.Prefix, after time.Duration) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.bindingLocked(m, netOf(subnet)); i != 0 && now.Sub(timeOf(b.slots.at(i).start)) >= after {
		b.proveLocked(b.slots.at(i))
	}
}

func (b *Book) proveLocked(e *slot) {
	if e.unproven() {
		e.flags |= proven
		b.proven = append(b.proven, e.addr)
	}
}

// IsProven reports whether a machine has or had an address in the subnet, and was seen there.
func (b *Book) IsProven(m lab.MAC, subnet netip.Prefix) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.bindingLocked(m, netOf(subnet))
	return i != 0 && !b.slots.at(i).unproven()
}

// StoreProven makes durable which machines were proven, at most limit at a time, and returns how many. The server calls it regularly, and
// again at once while it returns limit.
func (b *Book) StoreProven(ctx context.Context, limit int) (int, error) {
	b.commits.Lock()
	defer b.commits.Unlock()
	b.mu.Lock()
	n := min(limit, len(b.proven))
	addrs := slices.Clone(b.proven[:n])
	b.proven = slices.Delete(b.proven, 0, n)
	changes := b.changesLocked(addrs, func(e *slot) bool { return e.flags&proven != 0 })
	b.mu.Unlock()
	b.plan(changes)
	err := b.carryOut(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range changes {
		if a, _ := addr4(c.Addr); c.Err != nil && b.findLocked(a) != 0 {
			b.proven = append(b.proven, a)
		}
	}
	return n, err
}

// changesLocked returns changes of nothing yet, of the wanted ones of some addresses.
func (b *Book) changesLocked(addrs []uint32, wanted func(*slot) bool) (changes []*Change) {
	for _, a := range addrs {
		if i := b.findLocked(a); i != 0 && wanted(b.slots.at(i)) {
			changes = append(changes, &Change{Lease: b.leaseLocked(i)})
		}
	}
	return changes
}

// Unproven returns the addresses of a pool that are leased to unproven machines since some time: at most n, the youngest lease first, as a
// flood fills what real machines have left. Whether they are in use is for the caller to find out.
func (b *Book) Unproven(p *Pool, since time.Time, n int) []netip.Addr {
	before := seconds(since)
	return b.youngest(p, n, func(e *slot) bool { return e.unproven() && e.start <= before })
}

// Proven returns the addresses of a pool that are leased to other machines: at most n, the youngest lease first.
func (b *Book) Proven(p *Pool, n int) []netip.Addr {
	return b.youngest(p, n, func(e *slot) bool { return !e.unproven() })
}

// youngest returns the leased addresses of a pool that are wanted, at most n, the youngest lease first.
func (b *Book) youngest(p *Pool, n int, wanted func(*slot) bool) []netip.Addr {
	now := seconds(b.now())
	var found []uint64 // age and address
	b.walk(func(_ uint32, e *slot) {
		if e.live(now) && p.gives(e.addr) && wanted(e) {
			found = append(found, uint64(^e.start)<<32|uint64(e.addr))
		}
	}, func() {})
	slices.Sort(found)
	addrs := make([]netip.Addr, min(n, len(found)))
	for i := range addrs {
		addrs[i] = addrOf(uint32(found[i]))
	}
	return addrs
}

// EndSilent ends the leases of addresses that were found unused, unless their machines were seen meanwhile, and
// returns how many. They are stored as released.
func (b *Book) EndSilent(ctx context.Context, addrs []netip.Addr) (int, error) {
	now := b.now()
	b.commits.Lock()
	defer b.commits.Unlock()
	b.mu.Lock()
	numbers := make([]uint32, len(addrs))
	for i, a := range addrs {
		numbers[i], _ = addr4(a)
	}
	changes := b.changesLocked(numbers, func(e *slot) bool { return e.unproven() && e.live(seconds(now)) })
	b.mu.Unlock()
	for _, c := range changes {
		c.State, c.Expiry = Released, now
	}
	b.plan(changes)
	err := b.carryOut(ctx)
	ended := 0
	for _, c := range changes {
		if c.Err == nil {
			ended++
		}
	}
	return ended, err
}

// Anybody can decline addresses in the names of machines that he makes up. A pool without another address has its declined ones
// probed: those at which nobody answers are given again.

// Declined returns declined addresses of a pool, those declined longest ago first, at most n. Each is returned once in a while
// only; whether it is in use is for the caller to find out. Addresses at which a probe found a machine are not among them.
func (b *Book) Declined(p *Pool, n int) (found []netip.Addr) {
	now := seconds(b.now())
	var all []uint32
	if b.mustSearch(p, now) {
		all = b.declinedIn(p, now)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.useLocked(p)
	if s == nil {
		return nil
	}
	s.declined = append(s.declined, all...)
	for len(s.declined) > 0 && len(found) < n {
		a := s.declined[0]
		s.declined = s.declined[1:]
		if i := b.findLocked(a); i != 0 && b.declinedLocked(i, now) {
			found = append(found, addrOf(a))
		}
	}
	return found
}

// mustSearch reports, once a second, whether a pool has declined addresses of which none is left to return. To find them means to look at
// every lease, which the caller does without the lock.
func (b *Book) mustSearch(p *Pool, now uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.useLocked(p)
	if s == nil || s.count[quarantined] == 0 || len(s.declined) > 0 || s.declinedAt == now {
		return false
	}
	s.declinedAt = now
	return true
}

func (b *Book) declinedIn(p *Pool, now uint32) []uint32 {
	type declined struct{ start, addr uint32 }
	var all []declined
	b.walk(func(i uint32, e *slot) {
		if p.gives(e.addr) && b.declinedLocked(i, now) {
			all = append(all, declined{e.start, e.addr})
		}
	}, func() {})
	slices.SortFunc(all, func(x, y declined) int { return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.addr, y.addr)) })
	addrs := make([]uint32, len(all))
	for i, d := range all {
		addrs[i] = d.addr
	}
	return addrs
}

// declinedLocked reports whether a slot is a declined address in quarantine, and no probe found a machine there.
func (b *Book) declinedLocked(i, now uint32) bool {
	e := b.slots.at(i)
	c, inUse := b.conflicts[e.addr]
	return e.state == Declined && !e.ended(now) && !(inUse && now < c.until)
}

// EndDeclined ends the quarantine of a declined address that was found unused, in memory only: after a restart it holds again,
// until the next probe. It reports whether the address was declined.
func (b *Book) EndDeclined(addr netip.Addr) bool {
	a, _ := addr4(addr)
	now := seconds(b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.findLocked(a)
	if i == 0 || !b.declinedLocked(i, now) {
		return false
	}
	e := b.slots.at(i)
	e.flags |= foundUnused
	if e.flags&hasEnded == 0 {
		b.expireLocked(i)
	}
	return true
}
