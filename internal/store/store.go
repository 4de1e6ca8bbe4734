package store

import (
	"context"
	"errors"
)

// OwnPrefix begins the keys under which an implementation keeps what it knows about itself, such as its damage. They belong to one
// file: a backup has them for people, and a restore leaves them out.
const OwnPrefix = "store/"

// ErrNotFound is returned by Get for a key that does not exist.
var ErrNotFound = errors.New("store: key not found")

// ErrConflict is returned by Commit when a condition does not hold. Nothing was written.
var ErrConflict = errors.New("store: condition does not hold")

// ErrClosed is returned by every method of a store after Close.
var ErrClosed = errors.New("store: closed")

// ErrHung is the error of a change that the disk has not taken in time.
var ErrHung = errors.New("the disk does not respond")

// A Store keeps state. Implementations are safe for concurrent use and pass storetest.Run.
type Store interface {
	// Get returns the value of key, which the caller may keep, or ErrNotFound.
	Get(ctx context.Context, key string) ([]byte, error)
	// Scan calls fn for every key that starts with prefix, in order. fn must not keep or change value, nor call the
	// store. An error from fn ends the scan and is returned.
	Scan(ctx context.Context, prefix string, fn func(key string, value []byte) error) error
	// Commit applies t whole or not at all. When it returns nil, t is durable. Concurrent commits share one sync.
	Commit(ctx context.Context, t Txn) error
	// CommitAll applies transactions that do not depend on each other, in order, each whole or not at all, and returns the
	// outcome of each, as Commit would; there are as many as txns. All that succeeded share one sync. It is for a caller
	// with many changes at hand, of which one conflict must not fail all.
	CommitAll(ctx context.Context, txns []Txn) []error
	// Close waits for commits in progress and releases the store.
	Close() error
}

// Doubtful reports whether s has lost changes, and one of them may have been of key: its value may be an older one, or it may be
// absent although it was stored. A write of key ends the doubt, and so does an admin who accepts the losses. A store that does
// not tell has lost nothing.
func Doubtful(s Store, key string) bool {
	d, ok := s.(interface{ Doubtful(key string) bool })
	return ok && d.Doubtful(key)
}

// Undecodable are records of a store that their owner cannot decode, although their checksums are right. The zero value is none.
type Undecodable struct {
	keys []string
	why  error // of the first
}

// Add adds one. why names its key.
func (u *Undecodable) Add(key string, why error) {
	u.keys = append(u.keys, key)
	if u.why == nil {
		u.why = why
	}
}

// MarkLost removes them from s, where they count as lost from then on: s keeps a copy, lists them, and they are Doubtful. It does
// nothing if there are none. The error says why the first cannot be decoded, if s cannot do that.
func (u *Undecodable) MarkLost(s Store) error {
	if len(u.keys) == 0 {
		return nil
	}
	keeper, ok := s.(interface {
		MarkLost(why string, keys ...string) error
	})
	if !ok {
		return u.why
	}
	return keeper.MarkLost(u.why.Error(), u.keys...)
}

// A Txn is a set of writes under conditions.
type Txn struct {
	If   []Cond // all must hold
	Then []Op   // in order
}

// A Cond is a condition on one key: it is absent, or its value is Value.
type Cond struct {
	Key    string
	Absent bool
	Value  []byte
}

// An Op writes one key, or deletes it; deleting an absent key is no error.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
}

// Put returns a transaction that writes one key unconditionally.
func Put(key string, value []byte) Txn { return Txn{Then: []Op{{Key: key, Value: value}}} }

// Delete returns a transaction that deletes one key unconditionally.
func Delete(key string) Txn { return Txn{Then: []Op{{Key: key, Delete: true}}} }
