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
	// copyStep bytes are copied at a time, with a pause of copyPause after each step: on one CPU a goroutine that never blocks
	// delays packets by 10 ms.
	copyStep  = 32 << 10
	copyPause = time.Millisecond
)

// compactInBackground starts a compaction unless one is running, and repeats it until it succeeds. The caller holds writing.
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
		for s.tryCompact() && s.sleep(wait) {
		}
	})
}

// tryCompact reports whether another compaction is needed: after an error, or because the new log broke meanwhile.
func (s *Store) tryCompact() (again bool) {
	err := s.compact(func() bool { return s.sleep(copyPause) })
	if err != nil {
		err = fmt.Errorf("compact state file %s: %w", s.path, err)
	}
	s.writing <- struct{}{} // a log that breaks later starts its own compaction
	defer func() { <-s.writing }()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compactErr = err
	s.compacting = err != nil || s.log.broken != nil
	return s.compacting
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

// compact copies the live records to a new file and exchanges the files. pause is called between steps and may end it.
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

// copyTo makes d the file of the store, and returns the old log.
func (s *Store) copyTo(d disk, pause func() bool) (*log, error) {
	if err := lock(d); err != nil {
		return nil, err
	}
	to, err := create(d)
	if err != nil {
		return nil, err
	}
	s.writing <- struct{}{}
	old := s.log
	c := copier{to: to, from: old, at: old.end, seq: old.seq, pause: pause}
	old.mu.Lock()
	alive := old.index.Copy()
	old.mu.Unlock()
	<-s.writing

	c.reset()
	var buf []byte
	alive.Scan(func(key string, where location) bool {
		if buf, err = old.value(key, where, buf); err == nil {
			err = c.add([]store.Op{{Key: key, Value: buf}})
		}
		return err == nil
	})
	for left := int64(copyStep); err == nil && left >= copyStep; { // until little is left for which commits must wait
		s.writing <- struct{}{}
		end := old.end
		<-s.writing
		left = end - c.at
		err = c.catchUp(end)
	}
	if err != nil {
		return nil, err
	}
	s.writing <- struct{}{}
	defer func() { <-s.writing }()
	if err := c.catchUp(old.end); err != nil {
		return nil, err
	}
	if err := c.write(); err != nil {
		return nil, err
	}
	return old, s.exchange(to)
}

// A copier writes transactions to a new file.
type copier struct {
	batch
	to    *log
	from  *log
	at    int64 // in from: later records were committed since the copy began
	seq   uint64
	pause func() bool
}

// catchUp copies the transactions of the old file up to end.
func (c *copier) catchUp(end int64) error {
	r := reader{file: c.from, marker: c.from.marker}
	for c.at < end {
		rec, _, err := r.next(c.at, c.seq)
		if err != nil {
			return err
		}
		if rec.at != c.at {
			return fmt.Errorf("the record at offset %d was damaged on disk", c.at)
		}
		var ops []store.Op
		parseOps(rec.payload, func(op store.Op, _ int) { ops = append(ops, op) })
		if err := c.add(ops); err != nil {
			return err
		}
		c.at, c.seq = rec.end(), rec.seq
	}
	return nil
}

func (c *copier) add(ops []store.Op) error {
	c.batch.add(c.to, 0, ops)
	if len(c.buf) < copyStep {
		return nil
	}
	if err := c.write(); err != nil {
		return err
	}
	if !c.pause() {
		return store.ErrClosed
	}
	return nil
}

func (c *copier) write() error {
	err := c.to.write(&c.batch)
	c.reset()
	return err
}

// exchange renames the new file to the name of the old one, unless another file has that name. The caller holds writing.
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

// is reports whether f is the log's file.
func (l *log) is(f os.FileInfo) bool {
	mine, err := l.Stat()
	return err == nil && os.SameFile(mine, f)
}

// syncFolder makes the directory entries of a folder durable.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
