package logfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/internal/store"
)

// putOnceHealed commits until the store takes it.
func putOnceHealed(t testing.TB, s *Store, key, value string) {
	t.Helper()
	for s.Commit(t.Context(), store.Put(key, []byte(value))) != nil { // or the test binary's time is up
	}
}

// TestDiskErrors: a failed commit leaves nothing, not even after a kill, and commits succeed once the disk works again.
func TestDiskErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		on   func(*faults)
		want string
	}{
		{"write", func(f *faults) { f.write = true }, "write: "},
		{"sync", func(f *faults) { f.sync = true }, "sync: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := &faults{}
			s := begin(t, filepath.Join(t.TempDir(), "store.db"), never, f.disk)
			put(t, s, "a", "1")
			f.set(tt.on)
			for range 2 { // the second may find the log broken
				err := s.Commit(t.Context(), store.Put("a", []byte("2")))
				if !errors.Is(err, errDisk) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), s.path) {
					t.Errorf("commit = %v, want %q, %v", err, tt.want, errDisk)
				}
				wantContent(t, s, map[string]string{"a": "1"})
				wantContent(t, begin(t, crashed(t, s), never, openFile), map[string]string{"a": "1"})
			}
			f.set(func(f *faults) { f.write, f.sync = false, false })
			putOnceHealed(t, s, "b", "3")
			want := map[string]string{"a": "1", "b": "3"}
			wantContent(t, s, want)
			wantContent(t, begin(t, crashed(t, s), never, openFile), want)
		})
	}
}

// TestFailedSyncIsNotRepeated: after a failed sync the file takes no more records, because the kernel may have dropped pages.
func TestFailedSyncIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cutting fails too: %v", cut), func(t *testing.T) {
			t.Parallel()
			f := &faults{}
			s := begin(t, filepath.Join(t.TempDir(), "store.db"), never, f.disk)
			put(t, s, "a", "1")
			failed, err := os.Stat(s.path)
			if err != nil {
				t.Fatal(err)
			}
			f.set(func(f *faults) { f.sync, f.cut = true, cut })
			if err := s.Commit(t.Context(), store.Put("b", []byte("2"))); !errors.Is(err, errDisk) {
				t.Fatalf("commit = %v, want %v", err, errDisk)
			}
			f.set(func(f *faults) { f.sync, f.cut = false, false })
			putOnceHealed(t, s, "c", "3")
			if now, err := os.Stat(s.path); err != nil || os.SameFile(failed, now) {
				t.Errorf("%s is the file whose sync failed (%v)", s.path, err)
			}
			want := map[string]string{"a": "1", "c": "3"}
			wantContent(t, s, want)
			wantContent(t, begin(t, crashed(t, s), never, openFile), want)
		})
	}
}

// TestCloseHeals: after a failed sync, Close leaves a file with every acknowledged transaction.
func TestCloseHeals(t *testing.T) {
	t.Parallel()
	f := &faults{}
	path := filepath.Join(t.TempDir(), "store.db")
	s := begin(t, path, never, f.disk)
	put(t, s, "a", "1")
	f.set(func(f *faults) { f.sync, f.cut = true, true })
	if err := s.Commit(t.Context(), store.Put("a", []byte("2"))); !errors.Is(err, errDisk) {
		t.Fatalf("commit = %v, want %v", err, errDisk)
	}
	f.set(func(f *faults) { f.sync, f.cut = false, false })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantContent(t, begin(t, path, never, openFile), map[string]string{"a": "1"})
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
	if err := (file{w}).Datasync(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("sync of a pipe = %v, want %v", err, syscall.EINVAL)
	}
}

// TestHealsAlone: a broken log is replaced without another commit.
func TestHealsAlone(t *testing.T) {
	t.Parallel()
	f := &faults{}
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), never, f.disk)
	f.set(func(f *faults) { f.sync = true })
	if err := s.Commit(t.Context(), store.Put("a", nil)); err == nil {
		t.Fatal("commit succeeded")
	}
	f.set(func(f *faults) { f.sync = false })
	waitHealed(s)
}

// TestValueDamagedOnDisk: a value that changed on disk while the store was open is an error, never a value. A compaction finds it,
// and names what is lost.
func TestValueDamagedOnDisk(t *testing.T) {
	t.Parallel()
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), never, openFile)
	put(t, s, "a", "value")
	put(t, s, "b", "other")
	where, _ := s.log.index.Get("a")
	if _, err := s.log.WriteAt([]byte("V"), where.at); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Get(t.Context(), "a"); !errors.Is(err, errDamaged) {
		t.Errorf("get = %q, %v, want %v", v, err, errDamaged)
	}
	compactNow(t, s)
	if v, err := s.Get(t.Context(), "a"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("get = %q, %v, want ErrNotFound", v, err)
	}
	if l := s.Losses(); len(l) != 1 || !l[0].Exact || !s.Doubtful("a") || s.Doubtful("b") || s.Doubtful("c") {
		t.Errorf("lost %v", l)
	}
	put(t, s, "a", "new")
	if got := content(t, s, "a"); got["a"] != "new" || s.Doubtful("a") {
		t.Errorf("%v, or still in doubt", got)
	}
}

// An unlockable disk is on a file system that locks no files, such as NFS without its lock service: flock(2) fails.
type unlockable struct{ disk }

// Fd returns no file.
func (unlockable) Fd() uintptr { return ^uintptr(0) }

// TestNoLocks: that files cannot be locked is not taken for another process that has locked this one.
func TestNoLocks(t *testing.T) {
	t.Parallel()
	_, _, err := openWith(filepath.Join(t.TempDir(), "store.db"), testConfig(never, func(path string, flag int) (disk, error) {
		d, err := openFile(path, flag)
		return unlockable{d}, err
	}))
	if !errors.Is(err, syscall.EBADF) || !strings.Contains(err.Error(), "locks no files") || strings.Contains(err.Error(), "in use") {
		t.Errorf("open: %v", err)
	}
}
