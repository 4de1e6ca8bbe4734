package dhcpd

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// An observation is what was seen, and when it was first and last.
type observation[V any] struct {
	value       V
	since, last time.Time
	over        bool // it was looked for, and not seen any more
}

// observations has, by key, what was seen within a time before now, and no more than a number of them: anybody can send packets with made-up
// addresses. While it is empty, a look-up takes no lock.
type observations[K, V comparable] struct {
	keep time.Duration // after it was seen last
	most int

	n    atomic.Int32 // of seen
	mu   sync.Mutex
	seen map[K]observation[V]
}

// note notes that value was seen, and reports whether that is new.
func (s *observations[K, V]) note(key K, value V, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known := s.seen[key]
	if known && was.value == value && now.Sub(was.last) < s.keep {
		if was.last = now; was.over {
			was.since, was.over = now, false
		}
		s.seen[key] = was
		return false
	}
	s.pruneLocked(now)
	if s.seen == nil {
		s.seen = map[K]observation[V]{}
	}
	if !known && len(s.seen) >= s.most {
		return false
	}
	s.seen[key] = observation[V]{value: value, since: now, last: now}
	s.n.Store(int32(len(s.seen)))
	return true
}

func (s *observations[K, V]) pruneLocked(now time.Time) {
	maps.DeleteFunc(s.seen, func(_ K, x observation[V]) bool { return now.Sub(x.last) >= s.keep })
	s.n.Store(int32(len(s.seen)))
}

// at returns the one of a key.
func (s *observations[K, V]) at(key K, now time.Time) (x observation[V], ok bool) {
	if s.n.Load() == 0 {
		return x, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok = s.seen[key]
	return x, ok && !x.over && now.Sub(x.last) < s.keep
}

// fresh returns all that are not over.
func (s *observations[K, V]) fresh(now time.Time) map[K]observation[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pruneLocked(now)
	all := maps.Clone(s.seen)
	maps.DeleteFunc(all, func(_ K, x observation[V]) bool { return x.over })
	return all
}

// end marks the one of a key as over, unless it was seen after a time. It is not new if it is seen again soon.
func (s *observations[K, V]) end(key K, after time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, ok := s.seen[key]; ok && !x.last.After(after) {
		x.over = true
		s.seen[key] = x
	}
}
