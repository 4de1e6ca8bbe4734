package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"bootlab/internal/store"
)

// maxGroup is how many transactions share one sync at most, to bound the time that the first of them waits.
const maxGroup = 1024

var bucketName = []byte("bootlab")

// A Store is a store.Store in one file.
type Store struct {
	db       *bbolt.DB
	requests chan *request // unbuffered: what was sent is in the writer's hands and will be answered
	quit     chan struct{}
	stopped  chan struct{} // the writer has returned
	close    func() error
}

// A request is one transaction on its way to the writer.
type request struct {
	ctx  context.Context // ends the wait before the writer took it up, never after
	txn  store.Txn
	done chan error // of one, so that the writer never waits
}

// start makes a store of an open database.
func start(db *bbolt.DB) *Store {
	s := &Store{
		db:       db,
		requests: make(chan *request),
		quit:     make(chan struct{}),
		stopped:  make(chan struct{}),
	}
	s.close = sync.OnceValue(func() error {
		close(s.quit)
		<-s.stopped
		return s.db.Close()
	})
	go s.write()
	return s
}

// Close waits for the commits under way and gives the file free. A second call returns what the first did.
func (s *Store) Close() error { return s.close() }

// Get returns a copy of the value of key, store.ErrNotFound, or store.ErrClosed.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var value []byte
	err := s.db.View(func(tx *bbolt.Tx) error {
		v := tx.Bucket(bucketName).Get([]byte(key))
		if v == nil {
			return store.ErrNotFound
		}
		value = append([]byte{}, v...)
		return nil
	})
	return value, closedOr(err)
}

// Scan implements store.Store. It sees the store as it was when it began. Commits go on meanwhile, but one that makes the
// file outgrow its mapping waits for the scan to end.
func (s *Store) Scan(ctx context.Context, prefix string, fn func(key string, value []byte) error) error {
	return closedOr(s.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketName).Cursor()
		for k, v := c.Seek([]byte(prefix)); k != nil && strings.HasPrefix(string(k), prefix); k, v = c.Next() {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := fn(string(k), v); err != nil {
				return err
			}
		}
		return ctx.Err()
	}))
}

// Commit implements store.Store. Once the writer has taken t up, the end of ctx no longer matters: the outcome that
// Commit returns is the one on the disk.
func (s *Store) Commit(ctx context.Context, t store.Txn) error {
	if err := validate(t); err != nil {
		return err
	}
	r := &request{ctx: ctx, txn: t, done: make(chan error, 1)}
	select {
	case s.requests <- r:
		return <-r.done
	case <-ctx.Done():
		return ctx.Err()
	case <-s.quit:
		return store.ErrClosed
	}
}

// validate refuses what bbolt would refuse in the middle of a transaction that others share.
func validate(t store.Txn) error {
	for _, op := range t.Then {
		switch {
		case op.Key == "":
			return errors.New("commit: a key is empty")
		case len(op.Key) > bbolt.MaxKeySize:
			return fmt.Errorf("commit: key %.32q… has %d bytes, more than %d", op.Key, len(op.Key), bbolt.MaxKeySize)
		case len(op.Value) > bbolt.MaxValueSize:
			return fmt.Errorf("commit: the value of %q has %d bytes, more than %d", op.Key, len(op.Value), bbolt.MaxValueSize)
		}
	}
	return nil
}

// write is the writer: it takes all transactions that wait and gives them one sync.
func (s *Store) write() {
	defer close(s.stopped)
	group := make([]*request, 0, maxGroup)
	for {
		select {
		case r := <-s.requests:
			group = s.drain(append(group[:0], r))
			s.commit(group)
			clear(group)
		case <-s.quit:
			return
		}
	}
}

func (s *Store) drain(group []*request) []*request {
	for len(group) < maxGroup {
		select {
		case r := <-s.requests:
			group = append(group, r)
		default:
			return group
		}
	}
	return group
}

// commit applies a group in one bbolt transaction and tells everybody. An error of the disk is everybody's.
func (s *Store) commit(group []*request) {
	outcomes := make([]error, len(group))
	err := s.apply(group, outcomes)
	for i, r := range group {
		if err != nil {
			r.done <- fmt.Errorf("commit to %s: %w", s.db.Path(), err)
			continue
		}
		r.done <- outcomes[i]
	}
}

// apply runs the group in order, so that a transaction sees those before it. bbolt panics where it finds its file
// damaged; that must not end the process.
func (s *Store) apply(group []*request, outcomes []error) (err error) {
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
	dirty := false
	for i, r := range group {
		outcomes[i] = outcome(tx.Bucket(bucketName), r)
		if outcomes[i] != nil || len(r.txn.Then) == 0 {
			continue
		}
		dirty = true
		if err := do(tx.Bucket(bucketName), r.txn.Then); err != nil {
			return err
		}
	}
	if !dirty {
		return nil
	}
	return tx.Commit()
}

// outcome returns why r must not be applied, or nil.
func outcome(b *bbolt.Bucket, r *request) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	for _, c := range r.txn.If {
		v := b.Get([]byte(c.Key))
		if c.Absent != (v == nil) || !c.Absent && !bytes.Equal(v, c.Value) {
			return fmt.Errorf("%w: key %q", store.ErrConflict, c.Key)
		}
	}
	return nil
}

func do(b *bbolt.Bucket, ops []store.Op) (err error) {
	for _, op := range ops {
		if op.Delete {
			err = b.Delete([]byte(op.Key))
		} else {
			// bbolt reads the value until the commit: the caller waits for just that.
			err = b.Put([]byte(op.Key), op.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func closedOr(err error) error {
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return store.ErrClosed
	}
	return err
}
