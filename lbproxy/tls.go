package lbproxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"github.com/bootlab/bootlab/internal/host/file/freshfile"
	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
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

// newConfig returns the TLS configuration of a listener, whose ALPN offers HTTP/2.
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

const (
	acmeChallenges = "/.well-known/acme-challenge/" // RFC 8555 section 8.3
	acmeLook       = time.Hour                      // between two looks at a certificate that is there
	acmeFirstRetry = time.Minute                    // after the first failure, doubled after each
	acmeLastRetry  = time.Hour
)

// acmeCertificates are the certificates that ACME servers (RFC 8555) issue for the names of balancers. They are obtained
// when a table brings a name, kept in a folder, and renewed when two thirds of their time are over (autocert).
type acmeCertificates struct {
	p  *httpProxy
	mu sync.Mutex
	// servers are never dropped: they renew. What a table no longer has is refused by their host policy.
	servers map[acmeKey]*acmeServer
}

// An acmeKey is one account at one server.
type acmeKey struct{ directory, caFile, email string }

// An acmeServer obtains certificates from one server.
type acmeServer struct {
	manager    *autocert.Manager
	challenges http.Handler

	mu    sync.Mutex
	names map[string]*acmeName
}

// An acmeName is when the certificate of a name is looked at next.
type acmeName struct {
	next    time.Time
	retry   time.Duration
	running bool
}

// server returns the server of a balancer's certificates.
func (a *acmeCertificates) server(c *lab.ACME) *acmeServer {
	key := acmeKey{c.Directory, c.CAFile, c.Email}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.servers[key]; s != nil {
		return s
	}
	s := &acmeServer{names: make(map[string]*acmeName), manager: &autocert.Manager{
		Prompt: autocert.AcceptTOS, Email: c.Email,
		HostPolicy: func(_ context.Context, host string) error {
			if !a.wants(key, host) {
				return fmt.Errorf("no balancer has a certificate for %q", host)
			}
			return nil
		},
		Client: &acme.Client{DirectoryURL: c.Directory, HTTPClient: &http.Client{Transport: &acmeTransport{caFile: c.CAFile}}, UserAgent: "bootlab"},
	}}
	if dir := a.p.s.cfg.ACME; dir != "" {
		sum := sha256.Sum256([]byte(c.Directory + "\n" + c.Email))
		s.manager.Cache = autocert.DirCache(filepath.Join(dir, hex.EncodeToString(sum[:8])))
	}
	s.challenges = s.manager.HTTPHandler(nil)
	if a.servers == nil {
		a.servers = make(map[acmeKey]*acmeServer)
	}
	a.servers[key] = s
	return s
}

// An acmeTransport trusts the authorities of a file, which is read for each connection; without one, the system's.
type acmeTransport struct{ caFile string }

// RoundTrip implements http.RoundTripper.
func (t *acmeTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.caFile == "" {
		return http.DefaultTransport.RoundTrip(r)
	}
	pool, err := regular.Authorities(t.caFile)
	if err != nil {
		return nil, fmt.Errorf("read tls.acme.ca_file: %w", err)
	}
	// The ACME client sends a few requests in a day: no connection is kept.
	inner := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment}
	return inner.RoundTrip(r)
}

// wants reports whether a balancer of the active table has the name.
func (a *acmeCertificates) wants(key acmeKey, name string) bool {
	return slices.ContainsFunc(a.p.s.active.Load().frontends, func(f *frontend) bool {
		c := f.ACME
		return c != nil && key == acmeKey{c.Directory, c.CAFile, c.Email} && slices.Contains(c.Names, name)
	})
}

// tick obtains the certificates that are missing. It does not wait for them.
func (a *acmeCertificates) tick(ctx context.Context, now time.Time) {
	for _, f := range a.p.s.active.Load().frontends {
		if f.ACME == nil {
			continue
		}
		s := a.server(f.ACME)
		for _, name := range f.ACME.Names {
			if state := s.due(name, now); state != nil {
				go a.obtain(ctx, s, f.Name, name, state)
			}
		}
	}
}

// due returns the state of a name that is to be looked at now, else nil.
func (s *acmeServer) due(name string, now time.Time) *acmeName {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.names[name]
	if state == nil {
		state = &acmeName{}
		s.names[name] = state
	}
	if state.running || now.Before(state.next) {
		return nil
	}
	state.running = true
	return state
}

// obtain gets the certificate of a name: from memory, from the folder, or from the server.
func (a *acmeCertificates) obtain(ctx context.Context, s *acmeServer, balancer, name string, state *acmeName) {
	defer a.p.contain(func() {})
	_, err := s.manager.GetCertificate(&tls.ClientHelloInfo{
		ServerName: name, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}, SupportedCurves: []tls.CurveID{tls.CurveP256},
		SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256}, SupportedVersions: []uint16{tls.VersionTLS13},
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	state.running = false
	if err == nil {
		state.next, state.retry = time.Now().Add(acmeLook), 0
		return
	}
	state.retry = min(max(2*state.retry, acmeFirstRetry), acmeLastRetry)
	state.next = time.Now().Add(state.retry)
	if ctx.Err() == nil {
		a.p.s.log.Warn("certificate not obtained: clients of this name cannot connect", "balancer", balancer, "name", name, "again_in", state.retry, keyErr, err)
	}
}

// certificate returns the certificate by ACME that one of the balancers of an address has for a hello; nil: none has this name.
func (a *acmeCertificates) certificate(frontends []*Frontend, hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := canonical(hello.ServerName)
	for _, f := range frontends {
		if f.ACME != nil && slices.Contains(f.ACME.Names, name) {
			return a.server(f.ACME).manager.GetCertificate(hello)
		}
	}
	return nil, nil
}

// challenge answers what an ACME server asks for the name of a certificate that is being obtained (http-01). It reports
// false for everything else, which goes on to the backends.
func (a *acmeCertificates) challenge(x *exchange) (content string, ok bool) {
	if !bytes.HasPrefix(x.req.Target, []byte(acmeChallenges)) {
		return "", false
	}
	host := hostname(string(x.req.Host))
	for _, f := range a.p.s.active.Load().frontends {
		if f.ACME == nil || !slices.Contains(f.ACME.Names, host) {
			continue
		}
		r, err := http.NewRequest(http.MethodGet, "http://"+host+string(x.req.Target), nil)
		if err != nil {
			return "", false
		}
		var w contentWriter
		a.server(f.ACME).challenges.ServeHTTP(&w, r)
		if w.status == 0 || w.status == http.StatusOK {
			return w.String(), true
		}
	}
	return "", false
}

// A contentWriter keeps a response.
type contentWriter struct {
	bytes.Buffer
	status int
}

// Header implements http.ResponseWriter.
func (w *contentWriter) Header() http.Header { return http.Header{} }

// WriteHeader implements http.ResponseWriter.
func (w *contentWriter) WriteHeader(status int) { w.status = status }

var errNoCertificate = errors.New("no certificate of this address has that name")
