package leases

import (
	"context"
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// The life of an address:
//
//	state        entered by                                         left by                                 stored
//	free         Serve; Reclaim or Forget of a lease                Offer, Decide                           no
//	offered      Offer, Decide                                      Commit, Withdraw, the end of OfferHold  no
//	live         Commit of Active: the DHCPACK                      Commit, EndSilent, the timer wheel      yes, Active
//	expired      the timer wheel at Expiry; Commit of Released      Offer, Decide, Reclaim after remembered yes, Active or Released
//	quarantined  Commit of Declined: the DHCPDECLINE                the timer wheel, EndDeclined, Forget    yes, Declined
//	quarantined  Conflict: a probe found another machine            its time, Commit of Active, Forget      no
//	blocked      Serve: a reservation, a router or the appliance    Serve                                   no
//
// An expired lease that is offered counts as offered. A live lease that is renewed counts as live.
//
// addrStateLocked decides which state an address is in, for all callers: the choice of an address, a request, the numbers of a
// pool. The functions below it are the transitions of leases; those of offers are in offer.go, those of conflicts in conflict.go.
// Each ends with updateSlotLocked, which files the address under its new state (poolstate.go).

// An addrState is the state of an address of a pool.
type addrState uint8

const (
	free        addrState = iota // never leased, or forgotten
	expired                      // its lease ended or was released; its machine is remembered
	offered                      // to a machine
	live                         // leased
	quarantined                  // declined, or in conflict
	blocked                      // not the pool's to give
	addrStates
)

// A view is a point of view on addresses: a machine's at a time, or that of the numbers of a pool.
type view struct {
	mac   lab.MAC
	sec   uint32 // now
	milli int64  // now
	// counts asks for no machine, and goes by the flag hasEnded, by offers and by conflicts until they are removed: a number
	// changes only when an address is filed again.
	counts bool
	// requests says that the machine requests the address, and does not only look for one.
	requests bool
}

func (v *view) own(m lab.MAC) bool { return !v.counts && v.mac == m }

func (v *view) ended(e *slot) bool {
	if v.counts {
		return e.flags&hasEnded != 0
	}
	return e.ended(v.sec)
}

// addrStateLocked returns the state of an address whose slot is known. What the machine of the view has there does not
// count: its own lease, offer, or conflict.
func (b *Book) addrStateLocked(a, slot uint32, v *view) addrState {
	state := free
	if slot != 0 {
		switch e := b.slots.at(slot); {
		case v.ended(e):
			state = expired
		case e.state != Active:
			return quarantined
		case !v.own(e.mac):
			return live
		}
	}
	if c, ok := b.conflicts[a]; ok && (v.counts || v.sec < c.until) && !v.own(c.by) {
		return quarantined
	}
	if i := b.offerByAddr[a]; i != 0 {
		o := b.offers.at(i)
		if (v.counts || o.valid(v.milli)) && !v.own(o.mac) && !(v.requests && o.firstCome(v.milli)) {
			return offered
		}
	}
	return state
}

// freeForLocked reports whether a pool may give an address to the machine of a view.
func (b *Book) freeForLocked(p *Pool, a, slot uint32, v *view) bool {
	return p.gives(a) && b.addrStateLocked(a, slot, v) <= expired
}

// hasMachine reports whether the machine has or had the address, and is indexed by it.
func (e *slot) hasMachine() bool { return e.state == Active || e.state == Released }

func (e *slot) ended(now uint32) bool {
	return now >= e.expiry || e.state == Released || e.flags&foundUnused != 0
}

func (e *slot) live(now uint32) bool { return e.state == Active && now < e.expiry }

// leasedToOtherLocked asks once more whether another machine has a lease of the address, now that all earlier commits are known. A
// declined address is not its client's any more, but the client may release it.
func (b *Book) leasedToOtherLocked(c *Change, a, now uint32) bool {
	i := b.findLocked(a)
	if i == 0 || c.Reserved {
		return false
	}
	e := b.slots.at(i)
	own := e.mac == c.MAC && (e.state == Active || c.State != Active)
	return !own && !e.ended(now)
}

// Has reports whether the machine has a live lease for that address.
func (b *Book) Has(m lab.MAC, a netip.Addr) bool {
	now := seconds(b.now())
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.liveLeaseLocked(m, a, now) != nil
}

// liveLeaseLocked returns the slot of the machine's live lease of an address, nil for none.
func (b *Book) liveLeaseLocked(m lab.MAC, addr netip.Addr, now uint32) *slot {
	a, ok := addr4(addr)
	if i := b.findLocked(a); ok && i != 0 && b.slots.at(i).mac == m && b.slots.at(i).live(now) {
		return b.slots.at(i)
	}
	return nil
}

// Holding returns what keeps an address from other clients now: a live lease, an offer, a declined address or a conflict.
func (b *Book) Holding(addr netip.Addr) (Lease, bool) {
	a, ok := addr4(addr)
	if !ok {
		return Lease{}, false
	}
	now := b.now()
	sec := seconds(now)
	b.mu.Lock()
	defer b.mu.Unlock()
	slot := b.findLocked(a)
	if slot != 0 && b.slots.at(slot).live(sec) {
		return b.leaseLocked(slot), true
	}
	if i := b.offerByAddr[a]; i != 0 && b.offers.at(i).valid(now.UnixMilli()) {
		return b.offers.at(i).lease(), true
	}
	if slot != 0 && !b.slots.at(slot).ended(sec) {
		return b.leaseLocked(slot), true
	}
	if c, ok := b.conflicts[a]; ok && sec < c.until {
		return c.lease(a), true
	}
	return Lease{}, false
}

// A ClientState is the state of a client that sends a DHCPREQUEST, as the message shows it (RFC 2131 section 4.3.2).
type ClientState uint8

// The states.
const (
	// Selecting: it names this server. Its offer may be forgotten by now: a full pool offers an address again, and offers are lost in a restart.
	Selecting ClientState = iota
	// InitReboot, Renewing: it says that it has the address, and names no server. A machine of which the book knows nothing is not believed:
	// the RFC wants silence, and anybody can send such requests in the names of machines that do not exist.
	InitReboot
	Renewing // or rebinding
)

// A Decision is what a DHCPREQUEST for an address finds.
type Decision struct {
	Unknown        bool       // the machine has and had no address, and is not offered this one; it gets it only if it is selecting
	Free           bool       // the pool may give the address to the machine: no other has a lease, an offer of its own or a conflict there
	Leased         bool       // the machine has a live lease of it
	Other          netip.Addr // not Free, as the machine has a lease of this address, may keep it, and was not offered the one that it requests
	passed, leased time.Duration
}

// Decide decides about a machine that requests an address. p is the pool that takes the machine, nil for none. An address
// that is free for it is offered to it, which keeps it for the time of the commit, unless the machine is not believed.
func (b *Book) Decide(m lab.MAC, p *Pool, addr netip.Addr, state ClientState) (d Decision) {
	a, ok := addr4(addr)
	if !ok {
		return d
	}
	now := b.now()
	v := view{mac: m, sec: seconds(now), milli: now.UnixMilli(), requests: true}
	b.mu.Lock()
	defer b.mu.Unlock()
	if p != nil {
		b.tickLocked(v.sec)
	}
	i := b.findLocked(a)
	if p != nil {
		if s := b.useLocked(p); s != nil && b.freeForLocked(s.pool, a, i, &v) {
			d.Unknown = b.byMAC[m] == 0 && !b.offersLocked(m, a, v.milli)
			if d.Other = b.keepsLocked(s.pool, a, &v); !d.Other.IsValid() && !(d.Unknown && state != Selecting) {
				b.setOfferLocked(s, m, a, i, v.milli).requested = true
				d.Free = true
			}
		}
	}
	if i == 0 {
		return d
	}
	if e := b.slots.at(i); e.mac == m && e.live(v.sec) {
		d.Leased, d.leased = true, time.Duration(e.expiry-e.start)*time.Second
		d.passed = now.Sub(timeOf(e.start))
	}
	return d
}

// keepsLocked returns the address that the machine of a view keeps, though it requests a: its lease is of that address, and a
// DISCOVER would be offered that one again. RFC 2131 section 4.3.2 refuses such a request. Else anybody could move the leases of
// others by one message in their name.
func (b *Book) keepsLocked(p *Pool, a uint32, v *view) (has netip.Addr) {
	if b.offersLocked(v.mac, a, v.milli) {
		return has
	}
	for i := b.byMAC[v.mac]; i != 0; i = b.slots.at(i).sameMAC {
		if e := b.slots.at(i); e.addr != a && e.live(v.sec) && b.freeForLocked(p, e.addr, i, v) {
			return addrOf(e.addr)
		}
	}
	return has
}

// offersLocked reports whether an address is offered to a machine.
func (b *Book) offersLocked(m lab.MAC, a uint32, now int64) bool {
	i := b.offerByMAC[m]
	return i != 0 && b.offers.at(i).addr == a && b.offers.at(i).valid(now)
}

// renewalShare: a renewal that comes before this part of the lease has passed is answered with the time that is left,
// without a commit. What the client was sent is what is stored, so nothing can be lost; firmware, iPXE and system of one
// boot ask within a minute, and two of the three need no sync.
const renewalShare = 4

// Renewal returns the time left of a lease that needs no commit to be confirmed: the machine has it, it was stored for
// the time wanted, and less than a quarter of that has passed.
func (d Decision) Renewal(want time.Duration) (left time.Duration, ok bool) {
	// Times are stored in whole seconds; a changed lease time must not wait for the next renewal.
	if !d.Leased || (d.leased-want).Abs() > time.Second || d.passed >= want/renewalShare || d.passed < 0 {
		return 0, false
	}
	return d.leased - d.passed, true
}

// Left returns the time left of the machine's lease as it is on disk, in whole seconds; 0: it has none.
func (d Decision) Left() time.Duration { return max(d.leased-d.passed, 0).Truncate(time.Second) }

// applyLocked makes a committed change visible: the lease is active, released, declined or forgotten.
func (b *Book) applyLocked(p *planned, now uint32) {
	if p.old != 0 {
		b.dropLocked(p.old)
		p.Removed = addrOf(p.old)
	}
	if p.value == nil {
		b.dropLocked(p.addr)
		return
	}
	s, blob, err := parseRecord("", p.value)
	if err != nil {
		panic(err) // we wrote it
	}
	b.putLocked(p.addr, s, blob, now)
	if p.State == Active {
		b.endConflictLocked(p.addr)
	}
	if i := b.offerByMAC[p.MAC]; i != 0 && b.offers.at(i).addr == p.addr {
		b.forgetOfferLocked(i)
	}
}

// putLocked replaces the lease of an address and returns its slot.
func (b *Book) putLocked(a uint32, s stamp, blob string, now uint32) uint32 {
	i := b.storeLocked(a, s, blob, now)
	b.startLocked(i, now)
	b.updateSlotLocked(a, i)
	return i
}

// startLocked puts a slot on the timer wheel, unless it has ended already.
func (b *Book) startLocked(i, now uint32) {
	e := b.slots.at(i)
	if e.state == Released || e.expiry <= now {
		e.flags |= hasEnded
		return
	}
	b.wheelPutLocked(i)
}

// expireLocked ends the time of a lease or of a declined address. The timer wheel calls it.
func (b *Book) expireLocked(i uint32) {
	b.wheelRemoveLocked(i)
	e := b.slots.at(i)
	e.flags |= hasEnded
	b.updateSlotLocked(e.addr, i)
}

// unexpireLocked is for a lease that ended before the clock was set back: its time runs again.
func (b *Book) unexpireLocked(i uint32) {
	b.removeFromListsLocked(i)
	e := b.slots.at(i)
	e.flags &^= hasEnded
	b.wheelPutLocked(i)
	b.updateSlotLocked(e.addr, i)
}

// remembered is how long a lease is kept after it ended, so that a machine that returns after a holiday gets its old address.
// A pool that needs the address gives it away sooner.
const remembered = 30 * 24 * time.Hour

// Reclaim removes leases that ended longer ago than they are remembered from the store and the book, at most limit at a
// time, and returns how many. The server calls it regularly, and again at once while it returns limit. It also removes the
// leases of pools and reservations that no longer exist.
func (b *Book) Reclaim(ctx context.Context, limit int) (int, error) {
	now := b.now()
	before := seconds(now.Add(-remembered))
	b.commits.Lock()
	defer b.commits.Unlock()
	b.mu.Lock()
	b.advanceLocked(seconds(now), sweepBudget)
	b.tickLocked(seconds(now))
	addrs := b.endedLocked(&b.rest, nil, before, limit)
	for _, s := range b.states {
		addrs = b.endedLocked(s, addrs, before, limit)
	}
	b.mu.Unlock()
	return len(addrs), b.forget(ctx, addrs)
}

// endedLocked collects the leases of a pool that ended before a time, until there are limit.
func (b *Book) endedLocked(s *poolState, addrs []uint32, before uint32, limit int) []uint32 {
	for i := s.expired.head; i != 0 && len(addrs) < limit; i = b.slots.at(i).next {
		e := b.slots.at(i)
		if e.expiry > before {
			break
		}
		addrs = append(addrs, e.addr)
	}
	return addrs
}

// Forget removes an address on an admin's request: a lease, a declined address or a conflict. A machine that has the address
// keeps it until its next request.
func (b *Book) Forget(ctx context.Context, addr netip.Addr) error {
	a, ok := addr4(addr)
	if !ok {
		return nil
	}
	b.commits.Lock()
	defer b.commits.Unlock()
	b.mu.Lock()
	b.endConflictLocked(a)
	known := b.findLocked(a) != 0
	b.mu.Unlock()
	if !known {
		return nil
	}
	return b.forget(ctx, []uint32{a})
}

// forget removes leases from the store, then from memory. One that another daemon has changed meanwhile stays.
func (b *Book) forget(ctx context.Context, addrs []uint32) error {
	for _, a := range addrs {
		b.committer.planned = append(b.committer.planned, planned{addr: a})
	}
	return b.carryOut(ctx)
}

// dropLocked removes the slot of an address.
func (b *Book) dropLocked(a uint32) {
	i := b.findLocked(a)
	if i == 0 {
		return
	}
	b.removeFromListsLocked(i)
	b.unnameLocked(i)
	b.unbindLocked(i)
	delete(b.byAddr, a)
	b.slots.give(i)
	b.updateAddrLocked(a)
}
