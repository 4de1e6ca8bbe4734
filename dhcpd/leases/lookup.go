package leases

import (
	"net/netip"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// ByMAC returns the live lease of a machine, the youngest if it has one in several subnets.
func (b *Book) ByMAC(m lab.MAC) (Lease, bool) {
	now := seconds(b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	best := uint32(0)
	for i := b.byMAC[m]; i != 0; i = b.entries.at(i).sameMAC {
		e := b.entries.at(i)
		if e.live(now) && (best == 0 || e.start > b.entries.at(best).start) {
			best = i
		}
	}
	if best == 0 {
		return Lease{}, false
	}
	return b.leaseLocked(best), true
}

// ByAddr returns the live lease of an address.
func (b *Book) ByAddr(a netip.Addr) (Lease, bool) {
	n, _ := addr4(a)
	now := seconds(b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.findLocked(n)
	if i == 0 || !b.entries.at(i).live(now) {
		return Lease{}, false
	}
	return b.leaseLocked(i), true
}

// ByHostname returns the live lease of the client that calls itself that, in lower case; of several the one that came last.
func (b *Book) ByHostname(name string) (Lease, bool) {
	now := seconds(b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.namedLocked(name)
	if i == 0 || !b.entries.at(i).live(now) {
		return Lease{}, false
	}
	return b.leaseLocked(i), true
}

// Known returns what is remembered of an address, live or not.
func (b *Book) Known(a netip.Addr) (Lease, bool) {
	n, _ := addr4(a)
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.findLocked(n)
	if i == 0 {
		return Lease{}, false
	}
	return b.leaseLocked(i), true
}

// Bound returns what is remembered of a machine in a subnet, live or not.
func (b *Book) Bound(m lab.MAC, subnet netip.Prefix) (Lease, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.bindingLocked(m, netOf(subnet))
	if i == 0 {
		return Lease{}, false
	}
	return b.leaseLocked(i), true
}

// Remembers reports whether the machine has or had an address in the subnet, or is offered one: then it is no newcomer.
func (b *Book) Remembers(m lab.MAC, subnet netip.Prefix) bool {
	net, now := netOf(subnet), b.now().UnixMilli()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bindingLocked(m, net) != 0 {
		return true
	}
	i := b.offerToLocked(m)
	return i != 0 && b.offers.at(i).valid(now) && net.contains(b.offers.at(i).addr)
}

// Has reports whether the machine has a live lease for that address.
func (b *Book) Has(m lab.MAC, a netip.Addr) bool {
	n, _ := addr4(a)
	now := seconds(b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.findLocked(n)
	return i != 0 && b.entries.at(i).mac == m && b.entries.at(i).live(now)
}

// renewalShare: a renewal that comes before this part of the lease has passed is answered with the time that is left,
// without a commit. What the client was told is what is stored, so nothing can be lost; firmware, iPXE and system of one
// boot ask within a minute, and two of the three need no sync.
const renewalShare = 4

// Renewal returns the time left of a lease that needs no commit to be confirmed: the machine has it, it was stored for
// the time wanted, and less than a quarter of that has passed.
func (b *Book) Renewal(m lab.MAC, a netip.Addr, want time.Duration) (left time.Duration, ok bool) {
	n, _ := addr4(a)
	now := b.now()
	b.mu.Lock()
	i := b.findLocked(n)
	if i == 0 || b.entries.at(i).mac != m || !b.entries.at(i).live(seconds(now)) {
		b.mu.Unlock()
		return 0, false
	}
	e := b.entries.at(i)
	start, expiry := e.start, e.expiry
	b.mu.Unlock()
	since := now.Sub(timeOf(start))
	granted := time.Duration(expiry-start) * time.Second
	// Times are stored in whole seconds; a changed lease time must not wait for the next renewal.
	if (granted-want).Abs() > time.Second || since >= want/renewalShare || since < 0 {
		return 0, false
	}
	return granted - since, true
}

// Named reports whether the host name kept with an address is that one. A renewal that brings another name is worth a
// commit although its time is not: firmware has no name, the system that it boots has.
func (b *Book) Named(a netip.Addr, name string) bool {
	n, _ := addr4(a)
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.findLocked(n)
	return i != 0 && nameOf(b.entries.at(i).blob) == name
}

// eachBatch is how many leases are looked at before others may use the book.
const eachBatch = 256

// Each calls fn for every stored lease, expired, released and declined ones too, in no order. fn may call the book and keep
// the lease. What changes meanwhile may be seen as it was, as it is, or, if it changes its address, twice or not at all.
func (b *Book) Each(fn func(*Lease)) {
	var batch []Lease
	b.walk(func(i uint32, _ *entry) { batch = append(batch, b.leaseLocked(i)) }, func() {
		for k := range batch {
			fn(&batch[k])
		}
		batch = nil
	})
}

// walk calls visit with the lock held for every entry, and between without it after every few.
func (b *Book) walk(visit func(uint32, *entry), between func()) {
	for next, more := uint32(1), true; more; {
		b.mu.Lock()
		end := min(next+eachBatch-1, b.entries.last)
		for i := next; i <= end; i++ {
			if e := b.entries.at(i); e.addr != 0 {
				visit(i, e)
			}
		}
		next, more = end+1, end < b.entries.last
		b.mu.Unlock()
		between()
	}
}

// All returns every lease, expired, released and declined ones too, and the conflicts, by address. A conflict stands for
// what is remembered of its address, a live lease beside it.
func (b *Book) All() []Lease {
	b.mu.Lock()
	all := make([]Lease, 0, b.entries.len()+len(b.conflicts))
	b.mu.Unlock()
	b.Each(func(l *Lease) { all = append(all, *l) })
	now := b.now()
	conflicts := b.conflictsAt(now)
	all = slices.DeleteFunc(all, func(l Lease) bool { return !l.Live(now) && conflicts[l.Addr].State == Conflict })
	for _, l := range conflicts {
		all = append(all, l)
	}
	slices.SortFunc(all, func(x, y Lease) int {
		if c := x.Addr.Compare(y.Addr); c != 0 {
			return c
		}
		return int(x.State) - int(y.State)
	})
	return slices.CompactFunc(all, func(x, y Lease) bool { return x.Addr == y.Addr && (x.State == Conflict) == (y.State == Conflict) })
}

// CountLive returns how many live leases there are in each of some subnets that do not overlap.
func (b *Book) CountLive(subnets ...netip.Prefix) []int {
	counts := make([]int, len(subnets))
	nets := make([]net4, len(subnets))
	for i, p := range subnets {
		nets[i] = netOf(p)
	}
	now := seconds(b.now())
	b.walk(func(_ uint32, e *entry) {
		if e.live(now) {
			if i := slices.IndexFunc(nets, func(n net4) bool { return n.contains(e.addr) }); i >= 0 {
				counts[i]++
			}
		}
	}, func() {})
	return counts
}
