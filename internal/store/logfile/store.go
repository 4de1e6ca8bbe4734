package logfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/bootlab/bootlab/internal/store"
)

// A Store is a store.Store in one file.
type Store struct {
	path string
	cfg  config

	// writing is of one: who has sent to it may write the file, or exchange it.
	writing chan struct{}
	batch   batch  // of who is writing
	value   []byte // likewise

	queue struct {
		sync.Mutex
		waiting []*call
		closed  bool
	}

	mu         sync.RWMutex
	log        *log // nil after Close; changed by who is writing
	compacting bool
	compactErr error

	stop       chan struct{} // closed by Close
	background sync.WaitGroup
	close      func() error
}

// current returns the log, which stays open until its users are unlocked.
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

// Scan implements store.Store. It sees the store as it was when it began. Commits go on meanwhile.
func (s *Store) Scan(ctx context.Context, prefix string, fn func(key string, value []byte) error) error {
	l, err := s.current()
	if err != nil {
		return err
	}
	defer l.users.RUnlock()
	l.mu.Lock()
	index := l.index.Copy()
	l.mu.Unlock()
	var buf []byte
	index.Ascend(prefix, func(key string, where location) bool {
		if err = ctx.Err(); err != nil || !strings.HasPrefix(key, prefix) {
			return false
		}
		if buf, err = l.value(key, where, buf); err == nil {
			err = fn(key, buf)
		}
		return err == nil
	})
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// Close waits for the commits under way and releases the file. One that was removed meanwhile is written again. A second
// call returns what the first did.
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

// finish puts back a file that was removed, and ends the log with an empty record: all before it was acknowledged.
func (s *Store) finish() error {
	_, err := os.Lstat(s.path)
	removed := errors.Is(err, fs.ErrNotExist)
	if removed {
		err = os.MkdirAll(filepath.Dir(s.path), 0o750)
	}
	if err == nil && (removed || s.log.broken != nil) {
		err = s.compact(func() bool { return true })
	}
	if err == nil {
		s.batch.reset()
		s.batch.add(s.log, 0, nil)
		err = s.log.write(&s.batch)
	}
	if err == nil {
		err = s.log.Truncate(s.log.end)
	}
	if err != nil {
		return fmt.Errorf("close state file %s: %w", s.path, err)
	}
	return nil
}

// Check returns an error that says what to do if the file is no longer where it was opened, or cannot be compacted.
func (s *Store) Check() error {
	l, err := s.current()
	if err != nil {
		return err
	}
	defer l.users.RUnlock()
	now, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("state file %s was removed while in use: restart bootlab: a clean shutdown writes the file again, a kill loses it", s.path)
	case err != nil:
		return fmt.Errorf("state file %s: %w", s.path, err)
	case !l.is(now):
		return fmt.Errorf("state file %s was replaced while in use: restart bootlab to use the new file and lose what was stored since, "+
			"or remove the new file: a clean shutdown then writes the old one again", s.path)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.compactErr
}
