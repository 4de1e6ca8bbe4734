package lbproxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A memberTLS holds the TLS configurations for connections to backends. The zero value is ready.
type memberTLS struct {
	mu      sync.Mutex
	configs map[memberTLSKey]*memberTLSConfig
}

type memberTLSKey struct {
	lab.BackendTLS
	protocol lab.BackendProtocol
}

// A memberTLSConfig is a configuration and the state of the CA's file that it was made from.
type memberTLSConfig struct {
	checked time.Time
	stamp   string
	config  *tls.Config
	err     error
}

// get returns the configuration for the backends of a balancer, without a server name. A CA file that changes is read again.
func (t *memberTLS) get(f *Frontend) (*tls.Config, error) {
	key := memberTLSKey{f.BackendTLS, f.Protocol}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.configs[key]
	if c != nil && time.Since(c.checked) < certificateCheck {
		return c.config, c.err
	}
	stamp := ""
	if f.BackendTLS.CAFile != "" {
		stamp = stampOf(f.BackendTLS.CAFile)
	}
	if c == nil || c.stamp != stamp || c.err != nil {
		next := &memberTLSConfig{stamp: stamp}
		if next.config, next.err = newMemberTLS(key); next.err != nil && c != nil && c.config != nil {
			next.config, next.err = c.config, nil // the file is being replaced
		}
		c = next
		if t.configs == nil {
			t.configs = make(map[memberTLSKey]*memberTLSConfig)
		}
		t.configs[key] = c
	}
	c.checked = time.Now()
	return c.config, c.err
}

func newMemberTLS(key memberTLSKey) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: key.Unverified, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
	c.NextProtos = []string{"http/1.1"}
	if key.protocol == lab.BackendH2 {
		c.NextProtos = []string{"h2"}
	}
	if key.CAFile == "" {
		return c, nil
	}
	pem, err := os.ReadFile(key.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read backend_tls.ca_file: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", key.CAFile)
	}
	return c, nil
}

// secure starts TLS on a new connection to a backend, if its balancer wants that. On an error it closes the connection.
func (p *httpProxy) secure(ctx context.Context, conn net.Conn, f *frontend, e *endpoint) (_ net.Conn, err error) {
	if !f.BackendTLS.On {
		return conn, nil
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
			p.s.connectFailed(e, err)
			err = fmt.Errorf("TLS with backend %s: %w", e.Addr, err)
		}
	}()
	shared, err := p.members.get(f.Frontend)
	if err != nil {
		return nil, err
	}
	config := shared.Clone()
	config.ServerName = cmp.Or(f.BackendTLS.Name, e.ServerName)
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
