package leases

import (
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

const (
	// maxTries is how many addresses in use each step of a search passes over.
	maxTries = 256
	// tickBudget is how many leases one packet expires, sweepBudget how many a packet does that finds no address.
	tickBudget  = 32
	sweepBudget = 1024
)

// A Request is a machine that wants an address.
type Request struct {
	MAC       lab.MAC
	Subnet    netip.Prefix // in which the machine has one address at most
	Pool      *Pool        // that takes the machine
	Requested netip.Addr   // what the client asks for (RFC 2132 section 9.1), maybe invalid
	// InUse reports whether an address was seen in use by another machine than this one: it is not offered. nil: nothing was
	// seen. It is called with the book locked and must not call it.
	InUse func(netip.Addr) bool
}

// A search is a Request in progress.
type search struct {
	*Request
	view
	state *poolState
	net   net4
}

// Offer finds an address for a machine and offers it: in this order (RFC 2131 section 4.3.1): its current offer, its
// current or last lease, the address that it requests, the first address never used from a place that a hash of the MAC
// chooses (so that most machines get the same address again after a loss of all leases), the address whose lease ended longest
// ago, the address of the oldest offer that was not requested. fresh reports whether the
// address may need a probe: not if the machine had it last, or it is offered to it. The error is ErrFull.
func (b *Book) Offer(q Request) (addr netip.Addr, fresh bool, err error) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	x := search{Request: &q, view: view{mac: q.MAC, sec: seconds(now), milli: now.UnixMilli()}, net: netOf(q.Subnet)}
	b.tickLocked(x.sec)
	if x.state = b.useLocked(q.Pool); x.state == nil {
		return netip.Addr{}, false, ErrFull
	}
	if a, i, ok := b.knownLocked(&x); ok {
		b.setOfferLocked(x.state, q.MAC, a, i, x.milli)
		return addrOf(a), false, nil
	}
	b.trimOffersLocked(x.state, x.milli)
	a, ok := b.chooseLocked(&x)
	if !ok {
		// The timer wheel may be late after a boot storm.
		b.advanceLocked(x.sec, sweepBudget)
		a, ok = b.chooseLocked(&x)
	}
	shared := false
	if !ok {
		if a, ok = b.takeBackLocked(&x); !ok {
			return netip.Addr{}, false, ErrFull
		}
		shared = true
	}
	b.setOfferLocked(x.state, q.MAC, a, b.findLocked(a), x.milli).shared = shared
	return addrOf(a), true, nil
}

// tickLocked expires some leases and the conflicts that are over.
func (b *Book) tickLocked(now uint32) {
	b.advanceLocked(now, tickBudget)
	if len(b.conflicts) > 0 && now >= b.conflictsEnd {
		b.endConflictsLocked(now)
	}
}

// knownLocked returns the address that the machine has, had or is offered, and its slot.
func (b *Book) knownLocked(x *search) (a, slot uint32, ok bool) {
	if i := b.offerByMAC[x.MAC]; i != 0 {
		if o := b.offers.at(i); o.valid(x.milli) {
			if slot = b.findNearLocked(o.addr, o.slot); b.fitsLocked(x, o.addr, slot) {
				return o.addr, slot, true // a retransmission gets the same answer
			}
		}
	}
	if slot = b.bindingLocked(x.MAC, x.net); slot != 0 {
		if a = b.slots.at(slot).addr; b.fitsLocked(x, a, slot) {
			return a, slot, true
		}
	}
	return 0, 0, false
}

// fitsLocked reports whether a, with its slot, may be offered. A machine seen at the address of a live lease is taken for
// the lease's own.
func (b *Book) fitsLocked(x *search, a, slot uint32) bool {
	if !b.freeForLocked(x.state.pool, a, slot, &x.view) {
		return false
	}
	return slot != 0 && b.slots.at(slot).live(x.sec) || !x.seen(a)
}

func (x *search) seen(a uint32) bool { return x.InUse != nil && x.InUse(addrOf(a)) }

func (b *Book) chooseLocked(x *search) (uint32, bool) {
	if a, ok := addr4(x.Requested); ok && b.fitsLocked(x, a, b.findLocked(a)) {
		return a, true
	}
	if a, ok := x.next(); ok {
		return a, true
	}
	return b.longestExpiredLocked(x)
}

// next returns the first address never leased, from the place of the machine on.
func (x *search) next() (uint32, bool) {
	s := x.state
	from := int(searchStart(x.MAC) % uint32(s.pool.size))
	for range maxTries {
		i, ok := s.free.around(from)
		if !ok {
			return 0, false
		}
		if a := s.pool.first + uint32(i); !x.seen(a) {
			return a, true
		}
		from = i + 1
	}
	return 0, false
}

// searchStart is where the search for a machine's address begins: FNV-1a of its MAC, the same in every process.
func searchStart(m lab.MAC) uint32 {
	h := uint32(2166136261)
	for _, c := range m {
		h = (h ^ uint32(c)) * 16777619
	}
	return h
}

// longestExpiredLocked returns the address whose lease ended longest ago.
func (b *Book) longestExpiredLocked(x *search) (uint32, bool) {
	i := x.state.expired.head
	for n := 0; i != 0 && n < maxTries; n++ {
		e := b.slots.at(i)
		next := e.next
		if !e.ended(x.sec) { // it ended before the clock was set back
			b.unexpireLocked(i)
		} else if !x.seen(e.addr) {
			return e.addr, true
		}
		i = next
	}
	return 0, false
}

// takeBackLocked withdraws the oldest offer that its machine has not requested, for a machine that gets no other address.
func (b *Book) takeBackLocked(x *search) (uint32, bool) {
	i := x.state.offers.head
	for n := 0; i != 0 && n < maxTries; n++ {
		o := b.offers.at(i)
		next, a := o.next, o.addr
		if o.unrequested(x.milli) {
			b.forgetOfferLocked(i)
			if b.fitsLocked(x, a, b.findLocked(a)) {
				return a, true
			}
		}
		i = next
	}
	return 0, false
}

const (
	// OfferHold is how long an offered address is kept for its machine, counted from its last request.
	// Firmware collects offers for 4 s and retries after 4, 8, 16 and 32 s.
	OfferHold = 90 * time.Second
	// commitHold is how long an offer that its machine has requested is not taken back: longer than a commit lasts.
	commitHold = 6 * time.Second
	// maxOffers bounds the memory of the offers of one pool, some 60 bytes each. The oldest is forgotten for a new one.
	maxOffers = 1 << 15
)

// An offer reserves an address for a machine, in memory only.
//
// A pool that has nothing else offers an address again that another machine has not requested yet, the oldest offer first.
// Such an offer reserves nothing: the first machine that requests the address gets it. So machines that never request
// what they are offered keep no address from those that do, at whatever rate they ask.
type offer struct {
	links     // among the offers of a pool
	asked     int64
	addr      uint32 // 0: a free slot
	slot      uint32 // of the address when it was offered; a guess
	mac       lab.MAC
	shared    bool // the address was offered to another machine before, which may still request it
	requested bool // by its machine: a commit may be under way
}

// valid reports whether the offer holds at now, in Unix milliseconds. One from the future was made before the clock was
// set back.
func (o *offer) valid(now int64) bool {
	return o.asked <= now && now-o.asked < OfferHold.Milliseconds()
}

// unrequested reports whether the machine has not requested the address, or so long ago that the commit failed.
func (o *offer) unrequested(now int64) bool {
	return !o.requested || !o.valid(now) || now-o.asked >= commitHold.Milliseconds()
}

// firstCome reports whether the first machine to request the address gets it.
func (o *offer) firstCome(now int64) bool { return o.shared && o.unrequested(now) }

func (o *offer) lease() Lease {
	asked := time.UnixMilli(o.asked)
	return Lease{Addr: addrOf(o.addr), MAC: o.mac, State: Offered, Start: asked, Expiry: asked.Add(OfferHold)}
}

// Withdraw ends the offer to a machine: it took another server's offer, or has its lease.
func (b *Book) Withdraw(m lab.MAC) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.offerByMAC[m]; i != 0 {
		b.forgetOfferLocked(i)
	}
}

// setOfferLocked offers an address to a machine and withdraws its earlier offer.
func (b *Book) setOfferLocked(s *poolState, m lab.MAC, a, slot uint32, now int64) *offer {
	if i := b.offerByMAC[m]; i != 0 {
		if o := b.offers.at(i); o.addr == a {
			o.asked = now
			if s.offers.tail != i {
				unlink(&b.offers, &s.offers, i)
				insert(&b.offers, &s.offers, i, 0)
			}
			return o
		}
		b.forgetOfferLocked(i)
	}
	if i := b.offerByAddr[a]; i != 0 {
		b.forgetOfferLocked(i) // its time was over, or it was not requested
	}
	b.trimOffersLocked(s, now)
	i := b.offers.take()
	o := b.offers.at(i)
	o.mac, o.addr, o.slot, o.asked = m, a, slot, now
	b.offerByMAC[m] = i
	b.offerByAddr[a] = i
	insert(&b.offers, &s.offers, i, 0)
	b.updateSlotLocked(a, slot)
	return o
}

func (b *Book) forgetOfferLocked(i uint32) {
	o := b.offers.at(i)
	a, slot := o.addr, b.findNearLocked(o.addr, o.slot)
	delete(b.offerByMAC, o.mac)
	delete(b.offerByAddr, a)
	unlink(&b.offers, &b.poolOfLocked(a).offers, i)
	b.offers.give(i)
	b.updateSlotLocked(a, slot)
}

// trimOffersLocked forgets some offers of a pool whose time is over, and the oldest one of too many.
func (b *Book) trimOffersLocked(s *poolState, now int64) {
	for range 4 {
		i := s.offers.head
		if i == 0 || b.offers.at(i).valid(now) && s.offers.n < maxOffers {
			return
		}
		b.forgetOfferLocked(i)
	}
}
