package logfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) storetest.Open {
		path := filepath.Join(t.TempDir(), "store.db")
		return func() (store.Store, error) {
			s, losses, err := Open(path)
			if len(losses) > 0 {
				t.Errorf("losses: %v", losses)
			}
			return s, err
		}
	})
}

func mustOpen(t testing.TB, path string) *Store {
	t.Helper()
	return begin(t, path, compactFrom, openFile)
}

func TestFileIsPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := mustOpen(t, path)
	put(t, s, "a", "1")
	for range 2 {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 || info.Size() > 4*minGrowth {
			t.Errorf("mode %v, %d bytes, %v, want 0600 and few", info.Mode(), info.Size(), err)
		}
		compactNow(t, s)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(path + "*"); len(left) != 1 {
		t.Errorf("after Close there are %q", left)
	}
}

// TestLockedFileNamesItsHolder also after a compaction, when the file is another.
// TestLiveBytes: what was deleted or overwritten does not count when the store decides whether the file is to be compacted.
func TestLiveBytes(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	empty := s.log.live
	put(t, s, "a", "1")
	one := s.log.live
	put(t, s, "a", "2")
	if s.log.live != one {
		t.Errorf("%d bytes after a value was overwritten, want %d", s.log.live, one)
	}
	if err := s.Commit(t.Context(), store.Delete("a")); err != nil || s.log.live != empty {
		t.Errorf("%d bytes after the delete, %v, want %d", s.log.live, err, empty)
	}
}

func TestLockedFileNamesItsHolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := mustOpen(t, path)
	for range 2 {
		_, _, err := Open(path)
		if err == nil {
			t.Fatal("a second open succeeded")
		}
		for _, want := range []string{path, strconv.Itoa(os.Getpid()), "another bootlab"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not say %q", err, want)
			}
		}
		compactNow(t, s)
	}
}

// TestLockHolderAmongOthers: the holder of a lock is found while other programs lock and unlock files.
func TestLockHolderAmongOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "store.db")
	mustOpen(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	for i := range 8 {
		others.Go(func() {
			for ctx.Err() == nil {
				var files []*os.File
				for n := range 20 {
					f, err := os.Create(filepath.Join(dir, fmt.Sprint("other", i, "-", n)))
					if err == nil {
						err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
					}
					if err != nil {
						t.Error(err)
						return
					}
					files = append(files, f)
				}
				for _, f := range files {
					_ = f.Close()
				}
			}
		})
	}
	for range 300 {
		if got := holder(path); !strings.Contains(got, strconv.Itoa(os.Getpid())) {
			t.Fatalf("the holder is %s, want this process", got)
		}
	}
}

func TestOpenInNoFolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none", "store.db")
	if _, _, err := Open(path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("open = %v, want an error that names %s", err, path)
	}
}

// TestInFlight: no reader sees a value before it is durable, and a caller that waits for the disk can cancel.
func TestInFlight(t *testing.T) {
	t.Parallel()
	syncing, done := make(chan struct{}), make(chan struct{})
	f := &faults{}
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), never, f.disk)
	f.set(func(f *faults) { f.during = func() { syncing <- struct{}{}; <-done } })
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
	f.set(func(f *faults) { f.during = nil })
	done <- struct{}{}
	if err := <-later; err != nil {
		t.Error(err)
	}
	wantContent(t, s, map[string]string{"a": "3"})
}

// TestGroups: all that waits while the disk syncs shares the next sync.
func TestGroups(t *testing.T) {
	t.Parallel()
	const callers = 50
	syncing, done, syncs := make(chan struct{}, callers), make(chan struct{}), atomic.Int32{}
	f := &faults{}
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), never, f.disk)
	f.set(func(f *faults) { f.during = func() { syncs.Add(1); syncing <- struct{}{}; <-done } })
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			if err := s.Commit(t.Context(), store.Put(strconv.Itoa(i), nil)); err != nil {
				t.Error(err)
			}
		})
		if i == 0 {
			<-syncing
		}
	}
	for waiting := 0; waiting < callers-1; { // or the test binary's time is up
		s.queue.Lock()
		waiting = len(s.queue.waiting)
		s.queue.Unlock()
	}
	close(done)
	wg.Wait()
	if n := syncs.Load(); n != 2 {
		t.Errorf("%d commits took %d syncs, want 2", callers, n)
	}
}

// TestConcurrent: every reader finds pairs of keys equal while compaction replaces files.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), small, openFile)
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
	wantContent(t, begin(t, crashed(t, s), small, openFile), content(t, s, ""))
}

// A countingDisk counts reads.
type countingDisk struct {
	disk
	reads *int
}

func (d countingDisk) ReadAt(b []byte, at int64) (int, error) {
	*d.reads++
	return d.disk.ReadAt(b, at)
}

// TestScanReadsFewParts: values whose keys have nearly the order of the file, as leases have, are not read one by one; values that are
// longer than what is read at once are whole.
func TestScanReadsFewParts(t *testing.T) {
	t.Parallel()
	var reads int
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), never, func(path string, flag int) (disk, error) {
		d, err := openFile(path, flag)
		return countingDisk{d, &reads}, err
	})
	want := map[string]string{}
	var txns []store.Txn
	for i := range 8192 {
		size := 30 + i%11
		if i%1000 == 999 {
			size = i * 2
		}
		key := fmt.Sprintf("lease/10.0.%d.%d", i>>8, i&255)
		want[key] = strings.Repeat(string(rune('a'+i%26)), size)
		txns = append(txns, store.Put(key, []byte(want[key])))
	}
	if err := errors.Join(s.CommitAll(t.Context(), txns)...); err != nil {
		t.Fatal(err)
	}
	reads = 0
	if diff := cmp.Diff(want, content(t, s, "lease/")); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
	if most := len(want) / 20; reads > most {
		t.Errorf("%d reads for %d values, want %d at most", reads, len(want), most)
	}
}
