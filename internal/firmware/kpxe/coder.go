package kpxe

import "errors"

// A coder writes bits or reads them, which is all that packing and unpacking differ in: a writer writes the bit that it is
// given and returns it; a reader is given anything, and returns what it has read.
type coder interface {
	bit(p *prob, b uint32) uint32
	direct(b uint32) uint32 // a bit that is 0 or 1 with the same probability
}

// A prob is by how much a bit is more probably 0 than 1, in parts of 1 << probBits. It learns from each bit.
type prob int16

const (
	probBits = 11
	half     = 1 << (probBits - 1)
	slowness = 5
)

// bound returns where the range is divided: 0 lies below.
func (p *prob) bound(width uint32) uint32 { return width >> probBits * uint32(half+*p) }

func (p *prob) learn(b uint32) {
	if b == 0 {
		*p += (half - *p) >> slowness
	} else {
		*p -= (half + *p) >> slowness
	}
}

// tree codes a number of n bits, the highest first, each with a probability that depends on those before.
func tree(c coder, probs []prob, n int, v uint32) uint32 {
	at := uint32(1)
	for i := n - 1; i >= 0; i-- {
		at = at<<1 | c.bit(&probs[at], v>>i&1)
	}
	return at - 1<<n
}

// reverse is tree, the lowest bit first. It takes the lowest n bits of v.
func reverse(c coder, probs []prob, n int, v uint32) uint32 {
	at, read := uint32(1), uint32(0)
	for i := range n {
		b := c.bit(&probs[at], v>>i&1)
		at = at<<1 | b
		read |= b << i
	}
	return read
}

// topBits: a range that has become narrower gets another byte.
const topBits = 24

// A reader is a coder that reads. Past the end of its input it reads zeros and counts them.
type reader struct {
	in          []byte
	past        int
	width, code uint32
}

// readerHead is how many bytes a reader begins with: a zero, and four of code.
const readerHead = 5

func newReader(in []byte) *reader {
	r := &reader{in: in, width: 1<<32 - 1}
	for range readerHead {
		r.next()
	}
	return r
}

func (r *reader) next() {
	r.code <<= 8
	if len(r.in) == 0 {
		r.past++
		return
	}
	r.code |= uint32(r.in[0])
	r.in = r.in[1:]
}

func (r *reader) bit(p *prob, _ uint32) uint32 {
	b := r.split(p.bound(r.width))
	p.learn(b)
	return b
}

func (r *reader) direct(uint32) uint32 {
	r.width &^= 1
	return r.split(r.width >> 1)
}

// split returns 0 if the code lies below bound, else 1. The range becomes that side of it.
func (r *reader) split(bound uint32) (b uint32) {
	if r.code < bound {
		r.width = bound
	} else {
		r.code -= bound
		r.width -= bound
		b = 1
	}
	if r.width < 1<<topBits {
		r.width <<= 8
		r.next()
	}
	return b
}

var errCut = errors.New("the stream ends too early")

// end reports whether the input was read to its end and no further.
func (r *reader) end() error {
	switch {
	case r.past > 0:
		return errCut
	case len(r.in) > 0:
		return errors.New("there is more behind the stream")
	}
	return nil
}

// A writer is a coder that writes. The last byte is held back, with the 0xff that follow it, as long as a carry may reach it.
type writer struct {
	out   []byte
	low   uint64 // where the range begins
	width uint32
	held  byte
	ff    int // how many follow held
}

func newWriter() *writer { return &writer{width: 1<<32 - 1} }

func (w *writer) bit(p *prob, b uint32) uint32 {
	w.split(p.bound(w.width), b)
	p.learn(b)
	return b
}

func (w *writer) direct(b uint32) uint32 {
	w.width &^= 1
	w.split(w.width>>1, b)
	return b
}

// split makes one side of bound the range.
func (w *writer) split(bound, b uint32) {
	if b == 0 {
		w.width = bound
	} else {
		w.low += uint64(bound)
		w.width -= bound
	}
	if w.width < 1<<topBits {
		w.width <<= 8
		w.shift()
	}
}

// shift writes the highest byte of low, if no carry can reach it any more.
func (w *writer) shift() {
	const all = 1<<32 - 1
	if w.low < 0xff<<topBits || w.low > all {
		carry := byte(w.low >> 32)
		w.out = append(w.out, w.held+carry)
		for ; w.ff > 0; w.ff-- {
			w.out = append(w.out, 0xff+carry)
		}
		w.held = byte(w.low >> topBits)
	} else {
		w.ff++
	}
	w.low = w.low << 8 & all
}

// end returns all that was written.
func (w *writer) end() []byte {
	for range readerHead {
		w.shift()
	}
	return w.out
}
