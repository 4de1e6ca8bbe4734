package leases

import "math/bits"

// A bitset is a set of small numbers that finds its next member quickly even when it is large and nearly empty: a second
// row of bits says which words of the first have any.
type bitset struct {
	words, summary []uint64
}

func newBitset(size int) bitset {
	words := (size + 63) / 64
	return bitset{make([]uint64, words), make([]uint64, (words+63)/64)}
}

func (s *bitset) set(i int) {
	s.words[i/64] |= 1 << (i % 64)
	s.summary[i/4096] |= 1 << (i / 64 % 64)
}

func (s *bitset) clear(i int) {
	s.words[i/64] &^= 1 << (i % 64)
	if s.words[i/64] == 0 {
		s.summary[i/4096] &^= 1 << (i / 64 % 64)
	}
}

// next returns the first member that is at least from.
func (s *bitset) next(from int) (int, bool) {
	w := from / 64
	if w >= len(s.words) {
		return 0, false
	}
	if rest := s.words[w] >> (from % 64); rest != 0 {
		return from + bits.TrailingZeros64(rest), true
	}
	w++
	for sw := w / 64; sw < len(s.summary); sw++ {
		rest := s.summary[sw]
		if sw == w/64 {
			rest = rest >> (w % 64) << (w % 64)
		}
		if rest != 0 {
			w = sw*64 + bits.TrailingZeros64(rest)
			return w*64 + bits.TrailingZeros64(s.words[w]), true
		}
	}
	return 0, false
}

// around returns the first member at or after from, going on at 0 after the last.
func (s *bitset) around(from int) (int, bool) {
	if i, ok := s.next(from); ok {
		return i, true
	}
	return s.next(0)
}
