package leases

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
)

// A Book is the truth about leases. What it says is in the store, but for conflicts. It is safe for concurrent use.
type Book struct {
	store store.Store
	now   func() time.Time
	seed  [2]uint64 // so that nobody can choose hardware addresses that share a hash
	names maphash.Seed

	// Commits come one after another, so what a commit found in memory is still there when it is durable. commits is taken
	// before mu, never after it.
	commits   sync.Mutex
	committer committer

	mu      sync.Mutex
	entries slab[entry]
	texts   texts
	byAddr  index // all entries
	byMAC   index // entries of machines: all but declined ones; one for each subnet
	byName  index // of those with the same host name the one that came last
	wheel   wheel // entries whose time runs
	shelves []*shelf
	rest    shelf // without a pool

	offers      slab[offer]
	offerByMAC  index
	offerByAddr index

	conflicts    map[uint32]conflict
	conflictsEnd uint32 // no conflict ends before
}

// An entry is a lease in memory.
type entry struct {
	links        // on the wheel while its time runs, then among the spares of a shelf
	addr  uint32 // 0: a free slot
	mac   lab.MAC
	state State
	flags uint8
	start uint32 // Unix seconds
	// expiry decides; the flag lapsed follows when the wheel gets there.
	expiry uint32
	text   uint32 // its blob among the texts
}

// What else is known of an entry.
const (
	lapsed  uint8 = 1 << iota // its time is over, or it was released; it is off the wheel
	onShelf                   // it is among the spares of its shelf
	legacy                    // the store has it in version 1
	lined                     // its texts have a relay port
	counted                   // it is among those of its shelf's relay port
)

func (e *entry) stamp() stamp {
	return stamp{mac: e.mac, state: e.state, start: e.start, expiry: e.expiry}
}

// hasMachine reports whether the address was its machine's, and is found by it.
func (e *entry) hasMachine() bool { return e.state == Active || e.state == Released }

func (e *entry) live(now uint32) bool { return e.state == Active && now < e.expiry }

// Open reads the leases in s, which it does not own. now is the clock; it is asked without a lock held. An unreadable
// record is an error, ErrRecord: to overlook it could give one address to two machines.
func Open(ctx context.Context, s store.Store, now func() time.Time) (*Book, error) {
	if s == nil {
		panic("leases: Open: store is nil")
	}
	if now == nil {
		panic("leases: Open: now is nil")
	}
	b := &Book{
		store: s, now: now, seed: [2]uint64{rand.Uint64(), rand.Uint64() | 1}, names: maphash.MakeSeed(),
		conflicts: map[uint32]conflict{},
	}
	b.committer.touched = map[uint64]struct{}{}
	t := seconds(now())
	b.wheel.swept = t
	var ended []uint32
	err := s.Scan(ctx, keyPrefix, func(key string, value []byte) error {
		a, err := parseKey(key)
		if err != nil {
			return err
		}
		st, blob, old, err := parseRecord(key, value)
		if err != nil {
			return err
		}
		i := b.storeLocked(a, st, blob, old)
		if !b.startLocked(i, t) {
			ended = append(ended, i)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open lease book: %w", err)
	}
	b.refileAllLocked(ended)
	return b, nil
}

func (b *Book) mix(v uint64) uint32 {
	hi, lo := bits.Mul64(v^b.seed[0], b.seed[1])
	return uint32((hi ^ lo) >> 16)
}

func (b *Book) hashAddr(a uint32) uint32 { return b.mix(uint64(a)) }

func (b *Book) hashMAC(m lab.MAC) uint32 {
	return b.mix(uint64(m[0])<<40 | uint64(m[1])<<32 | uint64(m[2])<<24 | uint64(m[3])<<16 | uint64(m[4])<<8 | uint64(m[5]))
}

func (b *Book) hashName(name []byte) uint32 { return uint32(maphash.Bytes(b.names, name)) }

// findLocked returns the entry of an address, 0 if there is none.
func (b *Book) findLocked(a uint32) uint32 {
	i, at := b.byAddr.first(b.hashAddr(a))
	for i != 0 && b.entries.at(i).addr != a {
		i, at = b.byAddr.after(b.hashAddr(a), at)
	}
	return i
}

// findNearLocked is findLocked with a guess, which spares the index when it is right.
func (b *Book) findNearLocked(a, guess uint32) uint32 {
	if guess != 0 && b.entries.at(guess).addr == a {
		return guess
	}
	return b.findLocked(a)
}

// bindingLocked returns what is remembered of a machine in a subnet, live or not, 0 for nothing.
func (b *Book) bindingLocked(m lab.MAC, subnet net4) uint32 {
	h := b.hashMAC(m)
	for i, at := b.byMAC.first(h); i != 0; i, at = b.byMAC.after(h, at) {
		if e := b.entries.at(i); e.mac == m && subnet.contains(e.addr) {
			return i
		}
	}
	return 0
}

// namedLocked returns the entry that has a host name, 0 if there is none.
func (b *Book) namedLocked(name []byte) uint32 {
	h := b.hashName(name)
	i, at := b.byName.first(h)
	for i != 0 && !bytes.Equal(nameOf(b.texts.get(b.entries.at(i).text)), name) {
		i, at = b.byName.after(h, at)
	}
	return i
}

// storeLocked makes a lease that of its address and returns its entry, which is then neither on the wheel nor on a shelf.
func (b *Book) storeLocked(a uint32, s stamp, blob []byte, old bool) uint32 {
	i := b.findLocked(a)
	if i == 0 {
		i = b.entries.take()
		b.entries.at(i).addr = a
		b.byAddr.add(b.hashAddr(a), i)
	} else {
		b.unfileLocked(i)
	}
	e := b.entries.at(i)
	was := *e
	e.mac, e.state, e.start, e.expiry, e.flags = s.mac, s.state, s.start, s.expiry, 0
	if old {
		e.flags |= legacy
	}
	if len(lineOf(blob)) > 0 {
		e.flags |= lined
	}
	if was.mac != e.mac || was.hasMachine() != e.hasMachine() {
		if was.hasMachine() {
			b.byMAC.remove(b.hashMAC(was.mac), i)
		}
		if e.hasMachine() {
			b.byMAC.add(b.hashMAC(e.mac), i)
		}
	}
	if text := b.texts.get(was.text); !bytes.Equal(text, blob) || !e.hasMachine() {
		b.unnameLocked(i)
		b.texts.drop(was.text)
		e.text = b.texts.put(blob)
	}
	b.nameLocked(i)
	return i
}

// startLocked lets the time of an entry run, and reports whether it runs.
func (b *Book) startLocked(i, now uint32) bool {
	e := b.entries.at(i)
	if e.state == Released || e.expiry <= now {
		e.flags |= lapsed
		return false
	}
	b.wheelPutLocked(i)
	return true
}

// putLocked makes a lease that of its address.
func (b *Book) putLocked(a uint32, s stamp, blob []byte, old bool, now uint32) {
	i := b.storeLocked(a, s, blob, old)
	b.startLocked(i, now)
	b.refileLocked(a, i)
}

// dropLocked forgets what is known of an address.
func (b *Book) dropLocked(a uint32) {
	i := b.findLocked(a)
	if i == 0 {
		return
	}
	b.unfileLocked(i)
	e := b.entries.at(i)
	b.unnameLocked(i)
	if e.hasMachine() {
		b.byMAC.remove(b.hashMAC(e.mac), i)
	}
	b.byAddr.remove(b.hashAddr(a), i)
	b.texts.drop(e.text)
	b.entries.give(i)
	b.reclassLocked(a)
}

// unfileLocked takes an entry off the wheel or its shelf, before it changes.
func (b *Book) unfileLocked(i uint32) {
	b.countLocked(b.shelfLocked(b.entries.at(i).addr), i, false)
	switch e := b.entries.at(i); {
	case e.flags&onShelf != 0:
		b.unshelveLocked(b.shelfLocked(e.addr), i)
	case e.flags&lapsed == 0:
		b.wheelRemoveLocked(i)
	}
}

// nameLocked makes an entry the one found by its host name, unless one that came later has the name.
func (b *Book) nameLocked(i uint32) {
	e := b.entries.at(i)
	name := nameOf(b.texts.get(e.text))
	if len(name) == 0 || !e.hasMachine() {
		return
	}
	h := b.hashName(name)
	other := b.namedLocked(name)
	if other == i {
		return
	}
	if other != 0 {
		if b.entries.at(other).start > e.start {
			return
		}
		b.byName.remove(h, other)
	}
	b.byName.add(h, i)
}

func (b *Book) unnameLocked(i uint32) {
	if name := nameOf(b.texts.get(b.entries.at(i).text)); len(name) > 0 {
		b.byName.remove(b.hashName(name), i)
	}
}

func (b *Book) leaseLocked(i uint32) Lease {
	e := b.entries.at(i)
	return e.stamp().lease(e.addr, b.texts.get(e.text))
}
