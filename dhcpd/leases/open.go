package leases

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
)

// Open makes a book of the leases in s, which it does not own, and serves the pools. now is the clock; it is asked without a lock held. An
// unreadable record is lost, if s counts losses, else an error, ErrRecord: to overlook it could give one address to two machines.
func Open(ctx context.Context, s store.Store, now func() time.Time, pools ...*Pool) (*Book, error) {
	if s == nil {
		panic("leases: Open: store is nil")
	}
	if now == nil {
		panic("leases: Open: now is nil")
	}
	b := &Book{
		store: s, now: now, seed: maphash.MakeSeed(),
		offerByMAC: map[lab.MAC]uint32{}, offerByAddr: map[uint32]uint32{}, conflicts: map[uint32]conflict{},
	}
	b.committer.touched, b.committer.names = map[uint64]struct{}{}, map[nameHash]*Change{}
	b.wheel.swept = seconds(now())
	b.serveLocked(pools)
	if err := b.readLocked(ctx); err != nil {
		return nil, fmt.Errorf("open lease book: %w", err)
	}
	b.updateSlotsLocked(b.indexLocked())
	return b, nil
}

// readLocked makes slots of the leases in the store. They are in no index then.
func (b *Book) readLocked(ctx context.Context) error {
	var bad store.Undecodable
	err := b.store.Scan(ctx, KeyPrefix, func(key string, value []byte) error {
		a, err := parseKey(key)
		if err != nil {
			bad.Add(key, err)
			return nil
		}
		s, blob, err := parseRecord(key, value)
		if err != nil {
			bad.Add(key, err)
			return nil
		}
		e := b.slots.at(b.slots.take())
		e.addr = a
		e.write(s, blob)
		return nil
	})
	if err != nil {
		return err
	}
	return bad.MarkLost(b.store)
}

// indexLocked builds the indexes of all slots, and returns all. The sizes are known, so no index has to grow; and two processors share
// the work.
func (b *Book) indexLocked() []uint32 {
	all := make([]uint32, b.slots.len())
	for n := range all {
		all[n] = uint32(n + 1)
	}
	b.byAddr, b.byMAC, b.byName = make(map[uint32]uint32, len(all)), make(map[lab.MAC]uint32, len(all)), make(map[nameHash]uint32, len(all))
	var names sync.WaitGroup
	names.Go(func() {
		for _, i := range all {
			b.nameLocked(i, b.wheel.swept)
		}
	})
	for _, i := range all {
		b.byAddr[b.slots.at(i).addr] = i
		b.bindLocked(i)
		b.startLocked(i, b.wheel.swept)
	}
	names.Wait()
	return all
}
