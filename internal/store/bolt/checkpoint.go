package bolt

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"time"

	"go.etcd.io/bbolt"
)

const (
	// settleStep is how many keys one transaction copies where everybody waits for the last of them.
	settleStep = 4096
	// stepSize bounds the bytes of one transaction.
	stepSize = 1 << 20
	// yieldEvery is after how many keys a transaction lets others run.
	yieldEvery = 16
)

// A copying is the checkpoint of one layer: its newest writes on their way to the database, by key, in small transactions.
type copying struct {
	layer *layer
	merge *merge
	batch []*entry // of the transaction under way, kept for another try if it fails
	key   []byte
}

func (s *Store) wakeCheckpointer() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// checkpointer copies frozen layers to the database, freezes the live one when few commits come, and tries again what
// failed.
func (s *Store) checkpointer() {
	defer close(s.stopped)
	alarm := time.NewTimer(s.limits.drain)
	defer alarm.Stop()
	alarm.Stop()
	for {
		var err error
		select {
		case <-s.quit:
			return
		case <-s.kick:
		case <-alarm.C:
			err = s.freeze()
		}
		if err == nil {
			err = s.copyFrozen()
		}
		if wait := s.patience(err); wait > 0 {
			alarm.Reset(wait)
		}
	}
}

// patience returns when to look again; 0: not before somebody asks.
func (s *Store) patience(err error) time.Duration {
	s.writing.Lock()
	broken := s.journal.broken != nil
	s.writing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil || broken:
		return s.limits.retry
	case s.live.durable > 0:
		return s.limits.drain
	}
	return 0
}

// copyFrozen copies what is frozen, if anything, unless Close will.
func (s *Store) copyFrozen() error {
	for {
		select {
		case <-s.quit:
			return nil
		default:
		}
		if done, err := s.step(s.limits.step); done || err != nil {
			return err
		}
		runtime.Gosched()
	}
}

// freeze begins a new epoch, so that the old one can be copied.
func (s *Store) freeze() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.journal.broken != nil {
		return s.healLocked()
	}
	s.mu.Lock()
	wanted := s.frozen == nil && s.live.durable > 0
	s.mu.Unlock()
	if wanted {
		s.rotateLocked()
	}
	return nil
}

// rotateLocked freezes the live layer. The one before it is in the database.
func (s *Store) rotateLocked() {
	s.journal.next()
	s.mu.Lock()
	s.frozen, s.live = s.live, newLayer(s.journal.epoch)
	s.mu.Unlock()
}

// makeRoom sees to it that the journal takes a record. Checkpoints are in the background as long as they keep up; from
// limits.assist on each commit pays for a part of one, so that it is over before anybody has to wait for its end.
func (s *Store) makeRoom() error {
	if s.journal.broken != nil {
		return s.healLocked()
	}
	at := s.journal.at
	if at < s.limits.soft {
		return nil
	}
	s.mu.Lock()
	busy := s.frozen != nil
	s.mu.Unlock()
	if busy && at >= s.limits.hard {
		if err := s.finish(settleStep); err != nil { // many small steps would only make the wait longer
			return fmt.Errorf("the journal is full and cannot be copied to the database: %w", err)
		}
		busy = false
	}
	if !busy {
		s.rotateLocked()
		s.wakeCheckpointer()
		return nil
	}
	if at >= s.limits.assist {
		_, _ = s.step(s.limits.step) // the checkpointer will meet the same error
	}
	return nil
}

// healLocked replaces a journal that failed: all that is durable goes to the database, which then says that this epoch is
// over, whatever else its file may hold, and both files are made anew.
func (s *Store) healLocked() error {
	if err := s.settleLocked(); err != nil {
		return fmt.Errorf("replace the journal (%w): %w", s.journal.broken, err)
	}
	if err := s.journal.remove(); err != nil {
		return fmt.Errorf("replace the journal (%w): %w", s.journal.broken, err)
	}
	s.journal.broken = nil
	return nil
}

// settleLocked brings everything into the database.
func (s *Store) settleLocked() error {
	if err := s.finish(settleStep); err != nil {
		return err
	}
	s.mu.Lock()
	clean := s.live.durable == 0
	s.mu.Unlock()
	if clean && s.journal.broken == nil {
		return nil
	}
	s.rotateLocked()
	return s.finish(settleStep)
}

// finish copies what is frozen to its end.
func (s *Store) finish(keys int) error {
	for {
		if done, err := s.step(keys); done || err != nil {
			return err
		}
	}
}

// step copies the next keys of the frozen layer in one transaction and tells whether nothing is left.
func (s *Store) step(keys int) (done bool, err error) {
	s.copying.Lock()
	defer s.copying.Unlock()
	s.mu.Lock()
	frozen := s.frozen
	s.mu.Unlock()
	if frozen == nil {
		return true, nil
	}
	if s.copy == nil {
		s.copy = &copying{layer: frozen, merge: newMerge("", frozen.snapshot())}
	}
	c := s.copy
	last := c.fill(keys)
	if err := s.save(c, last); err != nil {
		return false, err
	}
	c.batch = c.batch[:0]
	if last {
		s.mu.Lock()
		s.frozen, s.copy = nil, nil
		s.drops++
		s.mu.Unlock()
	}
	return last, nil
}

// fill completes the batch and tells whether it is the last.
func (c *copying) fill(keys int) (last bool) {
	size := 0
	for _, e := range c.batch {
		size += len(e.value)
	}
	for len(c.batch) < keys && size < stepSize {
		e := c.merge.next()
		if e == nil {
			return true
		}
		c.batch = append(c.batch, e)
		size += len(e.value)
	}
	return len(c.merge.heap) == 0
}

// save writes the batch; with the last one the database says that it has all of this epoch.
func (s *Store) save(c *copying, last bool) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("bbolt panicked: %v", p)
		}
	}()
	tx, err := s.db.Begin(true)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no more than an error once it is committed
	b := tx.Bucket(bucketName)
	for i, e := range c.batch {
		c.key = append(c.key[:0], e.key...)
		if e.value == nil {
			err = b.Delete(c.key)
		} else {
			err = b.Put(c.key, e.value) // reads the value until the commit
		}
		if err != nil {
			return err
		}
		if i%yieldEvery == yieldEvery-1 {
			runtime.Gosched()
		}
	}
	if last {
		if err := putEpoch(tx, c.layer.epoch); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func putEpoch(tx *bbolt.Tx, epoch uint64) error {
	return tx.Bucket(journalBucket).Put(epochKey, binary.BigEndian.AppendUint64(nil, epoch))
}
