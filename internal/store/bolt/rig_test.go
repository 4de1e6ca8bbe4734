package bolt

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/netns"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writerFile); path != "" {
		writeForever(path)
	}
	netns.Main(m)
}

// small makes epochs change all the time.
func small() limits {
	return limits{soft: 1 << 10, assist: 2 << 10, hard: 3 << 10, step: 3, drain: 5 * time.Millisecond, retry: time.Millisecond}
}

// idle never changes the epoch by itself.
func idle() limits {
	return limits{soft: 1 << 30, assist: 1 << 30, hard: 1 << 30, step: 3, drain: time.Hour, retry: time.Hour}
}

func begin(t testing.TB, path string, l limits, disks func(string) (disk, error)) *Store {
	t.Helper()
	s, err := openWith(path, l, disks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(t testing.TB, s *Store, key, value string) {
	t.Helper()
	if err := s.Commit(t.Context(), store.Put(key, []byte(value))); err != nil {
		t.Fatal(err)
	}
}

func content(t testing.TB, s *Store, prefix string) map[string]string {
	t.Helper()
	got, last := map[string]string{}, ""
	err := s.Scan(context.WithoutCancel(t.Context()), prefix, func(k string, v []byte) error {
		if len(got) > 0 && k <= last {
			t.Errorf("scan: %q after %q", k, last)
		}
		got[k], last = string(v), k
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func wantContent(t testing.TB, s *Store, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, content(t, s, "")); diff != "" {
		t.Fatalf("content (-want +got):\n%s", diff)
	}
	for key, value := range want {
		if got, err := s.Get(context.WithoutCancel(t.Context()), key); err != nil || string(got) != value {
			t.Fatalf("get %q = %q, %v, want %q", key, got, err, value)
		}
	}
}

// crashed returns the path of a copy of the store's files, as kill -9 at this moment would leave them.
func crashed(t testing.TB, s *Store) string {
	t.Helper()
	s.copying.Lock() // a file cannot be copied at one moment
	defer s.copying.Unlock()
	to := filepath.Join(t.TempDir(), "store.db")
	for from, to := range map[string]string{
		s.db.Path():                 to,
		journalPath(s.db.Path(), 0): journalPath(to, 0),
		journalPath(s.db.Path(), 1): journalPath(to, 1),
	} {
		b, err := os.ReadFile(from)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

var errDisk = errors.New("input/output error")

// faults make the journal's disk fail.
type faults struct {
	mu                     sync.Mutex
	open, write, sync, cut bool
	opened                 int
	during                 func() // each sync; set before the store is opened
}

func (f *faults) set(fn func(*faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f)
}

func (f *faults) failing(which func(*faults) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return which(f)
}

func (f *faults) disk(path string) (disk, error) {
	if f.failing(func(f *faults) bool { f.opened++; return f.open }) {
		return nil, errDisk
	}
	d, err := openDisk(path)
	return faultyDisk{d, f}, err
}

type faultyDisk struct {
	disk
	faults *faults
}

func (d faultyDisk) WriteAt(b []byte, at int64) (int, error) {
	if d.faults.failing(func(f *faults) bool { return f.write }) {
		n, _ := d.disk.WriteAt(b[:len(b)/2], at)
		return n, errDisk
	}
	return d.disk.WriteAt(b, at)
}

func (d faultyDisk) Datasync() error {
	if hook := d.faults.during; hook != nil {
		hook()
	}
	if d.faults.failing(func(f *faults) bool { return f.sync }) {
		return errDisk
	}
	return d.disk.Datasync()
}

func (d faultyDisk) Truncate(n int64) error {
	if d.faults.failing(func(f *faults) bool { return f.cut }) {
		return errDisk
	}
	return d.disk.Truncate(n)
}
