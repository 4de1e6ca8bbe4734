package lbproxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
)

// maxPeek is how much of what a client sends first is read to find its balancer.
const maxPeek = 16 << 10

// errUnknownProtocol says that the first bytes are no TLS ClientHello.
var errUnknownProtocol = errors.New("no TLS ClientHello")

// errHelloTooLong is errUnknownProtocol for what looks like a ClientHello of more than maxPeek bytes.
var errHelloTooLong = fmt.Errorf("%w: longer than %d bytes", errUnknownProtocol, maxPeek)

// recordHandshake is the first byte of TLS (RFC 8446 section 5.1).
const recordHandshake = 22

// A peeker reads the first bytes of a connection, and keeps those after the PROXY header for the backend. The caller sets
// the read deadline of the connection.
type peeker struct{ *bufio.Reader }

var peekers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, maxPeek) }}

func newPeeker(conn net.Conn) peeker {
	r := peekers.Get().(*bufio.Reader)
	r.Reset(conn)
	return peeker{r}
}

// close returns the bytes that were read and not consumed. The peeker is used no more.
func (p peeker) close() []byte {
	b := bytes.Clone(p.buffered())
	p.Reset(nil)
	peekers.Put(p.Reader)
	return b
}

// buffered returns what was read and not consumed.
func (p peeker) buffered() []byte {
	b, _ := p.Peek(p.Buffered())
	return b
}

// more waits for at least one more byte. At maxPeek the error is bufio.ErrBufferFull.
func (p peeker) more() error {
	_, err := p.Peek(p.Buffered() + 1)
	return err
}

// A clientHello is what a TLS ClientHello says about where its connection belongs.
type clientHello struct {
	name      string // canonical server name, of ECH the outer; empty: none
	encrypted bool   // it has the extension encrypted_client_hello (RFC 9849), whose inner name only its server can read
}

// extensionECH is the number of the extension encrypted_client_hello.
const extensionECH = 0xfe0d

// clientHello returns the TLS ClientHello that the connection starts with. crypto/tls parses it: its handshake gets the bytes, and ends
// once it has the hello. errUnknownProtocol means that it is no hello, or too long; another error, that the client sent too little.
func (p peeker) clientHello() (clientHello, error) {
	if err := p.more(); p.Buffered() == 0 {
		return clientHello{}, err
	}
	if p.buffered()[0] != recordHandshake {
		return clientHello{}, errUnknownProtocol
	}
	c := &helloConn{peeker: p}
	err := tls.Server(c, helloConfig).Handshake()
	switch {
	case errors.Is(err, errHelloRead):
		return c.hello, nil
	case errors.Is(c.err, bufio.ErrBufferFull):
		return clientHello{}, errHelloTooLong
	case c.err != nil:
		return clientHello{}, c.err
	}
	return clientHello{}, errUnknownProtocol
}

// errHelloRead ends a handshake whose ClientHello was read.
var errHelloRead = errors.New("client hello read")

var helloConfig = &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
	h.Conn.(*helloConn).hello = clientHello{canonical(h.ServerName), slices.Contains(h.Extensions, extensionECH)}
	return nil, errHelloRead
}}

// A helloConn lets crypto/tls read the bytes of a peeker, which keeps them. Nothing is written.
type helloConn struct {
	net.Conn // nil: crypto/tls needs no other method up to the ClientHello
	peeker   peeker
	read     int // bytes read by crypto/tls
	hello    clientHello
	err      error // that ended reading
}

// Read implements net.Conn.
func (c *helloConn) Read(b []byte) (int, error) {
	if c.read == c.peeker.Buffered() {
		if c.err = c.peeker.more(); c.err != nil {
			return 0, c.err
		}
	}
	n := copy(b, c.peeker.buffered()[c.read:])
	c.read += n
	return n, nil
}

// Write implements net.Conn. It drops the alert that ends the handshake.
func (c *helloConn) Write(b []byte) (int, error) { return len(b), nil }
