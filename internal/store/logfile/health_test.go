package logfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/store"
)

func (s *Store) tickNow() {
	s.writing <- struct{}{}
	s.tick()
	<-s.writing
}

// TestHealth: a store says why commits fail and since when, and that they succeed again, also without another commit.
func TestHealth(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]func(f *faults, failing bool){
		"write": func(f *faults, failing bool) { f.write = failing },
		"sync":  func(f *faults, failing bool) { f.sync = failing },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &faults{}
			s := begin(t, filepath.Join(t.TempDir(), "store.db"), never, f.disk)
			observed := 0
			s.ObserveSyncs(func(time.Duration) { observed++ })
			put(t, s, "a", "1")
			if h := s.DiskStatus(); h.Err != nil || h.Synced.IsZero() || h.Took <= 0 || h.Running != 0 || observed != 1 {
				t.Errorf("%+v after a commit, %d observed", h, observed)
			}
			f.set(func(f *faults) { on(f, true) })
			if err := s.Commit(t.Context(), store.Put("b", nil)); err == nil {
				t.Fatal("commit succeeded")
			}
			first := s.DiskStatus()
			if !errors.Is(first.Err, errDisk) || first.Since.IsZero() || first.Synced.IsZero() {
				t.Errorf("%+v after a commit that failed", first)
			}
			s.tickNow()
			if h := s.DiskStatus(); !errors.Is(h.Err, errDisk) || !h.Since.Equal(first.Since) {
				t.Errorf("%+v, want it to fail since %v", h, first.Since)
			}
			f.set(func(f *faults) { on(f, false) })
			for s.DiskStatus().Err != nil { // or the test binary's time is up
				s.tickNow()
				runtime.Gosched()
			}
			wantContent(t, s, map[string]string{"a": "1"})
			wantContent(t, begin(t, crashed(t, s), never, openFile), map[string]string{"a": "1"})
		})
	}
}

// TestHealthOfHungDisk: a write that does not return is seen while it runs.
func TestHealthOfHungDisk(t *testing.T) {
	t.Parallel()
	f, syncing, done := &faults{}, make(chan struct{}), make(chan struct{})
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), never, f.disk)
	f.set(func(f *faults) { f.during = func() { close(syncing); <-done } })
	outcome := make(chan error)
	go func() { outcome <- s.Commit(t.Context(), store.Put("a", nil)) }()
	<-syncing
	if h := s.DiskStatus(); h.Running <= 0 {
		t.Errorf("%+v, want a write in progress", h)
	}
	f.set(func(f *faults) { f.during = nil })
	close(done)
	if err := <-outcome; err != nil || s.DiskStatus().Running != 0 {
		t.Errorf("%v, %+v", err, s.DiskStatus())
	}
}

// TestHealthOfFullDisk: space that is free again is noticed without another commit.
func TestHealthOfFullDisk(t *testing.T) {
	t.Parallel()
	dir := mountTmpfs(t, "size=2m")
	s := begin(t, filepath.Join(dir, "store.db"), never, openFile)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	fillUp(t, s, map[string]string{})
	if h := s.DiskStatus(); !errors.Is(h.Err, syscall.ENOSPC) {
		t.Errorf("%+v", h)
	}
	s.tickNow()
	if h := s.DiskStatus(); !errors.Is(h.Err, syscall.ENOSPC) {
		t.Errorf("%+v, and nothing is free", h)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if s.tickNow(); s.DiskStatus().Err != nil {
		t.Errorf("%+v, and there is space", s.DiskStatus())
	}
}

// TestResponds: the store says when its disk has answered. An answer that is an error does not show that commits succeed again.
func TestResponds(t *testing.T) {
	t.Parallel()
	f := &faults{}
	s := begin(t, filepath.Join(t.TempDir(), "store.db"), never, f.disk)
	put(t, s, "a", "1")
	f.set(func(f *faults) { f.write = true })
	if err := s.Commit(t.Context(), store.Put("b", nil)); err == nil {
		t.Fatal("commit succeeded")
	}
	if err := s.Responds(t.Context()); err != nil || !errors.Is(s.DiskStatus().Err, errDisk) {
		t.Errorf("an answer that is an error: %v, %+v", err, s.DiskStatus())
	}
	f.set(func(f *faults) { f.write = false })
	if err := s.Responds(t.Context()); err != nil || s.DiskStatus().Err != nil {
		t.Errorf("an answer: %v, %+v", err, s.DiskStatus())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.writing <- struct{}{} // as a write that hangs
	if err := s.Responds(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("no answer: %v", err)
	}
	<-s.writing
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Responds(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
