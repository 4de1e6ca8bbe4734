package lbproxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/bootlab/bootlab/internal/host/freshfile"
	"github.com/bootlab/bootlab/internal/host/regular"
	"github.com/bootlab/bootlab/internal/lab"
)

// backendTLS are the TLS configurations for connections to backends, without a server name.
type backendTLS = freshfile.Cache[backendTLSKey, *tls.Config]

type backendTLSKey struct {
	lab.BackendTLS
	protocol lab.BackendProtocol
}

// files returns the CA file, if there is one.
func (k backendTLSKey) files() []string {
	if k.CAFile == "" {
		return nil
	}
	return []string{k.CAFile}
}

func newBackendTLS(key backendTLSKey) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: key.Unverified, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
	c.NextProtos = []string{"http/1.1"}
	if key.protocol == lab.BackendH2 {
		c.NextProtos = []string{"h2"}
	}
	if key.CAFile == "" {
		return c, nil
	}
	var err error
	if c.RootCAs, err = regular.Authorities(key.CAFile); err != nil {
		return nil, fmt.Errorf("read backend_tls.ca_file: %w", err)
	}
	return c, nil
}

// secure starts TLS on a new connection to a backend, if its balancer wants that. On an error it closes the connection.
func (p *httpProxy) secure(ctx context.Context, conn net.Conn, f *frontend, b *backend) (_ net.Conn, err error) {
	if !f.BackendTLS.On {
		return conn, nil
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
			p.s.connectFailed(b, err)
			err = fmt.Errorf("TLS with backend %s: %w", b.Addr, err)
		}
	}()
	shared, err := p.backendTLS.Get(backendTLSKey{f.BackendTLS, f.Protocol})
	if err != nil {
		return nil, err
	}
	config := shared.Clone()
	config.ServerName = cmp.Or(f.BackendTLS.Name, b.ServerName)
	secure := tls.Client(conn, config)
	ctx, cancel := context.WithTimeout(ctx, f.Timeouts.Connect)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if f.Protocol == lab.BackendH2 && secure.ConnectionState().NegotiatedProtocol != "h2" {
		return nil, errors.New("it does not speak HTTP/2 (ALPN)")
	}
	return secure, nil
}

// socketOf returns what TLS is spoken on; of a connection without TLS itself.
func socketOf(conn net.Conn) net.Conn {
	if secure, ok := conn.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return conn
}
