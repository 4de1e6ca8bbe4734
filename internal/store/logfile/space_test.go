package logfile

import (
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

// TestFullDisk fills a small file system, and empties it again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root")
	for name, l := range map[string]int64{"small": small, "default": compactFrom} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := mountTmpfs(t, "size=2m")
			path := filepath.Join(dir, "store.db")
			s := begin(t, path, l, openFile)
			put(t, s, "first", "1")
			ballast := filepath.Join(dir, "ballast")
			if err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("fill the disk: %v", err)
			}
			want := map[string]string{"first": "1"}
			fillUp(t, s, want)
			wantContent(t, s, want)
			reopened := begin(t, crashed(t, s), l, openFile)
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
			wantContent(t, begin(t, path, l, openFile), want)
		})
	}
}

// mountTmpfs mounts a file system of its own.
func mountTmpfs(t *testing.T, options string) (dir string) {
	t.Helper()
	netns.Need(t, "root")
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options+",mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
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

// TestOpenOnFullDisk: acknowledged keys can be read on a full disk.
func TestOpenOnFullDisk(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root")
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), never, openFile)
	want := map[string]string{}
	for i := range 200 {
		key := strconv.Itoa(i)
		put(t, s, key, strings.Repeat("v", 1000))
		want[key] = strings.Repeat("v", 1000)
	}
	from, dir := crashed(t, s), mountTmpfs(t, "size=1m")
	if err := os.CopyFS(dir, os.DirFS(filepath.Dir(from))); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	path := filepath.Join(dir, "store.db")
	full := begin(t, path, never, openFile)
	wantContent(t, full, want)
	if err := full.Commit(t.Context(), store.Put("a", make([]byte, 64<<10))); !errors.Is(err, syscall.ENOSPC) {
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
	wantContent(t, begin(t, path, never, openFile), want)
}

// TestHugeValue: a record may be larger than a group and than the read buffer.
func TestHugeValue(t *testing.T) {
	t.Parallel()
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), compactFrom, openFile)
	huge := strings.Repeat("v", 4<<20)
	want := map[string]string{}
	for i := range 3 {
		key := strconv.Itoa(i)
		put(t, s, key, huge)
		want[key] = huge
	}
	put(t, s, "small", "1")
	want["small"] = "1"
	reopened := begin(t, crashed(t, s), compactFrom, openFile)
	if got := content(t, reopened, ""); len(got) != len(want) || got["2"] != huge {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
}

// TestMemory: 100,000 leases take little memory, as their values stay in the file.
func TestMemory(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), compactFrom, openFile)
	before := heap()
	for i := range 1000 {
		var txn store.Txn
		for k := range 100 {
			txn.Then = append(txn.Then, store.Op{Key: fmt.Sprint("lease/", i*100+k), Value: make([]byte, 42)})
		}
		if err := s.Commit(t.Context(), txn); err != nil {
			t.Fatal(err)
		}
	}
	got := heap() - before
	t.Logf("%d KiB", got>>10)
	if got > 9<<20 {
		t.Errorf("the store takes %d KiB, want at most 9 MiB", got>>10)
	}
}
