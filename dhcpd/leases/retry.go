package leases

import (
	"context"
	"errors"
	"fmt"

	"github.com/bootlab/bootlab/internal/store"
)

// commitAgain commits one change that the store refused, on the ground of what the store says now, and makes it visible. The
// scratch of the round is still in use, so this has its own.
func (b *Book) commitAgain(ctx context.Context, refused *planned) error {
	mine := b.committer
	b.committer = committer{}
	defer func() { b.committer = mine }()

	p := planned{Change: refused.Change, addr: refused.addr}
	var err error
	if p.raw, err = b.refresh(ctx, p.addr); err != nil || p.Change == nil {
		return err // what was to be forgotten is news
	}
	if refused.old != 0 {
		if _, err := b.refresh(ctx, refused.old); err != nil {
			return err
		}
	}
	b.mu.Lock()
	taken := b.takenLocked(p.Change, p.addr, seconds(b.now()))
	b.decideLocked(&b.committer, &p)
	b.mu.Unlock()
	if taken {
		return ErrTaken
	}
	one := []planned{p}
	b.addTxns(one)
	err = b.store.Commit(ctx, b.committer.txns[0])
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%w: %s", ErrStale, addrOf(p.addr))
	}
	if err == nil {
		b.apply(one)
	}
	return err
}

// refresh makes memory say of an address what the store says, and returns that; nil: nothing.
func (b *Book) refresh(ctx context.Context, a uint32) ([]byte, error) {
	key := leaseKey(a)
	value, err := b.store.Get(ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("read lease %s: %w", key, err)
	}
	now := seconds(b.now())
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.dropLocked(a)
		return nil, nil
	}
	s, blob, err := parseRecord(key, value)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.putLocked(a, s, blob, now)
	return value, nil
}
