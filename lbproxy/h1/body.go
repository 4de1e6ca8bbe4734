package h1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
)

// Limits of a chunked body (RFC 9112 section 7.1).
const (
	maxChunkLine  = 1 << 10  // a size with its extensions
	maxExtensions = 16 << 10 // of all chunks
)

// A Framing is how a body is delimited.
type Framing int

// The framings.
const (
	NoBody Framing = iota
	ByLength
	ByChunks
	ByClose // the end of the connection, in responses only
)

// A Body reads the content of one message: without its framing, to io.EOF. Any other error says that the rest of the
// connection cannot be read.
type Body struct {
	in         *bufio.Reader
	framing    Framing
	left       int64 // of the content or the chunk
	started    bool  // a chunk was read: its CRLF follows
	extensions int
	err        error // of every later Read
	trailers   Head  // fields after the last chunk
}

// Reset makes b the body of the message whose head was read from in.
func (b *Body) Reset(in *bufio.Reader, f Framing, length int64) {
	*b = Body{in: in, framing: f, left: length, trailers: Head{raw: b.trailers.raw[:0], Fields: b.trailers.Fields[:0]}}
	if f == NoBody || f == ByLength && length == 0 {
		b.framing, b.err = NoBody, io.EOF
	}
}

// Done reports whether the whole body was read.
func (b *Body) Done() bool { return errors.Is(b.err, io.EOF) }

// Ready reports whether Read returns without waiting for the connection.
func (b *Body) Ready() bool {
	buffered, _ := b.in.Peek(b.in.Buffered())
	if b.framing != ByChunks || b.left > 0 {
		return len(buffered) > 0
	}
	if b.started {
		buffered = buffered[min(2, len(buffered)):]
	}
	line, rest, found := bytes.Cut(buffered, []byte("\r\n"))
	size, _, _ := bytes.Cut(line, []byte(";"))
	if _, ok := parseChunkSize(TrimSpace(size)); found && !ok {
		return true // with an error
	}
	if !found || line[0] != '0' {
		return found && len(rest) > 0
	}
	return bytes.HasPrefix(rest, []byte("\r\n")) || bytes.Contains(rest, []byte("\r\n\r\n"))
}

// Left returns how much of a body of known length has not been read; -1: its length is not known.
func (b *Body) Left() int64 {
	if b.framing != ByLength {
		return -1
	}
	return b.left
}

// Received reports whether all that is left of a body of known length has been received, so that Read does not wait.
func (b *Body) Received() bool {
	return b.framing == ByLength && b.in != nil && b.left <= int64(b.in.Buffered())
}

// AppendReceived appends what has been received of a body of known length, and counts it as read. The rest may then be
// read from the connection itself: Took counts it.
func (b *Body) AppendReceived(out []byte) []byte {
	part, _ := b.in.Peek(int(min(int64(b.in.Buffered()), b.left)))
	out = append(out, part...)
	_, _ = b.in.Discard(len(part))
	b.Took(int64(len(part)))
	return out
}

// Trailers returns the fields after the last chunk, once Done.
func (b *Body) Trailers() []Field { return b.trailers.Fields }

// Read implements io.Reader.
func (b *Body) Read(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.framing == ByChunks && b.left == 0 {
		if b.err = b.nextChunk(); b.err != nil {
			return 0, b.err
		}
	}
	if b.framing != ByClose {
		p = p[:min(int64(len(p)), b.left)]
	}
	n, err = b.in.Read(p)
	if b.framing != ByClose {
		b.Took(int64(n))
		if errors.Is(err, io.EOF) && b.err == nil {
			err = io.ErrUnexpectedEOF
		}
	}
	if err != nil && b.err == nil {
		b.err = err
	}
	if n > 0 {
		return n, nil
	}
	return 0, b.err
}

// Took counts content that was read.
func (b *Body) Took(n int64) {
	b.left -= n
	if b.left == 0 && b.framing == ByLength {
		b.err = io.EOF
	}
}

// nextChunk reads up to the content of the next chunk. io.EOF: it was the last, and the trailers are read.
func (b *Body) nextChunk() error {
	if b.started {
		var end [2]byte
		if _, err := io.ReadFull(b.in, end[:]); err != nil {
			return unexpected(err)
		}
		if end != [2]byte{'\r', '\n'} {
			return SyntaxError("a chunk does not end with CRLF")
		}
	}
	b.started = true
	line, err := b.in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull) || len(line) > maxChunkLine:
		return SyntaxError("a chunk size is too long")
	case err != nil:
		return unexpected(err)
	case len(line) < 3 || line[len(line)-2] != '\r':
		return SyntaxError("a chunk size does not end with CRLF")
	}
	size, extensions, extended := bytes.Cut(line[:len(line)-2], []byte(";"))
	if b.extensions += len(extensions); !IsText(extensions) || b.extensions > maxExtensions {
		return SyntaxError("a chunk extension is malformed or too long")
	}
	if extended {
		size = TrimSpace(size) // BWS; section 7.1.1
	}
	n, ok := parseChunkSize(size)
	if !ok {
		return SyntaxError("a chunk size is malformed")
	}
	if b.left = n; n > 0 {
		return nil
	}
	return b.readTrailers()
}

// parseChunkSize parses up to 15 hexadecimal digits.
func parseChunkSize(b []byte) (n int64, ok bool) {
	if len(b) == 0 || len(b) > 15 {
		return 0, false
	}
	for _, c := range b {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		n = n<<4 | int64(c)
	}
	return n, true
}

// readTrailers reads the trailer section and returns io.EOF. Fields that frame or route a message are dropped
// (RFC 9110 section 6.5.1).
func (b *Body) readTrailers() error {
	t := &b.trailers
	for {
		start := len(t.raw)
		line, err := b.in.ReadSlice('\n')
		t.raw = append(t.raw, line...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) || len(t.raw) > MaxHead:
			return ErrHeadTooLarge
		case err != nil:
			return unexpected(err)
		case len(line) < 2 || line[len(line)-2] != '\r':
			return SyntaxError("a trailer does not end with CRLF")
		}
		if len(line) == 2 {
			t.raw = t.raw[:start]
			break
		}
	}
	var parsed Head
	if err := parsed.parseTrailers(t.raw); err != nil {
		return err
	}
	t.Fields = parsed.Fields
	return io.EOF
}

// parseTrailers parses fields that have no meaning for the framing.
func (h *Head) parseTrailers(raw []byte) error {
	for len(raw) > 0 {
		var line []byte
		line, raw = CutLine(raw)
		name, value, found := bytes.Cut(line, []byte(":"))
		if !found || !IsToken(name) || !IsText(value) {
			return SyntaxError("a trailer is malformed")
		}
		if KindOf(name) != FieldOther {
			continue
		}
		if h.Fields = append(h.Fields, Field{name, TrimSpace(value)}); len(h.Fields) > MaxFields {
			return ErrHeadTooLarge
		}
	}
	return nil
}

// unexpected returns err; the end of the connection is not the end of the body.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// AppendContent appends a part of a body, as a chunk where the framing needs it.
func AppendContent(out []byte, f Framing, p []byte) []byte {
	if f != ByChunks {
		return append(out, p...)
	}
	out = strconv.AppendInt(out, int64(len(p)), 16)
	out = append(out, "\r\n"...)
	out = append(out, p...)
	return append(out, "\r\n"...)
}

// AppendTrailers appends the last chunk and the trailers.
func AppendTrailers(out []byte, fields []Field) []byte {
	out = append(out, "0\r\n"...)
	for _, f := range fields {
		out = AppendField(out, f.Name, f.Value)
	}
	return append(out, "\r\n"...)
}

// AppendField appends one field line.
func AppendField(out, name, value []byte) []byte {
	out = append(out, name...)
	out = append(out, ": "...)
	out = append(out, value...)
	return append(out, "\r\n"...)
}
