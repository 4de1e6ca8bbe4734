package mirror

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

const (
	maxTries  = 5       // to go on where a body broke off, without a byte of progress between
	piece     = 1 << 18 // of a body, between two tellings of who reads along
	farAhead  = 8 << 20 // what a reader waits for; beyond, it is passed through
	retryWait = 500 * time.Millisecond
)

// An outcome is what became of a flight's question.
type outcome int

const (
	failed    outcome = iota // no upstream has an answer
	unchanged                // what is kept is still so
	gone                     // upstream does not have it
	body                     // it comes
	passing                  // it comes, but cannot be kept
)

// A flight is one question to upstream, which all who want the file wait for, and then the body, which they read along.
type flight struct {
	shelf  *shelf
	key    string
	path   string
	cancel context.CancelFunc
	told   chan struct{} // closed when outcome, err, head and base are known

	outcome outcome
	err     error // of failed and gone
	head    head
	base    string
	expect  expectation
	file    *os.File

	mu      sync.Mutex
	changed chan struct{} // closed and made anew when n, done or broken change
	n       int64         // bytes that may be read
	done    bool          // all of them
	broken  error         // why no more come
	users   int           // of file: readers, and the flight itself
	entry   *entry        // what the file became; nil: nothing
}

func (f *flight) tell(o outcome, err error) {
	f.outcome, f.err = o, err
	close(f.told)
}

// publish lets readers have bytes up to n.
func (f *flight) publish(n int64, done bool, broken error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n, f.done, f.broken = n, done, broken
	close(f.changed)
	f.changed = make(chan struct{})
}

// state returns how far the flight is, and what is closed when that changes.
func (f *flight) state() (n int64, done bool, changed <-chan struct{}, broken error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n, f.done, f.changed, f.broken
}

func (f *flight) use() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users++
}

// release closes the file after its last user.
func (f *flight) release() {
	f.mu.Lock()
	f.users--
	last := f.users == 0
	f.mu.Unlock()
	if !last {
		return
	}
	if f.file != nil {
		_ = f.file.Close()
	}
	if f.entry != nil {
		f.shelf.closeEntry(f.entry)
	}
}

// errUnkept is that a file cannot be kept: readers get the rest from upstream themselves.
var errUnkept = errors.New("cannot be kept")
