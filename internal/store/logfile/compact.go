package logfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tidwall/btree"

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
		if s.tryCompact(s.pause) {
			s.repeatCompaction(wait)
		}
	})
}

// repeatCompaction compacts in the background until it succeeds.
func (s *Store) repeatCompaction(wait time.Duration) {
	s.background.Go(func() {
		for s.sleep(wait) && s.tryCompact(s.pause) {
		}
	})
}

// pause lets others run during a copy. It reports whether the store is still open.
func (s *Store) pause() bool { return s.sleep(copyPause) }

// tryCompact compacts, and reports whether another compaction is needed: after an error, or because the new log broke meanwhile.
func (s *Store) tryCompact(pause func() bool) (again bool) {
	err := s.compact(pause)
	if err != nil {
		err = fmt.Errorf("compact state file %s: %w", s.path, err)
	}
	s.writing <- struct{}{} // a log that breaks later starts its own compaction
	defer func() { <-s.writing }()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compactErr = err
	if err == nil && s.log.broken == nil {
		s.health.healed()
	}
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
	d, err := s.cfg.open(next, os.O_CREATE|os.O_TRUNC)
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
	c := copier{to: to, from: old, at: old.end, seq: old.seq, pause: pause, keep: unused(s.path + time.Now().UTC().Format(".damaged-20060102T150405Z"))}
	old.mu.Lock()
	alive := old.index.Copy()
	c.found = old.found
	old.mu.Unlock()
	<-s.writing

	c.reset()
	if err := c.copyAll(alive); err != nil {
		return nil, err
	}
	for left := int64(copyStep); left >= copyStep; { // until little is left for which commits must wait
		s.writing <- struct{}{}
		end := old.end
		<-s.writing
		left = end - c.at
		if err := c.catchUp(end); err != nil {
			return nil, err
		}
	}
	s.writing <- struct{}{}
	defer func() { <-s.writing }()
	if len(old.found) != len(c.found) {
		return nil, errors.New("more of the file was found to be damaged meanwhile")
	}
	if err := c.catchUp(old.end); err != nil {
		return nil, err
	}
	if err := c.write(); err != nil {
		return nil, err
	}
	if err := to.writeMark(to.size); err != nil {
		return nil, err
	}
	keep := ""
	if c.damaged {
		keep = c.keep
	}
	return old, s.exchange(to, keep)
}

// unused returns name, or one like it that no file has.
func unused(name string) string {
	for n, free := 2, name; ; n++ {
		if _, err := os.Lstat(free); errors.Is(err, fs.ErrNotExist) || n > 100 {
			return free
		}
		free = fmt.Sprint(name, "-", n)
	}
}

// A copier writes transactions to a new file.
type copier struct {
	batch
	to    *log
	from  *log
	at    int64 // in from: later records were committed since the copy began
	seq   uint64
	pause func() bool
	found []Loss // of from

	keep    string // the name of the old file if it is damaged
	damaged bool
}

// copyAll copies the losses and the live records. A value that is damaged is a loss, too. Where something is lost, the records
// keep their order: those before a loss are older.
func (c *copier) copyAll(alive *btree.Map[string, location]) error {
	keys, places := alive.KeyValues()
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	if len(c.found) > 0 || len(c.from.losses()) > 0 {
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(places[a].at, places[b].at) })
	}
	found := c.found
	var buf []byte
	for _, i := range order {
		key, where := keys[i], places[i]
		for ; len(found) > 0 && found[0].before <= where.at; found = found[1:] {
			if err := c.lost(found[0]); err != nil {
				return err
			}
		}
		var err error
		if buf, err = c.from.value(key, where, buf); errors.Is(err, errDamaged) {
			err = c.lost(Loss{Kind: Lost, Found: time.Now(), Offset: where.at, Bytes: int64(where.size), Transactions: 1, Keys: []string{key}, Exact: true})
		} else if err == nil {
			err = c.add([]store.Op{{Key: key, Value: buf}})
		}
		if err != nil {
			return err
		}
	}
	for _, loss := range found {
		if err := c.lost(loss); err != nil {
			return err
		}
	}
	return nil
}

// lost records a loss of the old file, which then has to be kept.
func (c *copier) lost(loss Loss) error {
	loss.Copy, c.damaged = c.keep, true
	return c.add([]store.Op{loss.op()})
}

// catchUp copies the transactions of the old file up to end.
func (c *copier) catchUp(end int64) error {
	r := reader{file: c.from, marker: c.from.marker}
	for c.at < end {
		rec, _ := r.next(c.at, c.seq)
		if rec.at != c.at {
			return fmt.Errorf("the record at offset %d was damaged on disk", c.at)
		}
		var ops []store.Op
		parseOps(rec.payload, func(op parsedOp) {
			ops = append(ops, store.Op{Key: string(op.key), Value: op.value, Delete: op.deletes})
		})
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

// exchange renames the new file to the name of the old one, unless another file has that name. The old one gets the name keep; empty: it is
// deleted. The caller holds writing.
func (s *Store) exchange(to *log, keep string) error {
	now, err := os.Stat(s.path)
	if err == nil && !s.log.is(now) {
		return errors.New("another file has its name")
	}
	if err == nil && keep != "" {
		if err := os.Link(s.path, keep); err != nil {
			return err
		}
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
