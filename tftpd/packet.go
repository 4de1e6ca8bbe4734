package tftpd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// Opcodes of RFC 1350 section 5 and RFC 2347.
const (
	opRRQ   = 1
	opWRQ   = 2
	opDATA  = 3
	opACK   = 4
	opERROR = 5
	opOACK  = 6
)

// An ErrorCode is the code of an ERROR packet (RFC 1350 section 5, RFC 2347).
type ErrorCode uint16

// The error codes.
const (
	CodeUndefined  ErrorCode = 0 // see the message
	CodeNotFound   ErrorCode = 1
	CodeAccess     ErrorCode = 2
	CodeIllegal    ErrorCode = 4
	CodeUnknownTID ErrorCode = 5
	CodeOptions    ErrorCode = 8 // option negotiation ended: what UEFI sends after it asked for a size
)

// headerLen is the length of opcode and block number, before the bytes of a DATA packet.
const headerLen = 4

const (
	maxRequest = 2048 // RFC 2347 says 512; some firmware pads
	maxReply   = 512  // an ACK, or an ERROR with its text
	maxOptions = 32
)

// A Request is a read or write request (RFC 1350 section 5) with its options (RFC 2347).
type Request struct {
	Write   bool
	Name    string // as sent
	Mode    string // lower case
	Options []Option
}

// An Option is one option of a request, its name in lower case: clients write both "blksize" and "BLKSIZE".
type Option struct {
	Name, Value string
}

var errNotARequest = errors.New("neither a read nor a write request")

// ParseRequest parses a request. A last string without its final zero byte is accepted, since old firmware leaves it out; what
// follows the last whole option is ignored.
func ParseRequest(b []byte) (Request, error) {
	if len(b) < 2 {
		return Request{}, fmt.Errorf("packet of %d bytes: %w", len(b), errNotARequest)
	}
	op := binary.BigEndian.Uint16(b)
	if op != opRRQ && op != opWRQ {
		return Request{}, fmt.Errorf("opcode %d: %w", op, errNotARequest)
	}
	name, rest, ok := cutString(b[2:])
	if !ok || name == "" {
		return Request{}, errors.New("request without a file name")
	}
	mode, rest, _ := cutString(rest)
	if mode == "" {
		return Request{}, errors.New("request without a mode")
	}
	return Request{Write: op == opWRQ, Name: name, Mode: strings.ToLower(mode), Options: parseOptions(rest)}, nil
}

// parseOptions parses name and value pairs. Of an option that comes twice the first counts (RFC 2347: at most once).
func parseOptions(b []byte) (options []Option) {
	seen := map[string]bool{}
	for len(b) > 0 && len(options) < maxOptions {
		var name, value string
		var ok bool
		if name, b, ok = cutString(b); !ok || name == "" {
			return options
		}
		if value, b, _ = cutString(b); value == "" {
			return options
		}
		if name = strings.ToLower(name); !seen[name] {
			seen[name] = true
			options = append(options, Option{Name: name, Value: value})
		}
	}
	return options
}

// cutString returns the string up to the first zero byte and what follows. Without a zero byte it returns all of b, and ok is
// false.
func cutString(b []byte) (s string, rest []byte, ok bool) {
	for i, c := range b {
		if c == 0 {
			return string(b[:i]), b[i+1:], true
		}
	}
	return string(b), nil, false
}

func appendOptions(b []byte, options []Option) []byte {
	for _, o := range options {
		b = append(append(b, o.Name...), 0)
		b = append(append(b, o.Value...), 0)
	}
	return b
}

// appendError appends an ERROR packet.
func appendError(b []byte, code ErrorCode, message string) []byte {
	b = append(b, 0, opERROR)
	b = binary.BigEndian.AppendUint16(b, uint16(code))
	return append(append(b, message...), 0)
}

// putHeader writes the header of a DATA packet.
func putHeader(b []byte, number uint16) {
	binary.BigEndian.PutUint16(b, opDATA)
	binary.BigEndian.PutUint16(b[2:], number)
}

// A reply is a packet that a client sends during a transfer.
type reply struct {
	op    uint16
	block uint16 // of an ACK; the code of an ERROR
	text  string // of an ERROR, made printable
}

// parseReply parses an ACK or an ERROR. ok is false for all else.
func parseReply(b []byte) (reply, bool) {
	if len(b) < headerLen {
		return reply{}, false
	}
	r := reply{op: binary.BigEndian.Uint16(b), block: binary.BigEndian.Uint16(b[2:])}
	switch r.op {
	case opACK:
		return r, true
	case opERROR:
		text, _, _ := cutString(b[headerLen:])
		r.text = lab.Printable(lab.Shortened(text, maxText))
		return r, true
	}
	return reply{}, false
}

// maxText bounds a text of a client in a log or an event, in bytes.
const maxText = 128

// A rollover is the block number that follows 65535: 0, as nearly all clients expect, or 1, which a few ask for with an option
// of tftp-hpa.
type rollover int64

// number returns the block number of block n.
func (r rollover) number(n int64) uint16 {
	if r == 0 || n == 0 {
		return uint16(n)
	}
	return uint16((n-1)%65535 + 1)
}

// after returns how many blocks after block n the one with that block number is. A window is far smaller than the range of
// block numbers.
func (r rollover) after(n int64, number uint16) int64 {
	if r == 0 {
		return int64(number - uint16(n))
	}
	d := (int64(number) - int64(r.number(n))) % 65535
	if d < 0 {
		d += 65535
	}
	return d
}
