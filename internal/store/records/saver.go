package records

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/store"
)

// SaveWait is how long a save is waited for: a disk that works needs milliseconds, and one that hangs must not hold up what is not lost
// without it.
const SaveWait = time.Second

// ErrSaving is why a save has not ended in time. The value is stored later.
var ErrSaving = fmt.Errorf("%w: it is stored later", store.ErrHung)

// A Saver stores values that nobody has to wait for, such as the serials of zones: what comes while a commit is under way is gathered
// for the next one. It is safe for concurrent use.
type Saver struct {
	store store.Store

	mu      sync.Mutex
	next    *save     // what is gathered; nil: nothing
	running bool      // run is
	began   time.Time // of the commit that is under way
}

// A save is one commit.
type save struct {
	ops  map[string]store.Op
	done chan struct{} // closed at the end
	err  error         // then
}

// NewSaver returns a saver into s.
func NewSaver(s store.Store) *Saver { return &Saver{store: s} }

// Save stores ops, and waits for that a moment. The error is that of the store, or ErrSaving.
func (s *Saver) Save(ops ...store.Op) error {
	pending, left := s.begin(ops)
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-pending.done:
		return pending.err
	case <-timer.C:
		return ErrSaving
	}
}

// Put is Save of a record, as JSON.
func (s *Saver) Put(key string, record any) error {
	value, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return s.Save(store.Op{Key: key, Value: value})
}

// begin adds ops to the next commit, and returns it and how long to wait for it.
func (s *Saver) begin(ops []store.Op) (*save, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = &save{ops: map[string]store.Op{}, done: make(chan struct{})}
	}
	pending := s.next
	for _, op := range ops {
		pending.ops[op.Key] = op
	}
	if !s.running {
		s.running, s.began = true, time.Now()
		go s.run()
	}
	return pending, SaveWait - time.Since(s.began)
}

// run commits until nothing is gathered.
func (s *Saver) run() {
	for {
		s.mu.Lock()
		now := s.next
		s.next, s.began = nil, time.Now()
		if now == nil {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if len(now.ops) > 0 {
			now.err = s.store.Commit(context.Background(), store.Txn{Then: slices.Collect(maps.Values(now.ops))})
		}
		close(now.done)
	}
}

// Flush waits until all is stored, or was tried.
func (s *Saver) Flush() {
	pending, _ := s.begin(nil)
	<-pending.done
}
