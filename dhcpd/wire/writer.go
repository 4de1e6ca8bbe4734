package wire

import "math"

// A writer appends options, in the order of their priority, while they fit. Those that do not fit are recorded and left out.
type writer struct {
	b   []byte // the message; it has room for maxMessage, so it never moves
	end int    // maximum length of b

	file, sname           []byte // what is written in the header's fields; nil unless they are open for options
	overload              int    // index in b of the value of option 52; 0: the fields are closed
	omitted               Codes
	written, firstOmitted int // number of options so far, and of the first that did not fit; 0: none
}

// omit records an option that does not fit.
func (w *writer) omit(code uint8) {
	w.omitted.Add(code)
	if w.firstOmitted == 0 {
		w.firstOmitted = w.written
	}
}

// better reports whether more important options fit than in another try at the same message.
func (w *writer) better(o *writer) bool {
	if w.firstOmitted == 0 || o.firstOmitted == 0 || w.firstOmitted == o.firstOmitted {
		return w.omitted.Len() < o.omitted.Len()
	}
	return w.firstOmitted > o.firstOmitted
}

// openFields allows options in the header's fields file and sname (RFC 2131 section 4.1). One byte of each is kept for the
// end option.
func (w *writer) openFields(start int, fileFree bool) {
	if len(w.b)+3 > w.end {
		return
	}
	w.b = append(w.b, optOverload, 1, 0)
	w.overload = len(w.b) - 1
	if fileFree {
		w.file = w.b[start+fileAt : start+fileAt : start+headerSize-1]
	}
	w.sname = w.b[start+snameAt : start+snameAt : start+fileAt-1]
}

// closeFields ends the options in the header's fields, and sets option 52.
func (w *writer) closeFields(start int) {
	if w.overload == 0 {
		return
	}
	var used byte
	if n := len(w.file); n > 0 {
		w.b[start+fileAt+n] = optEnd
		used |= 1
	}
	if n := len(w.sname); n > 0 {
		w.b[start+snameAt+n] = optEnd
		used |= 2
	}
	w.b[w.overload] = used
}

// fieldFor returns the field that has space for n bytes of an option, nil if none has.
func (w *writer) fieldFor(n int) *[]byte {
	switch {
	case len(w.b)+n <= w.end:
		return &w.b
	case len(w.file)+n <= cap(w.file):
		return &w.file
	case len(w.sname)+n <= cap(w.sname):
		return &w.sname
	}
	return nil
}

// split writes a value in parts into the rest of the message and the header's fields, in the order in which a client joins
// them (RFC 3396 section 5). If not all of it fits, it writes nothing.
func (w *writer) split(code uint8, value []byte) bool {
	places := [...]struct {
		b    *[]byte
		room int
	}{{&w.b, w.end - len(w.b)}, {&w.file, cap(w.file) - len(w.file)}, {&w.sname, cap(w.sname) - len(w.sname)}}
	fits := 0
	for _, p := range places {
		fits += valueRoom(p.room)
	}
	if w.overload == 0 || fits < len(value) {
		return false
	}
	for _, p := range places {
		n := min(valueRoom(p.room), len(value))
		if n > 0 {
			*p.b = appendTLV(*p.b, code, value[:n])
			value = value[n:]
		}
	}
	return true
}

// valueRoom returns how many bytes of a value fit in n bytes.
func valueRoom(n int) int {
	const whole = 2 + math.MaxUint8
	return max(0, n/whole*math.MaxUint8+max(0, n%whole-2))
}

func (w *writer) raw(e encoded) {
	w.written++
	if b := w.fieldFor(len(e.tlv)); b != nil {
		*b = append(*b, e.tlv...)
		return
	}
	var value [maxOption]byte
	if !w.split(e.code, e.appendValue(value[:0])) {
		w.omit(e.code)
	}
}

// put writes an option unless its value is empty.
func put[T ~string | ~[]byte](w *writer, code uint8, value T) {
	if len(value) == 0 {
		return
	}
	w.written++
	if b := w.fieldFor(tlvSize(len(value))); b != nil {
		*b = appendTLV(*b, code, value)
		return
	}
	w.omit(code)
}
