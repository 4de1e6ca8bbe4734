package dhcpd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"sync"
	"time"

	"bootlab/internal/lab"
	"bootlab/internal/store"
)

const (
	// offerTTL is how long an offered address is kept for who was offered it. Firmware collects offers for 4 s and
	// retries after 4, 8, 16 and 32 s.
	offerTTL = 90 * time.Second
	// minOffer is how long an offer is kept in any case: firmware collects offers for 4 s before it takes one.
	minOffer = 6 * time.Second
	// quarantine is how long a declined address is not handed out.
	quarantine = 10 * time.Minute
	// fullMemory is how long a pool found full is not searched again: a machine that finds no address asks every few
	// seconds, and the search reads the whole range.
	fullMemory = time.Second
	// lazyShare: a renewal that comes before this part of the lease has passed is answered with the time that is left,
	// without a commit. What the client was told is what is stored, so nothing can be lost; firmware, iPXE and system of
	// one boot ask within a minute, and two of the three need no sync.
	lazyShare = 4
	// scanLimit bounds the search for the longest expired lease once no unused address is near.
	scanLimit = 64
)

var (
	errTaken = errors.New("dhcpd: address was leased to another machine meanwhile")
	errStale = errors.New("dhcpd: lease changed in the store")
)

// A Book is the truth about leases. What it says is in the store. It is safe for concurrent use, but leases change through
// commit only, which one goroutine calls: the server's committer.
//
// One machine (MAC) has at most one address in a subnet; one address has at most one machine.
type Book struct {
	store store.Store
	now   func() time.Time

	mu        sync.Mutex
	byAddr    map[netip.Addr]*entry
	byMAC     map[lab.MAC]*entry // a chain: one for each subnet
	byName    map[string]*entry  // by Hostname: of several the one that came last
	offers    map[lab.MAC]offer
	offered   map[netip.Addr]lab.MAC
	full      map[netip.Addr]time.Time // first address of a pool -> full until
	usage     map[*Pool]usage          // what freeSoon remembers
	lastSweep time.Time
}

// An entry is a lease in memory. The lease is replaced, never changed, once the entry is in the book.
type entry struct {
	Lease
	next *entry // same MAC, other subnet
}

// An offer keeps an address for one machine, in memory only: losing it costs the client a retry.
type offer struct {
	addr  netip.Addr
	since time.Time // of the first question
	until time.Time
}

// A usage is how many addresses of a pool were free at some time, and how many were offered to newcomers since.
type usage struct {
	at    time.Time
	free  int
	given int
}

// OpenBook reads the leases in s. The book does not own s. An unreadable record is an error: to overlook it could give
// one address to two machines.
func OpenBook(ctx context.Context, s store.Store, now func() time.Time) (*Book, error) {
	if s == nil {
		panic("dhcpd: OpenBook: store is nil")
	}
	if now == nil {
		panic("dhcpd: OpenBook: now is nil")
	}
	b := &Book{
		store: s, now: now,
		byAddr: map[netip.Addr]*entry{}, byMAC: map[lab.MAC]*entry{}, byName: map[string]*entry{},
		offers: map[lab.MAC]offer{}, offered: map[netip.Addr]lab.MAC{}, full: map[netip.Addr]time.Time{}, usage: map[*Pool]usage{},
	}
	err := s.Scan(ctx, leasePrefix, func(key string, value []byte) error {
		l, err := decodeLease(key, value)
		if err == nil {
			b.putLocked(l)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open lease book: %w", err)
	}
	return b, nil
}

// ByMAC returns the live lease of a machine, the youngest if it has one in several subnets.
func (b *Book) ByMAC(m lab.MAC) (Lease, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var best *entry
	now := b.now()
	for e := b.byMAC[m]; e != nil; e = e.next {
		if e.Live(now) && (best == nil || e.Start.After(best.Start)) {
			best = e
		}
	}
	if best == nil {
		return Lease{}, false
	}
	return best.Lease, true
}

// ByAddr returns the live lease of an address.
func (b *Book) ByAddr(a netip.Addr) (Lease, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.byAddr[a]
	if e == nil || !e.Live(b.now()) {
		return Lease{}, false
	}
	return e.Lease, true
}

// ByHostname returns the live lease of the client that calls itself that, in lower case; of several the one that came last.
func (b *Book) ByHostname(name string) (Lease, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.byName[name]
	if e == nil || !e.Live(b.now()) {
		return Lease{}, false
	}
	return e.Lease, true
}

// All returns every lease, expired, released and declined ones too, by address.
func (b *Book) All() []Lease {
	b.mu.Lock()
	all := make([]Lease, 0, len(b.byAddr))
	for _, e := range b.byAddr {
		all = append(all, e.Lease)
	}
	b.mu.Unlock()
	slices.SortFunc(all, func(x, y Lease) int { return x.Addr.Compare(y.Addr) })
	return all
}

// putLocked makes l the lease of its address. Opening a book needs no lock.
func (b *Book) putLocked(l Lease) {
	b.dropLocked(l.Addr)
	e := &entry{Lease: l}
	b.byAddr[l.Addr] = e
	if l.State == Declined {
		return // the machine does not have it
	}
	e.next = b.byMAC[l.MAC]
	b.byMAC[l.MAC] = e
	if l.Hostname != "" {
		b.byName[l.Hostname] = e
	}
}

func (b *Book) dropLocked(a netip.Addr) {
	old := b.byAddr[a]
	if old == nil {
		return
	}
	delete(b.byAddr, a)
	if b.byName[old.Hostname] == old {
		delete(b.byName, old.Hostname)
	}
	head := b.byMAC[old.MAC]
	for at := &head; *at != nil; at = &(*at).next {
		if *at == old {
			*at = old.next
			break
		}
	}
	if head == nil {
		delete(b.byMAC, old.MAC)
		return
	}
	b.byMAC[old.MAC] = head
}

// bindingLocked returns what is remembered of the machine in a subnet: live, expired or released.
func (b *Book) bindingLocked(m lab.MAC, subnet netip.Prefix) *entry {
	for e := b.byMAC[m]; e != nil; e = e.next {
		if subnet.Contains(e.Addr) {
			return e
		}
	}
	return nil
}

// offer finds an address in a pool for a machine and keeps it for a while: the one that the client asks for or had
// before, else one that depends on its MAC, so that a lost book gives most machines what they had.
func (b *Book) offer(m lab.MAC, t *Table, s *scope, p *Pool, wish netip.Addr, inUse func(netip.Addr) bool) (netip.Addr, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	b.sweepLocked(now)
	if o, ok := b.offers[m]; ok && p.contains(o.addr) && b.mayHaveLocked(m, t, p, o.addr, now) {
		b.keepLocked(m, o.addr, now)
		return o.addr, true // a retransmission gets the same answer
	}
	if e := b.bindingLocked(m, s.network.Subnet); e != nil && b.mayHaveLocked(m, t, p, e.Addr, now) && (e.Live(now) || !inUse(e.Addr)) {
		b.keepLocked(m, e.Addr, now)
		return e.Addr, true
	}
	if wish.IsValid() && b.mayHaveLocked(m, t, p, wish, now) && !inUse(wish) {
		b.keepLocked(m, wish, now)
		return wish, true
	}
	a, ok := b.pickLocked(m, t, p, now, inUse)
	if ok {
		b.keepLocked(m, a, now)
	}
	return a, ok
}

// mayHave reports whether the machine may have that address of a pool, and keeps it if so.
func (b *Book) mayHave(m lab.MAC, t *Table, p *Pool, a netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if !b.mayHaveLocked(m, t, p, a, now) {
		return false
	}
	b.keepLocked(m, a, now)
	return true
}

func (b *Book) mayHaveLocked(m lab.MAC, t *Table, p *Pool, a netip.Addr, now time.Time) bool {
	if !p.contains(a) || !t.poolMayGive(a) || b.keptForOtherLocked(m, a, now) {
		return false
	}
	e := b.byAddr[a]
	if e == nil || now.After(e.Expiry) {
		return true
	}
	return e.State == Released || (e.State == Active && e.MAC == m)
}

func (b *Book) keptForOtherLocked(m lab.MAC, a netip.Addr, now time.Time) bool {
	other, ok := b.offered[a]
	return ok && other != m && now.Before(b.offers[other].until)
}

// keepLocked keeps an address for a machine, and lets go of what was kept for it before.
func (b *Book) keepLocked(m lab.MAC, a netip.Addr, now time.Time) {
	if old, ok := b.offers[m]; ok && old.addr != a && b.offered[old.addr] == m {
		delete(b.offered, old.addr)
	}
	if other, ok := b.offered[a]; ok && other != m {
		delete(b.offers, other) // its time was over
	}
	since := now
	if old, ok := b.offers[m]; ok && old.addr == a {
		since = old.since
	}
	b.offers[m] = offer{addr: a, since: since, until: now.Add(offerTTL)}
	b.offered[a] = m
}

// recycleLocked takes back the oldest offer of a pool that nobody came for, so that somebody who asks under ever new
// hardware addresses, and never takes what is offered, cannot keep a pool from those who need it.
func (b *Book) recycleLocked(p *Pool, now time.Time) (netip.Addr, bool) {
	var oldest lab.MAC
	best := now.Add(-minOffer)
	found := false
	for m, o := range b.offers {
		if p.contains(o.addr) && o.since.Before(best) && b.byAddr[o.addr] == nil {
			oldest, best, found = m, o.since, true
		}
	}
	if !found {
		return netip.Addr{}, false
	}
	a := b.offers[oldest].addr
	b.withdrawLocked(oldest)
	return a, true
}

// remembers reports whether the machine has or had an address in the subnet, or is offered one.
func (b *Book) remembers(m lab.MAC, subnet netip.Prefix) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bindingLocked(m, subnet) != nil {
		return true
	}
	o, ok := b.offers[m]
	return ok && subnet.Contains(o.addr) && b.now().Before(o.until)
}

// holds reports whether the machine has an address in the subnet now, or one is kept for it.
func (b *Book) holds(m lab.MAC, subnet netip.Prefix) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if e := b.bindingLocked(m, subnet); e != nil && e.Live(now) {
		return true
	}
	o, ok := b.offers[m]
	return ok && subnet.Contains(o.addr) && now.Before(o.until)
}

// binding returns the live lease of a machine in a subnet.
func (b *Book) binding(m lab.MAC, subnet netip.Prefix) (Lease, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.bindingLocked(m, subnet); e != nil && e.Live(b.now()) {
		return e.Lease, true
	}
	return Lease{}, false
}

// behind counts the live leases of a pool behind a relay's port.
func (b *Book) behind(p *Pool, line string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	for a, e := range b.byAddr {
		if e.Line == line && p.contains(a) && e.Live(now) {
			n++
		}
	}
	return n
}

// freeAddrs returns up to most addresses of a pool that it could give.
func (b *Book) freeAddrs(t *Table, p *Pool, most int) (free []netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	for i := uint32(0); i < p.size && len(free) < most; i++ {
		a := fromUint32(p.first + i)
		if e := b.byAddr[a]; t.poolMayGive(a) && (e == nil || now.After(e.Expiry) || e.State == Released) {
			free = append(free, a)
		}
	}
	return free
}

// freeSoon is free at the price of a look: counted once a second, less what was given since.
func (b *Book) freeSoon(t *Table, p *Pool) int {
	b.mu.Lock()
	u, ok := b.usage[p]
	now := b.now()
	if ok && now.Sub(u.at) < time.Second {
		b.mu.Unlock()
		return max(u.free-u.given, 0)
	}
	b.mu.Unlock()
	free := b.free(t, p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.usage) > 1024 { // pools of tables that are gone
		clear(b.usage)
	}
	b.usage[p] = usage{at: now, free: free}
	return free
}

// spend counts an address that a newcomer was let to.
func (b *Book) spend(p *Pool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.usage[p]
	u.given++
	b.usage[p] = u
}

// holders returns who keeps addresses of a pool from newcomers, those whose time ends first in front.
func (b *Book) holders(p *Pool) []Lease {
	b.mu.Lock()
	now := b.now()
	var all []Lease
	for a, e := range b.byAddr {
		if p.contains(a) && e.State != Released && now.Before(e.Expiry) {
			all = append(all, e.Lease)
		}
	}
	b.mu.Unlock()
	slices.SortFunc(all, func(x, y Lease) int { return cmp.Or(x.Expiry.Compare(y.Expiry), x.Addr.Compare(y.Addr)) })
	return all
}

// withdraw forgets what is kept for a machine: it took another server's offer, or has its lease.
func (b *Book) withdraw(m lab.MAC) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.withdrawLocked(m)
}

func (b *Book) withdrawLocked(m lab.MAC) {
	o, ok := b.offers[m]
	if !ok {
		return
	}
	delete(b.offers, m)
	if b.offered[o.addr] == m {
		delete(b.offered, o.addr)
	}
}

// offerOf returns the address kept for a machine.
func (b *Book) offerOf(m lab.MAC) (netip.Addr, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.offers[m]
	return o.addr, ok && b.now().Before(o.until)
}

// sweepLocked forgets offers whose time is over, now and then, so that strangers who only ask cost no memory.
func (b *Book) sweepLocked(now time.Time) {
	if now.Sub(b.lastSweep) < offerTTL {
		return
	}
	b.lastSweep = now
	for m, o := range b.offers {
		if now.After(o.until) {
			b.withdrawLocked(m)
		}
	}
	for first, until := range b.full {
		if now.After(until) {
			delete(b.full, first)
		}
	}
}

// pickLocked walks the pool from a place given by the MAC: an address never used is best, else the one whose lease ended
// longest ago among those near.
func (b *Book) pickLocked(m lab.MAC, t *Table, p *Pool, now time.Time, inUse func(netip.Addr) bool) (netip.Addr, bool) {
	first := fromUint32(p.first)
	if now.Before(b.full[first]) {
		return netip.Addr{}, false
	}
	h := fnv.New32a()
	_, _ = h.Write(m[:])
	start := uint64(h.Sum32())
	var best *entry
	seen := 0
	for i := uint64(0); i < uint64(p.size) && seen < scanLimit; i++ {
		a := fromUint32(p.first + uint32((start+i)%uint64(p.size)))
		if !b.mayHaveLocked(m, t, p, a, now) || inUse(a) {
			continue
		}
		e := b.byAddr[a]
		if e == nil {
			return a, true
		}
		seen++
		if best == nil || e.Expiry.Before(best.Expiry) {
			best = e
		}
	}
	if best == nil {
		if a, ok := b.recycleLocked(p, now); ok {
			return a, true
		}
		b.full[first] = now.Add(fullMemory)
		return netip.Addr{}, false
	}
	return best.Addr, true
}

// current returns the live lease of that machine for that address.
func (b *Book) current(m lab.MAC, a netip.Addr) (Lease, bool) {
	l, ok := b.ByAddr(a)
	return l, ok && l.MAC == m
}

// lazy returns the time left of a lease that needs no commit to be confirmed, see lazyShare.
func (b *Book) lazy(m lab.MAC, a netip.Addr, want time.Duration) (time.Duration, bool) {
	l, ok := b.current(m, a)
	if !ok {
		return 0, false
	}
	now := b.now()
	granted := l.Expiry.Sub(l.Start)
	// Times are stored in whole seconds; a changed lease time must not wait for the next renewal.
	if (granted-want).Abs() > time.Second || now.Sub(l.Start) >= want/lazyShare || now.Before(l.Start) {
		return 0, false
	}
	return l.Expiry.Sub(now), true
}

// free counts the addresses of a pool that a newcomer could get.
func (b *Book) free(t *Table, p *Pool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	used := 0
	for a, e := range b.byAddr {
		if p.contains(a) && t.poolMayGive(a) && e.State != Released && now.Before(e.Expiry) {
			used++
		}
	}
	return max(p.usable-used, 0)
}

// A change is one lease to be made durable.
type change struct {
	lease    Lease
	subnet   netip.Prefix
	reserved bool  // the address is this machine's whoever has it: the lab says so
	err      error // the outcome
}

// txnSize bounds one transaction: etcd takes 128 operations, and a lease needs up to two.
const txnSize = 50

// A group is some changes and the transaction that makes them durable.
type group struct {
	txn     store.Txn
	changes []*change
}

// commit makes changes durable, as many in one transaction as the store takes, then visible. Transactions run side by
// side, so that a store which groups commits pays one sync for all. Each change has its own outcome.
func (b *Book) commit(ctx context.Context, changes []*change) {
	for len(changes) > 0 {
		groups, later := b.prepare(changes)
		var wg sync.WaitGroup
		for _, g := range groups[1:] {
			wg.Go(func() { b.settle(ctx, g) })
		}
		b.settle(ctx, groups[0])
		wg.Wait()
		changes = later
	}
}

// prepare groups the changes that do not touch the same addresses or machines; the rest must wait. Those refused have
// their outcome set and are in neither. There is at least one group, maybe empty.
func (b *Book) prepare(changes []*change) (groups []*group, later []*change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	addrs := make(map[netip.Addr]struct{}, 2*len(changes))
	machines := make(map[lab.MAC]struct{}, len(changes))
	g := &group{}
	groups = append(groups, g)
	for _, c := range changes {
		old := b.bindingLocked(c.lease.MAC, c.subnet)
		_, clash := addrs[c.lease.Addr]
		_, again := machines[c.lease.MAC]
		if old != nil && !clash {
			_, clash = addrs[old.Addr]
		}
		if clash || again {
			later = append(later, c)
			continue
		}
		if b.refusedLocked(c) {
			c.err = errTaken
			continue
		}
		addrs[c.lease.Addr], machines[c.lease.MAC] = struct{}{}, struct{}{}
		if old != nil {
			addrs[old.Addr] = struct{}{}
		}
		if len(g.changes) == txnSize {
			g = &group{}
			groups = append(groups, g)
		}
		b.addToTxnLocked(&g.txn, c, old)
		g.changes = append(g.changes, c)
	}
	return groups, later
}

// refusedLocked asks the last time, now that all earlier commits are known.
func (b *Book) refusedLocked(c *change) bool {
	e := b.byAddr[c.lease.Addr]
	return e != nil && !c.reserved && e.MAC != c.lease.MAC && e.State != Released && b.now().Before(e.Expiry)
}

// addToTxnLocked writes the lease if the store still has what memory has, and removes the machine's other address.
func (b *Book) addToTxnLocked(txn *store.Txn, c *change, old *entry) {
	key := leaseKey(c.lease.Addr)
	txn.If = append(txn.If, unchanged(key, b.byAddr[c.lease.Addr]))
	txn.Then = append(txn.Then, store.Op{Key: key, Value: encodeLease(&c.lease)})
	if old != nil && old.Addr != c.lease.Addr {
		oldKey := leaseKey(old.Addr)
		txn.If = append(txn.If, unchanged(oldKey, old))
		txn.Then = append(txn.Then, store.Op{Key: oldKey, Delete: true})
	}
}

func unchanged(key string, e *entry) store.Cond {
	if e == nil {
		return store.Cond{Key: key, Absent: true}
	}
	return store.Cond{Key: key, Value: encodeLease(&e.Lease)}
}

// settle commits and makes visible. On a conflict (another daemon was first) each change is tried alone, after memory has
// learned what the store says.
func (b *Book) settle(ctx context.Context, g *group) {
	if len(g.changes) == 0 {
		return
	}
	err := b.store.Commit(ctx, g.txn)
	if errors.Is(err, store.ErrConflict) {
		for _, c := range g.changes {
			c.err = b.alone(ctx, c)
		}
		return
	}
	for _, c := range g.changes {
		if c.err = err; err == nil {
			b.apply(c)
		}
	}
}

func (b *Book) alone(ctx context.Context, c *change) error {
	if err := b.refresh(ctx, c); err != nil {
		return err
	}
	groups, _ := b.prepare([]*change{c})
	if len(groups[0].changes) == 0 {
		return c.err
	}
	err := b.store.Commit(ctx, groups[0].txn)
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%w: %s", errStale, c.lease.Addr)
	}
	if err == nil {
		b.apply(c)
	}
	return err
}

// refresh reads the addresses that a change touches from the store.
func (b *Book) refresh(ctx context.Context, c *change) error {
	addrs := []netip.Addr{c.lease.Addr}
	b.mu.Lock()
	if old := b.bindingLocked(c.lease.MAC, c.subnet); old != nil && old.Addr != c.lease.Addr {
		addrs = append(addrs, old.Addr)
	}
	b.mu.Unlock()
	for _, a := range addrs {
		key := leaseKey(a)
		value, err := b.store.Get(ctx, key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("read lease %s: %w", key, err)
		}
		var l Lease
		if err == nil {
			if l, err = decodeLease(key, value); err != nil {
				return err
			}
		}
		b.mu.Lock()
		b.dropLocked(a)
		if l.Addr.IsValid() {
			b.putLocked(l)
		}
		b.mu.Unlock()
	}
	return nil
}

func (b *Book) apply(c *change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.bindingLocked(c.lease.MAC, c.subnet); old != nil {
		b.dropLocked(old.Addr)
	}
	b.putLocked(c.lease)
	if o, ok := b.offers[c.lease.MAC]; ok && o.addr == c.lease.Addr {
		b.withdrawLocked(c.lease.MAC)
	}
}

// each calls fn for every lease, in no order. fn must not call the book.
func (b *Book) each(fn func(*Lease)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.byAddr {
		fn(&e.Lease)
	}
}
