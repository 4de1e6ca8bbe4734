package lbproxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"

	"github.com/pires/go-proxyproto"
)

// maxProxyV1 bounds a PROXY header of version 1; go-proxyproto bounds version 2 at 4 KiB.
const maxProxyV1 = 107

// proxyHeader consumes the PROXY header that the connection starts with and returns its addresses. They are invalid if
// there is no header, for connections of the proxy itself (LOCAL, UNKNOWN), and for other families than TCP over IP.
func (p peeker) proxyHeader() (src, dst netip.AddrPort, err error) {
	// go-proxyproto refuses a version 1 header in several segments, so its end is awaited here.
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

// writeProxyHeader sends a PROXY header of that version, 1 or 2. Invalid addresses make it UNKNOWN or LOCAL.
func writeProxyHeader(w io.Writer, version int, src, dst netip.AddrPort) error {
	_, err := proxyproto.HeaderProxyFromAddrs(byte(version), net.TCPAddrFromAddrPort(src), net.TCPAddrFromAddrPort(dst)).WriteTo(w)
	return err
}
