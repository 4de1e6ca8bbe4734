package lbproxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/pires/go-proxyproto"
)

// Bounds of what a client may send before its balancer is known.
const (
	maxPeek    = 16 << 10 // first bytes: ClientHello or request head
	maxProxyV1 = 107      // PROXY header version 1; go-proxyproto bounds version 2 at 4 KiB
)

// errUnknownProtocol says that the first bytes are not of the protocol that they are read as.
var errUnknownProtocol = errors.New("not of this protocol")

// A peeker reads the first bytes of a connection and keeps those that are not of a PROXY header for the backend. The
// connection's read deadline bounds every method.
type peeker struct{ *bufio.Reader }

var peekers = sync.Pool{New: func() any { return peeker{bufio.NewReaderSize(nil, maxPeek)} }}

func newPeeker(conn net.Conn) peeker {
	p, _ := peekers.Get().(peeker)
	p.Reset(conn)
	return p
}

// close returns the bytes that were read and not consumed. The peeker is used no more.
func (p peeker) close() []byte {
	b := bytes.Clone(p.buffered())
	p.Reset(nil)
	peekers.Put(p)
	return b
}

// buffered returns all that was read and not consumed.
func (p peeker) buffered() []byte {
	b, _ := p.Peek(p.Buffered())
	return b
}

// more waits for at least one more byte. At maxPeek the error is bufio.ErrBufferFull.
func (p peeker) more() error {
	_, err := p.Peek(p.Buffered() + 1)
	return err
}

// proxyHeader consumes the PROXY header that the connection starts with and returns its addresses. They are invalid where
// there is no header, for connections of the proxy itself (LOCAL, UNKNOWN), and for families that are not TCP over IP.
func (p peeker) proxyHeader() (src, dst netip.AddrPort, err error) {
	// go-proxyproto refuses a version 1 header that comes in several segments, so wait for its end here.
	v1 := []byte("PROXY ")
	for err == nil && !bytes.Contains(p.buffered(), []byte("\n")) && p.Buffered() < maxProxyV1 {
		if b := p.buffered(); !bytes.HasPrefix(b, v1[:min(len(b), len(v1))]) {
			break
		}
		err = p.more()
	}
	if p.Buffered() == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return src, dst, nil // the peer waits for the server to speak first
	}
	h, err := proxyproto.Read(p.Reader)
	if errors.Is(err, proxyproto.ErrNoProxyProtocol) {
		return src, dst, nil
	}
	if err != nil || h.Command.IsLocal() {
		return src, dst, err
	}
	if from, to, ok := h.TCPAddrs(); ok {
		src, dst = addrPort(from), addrPort(to)
	}
	return src, dst, nil
}

// name returns the name that a client asks for: the TLS server name, or the host of an HTTP request. byHost says which.
// errUnknownProtocol means that it is neither or too long; another error, that the client sent too little.
func (p peeker) name() (name string, byHost bool, err error) {
	if err := p.more(); p.Buffered() == 0 {
		return "", false, err
	}
	const recordHandshake = 22 // RFC 8446 section 5.1
	if p.buffered()[0] == recordHandshake {
		name, err = p.serverName()
		return name, false, err
	}
	name, err = p.host()
	return name, true, err
}

// host returns the host of the HTTP request that the connection starts with.
func (p peeker) host() (string, error) {
	for {
		host, err := requestHost(p.buffered())
		if !errors.Is(err, errIncomplete) {
			return host, err
		}
		if err := p.more(); err != nil {
			return "", peekError(err)
		}
	}
}

// serverName returns the canonical server name of the TLS ClientHello that the connection starts with, empty where it
// names none. crypto/tls parses it: its handshake is given the bytes and ended once it has the hello.
func (p peeker) serverName() (string, error) {
	c := &helloConn{peeker: p}
	if err := tls.Server(c, helloConfig).Handshake(); !errors.Is(err, errHelloRead) {
		if c.err != nil {
			return "", peekError(c.err)
		}
		return "", errUnknownProtocol
	}
	return canonical(c.name), nil
}

func peekError(err error) error {
	if errors.Is(err, bufio.ErrBufferFull) {
		return errUnknownProtocol
	}
	return err
}

// errHelloRead ends a handshake whose ClientHello was read.
var errHelloRead = errors.New("client hello read")

var helloConfig = &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
	h.Conn.(*helloConn).name = h.ServerName
	return nil, errHelloRead
}}

// A helloConn hands the bytes of a peeker to crypto/tls and leaves them in the peeker. Nothing is written.
type helloConn struct {
	net.Conn // nil: crypto/tls needs no other method up to the ClientHello
	peeker   peeker
	read     int    // bytes handed out
	name     string // of the ClientHello
	err      error  // that ended reading
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

// Write implements net.Conn. The alert that ends the handshake goes nowhere.
func (c *helloConn) Write(b []byte) (int, error) { return len(b), nil }

// writeProxyHeader sends a PROXY header of that version, 1 or 2. Invalid addresses make it UNKNOWN or LOCAL.
func writeProxyHeader(w io.Writer, version int, src, dst netip.AddrPort) error {
	_, err := proxyproto.HeaderProxyFromAddrs(byte(version), net.TCPAddrFromAddrPort(src), net.TCPAddrFromAddrPort(dst)).WriteTo(w)
	return err
}
