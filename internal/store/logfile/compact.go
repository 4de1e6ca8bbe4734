package logfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/bootlab/bootlab/internal/store"
)

const (
	// copyStep bytes are copied at a time, and copyPause after each is left to others: on one CPU a goroutine that never
	// waits keeps packets waiting for 10 ms.
	copyStep  = 32 << 10
	copyPause = time.Millisecond
)

// compactInBackground begins a compaction unless one is under way, and again until one has succeeded. The caller writes.
func (s *Store) compactInBackground() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.compacting {
		return
	}
	s.compacting = true
	wait := s.cfg.retry
	if s.log.broken != nil {
		wait = s.cfg.retryBroken
	}
	s.background.Go(func() {
		for s.tryCompact() != nil && s.sleep(wait) {
		}
	})
}

func (s *Store) tryCompact() error {
	err := s.compact(func() bool { return s.sleep(copyPause) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacting = err != nil
	if s.compactErr = err; err != nil {
		s.compactErr = fmt.Errorf("compact state file %s: %w", s.path, err)
	}
	return err
}

// sleep reports whether the store is still open after d.
func (s *Store) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.stop:
		return false
	case <-t.C:
		return true
	}
}

// compact copies what is alive to a new file and exchanges the files. pause is called between steps and may end it.
func (s *Store) compact(pause func() bool) error {
	next := s.path + ".new"
	d, err := s.cfg.open(next)
	if err != nil {
		return err
	}
	old, err := s.copyTo(d, pause)
	if err != nil {
		return errors.Join(err, d.Close(), os.Remove(next))
	}
	return old.release()
}

// copyTo makes d the file of the store, and returns the one before.
func (s *Store) copyTo(d disk, pause func() bool) (*log, error) {
	if err := lock(d); err != nil {
		return nil, err
	}
	to, err := create(d)
	if err != nil {
		return nil, err
	}
	s.writing <- struct{}{}
	old, from, seq := s.log, s.log.end, s.log.seq
	old.mu.Lock()
	alive := old.index.Copy()
	old.mu.Unlock()
	<-s.writing

	var b batch
	b.reset()
	write := func() error {
		err := to.write(&b)
		b.reset()
		return err
	}
	var buf []byte
	alive.Scan(func(key string, where location) bool {
		if buf, err = old.value(key, where, buf); err != nil {
			return false
		}
		b.add(to, 0, []store.Op{{Key: key, Value: buf}})
		if len(b.buf) >= copyStep {
			if err = write(); err == nil && !pause() {
				err = store.ErrClosed
			}
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}

	s.writing <- struct{}{}
	defer func() { <-s.writing }()
	tail := reader{file: old, marker: old.marker}
	for from < old.end { // what was committed meanwhile
		rec, ok, err := tail.next(from, seq)
		if err != nil || !ok {
			return nil, errors.Join(err, fmt.Errorf("the record at offset %d was damaged on disk", from))
		}
		var ops []store.Op
		parseOps(rec.payload, func(op store.Op, _ int) { ops = append(ops, op) })
		b.add(to, 0, ops)
		from, seq = rec.end(), rec.seq
	}
	if err := write(); err != nil {
		return nil, err
	}
	return old, s.exchange(to)
}

// exchange gives the new file the name of the old one, unless another file has it. The caller writes.
func (s *Store) exchange(to *log) error {
	if now, err := os.Stat(s.path); err == nil && !s.log.is(now) {
		return errors.New("another file has its name")
	}
	if err := os.Rename(s.path+".new", s.path); err != nil {
		return err
	}
	s.mu.Lock()
	s.log = to
	s.mu.Unlock()
	if err := syncFolder(filepath.Dir(s.path)); err != nil {
		to.broken = err // a power cut may bring back the old file
	}
	return nil
}

// is reports whether that file is the log's.
func (l *log) is(f os.FileInfo) bool {
	mine, err := l.Stat()
	return err == nil && os.SameFile(mine, f)
}

// syncFolder makes the names in a folder durable.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
