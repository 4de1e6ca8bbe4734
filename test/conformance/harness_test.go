package conformance

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/lbproxy"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/prometheus/client_golang/prometheus"
)

func TestMain(m *testing.M) { netns.Main(m) }

var addrs atomic.Uint32

// addr returns a loopback address and port that no other test uses.
func addr() netip.AddrPort {
	n := addrs.Add(1)
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 79, byte(n >> 8), byte(n)}), 8000)
}

type noEvents struct{}

func (noEvents) Record(event.Event) {}

// balancer returns a balancer in mode http with one backend, which is not checked.
func balancer(name string, backend netip.AddrPort) *lab.Balancer {
	return &lab.Balancer{
		Name: name, Listen: lab.BindTo(addr()), Mode: lab.ModeHTTP, Balance: lab.RoundRobin, Check: lab.Check{Kind: lab.CheckNone},
		Backends: []lab.Backend{{Name: backend.String(), Addr: backend}},
		Timeouts: lab.Timeouts{Connect: time.Minute, Idle: 10 * time.Minute},
	}
}

// serve serves balancers until the test ends.
func serve(t testing.TB, bs ...*lab.Balancer) {
	t.Helper()
	serveWith(t, "", bs...)
}

// serveWith is serve with a folder for certificates from ACME servers.
func serveWith(t testing.TB, acme string, bs ...*lab.Balancer) {
	t.Helper()
	table := lbproxy.Compile(&lab.Lab{Balancers: bs})
	var log io.Writer = io.Discard
	if testing.Verbose() && os.Getenv("LBPROXY_LOG") != "" {
		log = os.Stderr
	}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := lbproxy.New(lbproxy.Config{Drain: 100 * time.Millisecond, ACME: acme}, lbproxy.Deps{
		Events: noEvents{}, Registerer: prometheus.NewRegistry(), Now: time.Now, Log: logger, AccessLog: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	staged, err := s.Stage(table)
	if err != nil {
		t.Fatal(err)
	}
	staged.Commit()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// origin serves HTTP/1.1 and h2c at a new address until the test ends.
func origin(t testing.TB, h http.Handler) netip.AddrPort {
	t.Helper()
	at := addr()
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: h, Protocols: protocols}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return at
}

// listenOf returns where a balancer with one address and port listens.
func listenOf(b *lab.Balancer) netip.AddrPort {
	return netip.AddrPortFrom(b.Listen[0].Addr, b.Listen[0].First)
}

// certificate writes a certificate and its key for a name and every loopback address of a test into one file.
func certificate(t testing.TB, name string, at ...netip.AddrPort) (path string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	for _, a := range at {
		template.IPAddresses = append(template.IPAddresses, a.Addr().AsSlice())
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	path = filepath.Join(t.TempDir(), name+".pem")
	if err := os.WriteFile(path, append(chain, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...), 0o600); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(chain)
	return path, pool
}
