package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/netns"
)

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
	netns.Need(t, "root")
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
	netns.Need(t, "root")
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
