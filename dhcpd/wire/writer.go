package wire

// A writer appends options while there is room. What finds none is noted and left out: options come in the order of
// their worth.
type writer struct {
	b   []byte // the message; it has room for maxMessage, so it never moves
	end int    // how long b may get

	file, sname []byte // the header's fields as far as they are written, nil unless open for options
	overload    int    // where in b the value of option 52 is, 0: the fields are closed
	left        Codes
}

// openFields lets options that find no room go on in the header's fields (RFC 2131 section 4.1). One byte of each is
// kept for the option that ends it.
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

// closeFields ends what was written in the header's fields, and says so in option 52.
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

// room returns what n bytes of an option are to be appended to, nil if they fit nowhere.
func (w *writer) room(code uint8, n int) *[]byte {
	switch {
	case len(w.b)+n <= w.end:
		return &w.b
	case len(w.file)+n <= cap(w.file):
		return &w.file
	case len(w.sname)+n <= cap(w.sname):
		return &w.sname
	}
	w.left.Add(code)
	return nil
}

func (w *writer) raw(e encoded) {
	if b := w.room(e.code, len(e.tlv)); b != nil {
		*b = append(*b, e.tlv...)
	}
}

// put writes an option unless its value is empty.
func put[T ~string | ~[]byte](w *writer, code uint8, value T) {
	if len(value) == 0 {
		return
	}
	if b := w.room(code, tlvSize(len(value))); b != nil {
		*b = appendTLV(*b, code, value)
	}
}
