package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/bootlab/bootlab/internal/store"
)

// Commit implements store.Store. Once t was taken up, the end of ctx no longer matters: the outcome that Commit returns is
// the one on the disk.
func (s *Store) Commit(ctx context.Context, t store.Txn) error {
	r := s.queue.get(ctx)
	defer s.queue.put(r)
	r.txn[0] = t
	r.txns, r.outcomes = r.txn[:], r.outcome[:]
	s.submit(r)
	return r.outcome[0]
}

// CommitAll implements store.Store. Its transactions share one record of the journal and one sync.
func (s *Store) CommitAll(ctx context.Context, txns []store.Txn) []error {
	outcomes := make([]error, len(txns))
	if len(txns) == 0 {
		return outcomes
	}
	r := s.queue.get(ctx)
	defer s.queue.put(r)
	r.txns, r.outcomes = txns, outcomes
	s.submit(r)
	return outcomes
}

// submit sees r through.
func (s *Store) submit(r *request) {
	err := r.measure()
	if err == nil {
		err = s.queue.enter(r)
	}
	if err != nil {
		for i := range r.outcomes {
			r.outcomes[i] = err
		}
		return
	}
	if r.done {
		return
	}
	s.commit(s.queue.take())
	s.queue.release(r)
}

// measure sets r.size, and the outcomes of transactions that bbolt would refuse when it is too late. The error is that all
// are too much.
func (r *request) measure() error {
	r.size = headerSize + recordSize + recordAlign
	for i := range r.txns {
		size, err := measure(&r.txns[i])
		r.outcomes[i] = err
		r.size += size
	}
	if r.size > maxTxnSize {
		return fmt.Errorf("commit: %d bytes at once, more than %d", r.size, maxTxnSize)
	}
	return nil
}

func measure(t *store.Txn) (size int, err error) {
	for i := range t.Then {
		op := &t.Then[i]
		switch {
		case op.Key == "":
			return 0, errors.New("commit: a key is empty")
		case len(op.Key) > bbolt.MaxKeySize:
			return 0, fmt.Errorf("commit: key %.32q… has %d bytes, more than %d", op.Key, len(op.Key), bbolt.MaxKeySize)
		case len(op.Value) > maxTxnSize:
			return 0, fmt.Errorf("commit: the value of %q has %d bytes, more than %d", op.Key, len(op.Value), maxTxnSize)
		}
		size += opOverhead + len(op.Key) + len(op.Value)
	}
	return size, nil
}

// commit makes a group durable and sets its outcomes. An error of the disk is everybody's.
func (s *Store) commit(group []*request) {
	s.writing.Lock()
	defer s.writing.Unlock()
	err := s.write(group)
	if err == nil {
		return
	}
	err = fmt.Errorf("commit to %s: %w", s.db.Path(), err)
	for _, r := range group {
		for i, own := range r.outcomes {
			// A conflict may be with a transaction that failed just now.
			if own == nil || errors.Is(own, store.ErrConflict) {
				r.outcomes[i] = err
			}
		}
	}
}

func (s *Store) write(group []*request) error {
	if err := s.makeRoom(); err != nil {
		return err
	}
	rec, err := s.apply(group)
	if err == nil && rec != nil {
		err = s.journal.append(rec)
	}
	s.mu.Lock()
	if err != nil {
		s.live.undo()
	}
	first := s.live.durable == 0 && s.live.count > 0
	s.live.publish()
	s.mu.Unlock()
	if first || s.journal.broken != nil {
		s.wakeCheckpointer()
	}
	return err
}

// apply runs the group in order, so that a transaction sees those before it. The writes are in flight afterwards; rec is
// the record that makes them durable, nil if there are none. bbolt panics where it finds its file damaged; that must not
// end the process.
func (s *Store) apply(group []*request) (rec []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := view{s: s}
	defer v.end(&err)
	size := 0
	for _, r := range group {
		size += r.size
	}
	const empty = headerSize + recordSize
	rec = s.live.room(size)[:empty]
	for _, r := range group {
		if rec, err = s.applyLocked(r, rec, &v); err != nil {
			return nil, err
		}
	}
	if len(rec) == empty {
		return nil, nil
	}
	s.live.use(headerSize + padded(len(rec)-headerSize))
	return rec, nil
}

func (s *Store) applyLocked(r *request, rec []byte, v *view) ([]byte, error) {
	stop := r.ctx.Err()
	for i := range r.txns {
		t := &r.txns[i]
		if r.outcomes[i] != nil {
			continue
		}
		if r.outcomes[i] = stop; stop != nil {
			continue
		}
		failed, err := v.fails(t.If)
		if err != nil {
			return rec, err
		}
		if failed != nil {
			r.outcomes[i] = fmt.Errorf("%w: key %q", store.ErrConflict, failed.Key)
			continue
		}
		for j := range t.Then {
			var value []byte
			rec, value = appendOp(rec, &t.Then[j])
			s.live.add(t.Then[j].Key, value)
		}
	}
	return rec, nil
}

// A view is what the transactions of a group see: both layers with what is in flight, and below them the database, which is
// opened only if it must be asked.
type view struct {
	s      *Store
	tx     *bbolt.Tx
	bucket *bbolt.Bucket
	key    []byte
}

// fails returns the first condition that does not hold, or nil.
func (v *view) fails(conds []store.Cond) (*store.Cond, error) {
	for i := range conds {
		c := &conds[i]
		value, err := v.get(c.Key)
		if err != nil {
			return nil, err
		}
		if c.Absent != (value == nil) || !c.Absent && !bytes.Equal(value, c.Value) {
			return c, nil
		}
	}
	return nil, nil
}

// get returns the value of key, nil if there is none.
func (v *view) get(key string) ([]byte, error) {
	if e := findLocked(key, v.s.live, v.s.live.count, v.s.frozen); e != nil {
		return e.value, nil
	}
	if v.tx == nil {
		tx, err := v.s.db.Begin(false)
		if err != nil {
			return nil, err
		}
		v.tx, v.bucket = tx, tx.Bucket(bucketName)
	}
	v.key = append(v.key[:0], key...)
	return v.bucket.Get(v.key), nil
}

// end ends the view, and a panic of bbolt with it; deferred.
func (v *view) end(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("bbolt panicked: %v", p)
	}
	if v.tx != nil {
		_ = v.tx.Rollback() // of a reader: it cannot fail
	}
}
