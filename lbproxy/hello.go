package lbproxy

import (
	"encoding/binary"
	"errors"
)

// What a parser of first bytes says when it has no answer.
var (
	errShort   = errors.New("more bytes are needed")
	errForeign = errors.New("not of this protocol")
)

// TLS as far as a ClientHello goes (RFC 8446 sections 4.1.2 and 5.1, RFC 6066 section 3).
const (
	recordHandshake  = 22
	recordHeader     = 5
	recordMax        = 1<<14 + 256
	typeClientHello  = 1
	handshakeHeader  = 4
	extensionName    = 0
	nameTypeHostName = 0
)

// helloName returns the canonical server name of the TLS ClientHello that b starts with, empty where it names none. It
// returns errShort while b may still become one, errForeign once it cannot. The handshake may be spread over records.
func helloName(b []byte) (string, error) {
	hello, err := handshake(b)
	if err != nil {
		return "", err
	}
	p := parser{b: hello}
	p.skip(2 + 32) // legacy_version, random
	p.vector8()    // legacy_session_id
	p.vector16()   // cipher_suites
	p.vector8()    // legacy_compression_methods
	if p.ok() && len(p.b) == 0 {
		return "", nil // no extensions at all: TLS 1.0 and before
	}
	extensions := parser{b: p.vector16(), bad: p.bad}
	for extensions.ok() && len(extensions.b) > 0 {
		kind, body := extensions.uint16(), extensions.vector16()
		if extensions.ok() && kind == extensionName {
			return nameOf(body)
		}
	}
	if !extensions.ok() {
		return "", errForeign
	}
	return "", nil
}

// nameOf returns the host name of a server_name extension.
func nameOf(body []byte) (string, error) {
	p := parser{b: body}
	list := parser{b: p.vector16(), bad: p.bad}
	for list.ok() && len(list.b) > 0 {
		kind, name := list.uint8(), list.vector16()
		if list.ok() && kind == nameTypeHostName {
			return canonical(string(name)), nil
		}
	}
	if !list.ok() {
		return "", errForeign
	}
	return "", nil
}

// handshake returns the body of the ClientHello that the records in b carry.
func handshake(b []byte) ([]byte, error) {
	var whole []byte
	for {
		fragment, rest, err := record(b)
		if err != nil {
			return nil, err
		}
		if whole == nil {
			whole = fragment[:len(fragment):len(fragment)] // the usual single record is not copied
		} else {
			whole = append(whole, fragment...)
		}
		if len(whole) > 0 && whole[0] != typeClientHello {
			return nil, errForeign
		}
		if len(whole) >= handshakeHeader {
			size := int(whole[1])<<16 | int(whole[2])<<8 | int(whole[3])
			if len(whole)-handshakeHeader >= size {
				return whole[handshakeHeader : handshakeHeader+size], nil
			}
		}
		b = rest
	}
}

// record cuts one handshake record off b. A record that is only partly there is errShort.
func record(b []byte) (fragment, rest []byte, err error) {
	if len(b) > 0 && b[0] != recordHandshake || len(b) > 1 && b[1] != 3 {
		return nil, nil, errForeign
	}
	if len(b) < recordHeader {
		return nil, nil, errShort
	}
	size := int(binary.BigEndian.Uint16(b[3:]))
	if size == 0 || size > recordMax {
		return nil, nil, errForeign // RFC 8446 section 5.1: no empty handshake fragments
	}
	if len(b) < recordHeader+size {
		return nil, nil, errShort
	}
	return b[recordHeader : recordHeader+size], b[recordHeader+size:], nil
}

// A parser reads big-endian fields off b. Once a field does not fit, it is bad and all further fields are empty.
type parser struct {
	b   []byte
	bad bool
}

func (p *parser) ok() bool { return !p.bad }

func (p *parser) skip(n int) []byte {
	if p.bad || len(p.b) < n {
		p.bad = true
		return nil
	}
	out := p.b[:n]
	p.b = p.b[n:]
	return out
}

func (p *parser) uint8() int {
	if b := p.skip(1); b != nil {
		return int(b[0])
	}
	return 0
}

func (p *parser) uint16() int {
	if b := p.skip(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (p *parser) vector8() []byte  { return p.skip(p.uint8()) }
func (p *parser) vector16() []byte { return p.skip(p.uint16()) }
