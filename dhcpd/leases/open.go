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
		store: s, now: now, seed: maphash.MakeSeed(),
		offerByMAC: map[lab.MAC]uint32{}, offerByAddr: map[uint32]uint32{}, conflicts: map[uint32]conflict{},
	}
	b.committer.touched = map[uint64]struct{}{}
	b.wheel.swept = seconds(now())
	if err := b.readLocked(ctx); err != nil {
		return nil, fmt.Errorf("open lease book: %w", err)
	}
	b.updateEntriesLocked(b.indexLocked())
	return b, nil
}

// readLocked reads the leases in the store. They are in no index then.
func (b *Book) readLocked(ctx context.Context) error {
	var bad store.Undecodable
	err := b.store.Scan(ctx, keyPrefix, func(key string, value []byte) error {
		a, err := parseKey(key)
		if err != nil {
			bad.Add(key, err)
			return nil
		}
		st, blob, err := parseRecord(key, value)
		if err != nil {
			bad.Add(key, err)
			return nil
		}
		i := b.entries.take()
		b.entries.at(i).addr = a
		b.writeLocked(i, st, blob)
		return nil
	})
	if err != nil {
		return err
	}
	return bad.MarkLost(b.store)
}

// indexLocked builds the indexes of all entries and returns those that have ended. The sizes are known, so no index has to grow;
// and two processors share the work.
func (b *Book) indexLocked() (ended []uint32) {
	n := b.entries.last
	b.byAddr, b.byMAC, b.byName = make(map[uint32]uint32, n), make(map[lab.MAC]uint32, n), make(map[nameHash]uint32, n)
	var names sync.WaitGroup
	names.Go(func() {
		for i := uint32(1); i <= n; i++ {
			b.nameLocked(i)
		}
	})
	for i := uint32(1); i <= n; i++ {
		b.byAddr[b.entries.at(i).addr] = i
		b.bindLocked(i)
		if !b.startLocked(i, b.wheel.swept) {
			ended = append(ended, i)
		}
	}
	names.Wait()
	return ended
}
