package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/bootlab/bootlab/internal/store"
)

const hardLimit = 4 << 20

// limits say when the journal is emptied into the database; the tests have smaller ones.
type limits struct {
	soft   int64         // bytes of journal at which a checkpoint begins, if none is running
	assist int64         // … at which committers help with the one that is running
	hard   int64         // … at which they wait for its end
	step   int           // keys in one transaction of a running store
	drain  time.Duration // from the first commit to a checkpoint where few come
	retry  time.Duration // after a checkpoint that failed
}

func defaultLimits() limits {
	return limits{
		soft: 2 << 20, assist: 3 << 20, hard: hardLimit, step: 128,
		drain: 5 * time.Second, retry: time.Second,
	}
}

var (
	bucketName    = []byte("bootlab")
	journalBucket = []byte("journal")
	epochKey      = []byte("epoch") // 8 bytes, big endian: all up to this epoch is in the database
)

// A Store is a store.Store in one file, with a journal beside it.
type Store struct {
	db     *bbolt.DB
	file   os.FileInfo // of the database, as it was opened
	limits limits
	queue  queue

	// writing is held from the conditions of a group to its outcome, and to change the epoch. Locks are taken in the
	// order writing, copying, mu.
	writing sync.Mutex
	journal journal

	copying sync.Mutex // held for one transaction of a checkpoint
	copy    *copying   // the checkpoint under way

	mu     sync.Mutex
	live   *layer // the epoch that commits go to
	frozen *layer // the epoch before while it is copied to the database, or nil
	drops  int    // how often frozen became nil

	kick    chan struct{} // of one: there is work for the checkpointer
	quit    chan struct{}
	stopped chan struct{} // the checkpointer has returned
	close   func() error
}

// Close waits for the commits under way, brings the journal into the database, deletes it, and gives the files free. A
// second call returns what the first did. After an error the journal is still there and will be read by the next Open.
func (s *Store) Close() error { return s.close() }

func (s *Store) shut() error {
	s.queue.shut()
	close(s.quit)
	<-s.stopped
	s.writing.Lock()
	defer s.writing.Unlock()
	err := s.settleLocked()
	if err != nil {
		err = fmt.Errorf("close store %s: its journal stays and is read at the next start: %w", s.db.Path(), err)
		err = errors.Join(err, s.journal.close())
	} else {
		err = errors.Join(s.journal.remove(), s.putBack())
	}
	s.mu.Lock()
	s.live, s.frozen = newLayer(0), nil
	s.mu.Unlock()
	return errors.Join(err, s.db.Close())
}

// Get returns a copy of the value of key, store.ErrNotFound, or store.ErrClosed.
func (s *Store) Get(ctx context.Context, key string) (value []byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	e := findLocked(key, s.live, s.live.durable, s.frozen)
	s.mu.Unlock()
	if e != nil {
		if e.value == nil {
			return nil, store.ErrNotFound
		}
		return append([]byte{}, e.value...), nil
	}
	// What was not in the layers is in the database, or newer than this call.
	err = s.db.View(func(tx *bbolt.Tx) error {
		v := tx.Bucket(bucketName).Get([]byte(key))
		if v == nil {
			return store.ErrNotFound
		}
		value = append([]byte{}, v...)
		return nil
	})
	return value, closedOr(err)
}

// findLocked returns the newest write of key among the first n of live and all of frozen, or nil.
func findLocked(key string, live *layer, n int, frozen *layer) *entry {
	if e := live.find(key, n); e != nil || frozen == nil {
		return e
	}
	return frozen.find(key, frozen.durable)
}

// Scan implements store.Store. It sees the store as it was when it began. Commits go on meanwhile.
func (s *Store) Scan(ctx context.Context, prefix string, fn func(key string, value []byte) error) error {
	tx, snaps, err := s.snapshot()
	if err != nil {
		return closedOr(err)
	}
	defer tx.Rollback()
	m := newMerge(prefix, snaps...)
	e := m.next()
	visit := func(key string, value []byte) error {
		if err := ctx.Err(); err != nil || value == nil {
			return err
		}
		return fn(key, value)
	}
	c := tx.Bucket(bucketName).Cursor()
	for k, v := c.Seek([]byte(prefix)); k != nil && strings.HasPrefix(string(k), prefix); k, v = c.Next() {
		key := string(k)
		for ; e != nil && e.key < key; e = m.next() {
			if err := visit(e.key, e.value); err != nil {
				return err
			}
		}
		if e != nil && e.key == key {
			v, e = e.value, m.next()
		} else if v == nil {
			v = []byte{}
		}
		if err := visit(key, v); err != nil {
			return err
		}
	}
	for ; e != nil; e = m.next() {
		if err := visit(e.key, e.value); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// snapshot returns the database and the layers above it at one moment. A layer that was dropped in between would be in
// neither; then it looks again. (To begin a transaction may take long while bbolt maps its file anew: not under mu.)
func (s *Store) snapshot() (*bbolt.Tx, []snapshot, error) {
	for {
		s.mu.Lock()
		drops := s.drops
		s.mu.Unlock()
		tx, err := s.db.Begin(false)
		if err != nil {
			return nil, nil, err
		}
		var snaps []snapshot
		s.mu.Lock()
		same := drops == s.drops
		if s.frozen != nil {
			snaps = append(snaps, s.frozen.snapshot())
		}
		snaps = append(snaps, s.live.snapshot())
		s.mu.Unlock()
		if same {
			return tx, snaps, nil
		}
		if err := tx.Rollback(); err != nil {
			return nil, nil, err
		}
	}
}

func closedOr(err error) error {
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return store.ErrClosed
	}
	return err
}
