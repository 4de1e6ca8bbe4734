package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"bootlab/internal/netlab"
	"bootlab/internal/store"
)

// TestDiskErrors: what the disk refuses is nowhere, not even after a kill, and service goes on once it no longer does.
func TestDiskErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		on   func(*faults)
		want string
	}{
		{"write", func(f *faults) { f.write = true }, "write the journal"},
		{"sync", func(f *faults) { f.sync = true }, "sync the journal"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := &faults{}
			s := begin(t, filepath.Join(t.TempDir(), "store.db"), idle(), f.disk)
			put(t, s, "a", "1")
			f.set(tt.on)
			for range 2 { // the second may find the journal broken
				err := s.Commit(t.Context(), store.Put("a", []byte("2")))
				if !errors.Is(err, errDisk) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), s.db.Path()) {
					t.Errorf("commit = %v, want %q, %v", err, tt.want, errDisk)
				}
				wantContent(t, s, map[string]string{"a": "1"})
				wantContent(t, begin(t, crashed(t, s), idle(), openDisk), map[string]string{"a": "1"})
			}
			f.set(func(f *faults) { f.write, f.sync = false, false })
			put(t, s, "b", "3")
			want := map[string]string{"a": "1", "b": "3"}
			wantContent(t, s, want)
			wantContent(t, begin(t, crashed(t, s), idle(), openDisk), want)
		})
	}
}

// TestFailedSyncIsNotRepeated: the kernel forgets what it could not write, so the file is not used again.
func TestFailedSyncIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cutting fails too: %v", cut), func(t *testing.T) {
			t.Parallel()
			f := &faults{}
			s := begin(t, filepath.Join(t.TempDir(), "store.db"), idle(), f.disk)
			put(t, s, "a", "1")
			failed := journalPath(s.db.Path(), int(s.journal.epoch%2))
			f.set(func(f *faults) { f.sync, f.cut = true, cut })
			if err := s.Commit(t.Context(), store.Put("b", []byte("2"))); !errors.Is(err, errDisk) {
				t.Fatalf("commit = %v, want %v", err, errDisk)
			}
			f.set(func(f *faults) { f.sync, f.cut = false, false })
			put(t, s, "c", "3")
			if _, err := os.Stat(failed); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file whose sync failed: %v, want none", err)
			}
			want := map[string]string{"a": "1", "c": "3"}
			wantContent(t, s, want)
			wantContent(t, begin(t, crashed(t, s), idle(), openDisk), want)
		})
	}
}

// TestDatasync: a pipe cannot be synced, and says so.
func TestDatasync(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := (journalDisk{w}).Datasync(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("sync of a pipe = %v, want %v", err, syscall.EINVAL)
	}
}

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

// TestHealsAlone: nobody needs to commit for it.
func TestHealsAlone(t *testing.T) {
	t.Parallel()
	f := &faults{}
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), small(), f.disk)
	f.set(func(f *faults) { f.sync = true })
	if err := s.Commit(t.Context(), store.Put("a", nil)); err == nil {
		t.Fatal("commit succeeded")
	}
	for {
		s.writing.Lock()
		healed := s.journal.broken == nil
		s.writing.Unlock()
		if healed {
			return // or the test binary's time is up
		}
	}
}

// TestJournalFull: commits go on while the database cannot take them, up to the journal's limit.
func TestJournalFull(t *testing.T) {
	t.Parallel()
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), small(), openDisk)
	limit := func(n int) {
		s.copying.Lock()
		defer s.copying.Unlock()
		s.db.MaxSize = n
	}
	limit(1)
	want := map[string]string{}
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		key := strconv.Itoa(i)
		if err = s.Commit(t.Context(), store.Put(key, bytes.Repeat([]byte{'v'}, 200))); err == nil {
			want[key] = strings.Repeat("v", 200)
		}
	}
	if err == nil || !strings.Contains(err.Error(), "journal is full") {
		t.Fatalf("commit = %v, want an error that says that the journal is full", err)
	}
	if len(want) < 10 {
		t.Errorf("only %d commits went into the journal", len(want))
	}
	wantContent(t, s, want)
	wantContent(t, begin(t, crashed(t, s), small(), openDisk), want)
	limit(0)
	put(t, s, "more", "1")
	want["more"] = "1"
	wantContent(t, s, want)
}

// TestFullDisk fills a small file system, and empties it again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	netlab.Need(t, "root")
	for name, l := range map[string]limits{"small": small(), "default": defaultLimits()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m,mode=0700"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
			path := filepath.Join(dir, "store.db")
			s := begin(t, path, l, openDisk)
			put(t, s, "first", "1")
			ballast := filepath.Join(dir, "ballast")
			if err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("fill the disk: %v", err)
			}
			want := map[string]string{"first": "1"}
			fillUp(t, s, want)
			wantContent(t, s, want)
			reopened := begin(t, crashed(t, s), l, openDisk)
			wantContent(t, reopened, want)
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			for i := range 100 {
				put(t, s, fmt.Sprint("after/", i), "2")
				want[fmt.Sprint("after/", i)] = "2"
			}
			wantContent(t, s, want)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			wantContent(t, begin(t, path, l, openDisk), want)
		})
	}
}

// fillUp commits until there is no space, and then some more.
func fillUp(t *testing.T, s *Store, want map[string]string) {
	t.Helper()
	failures := 0
	for i := 0; failures < 20 && i < 100_000; i++ {
		key := strconv.Itoa(i)
		err := s.Commit(t.Context(), store.Put(key, make([]byte, 300)))
		switch {
		case err == nil:
			want[key] = string(make([]byte, 300))
		case errors.Is(err, syscall.ENOSPC):
			failures++
		default:
			t.Fatalf("commit = %v, want no space left on device", err)
		}
	}
	if failures == 0 {
		t.Fatal("the disk never became full")
	}
}

// TestOpenOnFullDisk: what was acknowledged can be read although it cannot be copied to the database.
func TestOpenOnFullDisk(t *testing.T) {
	t.Parallel()
	netlab.Need(t, "root")
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), idle(), openDisk)
	want := map[string]string{}
	for i := range 200 {
		key := strconv.Itoa(i)
		put(t, s, key, strings.Repeat("v", 1000))
		want[key] = strings.Repeat("v", 1000)
	}
	from, dir := crashed(t, s), t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	if err := os.CopyFS(dir, os.DirFS(filepath.Dir(from))); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	path := filepath.Join(dir, "store.db")
	full := begin(t, path, idle(), openDisk)
	wantContent(t, full, want)
	if err := full.Commit(t.Context(), store.Put("a", nil)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("commit = %v, want no space", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	put(t, full, "a", "1")
	want["a"] = "1"
	wantContent(t, full, want)
	if err := full.Close(); err != nil {
		t.Fatal(err)
	}
	wantContent(t, begin(t, path, idle(), openDisk), want)
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

// TestOlderVersion: a database without a journal's epoch opens, and keeps what it has.
func TestOlderVersion(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(bucketName)
		if err != nil {
			return err
		}
		return b.Put([]byte("lease"), []byte("1"))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s := begin(t, path, idle(), openDisk)
	wantContent(t, s, map[string]string{"lease": "1"})
	put(t, s, "lease", "2")
	wantContent(t, begin(t, crashed(t, s), idle(), openDisk), map[string]string{"lease": "2"})
}

// TestDamagedJournal: the error says what is to be done, and nothing was deleted.
func TestDamagedJournal(t *testing.T) {
	t.Parallel()
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), idle(), openDisk)
	put(t, s, "a", "1")
	put(t, s, "b", "2")
	path := crashed(t, s)
	file := journalPath(path, int(s.journal.epoch%2))
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[headerSize+recordSize]++
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err = Open(path)
		if err == nil {
			t.Fatal("open succeeded")
		}
		for _, want := range []string{path, file, "newer ones follow", "move the files"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not say %q", err, want)
			}
		}
	}
}

// TestNotAnotherDatabasesJournal: a new database beside an old journal is a mistake that somebody made.
func TestNotAnotherDatabasesJournal(t *testing.T) {
	t.Parallel()
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), idle(), openDisk)
	put(t, s, "a", "1")
	path := crashed(t, s)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "do not belong together") {
		t.Errorf("open = %v, want an error", err)
	}
}

// TestFiles: private, and gone after Close.
func TestFiles(t *testing.T) {
	t.Parallel()
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), idle(), openDisk)
	journals := func() []string {
		found, err := filepath.Glob(s.db.Path() + "-journal*")
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := journals(); len(found) > 0 {
		t.Errorf("before the first commit there are %q", found)
	}
	put(t, s, "a", "1")
	found := journals()
	if len(found) != 1 {
		t.Fatalf("journals = %q, want one", found)
	}
	info, err := os.Stat(found[0])
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() > 2*minGrowth {
		t.Errorf("%s: %v, %d bytes, %v", found[0], info.Mode(), info.Size(), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if found := journals(); len(found) > 0 {
		t.Errorf("after Close there are %q", found)
	}
}

// TestHugeValue: a record may be greater than the journal should ever be.
func TestHugeValue(t *testing.T) {
	t.Parallel()
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), defaultLimits(), openDisk)
	huge := strings.Repeat("v", hardLimit+maxGrowth)
	want := map[string]string{}
	for i := range 3 {
		key := strconv.Itoa(i)
		put(t, s, key, huge)
		want[key] = huge
	}
	put(t, s, "small", "1")
	want["small"] = "1"
	reopened := begin(t, crashed(t, s), defaultLimits(), openDisk)
	if got := content(t, reopened, ""); len(got) != len(want) || got["2"] != huge {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
}

// TestMemoryFallsBack: what 100,000 leases took is given back once they are in the database.
func TestMemoryFallsBack(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), defaultLimits(), openDisk)
	put(t, s, "first", "1")
	before, highest := heap(), int64(0)
	for i := range 1000 {
		var txn store.Txn
		for k := range 100 {
			txn.Then = append(txn.Then, store.Op{Key: fmt.Sprint("lease/", i*100+k), Value: make([]byte, 42)})
		}
		if err := s.Commit(t.Context(), txn); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 {
			highest = max(highest, heap()-before)
		}
	}
	s.writing.Lock()
	err := s.settleLocked()
	s.writing.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	after := heap() - before
	t.Logf("at most %d KiB, then %d KiB", highest>>10, after>>10)
	if highest > 24<<20 || after > 2<<20 {
		t.Errorf("the store takes up to %d KiB and keeps %d KiB, want at most 24 MiB and 2 MiB", highest>>10, after>>10)
	}
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
