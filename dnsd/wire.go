package dnsd

import (
	"encoding/binary"
)

const (
	headerLen = 12
	question  = headerLen // where the question's name starts; answers point to it

	minUDP = 512  // what every client takes, RFC 1035 section 4.2.1
	maxUDP = 1232 // what passes every path unfragmented: the size agreed on at DNS Flag Day 2020
	maxTCP = 65535
	optLen = 11 // of an OPT record without options
	optEDE = 15 // the option of RFC 8914

	optSubnet    = 8
	optKeepalive = 11

	optCookie  = 10  // RFC 7873
	optPadding = 12  // RFC 7830
	paddedTo   = 128 // RFC 8467 section 4.1
)

// The flags of the second header word.
const (
	flagQR = 1 << 15
	flagAA = 1 << 10
	flagTC = 1 << 9
	flagRD = 1 << 8
	flagRA = 1 << 7
	flagAD = 1 << 5
	flagCD = 1 << 4

	opcodeMask = 0xf << 11
)

// An rcode is a response code; those above 15 have their upper bits in the OPT record (RFC 6891 section 6.1.3).
type rcode uint16

const (
	noError  rcode = 0
	formErr  rcode = 1
	servFail rcode = 2
	nxDomain rcode = 3
	notImp   rcode = 4
	refused  rcode = 5
	yxDomain rcode = 6
	notAuth  rcode = 9
	badVers  rcode = 16

	badCookie rcode = 23
)

// A query is what a client asks.
type query struct {
	flags  uint16
	qtype  uint16
	qclass uint16
	name   name
	end    int  // of the question; headerLen while there is none
	tsig   int  // where the TSIG record starts; 0: there is none
	update bool // it is a dynamic update, and its question names a zone

	edns  bool
	do    bool
	limit int // octets of a reply over UDP that the client takes

	cookie    [maxCookieLen]byte // the client's, then the server's
	cookieLen int                // 0: the query has none
}

// parse reads a message. It returns false if no reply must be sent. What is wrong with the message is the rcode.
func (q *query) parse(b []byte) (code rcode, reply bool) {
	q.end, q.tsig, q.edns, q.do, q.limit, q.qtype, q.cookieLen = headerLen, 0, false, false, minUDP, 0, 0
	if len(b) < headerLen || b[2]&(flagQR>>8) != 0 {
		return 0, false // replying to replies makes loops
	}
	q.flags = binary.BigEndian.Uint16(b[2:])
	if q.update = q.flags&opcodeMask == opcodeUpdate; !q.update && q.flags&opcodeMask != 0 {
		return notImp, true
	}
	return q.read(b), true
}

// read reads a message that has a header.
func (q *query) read(b []byte) rcode {
	if binary.BigEndian.Uint16(b[4:]) != 1 {
		return formErr
	}
	n, err := q.name.parse(b[headerLen:])
	if err != nil || len(b) < headerLen+n+4 {
		return formErr
	}
	q.end = headerLen + n + 4
	q.qtype = binary.BigEndian.Uint16(b[q.end-4:])
	q.qclass = binary.BigEndian.Uint16(b[q.end-2:])
	return q.rest(b)
}

// rest reads what comes behind the question, of which only the OPT record matters.
func (q *query) rest(b []byte) rcode {
	before := int(binary.BigEndian.Uint16(b[6:])) + int(binary.BigEndian.Uint16(b[8:]))
	all := before + int(binary.BigEndian.Uint16(b[10:]))
	code, off := noError, q.end
	for i := range all {
		h, ok := parseHeader(b, off)
		if !ok {
			return formErr
		}
		switch {
		case h.rtype == typeOPT && (q.edns || b[off] != 0 || i < before):
			return formErr // one, of the root, among the additional: RFC 6891 section 6.1.1
		case h.rtype == typeOPT:
			code = max(code, q.opt(h, b))
		case h.rtype == typeTSIG && i < all-1 || h.rtype == typeTSIG && i < before:
			return formErr // the last of the additional records: RFC 8945 section 5.1
		case h.rtype == typeTSIG:
			q.tsig = off
		}
		off = h.end
	}
	if off != len(b) {
		return formErr
	}
	return code
}

// opt takes the OPT record of a query (RFC 6891 section 6.1). Options are ignored, but must be well-formed.
func (q *query) opt(h rrHeader, b []byte) rcode {
	q.edns = true
	for options := b[h.data:h.end]; len(options) > 0; {
		if len(options) < 4 || len(options) < 4+int(binary.BigEndian.Uint16(options[2:])) {
			return formErr
		}
		data := options[4 : 4+int(binary.BigEndian.Uint16(options[2:]))]
		if options[0] == 0 && options[1] == optCookie && q.cookieLen == 0 {
			if n := len(data); n != clientCookieLen && (n < cookieLen-serverCookieLen/2 || n > maxCookieLen) {
				return formErr // RFC 7873 section 5.2.2
			}
			q.cookieLen = copy(q.cookie[:], data)
		}
		if !wellFormed(binary.BigEndian.Uint16(options), data) {
			return formErr
		}
		options = options[4+len(data):]
	}
	q.do = h.ttl&(1<<15) != 0
	q.limit = min(max(int(h.class), minUDP), maxUDP)
	if h.ttl>>16&0xff != 0 {
		return badVers
	}
	return noError
}

// wellFormed checks the options that a server must refuse if they are malformed, though it does not use them.
func wellFormed(option uint16, data []byte) bool {
	switch option {
	case optSubnet: // RFC 7871 section 7.1.2
		if len(data) < 4 || data[3] != 0 {
			return false
		}
		bits := 32
		if binary.BigEndian.Uint16(data) == 2 {
			bits = 128
		}
		prefix, addr := int(data[2]), data[4:]
		if prefix > bits || len(addr) != (prefix+7)/8 {
			return false
		}
		return prefix%8 == 0 || addr[len(addr)-1]&(0xff>>(prefix%8)) == 0
	case optKeepalive: // RFC 7828 section 3.2.1
		return len(data) == 0
	}
	return true
}

// An rrHeader is the fixed part of a resource record in a message.
type rrHeader struct {
	rtype, class uint16
	ttl          uint32
	fixed        int // where the type stands
	data, end    int
}

func parseHeader(b []byte, off int) (h rrHeader, ok bool) {
	off, err := nameEnd(b, off)
	if err != nil || off+10 > len(b) {
		return h, false
	}
	h.fixed, h.data = off, off+10
	h.rtype = binary.BigEndian.Uint16(b[off:])
	h.class = binary.BigEndian.Uint16(b[off+2:])
	h.ttl = binary.BigEndian.Uint32(b[off+4:])
	h.end = h.data + int(binary.BigEndian.Uint16(b[off+8:]))
	return h, h.end <= len(b)
}

// A section counts the records of one part of a message.
type section uint8

const (
	answers section = iota
	authority
	additional
)

// A writer makes a reply in place of the query. Its buffer holds the query's header and question when it starts.
type writer struct {
	b     []byte
	limit int // octets that the reply may have, without the OPT record
	count [3]uint16
	full  bool   // something did not fit
	why   string // there is no answer, for who speaks EDNS; below 200 octets. Only what leaves room for it may have one
}

// rr adds a record whose owner stands at offset owner of the message, and returns where its data starts.
func (w *writer) rr(s section, owner int, rtype uint16, ttl uint32, rdata []byte) int {
	if w.full || len(w.b)+12+len(rdata) > w.limit || owner > 0x3fff {
		w.full = true
		return 0
	}
	w.b = append(w.b, 0xc0|byte(owner>>8), byte(owner), byte(rtype>>8), byte(rtype), 0, classIN,
		byte(ttl>>24), byte(ttl>>16), byte(ttl>>8), byte(ttl), byte(len(rdata)>>8), byte(len(rdata)))
	w.b = append(w.b, rdata...)
	w.count[s]++
	return len(w.b) - len(rdata)
}

// rrNames is rr for data that begins with skip octets and then has names that may be compressed (RFC 3597 section 4). Their ends that
// are those of the question's name become pointers to it.
func (w *writer) rrNames(s section, owner int, rtype uint16, ttl uint32, rdata []byte, skip, names int, q *name) {
	var cut, to [2]int
	saved, rest := 0, rdata[skip:]
	for i := range names {
		n := wireLen(rest)
		if cut[i], to[i] = q.shares(rest[:n]); to[i] > 0 {
			saved += n - cut[i] - 2
		}
		rest = rest[n:]
	}
	size := len(rdata) - saved
	if w.full || len(w.b)+12+size > w.limit || owner > 0x3fff {
		w.full = true
		return
	}
	w.b = append(w.b, 0xc0|byte(owner>>8), byte(owner), byte(rtype>>8), byte(rtype), 0, classIN,
		byte(ttl>>24), byte(ttl>>16), byte(ttl>>8), byte(ttl), byte(size>>8), byte(size))
	w.b = append(w.b, rdata[:skip]...)
	rest = rdata[skip:]
	for i := range names {
		n := wireLen(rest)
		w.b = append(w.b, rest[:cut[i]]...)
		if to[i] > 0 {
			w.b = append(w.b, 0xc0|byte(to[i]>>8), byte(to[i]))
		}
		rest = rest[n:]
	}
	w.b = append(w.b, rest...)
	w.count[s]++
}

// A mark is a place to go back to.
type mark struct {
	n     int
	count [3]uint16
}

func (w *writer) mark() mark { return mark{len(w.b), w.count} }

// rewind takes back everything since m.
func (w *writer) rewind(m mark) { w.b, w.count, w.full = w.b[:m.n], m.count, false }

// options adds the options of an OPT record that has none yet: the cookie and, if there is no answer, why (RFC 8914: code 0, "other", and a
// text).
func (w *writer) options(q *query) {
	start := len(w.b)
	if q.cookieLen > 0 {
		w.b = append(w.b, 0, optCookie, 0, cookieLen)
		w.b = append(w.b, q.cookie[:cookieLen]...)
	}
	if w.why != "" {
		w.b = append(w.b, 0, optEDE, 0, byte(2+len(w.why)), 0, 0)
		w.b = append(w.b, w.why...)
	}
	w.b[start-1] = byte(len(w.b) - start) // below 256
}

// finish writes the header, and the OPT record if the client sent one.
func (w *writer) finish(q *query, flags uint16, code rcode) {
	if w.full {
		w.rewind(mark{n: q.end})
		flags |= flagTC
	}
	ar := w.count[additional]
	if q.edns {
		w.b = append(w.b, 0, 0, typeOPT, maxUDP>>8, maxUDP&0xff, byte(code>>4), 0, 0, 0, 0, 0)
		if q.do {
			w.b[len(w.b)-4] = 0x80 // RFC 3225 section 3: copied
		}
		w.options(q)
		ar++
	}
	flags |= flagQR | q.flags&(opcodeMask|flagRD|flagCD) | uint16(code&0xf)
	binary.BigEndian.PutUint16(w.b[2:], flags)
	questions := uint16(0)
	if q.end > headerLen {
		questions = 1
	}
	binary.BigEndian.PutUint16(w.b[4:], questions)
	binary.BigEndian.PutUint16(w.b[6:], w.count[answers])
	binary.BigEndian.PutUint16(w.b[8:], w.count[authority])
	binary.BigEndian.PutUint16(w.b[10:], ar)
}
