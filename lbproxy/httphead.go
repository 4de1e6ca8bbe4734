package lbproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Limits of what a client or a backend may send as one head or one set of trailers.
const (
	maxHead       = 16 << 10
	maxFields     = 100
	maxResponse   = 256 << 10 // of a backend, which the admin has chosen
	maxRespFields = 1000
	maxEmptyLines = 8 // before a request line (RFC 9112 section 2.2)
)

// errHeadTooLarge says that a head exceeds maxHead or maxFields.
var errHeadTooLarge = fmt.Errorf("head is larger than %d bytes or %d fields", maxHead, maxFields)

// A syntaxError says what is wrong with a message (RFC 9112). Its connection cannot be used any more.
type syntaxError string

// Error implements error.
func (e syntaxError) Error() string { return string(e) }

// A field is one header or trailer field. Both are slices of the head that they belong to.
type field struct{ name, value []byte }

// A head is the first line and the header fields of a request or a response, parsed strictly: what two implementations
// may read in two ways is an error. The zero value is ready; it is reused, and with it the memory of its slices.
type head struct {
	raw    []byte
	fields []field

	method, target []byte // of a request
	status         int    // of a response
	reason         []byte // of a response
	minor          int    // of HTTP/1

	host      []byte
	hasHost   bool
	length    int64 // Content-Length; -1: none
	chunked   bool
	both      bool // Content-Length and Transfer-Encoding: the connection is closed after this message
	close     bool // Connection: close
	keepAlive bool // Connection: keep-alive
	upgrade   bool // Connection: upgrade
	protocol  []byte
	expect    bool // Expect: 100-continue
}

// limits are how large a head may be.
type limits struct{ bytes, fields int }

// read reads a head up to its empty line. io.EOF: the connection ended before its first byte.
func (h *head) read(in *bufio.Reader, l limits) error {
	*h = head{raw: h.raw[:0], fields: h.fields[:0], length: -1}
	lines, empty := 0, 0
	for {
		start := len(h.raw)
		for more := true; more; {
			part, err := in.ReadSlice('\n')
			if len(h.raw)+len(part) > l.bytes {
				return errHeadTooLarge
			}
			h.raw = append(h.raw, part...)
			more = errors.Is(err, bufio.ErrBufferFull)
			if err != nil && !more {
				if errors.Is(err, io.EOF) && len(h.raw) > 0 {
					err = io.ErrUnexpectedEOF
				}
				return err
			}
		}
		line := h.raw[start:]
		if len(line) < 2 || line[len(line)-2] != '\r' {
			return syntaxError("a line ends without CRLF")
		}
		switch {
		case len(line) > 2:
			if lines++; lines > l.fields+1 {
				return errHeadTooLarge
			}
		case lines > 0:
			h.raw = h.raw[:start]
			return nil
		default:
			if empty++; empty > maxEmptyLines {
				return syntaxError("too many empty lines before the first line")
			}
			h.raw = h.raw[:0]
		}
	}
}

// line cuts the first line off raw, which read has ended with CRLF.
func cutLine(raw []byte) (line, rest []byte) {
	i := bytes.IndexByte(raw, '\n')
	return raw[:i-1], raw[i+1:]
}

// readRequest reads and parses a request's head.
func (h *head) readRequest(in *bufio.Reader) error {
	if err := h.read(in, limits{maxHead, maxFields}); err != nil {
		return err
	}
	line, rest := cutLine(h.raw)
	if err := h.requestLine(line); err != nil {
		return err
	}
	if err := h.parseFields(rest, false); err != nil {
		return err
	}
	return h.checkRequest()
}

// requestLine parses a request line (RFC 9112 section 3). The target is not decoded.
func (h *head) requestLine(line []byte) error {
	method, rest, _ := bytes.Cut(line, []byte(" "))
	target, version, _ := bytes.Cut(rest, []byte(" "))
	if !isToken(method) {
		return syntaxError("the method is no token")
	}
	if !isTarget(target) {
		return syntaxError("the target has a byte that is not allowed")
	}
	minor, ok := parseVersion(version)
	if !ok {
		return syntaxError("the version is not HTTP/1.x")
	}
	h.method, h.target, h.minor = method, target, minor
	return nil
}

// checkRequest parses what depends on several parts of a request.
func (h *head) checkRequest() error {
	switch {
	case h.target[0] == '/', string(h.target) == "*":
	case string(h.method) == "CONNECT":
	default:
		return h.absoluteTarget()
	}
	if h.minor > 0 && !h.hasHost {
		return syntaxError("Host is missing")
	}
	return nil
}

// absoluteTarget turns an absolute target into a path (RFC 9112 section 3.2.2). Its authority must be the Host.
func (h *head) absoluteTarget() error {
	scheme, rest, found := bytes.Cut(h.target, []byte("://"))
	if !found || !equalFold(scheme, "http") && !equalFold(scheme, "https") {
		return syntaxError("the target is neither a path nor an absolute URI")
	}
	end := bytes.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	authority := rest[:end]
	if len(authority) == 0 || !isHost(authority) || h.hasHost && !bytes.EqualFold(authority, h.host) {
		return syntaxError("the authority of the target is not the Host")
	}
	h.host, h.hasHost, h.target = authority, true, rest[end:]
	switch {
	case len(h.target) == 0 && string(h.method) == "OPTIONS":
		h.target = []byte("*")
	case len(h.target) == 0:
		h.target = []byte("/")
	case h.target[0] == '?':
		h.target = append([]byte("/"), h.target...)
	}
	return nil
}

// readResponse reads and parses a response's head.
func (h *head) readResponse(in *bufio.Reader) error {
	if err := h.read(in, limits{maxResponse, maxRespFields}); err != nil {
		return err
	}
	line, rest := cutLine(h.raw)
	version, status, _ := bytes.Cut(line, []byte(" "))
	code, reason, _ := bytes.Cut(status, []byte(" "))
	minor, ok := parseVersion(version)
	if !ok || len(code) != 3 || !isDigits(code) || code[0] == '0' || !isText(reason) {
		return syntaxError("the status line is malformed")
	}
	h.minor, h.reason = minor, reason
	h.status = int(code[0]-'0')*100 + int(code[1]-'0')*10 + int(code[2]-'0')
	return h.parseFields(rest, true)
}

// parseFields parses field lines (RFC 9112 section 5). unfold replaces obs-fold by spaces, as section 5.2 allows for
// responses only.
func (h *head) parseFields(raw []byte, unfold bool) error {
	for len(raw) > 0 {
		line, rest := cutLine(raw)
		for len(rest) > 0 && isSpace(rest[0]) {
			if !unfold {
				return syntaxError("a field is folded")
			}
			at := len(line)
			raw[at], raw[at+1] = ' ', ' '
			next, after := cutLine(rest)
			line, rest = raw[:at+2+len(next)], after
		}
		raw = rest
		name, value, found := bytes.Cut(line, []byte(":"))
		if !found || !isToken(name) {
			return syntaxError("a field name is malformed")
		}
		f := field{name, trimSpace(value)}
		if !isText(f.value) {
			return syntaxError("a field value has a control character")
		}
		if err := h.note(f); err != nil {
			return err
		}
		h.fields = append(h.fields, f)
	}
	return nil
}

// note keeps what a field says about the message itself.
func (h *head) note(f field) error {
	switch kindOf(f.name) {
	case fieldHost:
		if h.hasHost || !isHost(f.value) {
			return syntaxError("Host is malformed or there twice")
		}
		h.host, h.hasHost = f.value, true
	case fieldLength:
		n, ok := parseLength(f.value)
		if !ok || h.length >= 0 {
			return syntaxError("Content-Length is malformed or there twice")
		}
		h.length, h.both = n, h.chunked
	case fieldEncoding:
		if h.chunked || !equalFold(f.value, "chunked") {
			return syntaxError("Transfer-Encoding is not chunked, once")
		}
		h.chunked, h.both = true, h.length >= 0
	case fieldConnection:
		h.noteConnection(f.value)
	case fieldUpgrade:
		h.protocol = f.value
	case fieldExpect:
		h.expect = equalFold(f.value, "100-continue")
	}
	return nil
}

func (h *head) noteConnection(value []byte) {
	for option := range bytes.SplitSeq(value, []byte(",")) {
		option = trimSpace(option)
		switch {
		case equalFold(option, "close"):
			h.close = true
		case equalFold(option, "keep-alive"):
			h.keepAlive = true
		case equalFold(option, "upgrade"):
			h.upgrade = true
		}
	}
}

// persistent reports whether the connection may carry another message after this one (RFC 9112 section 9.3).
func (h *head) persistent() bool {
	return !h.close && !h.both && (h.minor > 0 || h.keepAlive && !h.chunked)
}

// framing returns how the body of a request is delimited (RFC 9112 section 6.3).
func (h *head) framing() (framing, int64) {
	switch {
	case h.chunked:
		return byChunks, 0
	case h.length > 0:
		return byLength, h.length
	}
	return noBody, 0
}

// A fieldKind is a field that the proxy itself understands.
type fieldKind int

const (
	fieldOther fieldKind = iota
	fieldHost
	fieldLength
	fieldEncoding
	fieldConnection
	fieldKeepAlive
	fieldProxyConnection
	fieldUpgrade
	fieldSettings
	fieldTE
	fieldExpect
	fieldForwarded
	fieldForwardedFor
	fieldForwardedHost
	fieldForwardedProto
	fieldForwardedPort
	fieldCookie
	fieldSetCookie
)

// kindOf returns the kind of a field name.
func kindOf(name []byte) fieldKind {
	want, kind := "", fieldOther
	switch len(name) {
	case 2:
		want, kind = "te", fieldTE
	case 4:
		want, kind = "host", fieldHost
	case 6:
		if name[0]|0x20 == 'e' {
			want, kind = "expect", fieldExpect
		} else {
			want, kind = "cookie", fieldCookie
		}
	case 7:
		want, kind = "upgrade", fieldUpgrade
	case 9:
		want, kind = "forwarded", fieldForwarded
	case 10:
		switch name[0] | 0x20 {
		case 'c':
			want, kind = "connection", fieldConnection
		case 'k':
			want, kind = "keep-alive", fieldKeepAlive
		case 's':
			want, kind = "set-cookie", fieldSetCookie
		}
	case 14:
		if name[0]|0x20 == 'c' {
			want, kind = "content-length", fieldLength
		} else {
			want, kind = "http2-settings", fieldSettings
		}
	case 15:
		want, kind = "x-forwarded-for", fieldForwardedFor
	case 16:
		switch name[len(name)-1] | 0x20 {
		case 'n':
			want, kind = "proxy-connection", fieldProxyConnection
		case 't':
			if name[12]|0x20 == 'h' {
				want, kind = "x-forwarded-host", fieldForwardedHost
			} else {
				want, kind = "x-forwarded-port", fieldForwardedPort
			}
		}
	case 17:
		if name[0]|0x20 == 't' {
			want, kind = "transfer-encoding", fieldEncoding
		} else {
			want, kind = "x-forwarded-proto", fieldForwardedProto
		}
	}
	if kind == fieldOther || !equalFold(name, want) {
		return fieldOther
	}
	return kind
}

// equalFold reports whether b is want, which is in lower case, in any ASCII case.
func equalFold(b []byte, want string) bool {
	if len(b) != len(want) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != want[i] {
			return false
		}
	}
	return true
}

// Classes of bytes.
const (
	classToken  = 1 << iota // RFC 9110 section 5.6.2
	classText               // of a field value: no control character but the tab
	classTarget             // visible ASCII without "#", which starts a fragment
	classHost               // RFC 3986 section 3.2, without userinfo
)

var classes = func() (table [256]uint8) {
	set := func(class uint8, chars string) {
		for i := range len(chars) {
			table[chars[i]] |= class
		}
	}
	const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	set(classToken, alphanumeric+"!#$%&'*+-.^_`|~")
	set(classHost, alphanumeric+"-._~%!$&'()*+;=:[]")
	for c := range 256 {
		if c == '\t' || c >= ' ' && c != 0x7f {
			table[c] |= classText
		}
		if c > ' ' && c < 0x7f && c != '#' {
			table[c] |= classTarget
		}
	}
	return table
}()

func all(b []byte, class uint8) bool {
	for _, c := range b {
		if classes[c]&class == 0 {
			return false
		}
	}
	return true
}

func isToken(b []byte) bool  { return len(b) > 0 && all(b, classToken) }
func isTarget(b []byte) bool { return len(b) > 0 && all(b, classTarget) }
func isText(b []byte) bool   { return all(b, classText) }
func isHost(b []byte) bool   { return all(b, classHost) }
func isSpace(c byte) bool    { return c == ' ' || c == '\t' }

func isDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

// trimSpace removes spaces and tabs, and nothing else, from both ends.
func trimSpace(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

// parseVersion returns the minor version of HTTP/1.
func parseVersion(b []byte) (minor int, ok bool) {
	if len(b) != 8 || string(b[:7]) != "HTTP/1." || b[7] < '0' || b[7] > '9' {
		return 0, false
	}
	return int(b[7] - '0'), true
}

// parseLength parses a Content-Length: digits only.
func parseLength(b []byte) (n int64, ok bool) {
	if !isDigits(b) || len(b) > 18 {
		return 0, false
	}
	for _, c := range b {
		n = 10*n + int64(c-'0')
	}
	return n, true
}
