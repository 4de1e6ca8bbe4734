package dnsd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/miekg/dns"
)

// certificate writes a certificate for a name that is its own authority, and its key, and returns their files.
func certificate(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(file, kind string, der []byte) string {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", keyDER)
}

// unbound runs unbound on the loopback until the test ends, or stop is called; server are lines of its configuration.
func unbound(t *testing.T, server string, more ...string) (stop func()) {
	t.Helper()
	netns.Need(t, "unbound")
	dir := t.TempDir()
	conf := filepath.Join(dir, "unbound.conf")
	text := fmt.Sprintf("server:\n  username: \"\"\n  chroot: \"\"\n  directory: %q\n  pidfile: \"\"\n  do-daemonize: no\n  use-syslog: no\n  logfile: \"\"\n"+
		"  do-not-query-localhost: no\n  access-control: 127.0.0.0/8 allow\n  num-threads: 1\n  module-config: \"iterator\"\n%s\nremote-control:\n  control-enable: no\n%s", dir, server, strings.Join(more, "\n"))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "unbound", "-d", "-c", conf)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("unbound: %s", out.String())
		}
	})
	t.Cleanup(stop)
	return stop
}

// waitTCP waits until somebody listens.
func waitTCP(t *testing.T, addr string) {
	t.Helper()
	netns.WaitFor(t, "a listener at "+addr, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// relay passes TCP connections on and counts them.
func relay(t *testing.T, to string) (at netip.AddrPort, count *atomic.Int32, cut func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	count = &atomic.Int32{}
	var mu sync.Mutex
	var open []net.Conn
	cut = func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			_ = c.Close()
		}
		open = nil
	}
	t.Cleanup(func() { _ = l.Close(); cut() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			mu.Lock()
			open = append(open, in, out)
			mu.Unlock()
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String()), count, cut
}

// TestOverTLS: unbound is asked over TLS, many questions on one connection; a connection that is lost is replaced; a server with
// another name, or of another authority, gets no question.
func TestOverTLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t, "dns.example")
	other, _ := certificate(t, "dns.example")
	port := netns.FreePort(t)
	unbound(t, fmt.Sprintf("  interface: 127.0.0.1@%d\n  tls-port: %d\n  tls-service-pem: %q\n  tls-service-key: %q\n  local-zone: example.org redirect\n"+
		"  local-data: \"example.org. 60 IN A 198.51.100.7\"", port, port, cert, key))
	at := fmt.Sprintf("127.0.0.1:%d", port)
	waitTCP(t, at)
	to, count, cut := relay(t, at)
	server := func(name, ca string) *Server {
		l := forwardingLab()
		l.DNS.Forward = []lab.NameServer{{Addr: to, TLS: name, CAFile: ca}}
		table, err := Compile(l, onDisk)
		if err != nil || len(table.Warnings()) > 0 {
			t.Fatal(err, table.Warnings())
		}
		return newServerWithTimeout(t, table, nil, 30*time.Second)
	}
	s := server("dns.example", cert)
	ask := func(i int) {
		question := fmt.Sprintf("host-%d.example.org. A", i)
		if got, want := show(lookup(t, s, question, inside)), fmt.Sprintf("NOERROR ra\nan host-%d.example.org. A 198.51.100.7", i); got != want {
			t.Errorf("%s: %s, want %s\n%s", question, got, want, explained(t, s, question, inside))
		}
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() { ask(i) })
	}
	wg.Wait()
	if n := count.Load(); n != 1 {
		t.Errorf("%d connections for 50 questions", n)
	}
	cut()
	ask(50)
	if n := count.Load(); n != 2 {
		t.Errorf("%d connections after one was lost, want 2", n)
	}
	wantExplained(t, s, "host-50.example.org A", "cache: answer of "+to.String()+"#dns.example")
	wantExplained(t, server("other.example", cert), "x.example.org A", "certificate is valid for dns.example, not other.example")
	wantExplained(t, server("dns.example", other), "x.example.org A", "certificate signed by unknown authority")
	wantExplained(t, server("dns.example", ""), "x.example.org A", "certificate signed by unknown authority")
	s.forward.tls.close()
}

func wantExplained(t *testing.T, s *Server, question, want string) {
	t.Helper()
	if got := explained(t, s, question, inside); !strings.Contains(got, want) {
		t.Errorf("%s: %s\nwant %s", question, got, want)
	}
}

// TestPadding: over TLS the length of a query says little about its name (RFC 8467).
func TestPadding(t *testing.T) {
	t.Parallel()
	for length := range 60 {
		n := nameOf(t, strings.Repeat("x", length+1)+".example.")
		q := upstreamQuery{name: &n, qtype: typeA}
		msg := q.message(queryStyle{edns: true, pad: true})
		var m dns.Msg
		if err := m.Unpack(msg); err != nil || len(msg)%paddedTo != 0 {
			t.Fatalf("a name of %d octets: a query of %d, %v", length, len(msg), err)
		}
	}
}
