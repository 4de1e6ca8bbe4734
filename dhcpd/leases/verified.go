package leases

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A made-up machine that requests what it is offered gets a lease like any other. Its lease is unverified: nothing shows that the machine
// exists, and messages of DHCP do not, since anybody can repeat them. A machine is verified once the server says that it was seen at its
// address, and stays so as long as the book remembers it, over restarts and with its next leases. No reply waits for the store to know:
// StoreVerified stores it later, and a daemon that is killed before forgets it.

// unverifiedLocked reports whether a change leaves a lease of a machine that is unverified.
func (b *Book) unverifiedLocked(p *planned) bool {
	if p.State == Declined || p.Exists {
		return false
	}
	for i := b.byMAC[p.MAC]; i != 0; i = b.slots.at(i).sameMAC {
		if !b.slots.at(i).unverified() {
			return false
		}
	}
	return true
}

func (e *slot) unverified() bool { return e.flags&(unverified|verified) == unverified }

// SeenAt notes that a machine was seen at an address, and reports whether it has a live lease of it.
func (b *Book) SeenAt(m lab.MAC, addr netip.Addr) bool {
	now := seconds(b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.liveLeaseLocked(m, addr, now)
	if e != nil {
		b.verifyLocked(e)
	}
	return e != nil
}

// AskedAgain notes that a machine sent a message some time after it got its lease in the subnet, where nothing better shows that it exists.
func (b *Book) AskedAgain(m lab.MAC, subnet netip.Prefix, after time.Duration) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.bindingLocked(m, netOf(subnet)); i != 0 && now.Sub(timeOf(b.slots.at(i).start)) >= after {
		b.verifyLocked(b.slots.at(i))
	}
}

func (b *Book) verifyLocked(e *slot) {
	if e.unverified() {
		e.flags |= verified
		b.verified = append(b.verified, e.addr)
	}
}

// IsVerified reports whether a machine has or had an address in the subnet, and was seen there.
func (b *Book) IsVerified(m lab.MAC, subnet netip.Prefix) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.bindingLocked(m, netOf(subnet))
	return i != 0 && !b.slots.at(i).unverified()
}

// StoreVerified makes durable which machines were verified, at most limit at a time, and returns how many. The server calls it regularly, and
// again at once while it returns limit.
func (b *Book) StoreVerified(ctx context.Context, limit int) (int, error) {
	b.commits.Lock()
	defer b.commits.Unlock()
	b.mu.Lock()
	n := min(limit, len(b.verified))
	addrs := slices.Clone(b.verified[:n])
	b.verified = slices.Delete(b.verified, 0, n)
	changes := b.changesLocked(addrs, func(e *slot) bool { return e.flags&verified != 0 })
	b.mu.Unlock()
	b.plan(changes)
	err := b.carryOut(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range changes {
		if a, _ := addr4(c.Addr); c.Err != nil && b.findLocked(a) != 0 {
			b.verified = append(b.verified, a)
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

// Unverified returns the addresses of a pool that are leased to unverified machines since some time: at most n, the youngest lease first, as a
// flood fills what real machines have left. Whether they are in use is for the caller to find out.
func (b *Book) Unverified(p *Pool, since time.Time, n int) []netip.Addr {
	before := seconds(since)
	return b.youngest(p, n, func(e *slot) bool { return e.unverified() && e.start <= before })
}

// Verified returns the addresses of a pool that are leased to other machines: at most n, the youngest lease first.
func (b *Book) Verified(p *Pool, n int) []netip.Addr {
	return b.youngest(p, n, func(e *slot) bool { return !e.unverified() })
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
	changes := b.changesLocked(numbers, func(e *slot) bool { return e.unverified() && e.live(seconds(now)) })
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
