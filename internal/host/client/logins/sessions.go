package logins

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"time"
)

// A Session is one login, and what its server knows of it.
type Session[T any] struct {
	ID          string // not its key
	Of          T
	Since, Used time.Time
	Over        context.Context // ends with the session
	end         context.CancelFunc
}

// Sessions are the open sessions of a server. They are in memory only: a restart ends them all. A key is kept as its hash, whose
// comparison says nothing about the key by its timing. It is safe for concurrent use.
type Sessions[T any] struct {
	now  func() time.Time
	idle time.Duration
	max  int

	mu   sync.Mutex
	open map[[sha256.Size]byte]*Session[T]
}

// NewSessions returns a set without sessions. One ends after idle without a request, and the one that was not used for longest
// when there would be more than limit.
func NewSessions[T any](now func() time.Time, idle time.Duration, limit int) *Sessions[T] {
	return &Sessions[T]{now: now, idle: idle, max: limit, open: map[[sha256.Size]byte]*Session[T]{}}
}

// Start begins a session and returns its key. If admit, which may be nil, returns an error for the sessions that are open, there
// is none.
func (s *Sessions[T]) Start(of T, admit func(open []Session[T]) error) (key string, _ Session[T], _ error) {
	var b [40]byte
	_, _ = rand.Read(b[:]) // never fails
	key = hex.EncodeToString(b[:32])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	if admit != nil {
		if err := admit(s.listLocked()); err != nil {
			return "", Session[T]{}, err
		}
	}
	for len(s.open) >= s.max {
		keys := slices.Collect(maps.Keys(s.open))
		s.removeLocked(slices.MinFunc(keys, func(a, b [sha256.Size]byte) int { return s.open[a].Used.Compare(s.open[b].Used) }))
	}
	now := s.now()
	o := &Session[T]{ID: hex.EncodeToString(b[32:]), Of: of, Since: now, Used: now}
	o.Over, o.end = context.WithCancel(context.Background())
	s.open[sha256.Sum256([]byte(key))] = o
	return key, *o, nil
}

// Use returns the session whose key this is, and notes that it is used; false: there is none.
func (s *Sessions[T]) Use(key string) (_ Session[T], ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	o := s.open[sha256.Sum256([]byte(key))]
	if o == nil {
		return Session[T]{}, false
	}
	o.Used = s.now()
	return *o, true
}

// List returns the sessions, in any order.
func (s *Sessions[T]) List() []Session[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	return s.listLocked()
}

func (s *Sessions[T]) listLocked() []Session[T] {
	all := make([]Session[T], 0, len(s.open))
	for _, o := range s.open {
		all = append(all, *o)
	}
	return all
}

// End ends the sessions that which reports, and returns how many.
func (s *Sessions[T]) End(which func(Session[T]) bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	for key, o := range s.open {
		if which(*o) {
			s.removeLocked(key)
			n++
		}
	}
	return n
}

func (s *Sessions[T]) expireLocked() {
	for key, o := range s.open {
		if s.now().Sub(o.Used) > s.idle {
			s.removeLocked(key)
		}
	}
}

func (s *Sessions[T]) removeLocked(key [sha256.Size]byte) {
	s.open[key].end()
	delete(s.open, key)
}
