package dhcpd

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// A sighting is what was seen, and when it was first and last.
type sighting[V any] struct {
	value       V
	since, last time.Time
}

// A sightings keeps, by key, what was seen within a time before now, and no more than a number of them: anybody can send packets with made-up
// addresses. While it is empty, a look-up takes no lock.
type sightings[K, V comparable] struct {
	keep time.Duration // after it was seen last
	most int

	n    atomic.Int32 // of seen
	mu   sync.Mutex
	seen map[K]sighting[V]
}

// note notes that value was seen, and reports whether that is new.
func (s *sightings[K, V]) note(key K, value V, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known := s.seen[key]
	if known && was.value == value && now.Sub(was.last) < s.keep {
		was.last = now
		s.seen[key] = was
		return false
	}
	s.pruneLocked(now)
	if s.seen == nil {
		s.seen = map[K]sighting[V]{}
	}
	if !known && len(s.seen) >= s.most {
		return false
	}
	s.seen[key] = sighting[V]{value, now, now}
	s.n.Store(int32(len(s.seen)))
	return true
}

func (s *sightings[K, V]) pruneLocked(now time.Time) {
	maps.DeleteFunc(s.seen, func(_ K, x sighting[V]) bool { return now.Sub(x.last) >= s.keep })
	s.n.Store(int32(len(s.seen)))
}

// at returns the one of a key.
func (s *sightings[K, V]) at(key K, now time.Time) (x sighting[V], ok bool) {
	if s.n.Load() == 0 {
		return x, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok = s.seen[key]
	return x, ok && now.Sub(x.last) < s.keep
}

// fresh returns all.
func (s *sightings[K, V]) fresh(now time.Time) map[K]sighting[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pruneLocked(now)
	return maps.Clone(s.seen)
}
