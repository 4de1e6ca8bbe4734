package logfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bootlab/bootlab/internal/store"
)

// maxGroup bounds how many bytes share one sync, and so the time that the first caller waits.
const maxGroup = 512 << 10

// A call is a Commit or CommitAll on its way to the disk.
type call struct {
	ctx      context.Context
	txns     []store.Txn
	outcomes []error // one each
	size     int     // of its records, at most
	done     chan struct{}
}

// Commit implements store.Store. Once t is being written, the end of ctx no longer matters: the outcome is the one on disk.
func (s *Store) Commit(ctx context.Context, t store.Txn) error {
	return s.CommitAll(ctx, []store.Txn{t})[0]
}

// CommitAll implements store.Store.
func (s *Store) CommitAll(ctx context.Context, txns []store.Txn) []error {
	c := &call{ctx: ctx, txns: txns, outcomes: make([]error, len(txns)), done: make(chan struct{})}
	if len(txns) == 0 {
		return nil
	}
	for i := range txns {
		c.outcomes[i] = check(&txns[i])
		c.size += maxSize(txns[i].Then...)
	}
	s.queue.Lock()
	if s.queue.closed {
		s.queue.Unlock()
		return c.fail(store.ErrClosed)
	}
	s.queue.waiting = append(s.queue.waiting, c)
	s.queue.Unlock()
	for {
		select {
		case <-c.done:
			return c.outcomes
		case s.writing <- struct{}{}:
			s.commitWaiting()
			<-s.writing
		case <-ctx.Done():
			if s.withdraw(c) {
				return c.fail(ctx.Err())
			}
			<-c.done
		}
	}
}

func (c *call) fail(err error) []error {
	for i := range c.outcomes {
		c.outcomes[i] = err
	}
	return c.outcomes
}

// withdraw takes c out of the queue, if nobody is writing it yet.
func (s *Store) withdraw(c *call) bool {
	s.queue.Lock()
	defer s.queue.Unlock()
	i := slices.Index(s.queue.waiting, c)
	if i >= 0 {
		s.queue.waiting = slices.Delete(s.queue.waiting, i, i+1)
	}
	return i >= 0
}

// check returns what is wrong with a transaction.
func check(t *store.Txn) error {
	for _, op := range t.Then {
		if op.Key == "" {
			return errors.New("commit: a key is empty")
		}
	}
	if n := maxSize(t.Then...); n > maxTxn {
		return fmt.Errorf("commit: a transaction has %d bytes, more than %d", n, maxTxn)
	}
	return nil
}

// commitWaiting commits the calls that wait, as many as may share a sync, and wakes their callers. It reports whether there
// were any. The caller writes.
func (s *Store) commitWaiting() bool {
	s.queue.Lock()
	n, size := 0, 0
	for n < len(s.queue.waiting) && (n == 0 || size+s.queue.waiting[n].size <= maxGroup) {
		size += s.queue.waiting[n].size
		n++
	}
	group := slices.Clone(s.queue.waiting[:n])
	s.queue.waiting = slices.Delete(s.queue.waiting, 0, n)
	s.queue.Unlock()
	if n == 0 {
		return false // another caller has written ours
	}
	err := s.commitGroup(group)
	for _, c := range group {
		for i, own := range c.outcomes {
			// A conflict may be with a transaction that failed just now.
			if err != nil && (own == nil || errors.Is(own, store.ErrConflict)) {
				c.outcomes[i] = fmt.Errorf("commit to %s: %w", s.path, err)
			}
		}
		close(c.done)
	}
	return true
}

// commitGroup makes a group durable, and then visible.
func (s *Store) commitGroup(group []*call) error {
	if s.log.broken != nil {
		return s.log.broken
	}
	b := &s.batch
	b.reset()
	for _, c := range group {
		stop := c.ctx.Err()
		for i := range c.txns {
			if c.outcomes[i] == nil {
				c.outcomes[i] = stop
			}
			if c.outcomes[i] == nil {
				c.outcomes[i] = s.holds(c.txns[i].If)
			}
			if c.outcomes[i] == nil && len(c.txns[i].Then) > 0 {
				b.add(s.log, b.records, c.txns[i].Then)
			}
		}
	}
	if b.records == 0 {
		return nil
	}
	err := s.log.write(b)
	if s.log.broken != nil || s.log.end > max(s.cfg.compactFrom, 2*s.log.live) {
		s.compactInBackground()
	}
	return err
}

// holds returns nil if all conditions hold, with the transactions of the group before.
func (s *Store) holds(conds []store.Cond) error {
	for i := range conds {
		c := &conds[i]
		same, err := s.same(c)
		if err != nil {
			return err
		}
		if !same {
			return fmt.Errorf("%w: key %q", store.ErrConflict, c.Key)
		}
	}
	return nil
}

func (s *Store) same(c *store.Cond) (_ bool, err error) {
	if own, ok := s.batch.changes[c.Key]; ok {
		return c.Absent == own.deletes && (own.deletes || bytes.Equal(s.batch.buf[own.from:own.to], c.Value)), nil
	}
	where, ok := s.log.index.Get(c.Key) // changed only by who is writing
	if !ok || c.Absent || int(where.size) != len(c.Value) {
		return c.Absent && !ok, nil
	}
	s.value, err = s.log.value(c.Key, where, s.value)
	return bytes.Equal(s.value, c.Value), err
}
