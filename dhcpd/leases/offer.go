package leases

import (
	"net/netip"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

const (
	// offerHold is how long an offered address is kept for who was offered it, counted from the last time that it asked.
	// Firmware collects offers for 4 s and retries after 4, 8, 16 and 32 s.
	offerHold = 90 * time.Second
	// minOffer is how long an offer is kept in any case. After it an offer may be taken back if the pool has nothing else,
	// the one not asked for longest first: who asks under ever new hardware addresses and never takes what it is offered
	// cannot keep a pool from those who do.
	minOffer = 6 * time.Second
	// maxOffers bounds the memory of the offers of one pool, some 60 bytes each.
	maxOffers = 1 << 15
	// maxTries is how many addresses that are seen in use are passed by in one search, at each of its steps.
	maxTries = 256
	// tickBudget is how many leases that end one packet pays for, sweepBudget how many one that finds no address does.
	tickBudget  = 32
	sweepBudget = 1024
)

// An offer is an address promised to a machine, in memory only: to lose it costs the client a retry.
type offer struct {
	links // among the offers of a pool
	asked int64
	addr  uint32 // 0: a free slot
	entry uint32 // of the address when it was offered; a guess
	mac   lab.MAC
}

// valid reports whether the offer holds at now, in Unix milliseconds. One from the future was made before the clock was
// set back.
func (o *offer) valid(now int64) bool {
	return o.asked <= now && now-o.asked < offerHold.Milliseconds()
}

// An Request is a machine that wants an address.
type Request struct {
	MAC       lab.MAC
	Subnet    netip.Prefix // in which the machine has one address at most
	Pool      *Pool        // that takes the machine
	Requested netip.Addr   // what the client asks for (RFC 2132 section 9.1), maybe invalid
	// InUse reports whether an address was seen in use by another machine than this one: it is not offered. nil: nothing was
	// seen. It is called with the book locked and must not call it.
	InUse func(netip.Addr) bool
}

// An search is an Request under way.
type search struct {
	*Request
	state *poolState
	now   time.Time
	sec   uint32
	milli int64
	net   net4
}

// Offer finds an address for a machine and offers it: what is offered to it already, what it has or had (RFC 2131 section
// 4.3.1), what it wishes, a place in the pool that follows from its MAC, so that a lost book gives most machines what they
// had, or the next one never used; the one whose lease ended longest ago; an offer that nobody came for. fresh reports
// whether the address may need a probe: not if the machine had it last, or it is offered to it. The error is ErrFull.
func (b *Book) Offer(q Request) (addr netip.Addr, fresh bool, err error) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	x := search{Request: &q, now: now, sec: seconds(now), milli: now.UnixMilli(), net: netOf(q.Subnet)}
	b.tickLocked(x.sec)
	if x.state = b.useLocked(q.Pool); x.state == nil {
		return netip.Addr{}, false, ErrFull
	}
	if a, i, ok := b.knownLocked(&x); ok {
		b.setOfferLocked(x.state, q.MAC, a, i, x.milli)
		return addrOf(a), false, nil
	}
	if !b.roomLocked(x.state, x.milli) {
		return netip.Addr{}, false, ErrFull
	}
	a, ok := b.chooseLocked(&x)
	if !ok {
		// The wheel may be behind after a storm.
		b.advanceLocked(x.sec, sweepBudget)
		a, ok = b.chooseLocked(&x)
	}
	if !ok {
		return netip.Addr{}, false, ErrFull
	}
	b.setOfferLocked(x.state, q.MAC, a, b.findLocked(a), x.milli)
	return addrOf(a), true, nil
}

// tickLocked does a little of what time asks for.
func (b *Book) tickLocked(now uint32) {
	b.advanceLocked(now, tickBudget)
	if len(b.conflicts) > 0 && now >= b.conflictsEnd {
		b.endConflictsLocked(now)
	}
}

// knownLocked returns the address that the machine is known by, and its entry.
func (b *Book) knownLocked(x *search) (a, entry uint32, ok bool) {
	if i := b.offerToLocked(x.MAC); i != 0 {
		if o := b.offers.at(i); o.valid(x.milli) {
			if entry = b.findNearLocked(o.addr, o.entry); b.fitsLocked(x, o.addr, entry) {
				return o.addr, entry, true // a retransmission gets the same answer
			}
		}
	}
	if entry = b.bindingLocked(x.MAC, x.net); entry != 0 {
		if a = b.entries.at(entry).addr; b.fitsLocked(x, a, entry) {
			return a, entry, true
		}
	}
	return 0, 0, false
}

// fitsLocked reports whether a, with its entry, may be offered. Who is seen at the address of a live lease is taken for its
// machine.
func (b *Book) fitsLocked(x *search, a, entry uint32) bool {
	if !b.freeForLocked(x.MAC, x.state, a, entry, x.sec, x.milli) {
		return false
	}
	return entry != 0 && b.entries.at(entry).live(x.sec) || !x.seen(a)
}

func (x *search) seen(a uint32) bool { return x.InUse != nil && x.InUse(addrOf(a)) }

func (b *Book) chooseLocked(x *search) (uint32, bool) {
	if a, ok := addr4(x.Requested); ok && b.fitsLocked(x, a, b.findLocked(a)) {
		return a, true
	}
	if a, ok := x.next(); ok {
		return a, true
	}
	if a, ok := b.longestExpiredLocked(x); ok {
		return a, true
	}
	return b.takeBackLocked(x)
}

// next returns the first address never leased, from the place of the machine on.
func (x *search) next() (uint32, bool) {
	s := x.state
	from := int(place(x.MAC) % uint32(s.pool.size))
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

// place is where a machine belongs: its MAC under FNV-1a, the same in every process for all time.
func place(m lab.MAC) uint32 {
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
		e := b.entries.at(i)
		next := e.next
		if e.state != Released && x.sec < e.expiry { // it ended before the clock was set back
			b.unfileLocked(i)
			e.flags &^= lapsed
			b.wheelPutLocked(i)
			b.reclassLocked(e.addr)
		} else if !x.seen(e.addr) {
			return e.addr, true
		}
		i = next
	}
	return 0, false
}

// takeBackLocked takes an address from the machine that did not ask for it longest.
func (b *Book) takeBackLocked(x *search) (uint32, bool) {
	for range maxTries {
		i := x.state.offers.head
		if i == 0 || !b.offers.at(i).stale(x.milli) {
			return 0, false
		}
		a := b.offers.at(i).addr
		b.forgetOfferLocked(i)
		if b.fitsLocked(x, a, b.findLocked(a)) {
			return a, true
		}
	}
	return 0, false
}

func (o *offer) stale(now int64) bool { return !o.valid(now) || now-o.asked >= minOffer.Milliseconds() }

// roomLocked makes room for one more offer of a pool. Offers whose time is over go on the way.
func (b *Book) roomLocked(s *poolState, now int64) bool {
	for range 4 {
		i := s.offers.head
		if i == 0 || b.offers.at(i).valid(now) {
			break
		}
		b.forgetOfferLocked(i)
	}
	if s.offers.n < min(maxOffers, s.pool.size) {
		return true
	}
	i := s.offers.head
	if !b.offers.at(i).stale(now) {
		return false
	}
	b.forgetOfferLocked(i)
	return true
}

// MayHave reports whether the machine may have that address of a pool, and holds it if so, for the time of the commit.
func (b *Book) MayHave(m lab.MAC, p *Pool, addr netip.Addr) bool {
	a, ok := addr4(addr)
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tickLocked(seconds(now))
	s := b.useLocked(p)
	i := b.findLocked(a)
	if !ok || s == nil || !b.freeForLocked(m, s, a, i, seconds(now), now.UnixMilli()) {
		return false
	}
	b.setOfferLocked(s, m, a, i, now.UnixMilli())
	return true
}

// freeForLocked decides whether an address of a pool is free for a machine: for an offer, a request and what a probe saw.
func (b *Book) freeForLocked(m lab.MAC, s *poolState, a, entry, now uint32, milli int64) bool {
	if !s.pool.gives(a) {
		return false
	}
	if i := b.offerOnLocked(a); i != 0 && b.offers.at(i).mac != m && b.offers.at(i).valid(milli) {
		return false
	}
	if c, ok := b.conflictLocked(a, now); ok && c.by != m {
		return false
	}
	if entry == 0 {
		return true
	}
	return b.entries.at(entry).freeFor(m, now)
}

// freeFor reports whether what is remembered of an address leaves it to a machine.
func (e *entry) freeFor(m lab.MAC, now uint32) bool {
	return now >= e.expiry || e.state == Released || e.state == Active && e.mac == m
}

// OfferTo returns the address that is offered to a machine.
func (b *Book) OfferTo(m lab.MAC) (netip.Addr, bool) {
	now := b.now().UnixMilli()
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.offerToLocked(m)
	if i == 0 || !b.offers.at(i).valid(now) {
		return netip.Addr{}, false
	}
	return addrOf(b.offers.at(i).addr), true
}

// Offers returns the addresses that are offered to machines, by address. A machine that renews has an offer and a lease.
func (b *Book) Offers() []Lease {
	now := b.now().UnixMilli()
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]Lease, 0, b.offers.len())
	for i := uint32(1); i <= b.offers.last; i++ {
		if o := b.offers.at(i); o.addr != 0 && o.valid(now) {
			asked := time.UnixMilli(o.asked)
			all = append(all, Lease{Addr: addrOf(o.addr), MAC: o.mac, State: Offered, Start: asked, Expiry: asked.Add(offerHold)})
		}
	}
	slices.SortFunc(all, func(x, y Lease) int { return x.Addr.Compare(y.Addr) })
	return all
}

// Withdraw ends the offer to a machine: it took another server's offer, or has its lease.
func (b *Book) Withdraw(m lab.MAC) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.offerToLocked(m); i != 0 {
		b.forgetOfferLocked(i)
	}
}

// offerToLocked returns the offer to a machine, maybe no longer valid, 0 for none.
func (b *Book) offerToLocked(m lab.MAC) uint32 { return b.offerByMAC[m] }

// offerOnLocked returns the offer of an address, maybe no longer valid, 0 for none.
func (b *Book) offerOnLocked(a uint32) uint32 { return b.offerByAddr[a] }

// setOfferLocked keeps an address for a machine, and lets go of what was kept for it before. A pool whose offers are all taken
// keeps nothing: then the commit alone decides.
func (b *Book) setOfferLocked(s *poolState, m lab.MAC, a, entry uint32, now int64) {
	if i := b.offerToLocked(m); i != 0 {
		if o := b.offers.at(i); o.addr == a {
			o.asked = now
			if s.offers.tail != i {
				unlink(&b.offers, &s.offers, i)
				insert(&b.offers, &s.offers, i, 0)
			}
			return
		}
		b.forgetOfferLocked(i)
	}
	if i := b.offerOnLocked(a); i != 0 {
		b.forgetOfferLocked(i) // its time was over
	}
	if !b.roomLocked(s, now) {
		return
	}
	i := b.offers.take()
	o := b.offers.at(i)
	o.mac, o.addr, o.entry, o.asked = m, a, entry, now
	b.offerByMAC[m] = i
	b.offerByAddr[a] = i
	insert(&b.offers, &s.offers, i, 0)
	b.refileLocked(a, entry)
}

func (b *Book) forgetOfferLocked(i uint32) {
	o := b.offers.at(i)
	a, entry := o.addr, b.findNearLocked(o.addr, o.entry)
	delete(b.offerByMAC, o.mac)
	delete(b.offerByAddr, a)
	unlink(&b.offers, &b.poolOfLocked(a).offers, i)
	b.offers.give(i)
	b.refileLocked(a, entry)
}
