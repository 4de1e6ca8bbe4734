package virt

import (
	"context"
	"maps"
	"sync"
)

// A Store keeps one value for each host, or hypervisor, across restarts.
type Store[T any] interface {
	// Load returns all values, by host.
	Load(ctx context.Context) (map[string]T, error)
	// Put stores the value of a host; the zero value removes it.
	Put(ctx context.Context, host string, v T) error
}

// A kept has one value for each host, in memory and in a store. A host without one has the zero value.
type kept[T comparable] struct {
	store Store[T] // nil: memory only

	mu      sync.Mutex
	byHost  map[string]T
	changes uint64 // number of changes
}

// load reads the values from a store, which may be nil.
func (k *kept[T]) load(ctx context.Context, store Store[T]) (err error) {
	k.store, k.byHost = store, map[string]T{}
	if store != nil {
		k.byHost, err = store.Load(ctx)
	}
	return err
}

// of returns the value of a host.
func (k *kept[T]) of(host string) T {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byHost[host]
}

// all returns the values of all hosts, and the number of changes that made them.
func (k *kept[T]) all() (map[string]T, uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.byHost), k.changes
}

// count returns the number of changes.
func (k *kept[T]) count() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changes
}

// change stores what fn makes of a host's value. On an error nothing has changed.
func (k *kept[T]) change(ctx context.Context, host string, fn func(*T)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	v := k.byHost[host]
	fn(&v)
	if v == k.byHost[host] {
		return nil
	}
	if err := k.storeLocked(ctx, host, v); err != nil {
		return err
	}
	k.setLocked(host, v)
	return nil
}

func (k *kept[T]) storeLocked(ctx context.Context, host string, v T) error {
	if k.store == nil {
		return nil
	}
	return k.store.Put(ctx, host, v)
}

func (k *kept[T]) setLocked(host string, v T) {
	k.changes++
	if v == *new(T) {
		delete(k.byHost, host)
	} else {
		k.byHost[host] = v
	}
}
