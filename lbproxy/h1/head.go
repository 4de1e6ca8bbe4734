package h1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Limits of what a client or a backend may send as one head or one set of trailers.
const (
	MaxHead       = 16 << 10
	MaxFields     = 100
	maxResponse   = 256 << 10 // of a backend, which the admin has chosen
	maxRespFields = 1000
	maxEmptyLines = 8 // before a request line (RFC 9112 section 2.2)
)

// ErrHeadTooLarge says that a head exceeds MaxHead bytes or MaxFields fields.
var ErrHeadTooLarge = fmt.Errorf("head is larger than %d bytes or %d fields", MaxHead, MaxFields)

// A SyntaxError says what is wrong with a message (RFC 9112). Its connection cannot be used any more.
type SyntaxError string

// Error implements error.
func (e SyntaxError) Error() string { return string(e) }

// A Field is one header or trailer field. Both are slices of the head that they belong to.
type Field struct{ Name, Value []byte }

// A Head is the first line and the header fields of a request or a response, parsed strictly: what two implementations
// may read in two ways is an error. The zero value is ready; it is reused, and with it the memory of its slices.
type Head struct {
	raw    []byte
	Fields []Field

	Method, Target []byte // of a request; an absolute target has become a path
	Status         int    // of a response
	Reason         []byte // of a response
	Minor          int    // of HTTP/1

	Host      []byte
	HasHost   bool
	Length    int64  // Content-Length; -1: none
	Chunked   bool   // Transfer-Encoding: chunked
	both      bool   // Content-Length and Transfer-Encoding: the connection is closed after this message
	close     bool   // Connection: close
	keepAlive bool   // Connection: keep-alive
	Upgrade   bool   // Connection: upgrade
	Protocol  []byte // Upgrade
}

// Size returns how many bytes the head's memory has for lines, which the next message uses again.
func (h *Head) Size() int { return cap(h.raw) }

// limits are how large a head may be.
type limits struct{ bytes, fields int }

// Reset forgets the message, and keeps the memory for the next.
func (h *Head) Reset() { *h = Head{raw: h.raw[:0], Fields: h.Fields[:0], Length: -1} }

// read reads a head up to its empty line. io.EOF: the connection ended before its first byte.
func (h *Head) read(in *bufio.Reader, l limits) error {
	h.Reset()
	lines, empty := 0, 0
	for {
		start := len(h.raw)
		for more := true; more; {
			part, err := in.ReadSlice('\n')
			if len(h.raw)+len(part) > l.bytes {
				return ErrHeadTooLarge
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
			return SyntaxError("a line ends without CRLF")
		}
		switch {
		case len(line) > 2:
			if lines++; lines > l.fields+1 {
				return ErrHeadTooLarge
			}
		case lines > 0:
			h.raw = h.raw[:start]
			return nil
		default:
			if empty++; empty > maxEmptyLines {
				return SyntaxError("too many empty lines before the first line")
			}
			h.raw = h.raw[:0]
		}
	}
}

// CutLine cuts the first line off raw, which read has ended with CRLF.
func CutLine(raw []byte) (line, rest []byte) {
	i := bytes.IndexByte(raw, '\n')
	return raw[:i-1], raw[i+1:]
}

// ReadRequest reads and parses a request's head. The error is ErrHeadTooLarge, a SyntaxError, or in's; io.EOF: the
// connection ended before the first byte.
func (h *Head) ReadRequest(in *bufio.Reader) error {
	if err := h.read(in, limits{MaxHead, MaxFields}); err != nil {
		return err
	}
	line, rest := CutLine(h.raw)
	if err := h.requestLine(line); err != nil {
		return err
	}
	if err := h.ParseFields(rest, false); err != nil {
		return err
	}
	return h.checkRequest()
}

// requestLine parses a request line (RFC 9112 section 3). The target is not decoded.
func (h *Head) requestLine(line []byte) error {
	method, rest, _ := bytes.Cut(line, []byte(" "))
	target, version, _ := bytes.Cut(rest, []byte(" "))
	if !IsToken(method) {
		return SyntaxError("the method is no token")
	}
	if !IsTarget(target) {
		return SyntaxError("the target has a byte that is not allowed")
	}
	minor, ok := parseVersion(version)
	if !ok {
		return SyntaxError("the version is not HTTP/1.x")
	}
	h.Method, h.Target, h.Minor = method, target, minor
	return nil
}

// checkRequest parses what depends on several parts of a request.
func (h *Head) checkRequest() error {
	switch {
	case h.Connect():
		return h.checkConnect()
	case h.Target[0] == '/', string(h.Target) == "*":
	default:
		return h.absoluteTarget()
	}
	if h.Minor > 0 && !h.HasHost {
		return SyntaxError("Host is missing")
	}
	return nil
}

// Connect reports whether a request asks for a tunnel (RFC 9110 section 9.3.6).
func (h *Head) Connect() bool { return string(h.Method) == "CONNECT" }

// checkConnect checks a request for a tunnel: its target is a host with a port, which the Host may leave out. It has no content.
func (h *Head) checkConnect() error {
	colon := bytes.LastIndexByte(h.Target, ':')
	switch {
	case colon < 1 || !isDigits(h.Target[colon+1:]) || !IsHost(h.Target):
		return SyntaxError("the target of CONNECT is no host with a port")
	case h.Chunked || h.Length > 0:
		return SyntaxError("CONNECT has a body")
	case !h.HasHost && h.Minor > 0:
		return SyntaxError("Host is missing")
	case h.HasHost && !bytes.EqualFold(h.Host, h.Target) && !bytes.EqualFold(h.Host, h.Target[:colon]):
		return SyntaxError("the target of CONNECT is not the Host")
	}
	h.Host, h.HasHost = h.Target, true
	return nil
}

// absoluteTarget turns an absolute target into a path (RFC 9112 section 3.2.2). Its authority must be the Host.
func (h *Head) absoluteTarget() error {
	scheme, rest, found := bytes.Cut(h.Target, []byte("://"))
	if !found || !EqualFold(scheme, "http") && !EqualFold(scheme, "https") {
		return SyntaxError("the target is neither a path nor an absolute URI")
	}
	end := bytes.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	authority := rest[:end]
	if len(authority) == 0 || !IsHost(authority) || h.HasHost && !bytes.EqualFold(authority, h.Host) {
		return SyntaxError("the authority of the target is not the Host")
	}
	h.Host, h.HasHost, h.Target = authority, true, rest[end:]
	switch {
	case len(h.Target) == 0 && string(h.Method) == "OPTIONS":
		h.Target = []byte("*")
	case len(h.Target) == 0:
		h.Target = []byte("/")
	case h.Target[0] == '?':
		h.Target = append([]byte("/"), h.Target...)
	}
	return nil
}

// ReadResponse reads and parses a response's head. Its errors are those of ReadRequest.
func (h *Head) ReadResponse(in *bufio.Reader) error {
	if err := h.read(in, limits{maxResponse, maxRespFields}); err != nil {
		return err
	}
	line, rest := CutLine(h.raw)
	version, status, _ := bytes.Cut(line, []byte(" "))
	code, reason, _ := bytes.Cut(status, []byte(" "))
	minor, ok := parseVersion(version)
	if !ok || len(code) != 3 || !isDigits(code) || code[0] == '0' || !IsText(reason) {
		return SyntaxError("the status line is malformed")
	}
	h.Minor, h.Reason = minor, reason
	h.Status = int(code[0]-'0')*100 + int(code[1]-'0')*10 + int(code[2]-'0')
	return h.ParseFields(rest, true)
}

// ParseFields parses field lines (RFC 9112 section 5). unfold replaces obs-fold by spaces, as section 5.2 allows for
// responses only.
func (h *Head) ParseFields(raw []byte, unfold bool) error {
	for len(raw) > 0 {
		line, rest := CutLine(raw)
		for len(rest) > 0 && isSpace(rest[0]) {
			if !unfold {
				return SyntaxError("a field is folded")
			}
			at := len(line)
			raw[at], raw[at+1] = ' ', ' '
			next, after := CutLine(rest)
			line, rest = raw[:at+2+len(next)], after
		}
		raw = rest
		name, value, found := bytes.Cut(line, []byte(":"))
		if !found || !IsToken(name) {
			return SyntaxError("a field name is malformed")
		}
		f := Field{name, TrimSpace(value)}
		if !IsText(f.Value) {
			return SyntaxError("a field value has a control character")
		}
		if err := h.note(f); err != nil {
			return err
		}
		h.Fields = append(h.Fields, f)
	}
	return nil
}

// note keeps what a field says about the message itself. Two servers must not read it in two ways (request smuggling).
func (h *Head) note(f Field) error {
	switch KindOf(f.Name) {
	case FieldHost:
		if h.HasHost || !IsHost(f.Value) {
			return SyntaxError("Host is malformed or there twice")
		}
		h.Host, h.HasHost = f.Value, true
	case FieldLength:
		if h.Length >= 0 && h.Status == 0 {
			return SyntaxError("Content-Length is malformed or there twice")
		}
		for value := range bytes.SplitSeq(f.Value, []byte(",")) {
			if h.Status > 0 { // equal lengths are taken, of a backend (RFC 9112 section 6.3)
				value = TrimSpace(value)
			} else {
				value = f.Value
			}
			n, ok := parseLength(value)
			if !ok || h.Length >= 0 && n != h.Length {
				return SyntaxError("Content-Length is malformed or there twice")
			}
			h.Length = n
		}
		h.both = h.Chunked
	case FieldEncoding:
		if h.Chunked || !EqualFold(f.Value, "chunked") {
			return SyntaxError("Transfer-Encoding is not chunked, once")
		}
		h.Chunked, h.both = true, h.Length >= 0
	case FieldConnection:
		h.noteConnection(f.Value)
	case FieldUpgrade:
		h.Protocol = f.Value
	}
	return nil
}

func (h *Head) noteConnection(value []byte) {
	for option := range bytes.SplitSeq(value, []byte(",")) {
		option = TrimSpace(option)
		switch {
		case EqualFold(option, "close"):
			h.close = true
		case EqualFold(option, "keep-alive"):
			h.keepAlive = true
		case EqualFold(option, "upgrade"):
			h.Upgrade = true
		}
	}
}

// Persistent reports whether the connection may carry another message after this one (RFC 9112 section 9.3).
func (h *Head) Persistent() bool {
	return !h.close && !h.both && (h.Minor > 0 || h.keepAlive && !h.Chunked)
}

// Framing returns how the body of a request is delimited (RFC 9112 section 6.3).
func (h *Head) Framing() (Framing, int64) {
	switch {
	case h.Chunked:
		return ByChunks, 0
	case h.Length > 0:
		return ByLength, h.Length
	}
	return NoBody, 0
}
