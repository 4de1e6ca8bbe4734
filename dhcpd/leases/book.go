package leases

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
)

// A Book has all leases, offers and conflicts. Leases are in the store too. It is safe for concurrent use.
type Book struct {
	store store.Store
	now   func() time.Time
	seed  maphash.Seed // of host names and relay ports

	// Commits come one after another, so what a commit found in memory is still there when it is durable. commits is taken
	// before mu, never after it.
	commits   sync.Mutex
	committer committer

	mu       sync.Mutex
	slots    slab[slot]
	byAddr   map[uint32]uint32   // all slots
	byMAC    map[lab.MAC]uint32  // the first slot of a machine: sameMAC leads to those in other subnets
	byName   map[nameHash]uint32 // the lease that has a DNS name
	wheel    wheel               // of slots that have not ended
	states   []*poolState
	rest     poolState // without a pool
	verified []uint32  // addresses whose slots have that flag

	offers      slab[offer]
	offerByMAC  map[lab.MAC]uint32
	offerByAddr map[uint32]uint32

	conflicts    map[uint32]conflict
	conflictsEnd uint32 // no conflict ends before
}

// A slot is a lease in memory.
type slot struct {
	links        // on the wheel while its time runs, then on the list of expired leases of a pool
	addr  uint32 // 0: a free slot
	mac   lab.MAC
	state State
	flags uint8
	start uint32 // Unix seconds
	// expiry decides; the flag hasEnded follows when the timer wheel reaches it.
	expiry  uint32
	sameMAC uint32 // the next slot of the machine
	blob    string // host name, client id and so on, as in the record
}

// The flags of a slot.
const (
	hasEnded     uint8 = 1 << iota // its time is over, or it was released; it is off the timer wheel
	onExpired                      // it is on the list of expired leases of its pool
	hasRelayPort                   // its texts have a relay port
	onPortCount                    // it is in the count of its relay port
	unverified                     // nothing shows yet that its machine exists, as far as the store knows: see verified.go
	verified                       // something does, and the store will know soon
	foundUnused                    // it was declined, but no machine answers there
)

func (e *slot) stamp() stamp {
	return stamp{mac: e.mac, state: e.state, unverified: e.flags&unverified != 0, start: e.start, expiry: e.expiry}
}

// findLocked returns the slot of an address, 0 if there is none.
func (b *Book) findLocked(a uint32) uint32 { return b.byAddr[a] }

// findNearLocked is findLocked with a guess, which saves the look-up when it is right.
func (b *Book) findNearLocked(a, guess uint32) uint32 {
	if guess != 0 && b.slots.at(guess).addr == a {
		return guess
	}
	return b.findLocked(a)
}

// bindingLocked returns the slot of a machine in a subnet, live or not, 0 for none.
func (b *Book) bindingLocked(m lab.MAC, subnet net4) uint32 {
	i := b.byMAC[m]
	for i != 0 && !subnet.contains(b.slots.at(i).addr) {
		i = b.slots.at(i).sameMAC
	}
	return i
}

// storeLocked writes a lease to the slot of its address and returns the slot, which is then neither on the timer wheel nor
// on a list.
func (b *Book) storeLocked(a uint32, s stamp, blob string, now uint32) uint32 {
	i := b.findLocked(a)
	if i == 0 {
		i = b.slots.take()
		b.slots.at(i).addr = a
		b.byAddr[a] = i
	} else {
		b.removeFromListsLocked(i)
		b.unnameLocked(i)
		b.unbindLocked(i)
	}
	b.slots.at(i).write(s, blob)
	b.bindLocked(i)
	b.nameLocked(i, now)
	return i
}

// write writes a lease to a slot, which is in no index but that of addresses.
func (e *slot) write(s stamp, blob string) {
	e.mac, e.state, e.start, e.expiry, e.flags = s.mac, s.state, s.start, s.expiry, 0
	if e.blob != blob { // else one of the two is garbage at once
		e.blob = blob
	}
	if relayPortOf(blob) != "" {
		e.flags |= hasRelayPort
	}
	if s.unverified {
		e.flags |= unverified
	}
}

// bindLocked adds a slot to those of its machine.
func (b *Book) bindLocked(i uint32) {
	if e := b.slots.at(i); e.hasMachine() {
		e.sameMAC = b.byMAC[e.mac]
		b.byMAC[e.mac] = i
	}
}

// unbindLocked takes a slot from those of its machine.
func (b *Book) unbindLocked(i uint32) {
	e := b.slots.at(i)
	if !e.hasMachine() {
		return
	}
	switch at := b.byMAC[e.mac]; {
	case at != i:
		for b.slots.at(at).sameMAC != i {
			at = b.slots.at(at).sameMAC
		}
		b.slots.at(at).sameMAC = e.sameMAC
	case e.sameMAC != 0:
		b.byMAC[e.mac] = e.sameMAC
	default:
		delete(b.byMAC, e.mac)
	}
	e.sameMAC = 0
}

// removeFromListsLocked takes a slot off the wheel or its list, before it changes.
func (b *Book) removeFromListsLocked(i uint32) {
	b.uncountPortLocked(b.poolOfLocked(b.slots.at(i).addr), i)
	switch e := b.slots.at(i); {
	case e.flags&onExpired != 0:
		b.unlistExpiredLocked(b.poolOfLocked(e.addr), i)
	case e.flags&hasEnded == 0:
		b.wheelRemoveLocked(i)
	}
}

// nameLocked makes a slot the one that is found by its DNS name. Of two live ones, of one machine in two subnets, that is the younger.
func (b *Book) nameLocked(i, now uint32) {
	e := b.slots.at(i)
	name, inDNS := nameOf(e.blob)
	if !inDNS || !e.hasMachine() {
		return
	}
	h := b.hashName(name)
	if other := b.byName[h]; other == 0 || !b.slots.at(other).live(now) || e.live(now) && b.slots.at(other).start <= e.start {
		b.byName[h] = i
	}
}

// A nameHash stands for a host name: half the size of a string in the index, and as good as never that of two names.
type nameHash [6]byte

func (b *Book) hashName(name string) (h nameHash) {
	n := maphash.String(b.seed, name)
	for i := range h {
		h[i] = byte(n >> (8 * i))
	}
	return h
}

// namedLocked returns the slot that has a DNS name, 0 if there is none.
func (b *Book) namedLocked(name string) uint32 {
	i := b.byName[b.hashName(name)]
	if i == 0 {
		return 0
	}
	if has, inDNS := nameOf(b.slots.at(i).blob); !inDNS || has != name {
		return 0
	}
	return i
}

func (b *Book) unnameLocked(i uint32) {
	if name, inDNS := nameOf(b.slots.at(i).blob); inDNS && b.namedLocked(name) == i {
		delete(b.byName, b.hashName(name))
	}
}

// nameHolderLocked returns the slot of the machine that keeps a DNS name from another one, 0 if there is none.
func (b *Book) nameHolderLocked(name string, m lab.MAC, now uint32) uint32 {
	i := b.namedLocked(name)
	if i == 0 || b.slots.at(i).mac == m || !b.slots.at(i).live(now) {
		return 0
	}
	return i
}

func (b *Book) leaseLocked(i uint32) Lease {
	e := b.slots.at(i)
	return e.stamp().lease(e.addr, e.blob)
}
