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
	for i := b.byMAC[m]; i != 0; i = b.slots.at(i).sameMAC {
		e := b.slots.at(i)
		if e.live(now) && (best == 0 || e.start > b.slots.at(best).start) {
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
	if i == 0 || !b.slots.at(i).live(now) {
		return Lease{}, false
	}
	return b.leaseLocked(i), true
}

// ByHostname returns the live lease of the client that has that host name, in lower case, as its DNS name.
func (b *Book) ByHostname(name string) (Lease, bool) {
	now := seconds(b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.namedLocked(name)
	if i == 0 || !b.slots.at(i).live(now) {
		return Lease{}, false
	}
	return b.leaseLocked(i), true
}

// Bound returns the last lease of a machine in a subnet, live or not.
func (b *Book) Bound(m lab.MAC, subnet netip.Prefix) (Lease, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.bindingLocked(m, netOf(subnet))
	if i == 0 {
		return Lease{}, false
	}
	return b.leaseLocked(i), true
}

// Remembers reports whether the machine has or had an address in the subnet, or is offered one: then it is no new client.
func (b *Book) Remembers(m lab.MAC, subnet netip.Prefix) bool {
	net, now := netOf(subnet), b.now().UnixMilli()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bindingLocked(m, net) != 0 {
		return true
	}
	i := b.offerByMAC[m]
	return i != 0 && b.offers.at(i).valid(now) && net.contains(b.offers.at(i).addr)
}

// Named reports whether the host name stored with an address is name, and the machine's DNS name unless another machine has
// it. Else a renewal is worth a commit even early in the lease: firmware sends no name, the system that it boots does.
func (b *Book) Named(a netip.Addr, name string) bool {
	n, _ := addr4(a)
	now := seconds(b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.findLocked(n)
	if i == 0 {
		return false
	}
	has, inDNS := nameOf(b.slots.at(i).blob)
	return has == name && (inDNS || b.nameHolderLocked(name, b.slots.at(i).mac, now) != 0)
}

// NameOf returns the host name that is a machine's DNS name once it has a lease in the subnet with the host name that it sends; empty:
// none, as another machine has it. One that sends none keeps the one that it has.
func (b *Book) NameOf(m lab.MAC, subnet netip.Prefix, sent string) string {
	now := seconds(b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.bindingLocked(m, netOf(subnet)); sent == "" && i != 0 && b.slots.at(i).live(now) {
		if has, inDNS := nameOf(b.slots.at(i).blob); inDNS {
			return has
		}
	}
	if b.nameHolderLocked(sent, m, now) != 0 {
		return ""
	}
	return sent
}

// eachBatch is how many leases are looked at before others may use the book.
const eachBatch = 256

// Each calls fn for every stored lease, expired, released and declined ones too, in no order. fn may call the book and keep
// the lease. A lease that changes meanwhile is seen in its old or new state, or, if it changes its address, twice or not at all.
func (b *Book) Each(fn func(*Lease)) {
	var batch []Lease
	b.walk(func(i uint32, _ *slot) { batch = append(batch, b.leaseLocked(i)) }, func() {
		for k := range batch {
			fn(&batch[k])
		}
		batch = nil
	})
}

// Walk calls visit for every lease, offer and conflict, in no order, and needs the same memory however many there are. Ended
// leases are among them, unless a conflict of their address is; the offer to a client that renews is not. What visit gets is
// valid during the call and has no ClientID; visit may call the book. What changes meanwhile is seen as for Each.
func (b *Book) Walk(visit func(*Lease)) {
	now := b.now()
	sec, ms := seconds(now), now.UnixMilli()
	batch := make([]Lease, 0, eachBatch)
	flush := func() {
		for i := range batch {
			visit(&batch[i])
		}
		batch = batch[:0]
	}
	b.walk(func(_ uint32, e *slot) {
		if c, ok := b.conflicts[e.addr]; !ok || sec >= c.until || e.live(sec) {
			batch = append(batch, e.stamp().brief(e.addr, e.blob))
		}
	}, flush)
	for next, more := uint32(1), true; more; flush() {
		b.mu.Lock()
		end := min(next+eachBatch-1, b.offers.last)
		for i := next; i <= end; i++ {
			if o := b.offers.at(i); o.addr != 0 && o.valid(ms) && !b.renewsLocked(o, sec) {
				batch = append(batch, o.lease())
			}
		}
		next, more = end+1, end < b.offers.last
		b.mu.Unlock()
	}
	b.mu.Lock()
	for a, c := range b.conflicts {
		if sec < c.until {
			batch = append(batch, c.lease(a))
		}
	}
	b.mu.Unlock()
	flush()
}

// renewsLocked reports whether an offer is to the client that has the address already.
func (b *Book) renewsLocked(o *offer, now uint32) bool {
	i := b.findLocked(o.addr)
	return i != 0 && b.slots.at(i).live(now) && b.slots.at(i).mac == o.mac
}

// walk calls visit with the lock held for every slot, and between without it after every few.
func (b *Book) walk(visit func(uint32, *slot), between func()) {
	for next, more := uint32(1), true; more; {
		b.mu.Lock()
		end := min(next+eachBatch-1, b.slots.last)
		for i := next; i <= end; i++ {
			if e := b.slots.at(i); e.addr != 0 {
				visit(i, e)
			}
		}
		next, more = end+1, end < b.slots.last
		b.mu.Unlock()
		between()
	}
}

// All returns every lease, expired, released and declined ones too, and the conflicts, by address. A conflict hides an
// ended lease of its address; a live lease is listed beside it.
func (b *Book) All() []Lease {
	b.mu.Lock()
	all := make([]Lease, 0, b.slots.len()+len(b.conflicts))
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
	b.walk(func(_ uint32, e *slot) {
		if e.live(now) {
			if i := slices.IndexFunc(nets, func(n net4) bool { return n.contains(e.addr) }); i >= 0 {
				counts[i]++
			}
		}
	}, func() {})
	return counts
}

// LastEnd returns when the last of the live leases ends, or now.
func (b *Book) LastEnd() time.Time {
	now := seconds(b.now())
	last := now
	b.walk(func(_ uint32, e *slot) {
		if e.live(now) {
			last = max(last, e.expiry)
		}
	}, func() {})
	return timeOf(last)
}

// conflictsAt returns the conflicts as leases.
func (b *Book) conflictsAt(now time.Time) map[netip.Addr]Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[netip.Addr]Lease, len(b.conflicts))
	for a, c := range b.conflicts {
		if seconds(now) < c.until {
			all[addrOf(a)] = c.lease(a)
		}
	}
	return all
}

// OfferTo returns the address that is offered to a machine.
func (b *Book) OfferTo(m lab.MAC) (netip.Addr, bool) {
	now := b.now().UnixMilli()
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.offerByMAC[m]
	if i == 0 || !b.offers.at(i).valid(now) {
		return netip.Addr{}, false
	}
	return addrOf(b.offers.at(i).addr), true
}
