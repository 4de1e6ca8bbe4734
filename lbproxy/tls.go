package lbproxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/acme"

	"github.com/bootlab/bootlab/internal/host/freshfile"
)

// certificates are the certificates of listeners that terminate TLS.
type certificates struct {
	s     *Server
	files *freshfile.Certificates

	mu sync.Mutex
	// configs are by files and ACME settings. They are never dropped: a reload that changes them is rare.
	configs map[string]*tls.Config
}

// config returns the TLS configuration of a listener. Listeners with the same certificates share it, over reloads too: a client
// can resume its session (RFC 8446 section 2.2).
func (t *certificates) config(l *listener) *tls.Config {
	key := strings.Join(l.certificates, "\n")
	for _, f := range l.frontends {
		if f.ACME != nil {
			key += fmt.Sprintf("\n%q", *f.ACME)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.configs[key]
	if c == nil {
		c = t.newConfig(l.certificates, l.frontends)
		if t.configs == nil {
			t.configs = make(map[string]*tls.Config)
		}
		t.configs[key] = c
	}
	return c
}

func (t *certificates) newConfig(paths []string, frontends []*Frontend) *tls.Config {
	protocols := []string{"h2", "http/1.1"}
	if slices.ContainsFunc(frontends, func(f *Frontend) bool { return f.ACME != nil }) {
		protocols = append(protocols, acme.ALPNProto) // tls-alpn-01 (RFC 8737)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if cert, err := t.s.http.acme.certificate(frontends, hello); cert != nil || err != nil {
				return cert, err
			}
			return t.choose(paths, hello)
		},
	}
}

// choose returns the first certificate that suits a hello, else the first.
func (t *certificates) choose(paths []string, hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	var first *tls.Certificate
	var errs []error
	for _, path := range paths {
		cert, err := t.files.Get(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if hello.SupportsCertificate(cert) == nil {
			return cert, nil
		}
		if first == nil {
			first = cert
		}
	}
	switch {
	case first != nil:
		return first, nil // the client decides whether it accepts it
	case len(errs) == 0:
		return nil, errNoCertificate
	}
	return nil, errors.Join(errs...)
}

// handshake ends a client's TLS. Its connection is plain text afterwards.
func (c *httpConn) handshake() bool {
	c.deadline.write = true
	c.deadline.set(defaultTimeouts.Request)
	raw := &prefixConn{Conn: c.conn, prefix: c.client.prefix}
	c.client.prefix = nil
	secure := tls.Server(raw, c.proxy.certificates.config(c.listener.listener))
	if err := secure.HandshakeContext(c.proxy.ctx); err != nil {
		c.proxy.s.reject("", rejectTLS, c.x.src, err)
		return false
	}
	c.deadline.write = false
	c.conn, c.x.secure = secure, true
	return true
}

// A prefixConn is a connection whose first bytes were read already.
type prefixConn struct {
	net.Conn
	prefix []byte
}

// Read implements net.Conn.
func (c *prefixConn) Read(b []byte) (int, error) {
	if len(c.prefix) > 0 {
		n := copy(b, c.prefix)
		c.prefix = c.prefix[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// CloseWrite ends our direction.
func (c *prefixConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
