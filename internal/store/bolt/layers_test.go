package bolt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/bootlab/bootlab/internal/store"
)

// TestInFlight: nobody sees what is not durable, and who waits for the disk can stop waiting.
func TestInFlight(t *testing.T) {
	t.Parallel()
	syncing, done := make(chan struct{}), make(chan struct{})
	f := &faults{during: func() { syncing <- struct{}{}; <-done }}
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), idle(), f.disk)
	commit := func(ctx context.Context, txn store.Txn) chan error {
		outcome := make(chan error, 1)
		go func() { outcome <- s.Commit(ctx, txn) }()
		return outcome
	}
	first := commit(t.Context(), store.Put("a", []byte("1")))
	<-syncing
	wantContent(t, s, map[string]string{})
	if v, err := s.Get(t.Context(), "a"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("get = %q, %v, want ErrNotFound: it is not durable yet", v, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	given := commit(ctx, store.Put("b", []byte("2")))
	later := commit(t.Context(), store.Txn{
		If: []store.Cond{{Key: "a", Value: []byte("1")}}, Then: []store.Op{{Key: "a", Value: []byte("3")}},
	})
	cancel()
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Errorf("commit = %v, want canceled", err)
	}
	done <- struct{}{}
	if err := <-first; err != nil {
		t.Error(err)
	}
	<-syncing
	if v, err := s.Get(t.Context(), "a"); err != nil || string(v) != "1" {
		t.Errorf("get = %q, %v, want 1", v, err)
	}
	done <- struct{}{}
	if err := <-later; err != nil {
		t.Error(err)
	}
	wantContent(t, s, map[string]string{"a": "3"})
}

// TestQueue: who has the lead cannot leave.
func TestQueue(t *testing.T) {
	t.Parallel()
	var q queue
	q.init()
	a, b, c := q.get(t.Context()), q.get(t.Context()), q.get(t.Context())
	if err := q.enter(a); err != nil || len(q.take()) != 1 {
		t.Fatalf("enter: %v", err)
	}
	q.waiting = append(q.waiting, b, c)
	q.release(a)
	if q.leave(b) {
		t.Error("the leader left")
	}
	if !q.leave(c) {
		t.Error("one who waits could not leave")
	}
	if got := q.take(); len(got) != 1 || got[0] != b {
		t.Errorf("the group is %v, want the leader", got)
	}
	q.release(b)
	q.shut()
	if err := q.enter(c); !errors.Is(err, store.ErrClosed) {
		t.Errorf("enter = %v, want ErrClosed", err)
	}
}

// TestConcurrent: pairs of keys are always equal, whoever looks, while epochs come and go.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), small(), openDisk)
	const writers, each, pairs = 8, 150, 40
	var wg sync.WaitGroup
	var writing atomic.Int32
	writing.Store(writers)
	for w := range writers {
		wg.Go(func() {
			defer writing.Add(-1)
			for i := range each {
				key, value := strconv.Itoa((w*each+i)%pairs), fmt.Appendf(nil, "%d/%d", w, i)
				both := store.Txn{Then: []store.Op{{Key: "a/" + key, Value: value}, {Key: "b/" + key, Value: value}}}
				for _, err := range s.CommitAll(t.Context(), []store.Txn{both, store.Put("last/"+strconv.Itoa(w), value)}) {
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for last := false; !last; {
				last = writing.Load() == 0
				got := content(t, s, "")
				for key := range pairs {
					if a, b := got[fmt.Sprint("a/", key)], got[fmt.Sprint("b/", key)]; a != b {
						t.Errorf("pair %d: %q and %q", key, a, b)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	wantContent(t, begin(t, crashed(t, s), small(), openDisk), content(t, s, ""))
}

// TestConditionsAcrossLayers: the same conditions hold wherever a value is.
func TestConditionsAcrossLayers(t *testing.T) {
	t.Parallel()
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), idle(), openDisk)
	absent := func(k string) store.Txn {
		return store.Txn{If: []store.Cond{{Key: k, Absent: true}}, Then: []store.Op{{Key: k, Value: []byte("new")}}}
	}
	swap := func(k, old, value string) store.Txn {
		return store.Txn{If: []store.Cond{{Key: k, Value: []byte(old)}}, Then: []store.Op{{Key: k, Value: []byte(value)}}}
	}
	put(t, s, "database", "1")
	put(t, s, "gone", "1")
	if err := s.freeze(); err != nil {
		t.Fatal(err)
	}
	if err := s.finish(1); err != nil {
		t.Fatal(err)
	}
	put(t, s, "frozen", "2")
	if err := s.Commit(t.Context(), store.Delete("gone")); err != nil {
		t.Fatal(err)
	}
	s.copying.Lock() // the checkpointer stays out
	if err := s.freeze(); err != nil {
		t.Fatal(err)
	}
	put(t, s, "live", "3")
	got := s.CommitAll(t.Context(), []store.Txn{
		absent("database"), absent("frozen"), absent("live"), absent("gone"), absent("gone"),
		swap("database", "1", "4"), swap("database", "1", "5"), swap("frozen", "2", "4"), swap("live", "3", "4"), swap("live", "4", "5"),
	})
	conflicts := []bool{true, true, true, false, true, false, true, false, false, false}
	for i, want := range conflicts {
		if errors.Is(got[i], store.ErrConflict) != want || got[i] != nil && !want {
			t.Errorf("outcome %d = %v, want a conflict: %v", i, got[i], want)
		}
	}
	want := map[string]string{"database": "4", "frozen": "4", "live": "5", "gone": "new"}
	wantContent(t, s, want)
	s.copying.Unlock()
	wantContent(t, begin(t, crashed(t, s), idle(), openDisk), want)
}

// TestDrained: once nobody commits, the layers are empty and the database says so.
func TestDrained(t *testing.T) {
	t.Parallel()
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), small(), openDisk)
	for i := range 200 {
		put(t, s, strconv.Itoa(i), "value")
	}
	for drained := false; !drained; { // or the test binary's time is up
		s.mu.Lock()
		drained = s.frozen == nil && s.live.count == 0
		s.mu.Unlock()
	}
	err := s.db.View(func(tx *bbolt.Tx) error {
		if n := tx.Bucket(bucketName).Stats().KeyN; n != 200 {
			t.Errorf("the database has %d keys, want 200", n)
		}
		if got := binary.BigEndian.Uint64(tx.Bucket(journalBucket).Get(epochKey)); got+1 != s.live.epoch {
			t.Errorf("the database ends with epoch %d, the live one is %d", got, s.live.epoch)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
