package logfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
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

// small makes compactions all the time, never makes none.
const (
	small = 9 << 10
	never = 1 << 40
)

func testConfig(compactFrom int64, open func(string, int) (disk, error)) config {
	return config{open: open, compactFrom: compactFrom, retryBroken: time.Millisecond, retry: 10 * time.Millisecond, tick: time.Hour}
}

func begin(t testing.TB, path string, compactFrom int64, open func(string, int) (disk, error)) *Store {
	t.Helper()
	s, losses, err := openWith(path, testConfig(compactFrom, open))
	if err != nil {
		t.Fatal(err)
	}
	if len(losses) > 0 {
		t.Errorf("open reports losses: %v", losses)
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

// writeLock keeps commits and compactions out until the returned function is called.
func (s *Store) writeLock() (unlock func()) {
	s.writing <- struct{}{}
	return func() { <-s.writing }
}

// crashed returns the path of a copy of the store's files, as kill -9 at this moment would leave them.
func crashed(t testing.TB, s *Store) string {
	t.Helper()
	defer s.writeLock()() // a file cannot be copied at one moment
	to := filepath.Join(t.TempDir(), "store.db")
	for from, to := range map[string]string{s.path: to, s.path + ".new": to + ".new"} {
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

// tryCompact compacts as the background does, once that rests.
func tryCompact(s *Store) error {
	for {
		s.mu.Lock()
		rests, failed := !s.compacting, s.compactErr
		s.compacting = true
		s.mu.Unlock()
		if !rests && failed != nil {
			return failed // it is tried again and again
		}
		if rests {
			again := s.tryCompact(s.pause)
			defer s.writeLock()()
			s.mu.Lock()
			s.compacting = false
			err := s.compactErr
			s.mu.Unlock()
			if again {
				s.compactInBackground()
			}
			return err
		}
		runtime.Gosched()
	}
}

func compactNow(t testing.TB, s *Store) {
	t.Helper()
	if err := tryCompact(s); err != nil {
		t.Fatal(err)
	}
}

// waitHealed waits until the store takes records again.
func waitHealed(s *Store) {
	for healed := false; !healed; runtime.Gosched() { // or the test binary's time is up
		unlock := s.writeLock()
		healed = s.log.broken == nil
		unlock()
	}
}

var errDisk = errors.New("input/output error")

// faults make disks fail.
type faults struct {
	mu                     sync.Mutex
	open, write, sync, cut bool
	during                 func() // each sync
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

func (f *faults) disk(path string, flag int) (disk, error) {
	if f.failing(func(f *faults) bool { return f.open }) {
		return nil, errDisk
	}
	d, err := openFile(path, flag)
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
	var hook func()
	failing := d.faults.failing(func(f *faults) bool { hook = f.during; return f.sync })
	if hook != nil {
		hook()
	}
	if failing {
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
