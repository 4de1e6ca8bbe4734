package dnsd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

const (
	maxName   = 255 // octets of a name in wire form, RFC 1035 section 2.3.4
	maxLabel  = 63
	maxLabels = 127 // of one octet each, and the root

	hashSeed  = 0x9e3779b97f4a7c15
	hashPrime = 0xff51afd7ed558ccd
)

// wildcardLabel is the label "*" in wire form (RFC 4592 section 2.1.1).
const wildcardLabel = "\x01*"

var errName = errors.New("malformed name")

// A name is a domain name in wire form, in lower case, with the place and the hash of each of its suffixes. It is large and
// meant to be used again and again.
type name struct {
	wire   [maxName]byte
	n      int // octets in wire, the root's included
	labels int // without the root
	off    [maxLabels + 1]uint8
	hash   [maxLabels + 1]uint64
}

// bytes returns the name in wire form.
func (n *name) bytes() []byte { return n.wire[:n.n] }

// suffix returns the name without its first i labels.
func (n *name) suffix(i int) []byte { return n.wire[n.off[i]:n.n] }

// parse reads an uncompressed name from the start of b and returns how many octets it took.
func (n *name) parse(b []byte) (int, error) {
	n.n, n.labels = 0, 0
	for {
		if n.n >= len(b) || n.n >= maxName {
			return 0, errName
		}
		l := int(b[n.n])
		end := n.n + 1 + l
		if l > maxLabel || end > len(b) || end > maxName {
			return 0, errName // a pointer has no place in a question
		}
		n.off[n.labels] = uint8(n.n)
		n.wire[n.n] = byte(l)
		for i := n.n + 1; i < end; i++ {
			n.wire[i] = lower(b[i])
		}
		n.n = end
		if l == 0 {
			break
		}
		n.labels++
	}
	n.rehash()
	return n.n, nil
}

// rehash fills in the hashes, from the root to the left, so that each continues the hash of its parent.
func (n *name) rehash() {
	h := uint64(hashSeed)
	n.hash[n.labels] = h
	for i := n.labels - 1; i >= 0; i-- {
		h = hashLabel(h, n.wire[n.off[i]:n.off[i+1]])
		n.hash[i] = h
	}
}

// hashLabel continues the hash of a parent with one label, its length octet included.
func hashLabel(h uint64, b []byte) uint64 {
	for ; len(b) >= 8; b = b[8:] {
		h = (h ^ binary.LittleEndian.Uint64(b)) * hashPrime
		h ^= h >> 29
	}
	tail := uint64(len(b)) << 56
	for i, c := range b {
		tail |= uint64(c) << (8 * i)
	}
	h = (h ^ tail) * hashPrime
	return h ^ h>>32
}

// hasSuffix returns at which label of n the suffix starts, or -1 if n does not end in it.
func (n *name) hasSuffix(wire []byte, labels int) int {
	i := n.labels - labels
	if i < 0 || !bytes.Equal(n.suffix(i), wire) {
		return -1
	}
	return i
}

// shares returns where in a name, in wire form and lower case, its longest end begins that the question's name n ends in too, and where
// that stands in the message; 0: they have only the root in common, and the end is that of the name.
func (n *name) shares(wire []byte) (cut, at int) {
	i := 0
	for cut < len(wire)-1 {
		for i < n.labels && n.n-int(n.off[i]) > len(wire)-cut {
			i++
		}
		if bytes.Equal(n.suffix(i), wire[cut:]) {
			return cut, question + int(n.off[i])
		}
		cut += 1 + int(wire[cut])
	}
	return len(wire), 0
}

// expand reads the name at an offset of a message, which may end in a pointer to the question's name q.
func (n *name) expand(b []byte, at int, q *name) error {
	var wire [2 * maxName]byte
	k := 0
	for off := at; off < len(b); {
		switch l := int(b[off]); {
		case l == 0:
			_, err := n.parse(b[at:])
			return err
		case l >= 0xc0:
			if off+1 == len(b) {
				return errName
			}
			to := (l&0x3f)<<8 + int(b[off+1]) - question
			if to < 0 || to >= q.n {
				return errName
			}
			k += copy(wire[k:], q.wire[to:q.n])
			_, err := n.parse(wire[:k])
			return err
		case l > maxLabel || off+1+l > len(b) || k+1+l > maxName:
			return errName
		default:
			k += copy(wire[k:], b[off:off+1+l])
			off += 1 + l
		}
	}
	return errName
}

// isAt reports whether b starts with the name, in whatever case.
func (n *name) isAt(b []byte) bool {
	if len(b) < n.n {
		return false
	}
	for i, c := range n.bytes() {
		if lower(b[i]) != c {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// appendName appends a name that is written as text, without escapes and with or without a final dot, in wire form and
// lower case.
func appendName(b []byte, text string) ([]byte, error) {
	start := len(b)
	rest := strings.TrimSuffix(text, ".")
	for more := rest != ""; more; {
		var label string
		label, rest, more = strings.Cut(rest, ".")
		if label == "" || len(label) > maxLabel {
			return b[:start], fmt.Errorf("%q is not a domain name: a label has 1 to 63 characters", text)
		}
		b = append(b, byte(len(label)))
		for i := range len(label) {
			b = append(b, lower(label[i]))
		}
	}
	b = append(b, 0)
	if len(b)-start > maxName {
		return b[:start], fmt.Errorf("%q is not a domain name: it is longer than 255 octets", text)
	}
	return b, nil
}

// nameEnd returns the offset behind the name at off in a message, whose compression pointers are not followed.
func nameEnd(b []byte, off int) (int, error) {
	for off < len(b) {
		switch l := int(b[off]); {
		case l == 0:
			return off + 1, nil
		case l >= 0xc0:
			if off+2 > len(b) {
				return 0, errName
			}
			return off + 2, nil
		case l > maxLabel:
			return 0, errName
		default:
			off += 1 + l
		}
	}
	return 0, errName
}

// wireLen returns the length of the uncompressed name at the start of b, which is known to be well-formed.
func wireLen(b []byte) int {
	n := 0
	for b[n] != 0 {
		n += 1 + int(b[n])
	}
	return n + 1
}
