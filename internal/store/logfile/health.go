package logfile

import (
	"sync"
	"time"
)

// A DiskStatus is what was observed of the store's last writes.
type DiskStatus struct {
	Synced  time.Time     // the last one that is known to be on disk; zero: none yet
	Took    time.Duration // how long it took
	Running time.Duration // for how long the one in progress has been running; 0: there is none
	Err     error         // why commits fail; nil: the last one succeeded
	Since   time.Time     // of Err
}

// DiskStatus returns the state of the store's disk. It does not wait for it.
func (s *Store) DiskStatus() DiskStatus { return s.health.get() }

// ObserveSyncs calls fn after each write that succeeded, with the time that it took. It must be called before the first commit.
func (s *Store) ObserveSyncs(fn func(took time.Duration)) {
	s.writing <- struct{}{}
	defer func() { <-s.writing }()
	s.health.observe = fn
}

// A health records writes, one at a time.
type health struct {
	observe func(took time.Duration) // read by the writer

	mu    sync.Mutex
	last  DiskStatus
	began time.Time // the write in progress; zero: none
}

func (h *health) get() DiskStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.last
	if !h.began.IsZero() {
		now.Running = time.Since(h.began)
	}
	return now
}

// write records a write and returns its error.
func (h *health) write(write func() error) error {
	began := time.Now()
	h.mu.Lock()
	h.began = began
	h.mu.Unlock()
	err := write()
	if err != nil {
		h.failed(err)
		return err
	}
	took := time.Since(began)
	if h.observe != nil {
		h.observe(took)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.began = DiskStatus{Synced: time.Now(), Took: took}, time.Time{}
	return nil
}

// failed records why commits fail.
func (h *health) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last.Err == nil {
		h.last.Since = time.Now()
	}
	h.last.Err, h.began = err, time.Time{}
}

// healed records that commits succeed from now on: everything is in a new file.
func (h *health) healed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last.Err != nil {
		h.last = DiskStatus{Synced: time.Now(), Took: h.last.Took}
	}
}
