package logfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/bootlab/bootlab/internal/store"
)

// A Store is a store.Store in one file.
type Store struct {
	path string
	cfg  config

	// writing is a lock with a capacity of one: its holder may write the file, or exchange it.
	writing chan struct{}
	batch   batch  // of the holder of writing
	value   []byte // likewise

	queue struct {
		sync.Mutex
		waiting []*call
		closed  bool
	}

	mu         sync.RWMutex
	log        *log // nil after Close; changed by the holder of writing
	compacting bool
	compactErr error

	health     health
	stop       chan struct{} // closed by Close
	background sync.WaitGroup
	close      func() error
}

// current returns the log, which stays open until the caller unlocks users.
func (s *Store) current() (*log, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.log == nil {
		return nil, store.ErrClosed
	}
	s.log.users.RLock()
	return s.log, nil
}

// Get returns a copy of the value of key, store.ErrNotFound, or store.ErrClosed.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	l, err := s.current()
	if err != nil {
		return nil, err
	}
	defer l.users.RUnlock()
	l.mu.RLock()
	where, ok := l.index.Get(key)
	l.mu.RUnlock()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !ok:
		return nil, store.ErrNotFound
	}
	return l.value(key, where, nil)
}

// Scan implements store.Store. It sees the store as it was at its start. Commits go on meanwhile.
func (s *Store) Scan(ctx context.Context, prefix string, fn func(key string, value []byte) error) error {
	l, err := s.current()
	if err != nil {
		return err
	}
	defer l.users.RUnlock()
	l.mu.Lock()
	index := l.index.Copy()
	l.mu.Unlock()
	values := window{log: l}
	index.Ascend(prefix, func(key string, where location) bool {
		if err = ctx.Err(); err != nil || !strings.HasPrefix(key, prefix) {
			return false
		}
		var value []byte
		if value, err = values.value(key, where); err == nil {
			err = fn(key, value)
		}
		return err == nil
	})
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// maxGroup bounds how many bytes share one sync, and so how long the first caller waits.
const maxGroup = 512 << 10

// A call is a waiting Commit or CommitAll.
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

// withdraw removes c from the queue. It reports false if c is being written already.
func (s *Store) withdraw(c *call) bool {
	s.queue.Lock()
	defer s.queue.Unlock()
	i := slices.Index(s.queue.waiting, c)
	if i >= 0 {
		s.queue.waiting = slices.Delete(s.queue.waiting, i, i+1)
	}
	return i >= 0
}

// check returns an error for a transaction that cannot be written.
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

// commitWaiting commits the waiting calls, as many as may share a sync, and wakes their callers. It reports whether there
// were any. The caller holds writing.
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
			// The conflict may be with a transaction of the group, which has failed.
			if err != nil && (own == nil || errors.Is(own, store.ErrConflict)) {
				c.outcomes[i] = fmt.Errorf("commit to %s: %w", s.path, err)
			}
		}
		close(c.done)
	}
	return true
}

// commitGroup makes a group durable, then visible.
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
	err := s.health.write(func() error { return s.log.write(b) })
	if s.log.broken != nil || s.log.end > max(s.cfg.compactFrom, 2*s.log.live) {
		s.compactInBackground()
	}
	return err
}

// holds returns nil if all conditions hold after the earlier transactions of the group.
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
	where, ok := s.log.index.Get(c.Key) // the caller holds writing
	if !ok || c.Absent || int(where.size) != len(c.Value) {
		return c.Absent && !ok, nil
	}
	s.value, err = s.log.value(c.Key, where, s.value)
	return bytes.Equal(s.value, c.Value), err
}

// Close waits for the commits in progress and closes the file. A file that was removed meanwhile is written again; the error says
// what to do if that fails. A second call returns the result of the first.
func (s *Store) Close() error { return s.close() }

func (s *Store) shut() error {
	s.queue.Lock()
	s.queue.closed = true
	s.queue.Unlock()
	s.writing <- struct{}{}
	for s.commitWaiting() {
	}
	<-s.writing
	close(s.stop)
	s.background.Wait()
	err := s.finish()
	s.mu.Lock()
	l := s.log
	s.log = nil
	s.mu.Unlock()
	return errors.Join(err, l.release())
}

// finish writes a file that was removed or is broken again, and notes where its records end.
func (s *Store) finish() error {
	_, err := os.Lstat(s.path)
	removed := errors.Is(err, fs.ErrNotExist)
	if removed {
		err = os.MkdirAll(filepath.Dir(s.path), 0o750)
	}
	if err == nil && (removed || s.log.broken != nil) {
		err = s.compact(func() bool { return true })
	}
	var gone error
	if err != nil && removed && s.log.broken == nil {
		gone, err = fmt.Errorf("state file %s %s: %w", s.path, s.log.whereabouts(), err), nil
	}
	if err == nil {
		err = s.log.writeMark(s.log.end)
	}
	if err == nil {
		err = s.log.Truncate(s.log.end)
	}
	if err != nil {
		err = fmt.Errorf("close state file %s: %w", s.path, err)
	}
	return errors.Join(gone, err)
}

// whereabouts says what happened to a file that is not in its place, cannot be written there again, and what to do.
func (l *log) whereabouts() string {
	if l.unlinked() {
		return "was removed while in use, and cannot be written again: what it held is lost, unless bootlab backup saved it before the stop: " +
			"bootlab restore puts that back (docs/operations.md#removed-or-replaced-while-in-use)"
	}
	return "is no longer in its place, since it or its folder was moved or unmounted: nothing is lost: put it back before the next start"
}

// unlinked reports whether the file has no name any more: its end comes with that of the process.
func (l *log) unlinked() bool {
	info, err := l.Stat()
	if err != nil {
		return false
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	return ok && sys.Nlink == 0
}

// Unlinked reports whether the file was removed, and has no other name: what it holds is lost unless Close can write it again.
func (s *Store) Unlinked() bool {
	l, err := s.current()
	if err != nil {
		return false
	}
	defer l.users.RUnlock()
	return l.unlinked()
}

// keepMark notes once in a while how far the log is durable.
func (s *Store) keepMark() {
	for s.sleep(s.cfg.tick) {
		s.writing <- struct{}{}
		s.tick()
		<-s.writing
	}
}

// Responds writes to the disk, and returns once it has answered, with success or an error: a change that follows is not held up by it. It
// hangs as long as the disk does. The error is that of ctx, which ended before it could write, or store.ErrClosed.
func (s *Store) Responds(ctx context.Context) error {
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	s.queue.Lock()
	closed := s.queue.closed // Close waits for writing, or had it
	s.queue.Unlock()
	if closed {
		return store.ErrClosed
	}
	s.askDisk()
	return nil
}

// tick writes a mark if there are records that the last one does not cover. After a write that failed it tries another, since
// there may be no commit for a while that would show that the disk takes them again. The caller holds writing.
func (s *Store) tick() {
	if s.log.mark.seq != s.log.seq || s.health.get().Err != nil {
		s.askDisk() // an error: it is repeated in the next tick
	}
}

// askDisk writes a mark or, after a write that failed, what would fail again. The caller holds writing.
func (s *Store) askDisk() {
	l := s.log
	switch {
	case l.broken != nil:
		return
	case s.health.get().Err != nil:
		_ = s.health.write(l.probe)
	default:
		_ = s.health.write(func() error { return l.writeMark(l.size) })
	}
	if l.broken != nil {
		s.compactInBackground()
	}
}

// Why a kill loses what is stored now.
var (
	ErrRemoved  = errors.New("was removed while in use")  // the file has no name any more
	ErrReplaced = errors.New("was replaced while in use") // another file has its name
)

// Check returns an error that says what to do if the file is no longer where it was opened, which is ErrRemoved or ErrReplaced, or cannot be
// compacted.
func (s *Store) Check() error {
	l, err := s.current()
	if err != nil {
		return err
	}
	defer l.users.RUnlock()
	now, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("state file %s %w: restart bootlab: a clean shutdown writes the file again, a kill loses it", s.path, ErrRemoved)
	case err != nil:
		return fmt.Errorf("state file %s: %w", s.path, err)
	case !l.is(now):
		return fmt.Errorf("state file %s %w: restart bootlab to use the new file and lose what was stored since, "+
			"or remove the new file: a clean shutdown then writes the old one again", s.path, ErrReplaced)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.compactErr
}
