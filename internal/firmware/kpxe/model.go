package kpxe

import (
	"errors"
	"math/bits"
)

// A model is LZMA's: what has been made so far, and from it, how probable each bit of the next packet is. A packer and an
// unpacker keep one each. The zero value, with a coder, is that of the beginning. zbin.c and unlzma.S agree on two things that LZMA leaves open:
// a literal's context is the two high bits of the byte before it, and nothing depends on the position.
type model struct {
	coder   coder
	out     []byte
	state   int
	reps    [4]uint32 // the last distances, less one
	isCopy  [states]prob
	isRep   [states]prob
	notRep0 [states]prob
	isLong  [states]prob // of rep 0: more than one byte
	notRep1 [states]prob
	isRep3  [states]prob
	literal [4][0x300]prob
	length  lengths
	repLen  lengths
	slot    [4][64]prob  // of distances, by length
	low     [14][32]prob // the bits below the highest two, by slot
	align   [16]prob     // the lowest four of a longer distance
}

// lengths codes how many bytes are copied: 2 to 9, 10 to 17, and up to 273.
type lengths struct {
	choice   [2]prob
	low, mid [8]prob
	high     [256]prob
}

// The state says what the last packets were.
const (
	states      = 12
	lastLiteral = 7 // below: the last one was a literal
)

// A packet is what LZMA codes: a literal, where size is 0, or a copy.
type packet struct {
	literal  byte
	size     int
	rep      int    // 0 to 3: the distance is one of the last four; fresh: it is said in full
	distance uint32 // less one
}

const (
	fresh   = -1
	endMark = 1<<32 - 1 // as a distance: nothing follows
)

// code codes the next packet: it is written as it is given, or read, whatever is given. It returns the packet, and keeps what it made.
func (m *model) code(p packet) (packet, error) {
	s := m.state
	if m.coder.bit(&m.isCopy[s], flag(p.size > 0)) == 0 {
		p = packet{literal: m.codeLiteral(p.literal)}
		m.state = max(0, s-3)
		if s >= 10 {
			m.state = s - 6
		}
		m.out = append(m.out, p.literal)
		return p, nil
	}
	if m.coder.bit(&m.isRep[s], flag(p.rep != fresh)) == 0 {
		p.rep = fresh
		p.size = m.codeLength(&m.length, p.size)
		p.distance = m.codeDistance(p.distance, p.size)
		m.enter(7, 10)
	} else {
		p.rep, p.size = m.codeRep(p.rep, p.size)
		p.distance = m.reps[p.rep]
	}
	return p, m.copy(p)
}

// enter sets the state to one of two, by whether the last packet was a literal.
func (m *model) enter(afterLiteral, afterCopy int) {
	if m.state < lastLiteral {
		m.state = afterLiteral
	} else {
		m.state = afterCopy
	}
}

// codeRep codes which of the last distances is meant, and how many bytes are copied.
func (m *model) codeRep(rep, size int) (int, int) {
	s := m.state
	if m.coder.bit(&m.notRep0[s], flag(rep > 0)) == 0 {
		if m.coder.bit(&m.isLong[s], flag(size > 1)) == 0 {
			m.enter(9, 11)
			return 0, 1
		}
		rep = 0
	} else if m.coder.bit(&m.notRep1[s], flag(rep > 1)) == 0 {
		rep = 1
	} else {
		rep = 2 + int(m.coder.bit(&m.isRep3[s], flag(rep > 2)))
	}
	m.enter(8, 11)
	return rep, m.codeLength(&m.repLen, size)
}

// codeLiteral codes a byte. After a copy, the byte that would have come next there tells much about it.
func (m *model) codeLiteral(b byte) byte {
	context := 0
	if n := len(m.out); n > 0 {
		context = int(m.out[n-1] >> 6)
	}
	probs := &m.literal[context]
	if m.state < lastLiteral {
		return byte(tree(m.coder, probs[:], 8, uint32(b)))
	}
	there := uint32(m.out[len(m.out)-1-int(m.reps[0])])
	n, same := uint32(1), uint32(0x100)
	for i := 7; i >= 0; i-- {
		there <<= 1
		hint := there & same
		bit := m.coder.bit(&probs[same+hint+n], uint32(b)>>i&1)
		n = n<<1 | bit
		if bit == 1 {
			same &= hint
		} else {
			same &^= hint
		}
	}
	return byte(n)
}

func (m *model) codeLength(l *lengths, size int) int {
	c := m.coder
	if c.bit(&l.choice[0], flag(size >= 10)) == 0 {
		return 2 + int(tree(c, l.low[:], 3, uint32(size-2)))
	}
	if c.bit(&l.choice[1], flag(size >= 18)) == 0 {
		return 10 + int(tree(c, l.mid[:], 3, uint32(size-10)))
	}
	return 18 + int(tree(c, l.high[:], 8, uint32(size-18)))
}

// codeDistance codes a distance: a slot, which is how long the number is and its highest two bits, and then the others.
func (m *model) codeDistance(d uint32, size int) uint32 {
	c := m.coder
	slot := d
	if n := bits.Len32(d); n > 2 {
		slot = uint32(n-1)<<1 | d>>(n-2)&1
	}
	slot = tree(c, m.slot[min(size-2, 3)][:], 6, slot)
	if slot < 4 {
		return slot
	}
	n := slot>>1 - 1 // bits that follow
	high := (2 | slot&1) << n
	if slot < uint32(len(m.low)) {
		return high | reverse(c, m.low[slot][:], int(n), d)
	}
	for i := n; i > 4; i-- {
		high |= c.direct(d>>(i-1)&1) << (i - 1)
	}
	return high | reverse(c, m.align[:], 4, d)
}

var errDistance = errors.New("a copy from before the beginning")

// copy makes what a packet says.
func (m *model) copy(p packet) error {
	if p.distance == endMark {
		return nil
	}
	if int64(p.distance) >= int64(len(m.out)) {
		return errDistance
	}
	last := p.rep
	if last == fresh {
		last = len(m.reps) - 1
	}
	copy(m.reps[1:last+1], m.reps[:last])
	m.reps[0] = p.distance
	for range p.size {
		m.out = append(m.out, m.out[len(m.out)-1-int(p.distance)])
	}
	return nil
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
