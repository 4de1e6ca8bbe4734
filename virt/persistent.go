package virt

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/bootlab/bootlab/internal/store"
)

// A Store keeps one value for each host, or hypervisor, across restarts.
type Store[T any] interface {
	// Load returns all values, by host.
	Load(ctx context.Context) (map[string]T, error)
	// Put stores the value of a host; the zero value removes it. It does not wait for a disk that hangs: after store.ErrHung the value is
	// stored once the disk answers, unless the host has got another one by then.
	Put(ctx context.Context, host string, v T) error
}

// persistent values are one for each host, in memory and in a store. A host without one has the zero value. Who reads values never waits for
// the store.
type persistent[T comparable] struct {
	store Store[T] // nil: memory only

	changing sync.Mutex // held while values are changed and stored

	mu      sync.Mutex
	byHost  map[string]T
	changes uint64 // number of changes
}

// load reads the values from a store, which may be nil.
func (k *persistent[T]) load(ctx context.Context, store Store[T]) (err error) {
	k.store, k.byHost = store, map[string]T{}
	if store != nil {
		k.byHost, err = store.Load(ctx)
	}
	return err
}

// of returns the value of a host.
func (k *persistent[T]) of(host string) T {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byHost[host]
}

// all returns the values of all hosts, and the number of changes that made them.
func (k *persistent[T]) all() (map[string]T, uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.byHost), k.changes
}

// count returns the number of changes.
func (k *persistent[T]) count() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changes
}

// change stores what fn makes of a host's value. On an error nothing has changed.
func (k *persistent[T]) change(ctx context.Context, host string, fn func(*T)) error {
	k.changing.Lock()
	defer k.changing.Unlock()
	before := k.of(host)
	v := before
	fn(&v)
	if v == before {
		return nil
	}
	err := k.put(ctx, host, v)
	if errors.Is(err, store.ErrHung) {
		_ = k.put(ctx, host, before) // in place of what would be stored later
		return store.ErrHung
	}
	if err == nil {
		k.set(host, v)
	}
	return err
}

// note sets values that were observed, and stores them, later if the disk hangs.
func (k *persistent[T]) note(ctx context.Context, observed map[string]T) error {
	var errs []error
	for host, v := range observed {
		k.set(host, v)
	}
	for host, v := range observed {
		if err := k.put(ctx, host, v); !errors.Is(err, store.ErrHung) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (k *persistent[T]) put(ctx context.Context, host string, v T) error {
	if k.store == nil {
		return nil
	}
	return k.store.Put(ctx, host, v)
}

func (k *persistent[T]) set(host string, v T) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changes++
	if v == *new(T) {
		delete(k.byHost, host)
	} else {
		k.byHost[host] = v
	}
}
