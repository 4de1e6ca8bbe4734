package leases

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
)

// A Reader collects the leases of a store before there is a book. A store that reads its file from start to end can pass them on meanwhile,
// so that nothing is read twice.
type Reader struct {
	entries     slab[entry]
	byAddr      map[uint32]uint32
	undecodable map[string]error // by key
}

// NewReader returns a Reader without leases.
func NewReader() *Reader {
	return &Reader{byAddr: map[uint32]uint32{}, undecodable: map[string]error{}}
}

// Change takes a change of a key below KeyPrefix. Changes of one key come in their order.
func (r *Reader) Change(op store.Op) {
	delete(r.undecodable, op.Key)
	a, err := parseKey(op.Key)
	if err == nil && !op.Delete {
		var s stamp
		var blob string
		if s, blob, err = parseRecord(op.Key, op.Value); err == nil {
			r.put(a, s, blob)
			return
		}
	}
	if !op.Delete {
		r.undecodable[op.Key] = err
	}
	if i := r.byAddr[a]; i != 0 && a != 0 {
		delete(r.byAddr, a)
		r.entries.give(i)
	}
}

func (r *Reader) put(a uint32, s stamp, blob string) {
	i := r.byAddr[a]
	if i == 0 {
		i = r.entries.take()
		r.byAddr[a] = i
	}
	e := r.entries.at(i)
	e.addr = a
	e.write(s, blob)
}

// Open makes a book of the leases that were read, which are those in s, and serves the pools. It does not own s. now is the clock; it is
// asked without a lock held. The Reader is of no use then. An unreadable record is lost, if s counts losses, else an error, ErrRecord: to
// overlook it could give one address to two machines.
func (r *Reader) Open(s store.Store, now func() time.Time, pools ...*Pool) (*Book, error) {
	if s == nil {
		panic("leases: Open: store is nil")
	}
	if now == nil {
		panic("leases: Open: now is nil")
	}
	var bad store.Undecodable
	for _, key := range slices.Sorted(maps.Keys(r.undecodable)) {
		bad.Add(key, r.undecodable[key])
	}
	if err := bad.MarkLost(s); err != nil {
		return nil, fmt.Errorf("open lease book: %w", err)
	}
	b := &Book{
		store: s, now: now, seed: maphash.MakeSeed(),
		offerByMAC: map[lab.MAC]uint32{}, offerByAddr: map[uint32]uint32{}, conflicts: map[uint32]conflict{},
	}
	b.committer.touched, b.committer.names = map[uint64]struct{}{}, map[nameHash]*Change{}
	b.wheel.swept = seconds(now())
	b.serveLocked(pools)
	b.entries, b.byAddr = r.entries, r.byAddr
	b.updateEntriesLocked(b.indexLocked())
	return b, nil
}

// Open reads the leases in s and makes a book of them, as Reader.Open does.
func Open(ctx context.Context, s store.Store, now func() time.Time) (*Book, error) {
	if s == nil {
		panic("leases: Open: store is nil")
	}
	r := NewReader()
	err := s.Scan(ctx, KeyPrefix, func(key string, value []byte) error {
		r.Change(store.Op{Key: key, Value: value})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open lease book: %w", err)
	}
	return r.Open(s, now)
}

// indexLocked builds the indexes of all entries but that of addresses, and returns all. The sizes are known, so no index has to grow; and
// two processors share the work.
func (b *Book) indexLocked() []uint32 {
	all := make([]uint32, 0, b.entries.len())
	for i := uint32(1); i <= b.entries.last; i++ {
		if b.entries.at(i).addr != 0 {
			all = append(all, i)
		}
	}
	b.byMAC, b.byName = make(map[lab.MAC]uint32, len(all)), make(map[nameHash]uint32, len(all))
	var names sync.WaitGroup
	names.Go(func() {
		for _, i := range all {
			b.nameLocked(i, b.wheel.swept)
		}
	})
	for _, i := range all {
		b.bindLocked(i)
		b.startLocked(i, b.wheel.swept)
	}
	names.Wait()
	return all
}
