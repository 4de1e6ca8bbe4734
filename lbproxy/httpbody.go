package lbproxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// Limits of a chunked body (RFC 9112 section 7.1).
const (
	maxChunkLine  = 1 << 10  // a size with its extensions
	maxExtensions = 16 << 10 // of all chunks
)

// A framing is how a body is delimited.
type framing int

// The framings.
const (
	noBody framing = iota
	byLength
	byChunks
	byClose // the end of the connection, in responses only
)

// A body reads the content of one message: without its framing, to io.EOF. Any other error says that the rest of the
// connection cannot be read.
type body struct {
	in         *bufio.Reader
	framing    framing
	left       int64 // of the content or the chunk
	started    bool  // a chunk was read: its CRLF follows
	extensions int
	err        error // of every later Read
	trailers   head  // fields after the last chunk
}

// reset makes b the body of the message whose head was read from in.
func (b *body) reset(in *bufio.Reader, f framing, length int64) {
	*b = body{in: in, framing: f, left: length, trailers: head{raw: b.trailers.raw[:0], fields: b.trailers.fields[:0]}}
	if f == noBody || f == byLength && length == 0 {
		b.framing, b.err = noBody, io.EOF
	}
}

// done reports whether the whole body was read.
func (b *body) done() bool { return errors.Is(b.err, io.EOF) }

// ready reports whether Read returns without waiting for the connection.
func (b *body) ready() bool {
	buffered, _ := b.in.Peek(b.in.Buffered())
	if b.framing != byChunks || b.left > 0 {
		return len(buffered) > 0
	}
	if b.started {
		buffered = buffered[min(2, len(buffered)):]
	}
	line, rest, found := bytes.Cut(buffered, []byte("\r\n"))
	if !found || len(line) == 0 || line[0] != '0' {
		return found && len(rest) > 0
	}
	return bytes.HasPrefix(rest, []byte("\r\n")) || bytes.Contains(rest, []byte("\r\n\r\n"))
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.framing == byChunks && b.left == 0 {
		if b.err = b.nextChunk(); b.err != nil {
			return 0, b.err
		}
	}
	if b.framing != byClose {
		p = p[:min(int64(len(p)), b.left)]
	}
	n, err = b.in.Read(p)
	if b.framing != byClose {
		b.took(int64(n))
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

// took counts content that was read.
func (b *body) took(n int64) {
	b.left -= n
	if b.left == 0 && b.framing == byLength {
		b.err = io.EOF
	}
}

// nextChunk reads up to the content of the next chunk. io.EOF: it was the last, and the trailers are read.
func (b *body) nextChunk() error {
	if b.started {
		var end [2]byte
		if _, err := io.ReadFull(b.in, end[:]); err != nil {
			return unexpected(err)
		}
		if end != [2]byte{'\r', '\n'} {
			return syntaxError("a chunk does not end with CRLF")
		}
	}
	b.started = true
	line, err := b.in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull) || len(line) > maxChunkLine:
		return syntaxError("a chunk size is too long")
	case err != nil:
		return unexpected(err)
	case len(line) < 3 || line[len(line)-2] != '\r':
		return syntaxError("a chunk size does not end with CRLF")
	}
	size, extensions, extended := bytes.Cut(line[:len(line)-2], []byte(";"))
	if b.extensions += len(extensions); !isText(extensions) || b.extensions > maxExtensions {
		return syntaxError("a chunk extension is malformed or too long")
	}
	if extended {
		size = trimSpace(size) // BWS; section 7.1.1
	}
	n, ok := parseChunkSize(size)
	if !ok {
		return syntaxError("a chunk size is malformed")
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
func (b *body) readTrailers() error {
	t := &b.trailers
	for {
		start := len(t.raw)
		line, err := b.in.ReadSlice('\n')
		t.raw = append(t.raw, line...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) || len(t.raw) > maxHead:
			return errHeadTooLarge
		case err != nil:
			return unexpected(err)
		case len(line) < 2 || line[len(line)-2] != '\r':
			return syntaxError("a trailer does not end with CRLF")
		}
		if len(line) == 2 {
			t.raw = t.raw[:start]
			break
		}
	}
	var parsed head
	if err := parsed.parseTrailers(t.raw); err != nil {
		return err
	}
	t.fields = parsed.fields
	return io.EOF
}

// parseTrailers parses fields that have no meaning for the framing.
func (h *head) parseTrailers(raw []byte) error {
	for len(raw) > 0 {
		var line []byte
		line, raw = cutLine(raw)
		name, value, found := bytes.Cut(line, []byte(":"))
		if !found || !isToken(name) || !isText(value) {
			return syntaxError("a trailer is malformed")
		}
		if kindOf(name) != fieldOther {
			continue
		}
		if h.fields = append(h.fields, field{name, trimSpace(value)}); len(h.fields) > maxFields {
			return errHeadTooLarge
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
