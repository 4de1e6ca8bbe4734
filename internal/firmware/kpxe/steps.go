package kpxe

import (
	"bytes"
	"errors"
	"slices"
)

// A step makes the next bytes of the data.
type step struct {
	at, size int
	distance int  // how far back the bytes are copied from; 0: a literal, one byte
	full     bool // the packer said the distance in full, even if it was one of the last four
}

// end returns where the step's bytes end.
func (s step) end() int { return s.at + s.size }

// makes reports whether a step still makes what is in data now.
func (s step) makes(data []byte) bool {
	return s.distance == 0 || common(data, s.at, s.distance, s.end()) == s.size
}

// common returns how many bytes from at on, up to end, are those that stand distance before.
func common(data []byte, at, distance, end int) int {
	n := 0
	for at+n < end && data[at+n] == data[at+n-distance] {
		n++
	}
	return n
}

// maxData bounds what a stream may make; iPXE has 170 KiB.
const maxData = 16 << 20

// decode takes a stream apart, and returns what it makes too.
func decode(stream []byte) ([]step, []byte, error) {
	r := newReader(stream)
	m := model{coder: r}
	var steps []step
	for {
		at := len(m.out)
		p, err := m.code(packet{})
		switch {
		case err != nil:
			return nil, nil, err
		case p.size > 0 && p.distance == endMark:
			return steps, m.out, r.end()
		case r.past > 0:
			return nil, nil, errCut
		case len(m.out) > maxData:
			return nil, nil, errors.New("the stream makes too much")
		}
		s := step{at: at, size: len(m.out) - at}
		if p.size > 0 {
			s.distance, s.full = int(p.distance)+1, p.rep == fresh
		}
		steps = append(steps, s)
	}
}

// encode returns the stream of steps that make data.
func encode(steps []step, data []byte) ([]byte, error) {
	w := newWriter()
	m := model{coder: w}
	for _, s := range steps {
		if _, err := m.code(m.packet(s, data)); err != nil {
			return nil, err
		}
	}
	if !bytes.Equal(m.out, data) {
		return nil, errors.New("the steps do not make the data")
	}
	_, err := m.code(packet{size: 2, rep: fresh, distance: endMark})
	return w.end(), err
}

// packet returns how a step is said: by one of the last distances where it is one.
func (m *model) packet(s step, data []byte) packet {
	p := packet{size: s.size, distance: uint32(s.distance - 1), rep: fresh}
	if !s.full {
		p.rep = slices.Index(m.reps[:], p.distance)
	}
	if s.distance == 0 || s.size == 1 && p.rep != 0 {
		return packet{literal: data[s.at]}
	}
	return p
}

// remake returns steps that make data, in which from to to is not what it was. Steps that have nothing to do with it stay.
func remake(steps []step, data []byte, from, to int) []step {
	var made []step
	for i := 0; i < len(steps); {
		s := steps[i]
		i++
		inside := s.end() > from && s.at < to
		if !inside && s.makes(data) {
			made = append(made, s)
			continue
		}
		end := s.end()
		for ; inside && i < len(steps) && steps[i].at < to; i++ {
			end = steps[i].end()
		}
		made = append(made, search(data, s.at, end)...)
	}
	return made
}

// What search looks for: enough for text, which is all that it is for.
const (
	window  = 4096 // how far back
	minCopy = 3    // bytes: a shorter copy saves nothing
	maxCopy = 273  // what LZMA can say
)

// search returns steps that make data from at to end: at each place the longest copy, the nearest of these.
func search(data []byte, at, end int) []step {
	var made []step
	for at < end {
		best := step{at: at, size: 1}
		for distance := 1; distance <= min(at, window); distance++ {
			if n := common(data, at, distance, min(end, at+maxCopy)); n >= minCopy && n > best.size {
				best.size, best.distance = n, distance
			}
		}
		made = append(made, best)
		at = best.end()
	}
	return made
}
