package leases

// A slab holds values of one size under numbers, from 1. It grows by a chunk, never by a copy of all, and what it holds
// stays where it is. T has no pointers, so the garbage collector does not look inside.
type slab[T any] struct {
	chunks []*[slabChunk]T
	last   uint32 // the highest number ever given
	free   []uint32
}

const slabChunk = 512

func (s *slab[T]) at(i uint32) *T { return &s.chunks[i/slabChunk][i%slabChunk] }

// take returns the number of a zero value.
func (s *slab[T]) take() uint32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i
	}
	s.last++
	if int(s.last/slabChunk) == len(s.chunks) {
		s.chunks = append(s.chunks, new([slabChunk]T))
	}
	return s.last
}

// give takes a value back and clears it.
func (s *slab[T]) give(i uint32) {
	var zero T
	*s.at(i) = zero
	s.free = append(s.free, i)
}

// len returns how many values there are.
func (s *slab[T]) len() int { return int(s.last) - len(s.free) }

// Links tie values of a slab into a list.
type links struct{ prev, next uint32 }

func (l *links) ends() *links { return l }

// A list is a chain of values of one slab, which it does not own.
type list struct {
	head, tail uint32
	n          int
}

type linked[T any] interface {
	*T
	ends() *links
}

// insert puts i in front of next, at the end if next is 0.
func insert[T any, P linked[T]](s *slab[T], l *list, i, next uint32) {
	e := P(s.at(i)).ends()
	e.next, e.prev = next, l.tail
	if next != 0 {
		after := P(s.at(next)).ends()
		e.prev, after.prev = after.prev, i
	} else {
		l.tail = i
	}
	if e.prev != 0 {
		P(s.at(e.prev)).ends().next = i
	} else {
		l.head = i
	}
	l.n++
}

// unlink takes i out of the list.
func unlink[T any, P linked[T]](s *slab[T], l *list, i uint32) {
	e := P(s.at(i)).ends()
	if e.prev != 0 {
		P(s.at(e.prev)).ends().next = e.next
	} else {
		l.head = e.next
	}
	if e.next != 0 {
		P(s.at(e.next)).ends().prev = e.prev
	} else {
		l.tail = e.prev
	}
	*e = links{}
	l.n--
}
