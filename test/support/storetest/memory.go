package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/bootlab/bootlab/internal/store"
)

// A Mem is a store.Store in memory. It is durable in so far as Reopen finds what was committed.
type Mem struct {
	mu     sync.Mutex
	values map[string][]byte
	closed bool
	fail   error
}

// Memory returns an empty store.
func Memory() *Mem { return &Mem{values: map[string][]byte{}} }

// Reopen returns a new, open store with the same content, as after a restart.
func (m *Mem) Reopen() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Mem{values: maps.Clone(m.values)}
}

// FailCommits makes every Commit return err, as a full disk would; nil ends it.
func (m *Mem) FailCommits(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// Get implements store.Store.
func (m *Mem) Get(ctx context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usableLocked(ctx); err != nil {
		return nil, err
	}
	v, ok := m.values[key]
	if !ok {
		return nil, store.ErrNotFound
	}
	return append([]byte{}, v...), nil
}

// Scan implements store.Store. It sees the store as it was when it began.
func (m *Mem) Scan(ctx context.Context, prefix string, fn func(key string, value []byte) error) error {
	m.mu.Lock()
	if err := m.usableLocked(ctx); err != nil {
		m.mu.Unlock()
		return err
	}
	values := maps.Clone(m.values)
	m.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(key, bytes.Clone(values[key])); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Commit implements store.Store.
func (m *Mem) Commit(ctx context.Context, t store.Txn) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usableLocked(ctx); err != nil {
		return err
	}
	if m.fail != nil {
		return m.fail
	}
	for _, c := range t.If {
		v, ok := m.values[c.Key]
		if c.Absent == ok || ok && !bytes.Equal(v, c.Value) {
			return fmt.Errorf("%w: key %q", store.ErrConflict, c.Key)
		}
	}
	for _, op := range t.Then {
		if op.Key == "" {
			return errors.New("commit: a key is empty")
		}
	}
	for _, op := range t.Then {
		if op.Delete {
			delete(m.values, op.Key)
		} else {
			m.values[op.Key] = append([]byte{}, op.Value...)
		}
	}
	return nil
}

// CommitAll implements store.Store.
func (m *Mem) CommitAll(ctx context.Context, txns []store.Txn) []error {
	outcomes := make([]error, len(txns))
	for i, t := range txns {
		outcomes[i] = m.Commit(ctx, t)
	}
	return outcomes
}

// Close implements store.Store.
func (m *Mem) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

func (m *Mem) usableLocked(ctx context.Context) error {
	if m.closed {
		return store.ErrClosed
	}
	return ctx.Err()
}
