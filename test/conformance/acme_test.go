package conformance

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/miekg/dns"
)

// TestACME obtains certificates from Pebble, an ACME server, by tls-alpn-01 and, where that fails, by http-01; a second
// server finds them in the folder.
func TestACME(t *testing.T) {
	t.Parallel()
	back := origin(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host+r.URL.Path) }))
	for _, challenge := range []string{"tls-alpn-01", "http-01"} {
		t.Run(challenge, func(t *testing.T) {
			secure, clear := balancer("secure", back), balancer("clear", back)
			pebble := startPebble(t, secure.Listen, clear.Listen, challenge)
			secure.ACME = &lab.ACME{Directory: pebble.directory, CAFile: pebble.caFile, Email: "admin@lab.test", Names: []string{"web.lab.test", "shop.lab.test"}}
			clear.Redirect = lab.RedirectHTTPS
			dir := t.TempDir()
			t.Run("first", func(t *testing.T) {
				serveWith(t, dir, secure, clear)
				for _, name := range secure.ACME.Names {
					awaitCertificate(t, secure.Listen, name, pebble.roots(t))
				}
				if _, err := handshake(secure.Listen, "other.lab.test", nil); err == nil {
					t.Error("a name without a certificate gets one")
				}
			})
			pebble.stop()
			t.Run("second", func(t *testing.T) {
				secure.Listen, clear.Listen = lab.BindTo(addr()), lab.BindTo(addr())
				serveWith(t, dir, secure, clear)
				awaitCertificate(t, secure.Listen, "web.lab.test", nil)
			})
		})
	}
}

// handshake returns the certificate that an address has for a name, verified by roots if there are any.
func handshake(at fmt.Stringer, name string, roots *x509.CertPool) (*x509.Certificate, error) {
	d := &net.Dialer{Timeout: 30 * time.Second}
	c, err := tls.DialWithDialer(d, "tcp", at.String(), &tls.Config{ServerName: name, RootCAs: roots, InsecureSkipVerify: roots == nil})
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	return c.ConnectionState().PeerCertificates[0], nil
}

func awaitCertificate(t *testing.T, at fmt.Stringer, name string, roots *x509.CertPool) {
	t.Helper()
	netns.WaitFor(t, "the certificate of "+name, func() bool {
		cert, err := handshake(at, name, roots)
		return err == nil && cert.VerifyHostname(name) == nil && strings.HasPrefix(cert.Issuer.CommonName, "Pebble")
	})
}

// A pebble is a running ACME server.
type pebble struct {
	directory, caFile, management string
	client                        *http.Client
	stop                          func()
}

// startPebble starts Pebble with a resolver that sends every name to the balancers. It validates by one challenge only: the
// port of the other is one where nobody listens.
func startPebble(t *testing.T, secure, clear lab.Binds, challenge string) *pebble {
	t.Helper()
	dir, at, management := t.TempDir(), addr(), addr()
	program := filepath.Join(dir, "pebble")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/letsencrypt/pebble/v2/cmd/pebble").CombinedOutput(); err != nil {
		t.Fatalf("build Pebble: %v\n%s", err, out)
	}
	path, pool := certificate(t, "pebble.test", at, management)
	p := &pebble{
		directory: "https://" + at.String() + "/dir", caFile: path, management: management.String(),
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, Timeout: 30 * time.Second},
	}
	// Pebble connects to ports of the one address that DNS gives, where the balancers are not: a relay is.
	names := startDNS(t, clear[0].Addr)
	tlsPort, httpPort := 1, int(clear.Port())
	if challenge == "tls-alpn-01" {
		tlsPort, httpPort = 5001, 1
		relay(t, netip.AddrPortFrom(clear[0].Addr, 5001), secure)
	}
	config, _ := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": at.String(), "managementListenAddress": management.String(), "certificate": path, "privateKey": path,
		"httpPort": httpPort, "tlsPort": tlsPort, "profiles": map[string]any{"default": map[string]any{"description": "d", "validityPeriod": 86400}},
	}})
	configPath := filepath.Join(dir, "config.json")
	if err := os.WriteFile(configPath, config, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "-config", configPath, "-dnsserver", names)
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0")
	if os.Getenv("LBPROXY_LOG") != "" {
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.stop = func() { cancel(); _ = cmd.Wait() }
	t.Cleanup(p.stop)
	netns.WaitFor(t, "Pebble", func() bool {
		resp, err := p.client.Get(p.directory)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	})
	return p
}

// roots returns the authority that Pebble has made for itself.
func (p *pebble) roots(t *testing.T) *x509.CertPool {
	t.Helper()
	resp, err := p.client.Get("https://" + p.management + "/roots/0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if block, _ := pem.Decode(content); err != nil || block == nil {
		t.Fatalf("no root: %v %s", err, content)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(content)
	return pool
}

// startDNS runs a name server that answers every question for an address with one address.
func startDNS(t *testing.T, answer netip.Addr) string {
	t.Helper()
	at := addr().String()
	mux := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: answer.AsSlice()})
		}
		_ = w.WriteMsg(m)
	})
	for _, network := range []string{"udp", "tcp"} {
		ready := make(chan struct{})
		s := &dns.Server{Addr: at, Net: network, Handler: mux, NotifyStartedFunc: func() { close(ready) }}
		go func() { _ = s.ListenAndServe() }()
		<-ready
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return at
}

// relay passes connections on.
func relay(t *testing.T, from, to fmt.Stringer) {
	t.Helper()
	l, err := net.Listen("tcp", from.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				b, err := net.Dial("tcp", to.String())
				if err != nil {
					return
				}
				defer func() { _ = b.Close() }()
				go func() { _, _ = io.Copy(b, c) }()
				_, _ = io.Copy(c, b)
			}()
		}
	}()
}
