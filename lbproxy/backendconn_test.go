package lbproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/host/file/freshfile"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

// serveTLS runs a handler with TLS at a new address, in HTTP/1.1 and HTTP/2, and counts its connections.
func serveTLS(t testing.TB, certificate string, h http.HandlerFunc) (at netip.AddrPort, conns *atomic.Int64) {
	t.Helper()
	cert, err := freshfile.ReadCertificate(certificate)
	if err != nil {
		t.Fatal(err)
	}
	at, conns = addr(t), new(atomic.Int64)
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{*cert}}, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	server.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	go func() { _ = server.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
	return at, conns
}

func TestBackendTLS(t *testing.T) {
	t.Parallel()
	netns.Need(t, "openssl")
	dir := t.TempDir()
	good, other := filepath.Join(dir, "good.pem"), filepath.Join(dir, "other.pem")
	writeCertificate(t, good, "web.lab", false)
	writeCertificate(t, other, "web.lab", false)
	seen := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %d", r.Proto, r.TLS.ServerName, len(body))
	}
	back, conns := serveTLS(t, good, seen)
	wrong, _ := serveTLS(t, other, seen)
	balancer := func(name string, protocol lab.BackendProtocol, how lab.BackendTLS, backends ...netip.AddrPort) *lab.Balancer {
		return with(httpBalancer(name, addr(t), backends...), func(b *lab.Balancer) {
			b.Protocol, b.BackendTLS = protocol, how
			b.BackendTLS.On = true
		})
	}
	verified := lab.BackendTLS{CAFile: good, Name: "web.lab"}
	cases := []struct {
		b      *lab.Balancer
		status int
		want   string
	}{
		{balancer("http1", lab.BackendHTTP1, verified, back), 200, "HTTP/1.1 web.lab 0"},
		{balancer("http2", lab.BackendH2, verified, back), 200, "HTTP/2.0 web.lab 0"},
		{balancer("name", lab.BackendHTTP1, lab.BackendTLS{CAFile: good, Name: "db.lab"}, back), 503, ""},
		{balancer("name2", lab.BackendH2, lab.BackendTLS{CAFile: good, Name: "db.lab"}, back), 503, ""},
		{balancer("address", lab.BackendHTTP1, lab.BackendTLS{CAFile: good}, back), 503, ""},
		{balancer("authority", lab.BackendHTTP1, verified, wrong), 503, ""},
		{balancer("system", lab.BackendHTTP1, lab.BackendTLS{Name: "web.lab"}, back), 503, ""},
		{balancer("off", lab.BackendHTTP1, lab.BackendTLS{Unverified: true}, wrong), 200, "HTTP/1.1  0"},
		{balancer("next", lab.BackendHTTP1, verified, wrong, back), 200, "HTTP/1.1 web.lab 0"},
		{balancer("next2", lab.BackendH2, verified, wrong, back), 200, "HTTP/2.0 web.lab 0"},
		{balancer("clear", lab.BackendHTTP1, verified, serveHTTP(t, respond("clear"))), 503, ""},
		{balancer("no file", lab.BackendHTTP1, lab.BackendTLS{CAFile: filepath.Join(dir, "none")}, back), 503, ""},
	}
	var bs []*lab.Balancer
	for _, test := range cases {
		bs = append(bs, test.b)
	}
	r := newTestServer(t, Config{}, bs...)
	for _, test := range cases {
		for range 3 {
			status, body := fetch(t, httpClient(t), test.b.Listen, "a.test")
			if status != test.status || status == 200 && body != test.want {
				t.Errorf("%s: %d %q, want %d %q", test.b.Name, status, body, test.status, test.want)
			}
		}
	}
	body := bytes.Repeat([]byte("x"), 3<<20)
	resp, err := httpClient(t).Post("http://"+bs[0].Listen.String(), "text/plain", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(resp.Body); string(got) != fmt.Sprintf("HTTP/1.1 web.lab %d", len(body)) {
		t.Errorf("got %q", got)
	}
	r.waitEnded(t, bs[0].Name)
	before := conns.Load()
	for range 5 {
		if status, body := fetch(t, httpClient(t), bs[0].Listen, "a.test"); status != http.StatusOK {
			t.Errorf("%d %q", status, body)
		}
		r.waitEnded(t, bs[0].Name)
	}
	if n := conns.Load() - before; n > 2 { // one; a pause of this process may end an idle one
		t.Errorf("five requests opened %d connections to the backend, want one", n)
	}
	old, _ := os.ReadFile(other)
	_ = os.WriteFile(good, old, 0o600)
	authority := cases[5].b // its CA file now has the certificate of the other
	netns.WaitFor(t, "the new CA", func() bool { status, _ := fetch(t, httpClient(t), authority.Listen, "a.test"); return status == 200 })
}

// TestBackendTLSFails: a backend whose handshake fails is down, by its check of any kind, which makes the handshake of requests, and by two
// requests where nothing is checked.
func TestBackendTLSFails(t *testing.T) {
	t.Parallel()
	netns.Need(t, "openssl")
	good := filepath.Join(t.TempDir(), "good.pem")
	writeCertificate(t, good, "web.lab", false)
	back, _ := serveTLS(t, good, respond("ok"))
	for _, kind := range []lab.CheckKind{lab.CheckTCP, lab.CheckTLS, lab.CheckHTTP, lab.CheckHTTPS, lab.CheckNone} {
		for name, want := range map[string]Health{"web.lab": Up, "db.lab": Down} {
			t.Run(string(kind)+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) {
					b.Check = lab.Check{Kind: kind}
					b.BackendTLS = lab.BackendTLS{On: true, CAFile: good, Name: name}
				})
				r := newTestServer(t, Config{}, b)
				if kind == lab.CheckNone {
					for range ejectRefused {
						_, _ = fetch(t, httpClient(t), b.Listen, "a.test")
					}
					if want == Up {
						want = Unchecked
					}
				}
				r.waitHealth(t, back, want)
				if reason := r.Status()[0].Backends[0].Reason; want == Down && !strings.Contains(reason, "certificate is valid for web.lab, not db.lab") {
					t.Errorf("down: %q", reason)
				}
			})
		}
	}
}

// TestCheckHTTP2: checks of kind http and https speak HTTP/2 to backends that speak nothing else.
func TestCheckHTTP2(t *testing.T) {
	t.Parallel()
	netns.Need(t, "openssl")
	good := filepath.Join(t.TempDir(), "good.pem")
	writeCertificate(t, good, "web.lab", false)
	cert, err := freshfile.ReadCertificate(good)
	if err != nil {
		t.Fatal(err)
	}
	serve := func(secure bool) netip.AddrPort {
		only := new(http.Protocols)
		only.SetHTTP2(secure)
		only.SetUnencryptedHTTP2(!secure)
		l, err := net.Listen("tcp", addr(t).String())
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Protocols: only, TLSConfig: &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2"}}, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
		server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.RequestURI != "/ready?all" || r.Host != "web.lab" {
				w.WriteHeader(http.StatusNotFound)
			}
		})
		if secure {
			go func() { _ = server.ServeTLS(l, "", "") }()
		} else {
			go func() { _ = server.Serve(l) }()
		}
		t.Cleanup(func() { _ = server.Close() })
		return l.Addr().(*net.TCPAddr).AddrPort()
	}
	for _, test := range []struct {
		name     string
		kind     lab.CheckKind
		protocol lab.BackendProtocol
		path     string
		own      bool // the check has TLS settings of its own
		want     Health
	}{
		{"h2c", lab.CheckHTTP, lab.BackendH2C, "/ready?all", false, Up},
		{"h2c, another path", lab.CheckHTTP, lab.BackendH2C, "/", false, Down},
		{"h2", lab.CheckHTTP, lab.BackendH2, "/ready?all", false, Up},
		{"h2 and https", lab.CheckHTTPS, lab.BackendH2, "/ready?all", false, Up},
		{"h2, verified by the check", lab.CheckHTTPS, lab.BackendH2, "/ready?all", true, Up},
		{"h2, another path", lab.CheckHTTPS, lab.BackendH2, "/", true, Down},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			secure := test.protocol == lab.BackendH2
			back := serve(secure)
			b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) {
				b.Check = lab.Check{Kind: test.kind, Path: test.path, Host: "web.lab"}
				b.Protocol, b.BackendTLS = test.protocol, lab.BackendTLS{On: secure, CAFile: good, Name: "web.lab"}
				if test.own {
					b.Check.CAFile = good
				}
			})
			r := newTestServer(t, Config{}, b)
			r.waitHealth(t, back, test.want)
			if reason := r.Status()[0].Backends[0].Reason; test.want == Down && !strings.Contains(reason, "status 404") {
				t.Errorf("down: %q", reason)
			}
		})
	}
}

// TestBackendTLSSlowAccept: a backend that is slow to accept gets the client of one that accepts at once and fails in the handshake, though
// the latter is tried beside the former.
func TestBackendTLSSlowAccept(t *testing.T) {
	t.Parallel()
	netns.Need(t, "openssl")
	dir := t.TempDir()
	good, other := filepath.Join(dir, "good.pem"), filepath.Join(dir, "other.pem")
	writeCertificate(t, good, "web.lab", false)
	writeCertificate(t, other, "web.lab", false)
	wrong, _ := serveTLS(t, other, respond("wrong"))
	slow, _ := serveTLS(t, good, respond("slow"))
	deps := Deps{Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		if to == slow {
			if err := pause.For(ctx, 500*time.Millisecond); err != nil {
				return nil, err
			}
		}
		return dialTCP(ctx, to)
	}}
	b := with(httpBalancer("web", addr(t), slow, wrong), func(b *lab.Balancer) {
		b.BackendTLS = lab.BackendTLS{On: true, CAFile: good, Name: "web.lab"}
	})
	newTestServerWith(t, Config{Hedge: 20 * time.Millisecond}, deps, b)
	if status, body := fetch(t, httpClient(t), b.Listen, "a.test"); status != http.StatusOK || body != "slow" {
		t.Errorf("%d %q, want the answer of the slow backend", status, body)
	}
}

// TestBackendTLSStreams: an upgrade, a large response and a response that is cut pass TLS to the backend.
func TestBackendTLSStreams(t *testing.T) {
	t.Parallel()
	netns.Need(t, "openssl")
	path := filepath.Join(t.TempDir(), "web.pem")
	writeCertificate(t, path, "web.lab", false)
	large := strings.Repeat("0123456789", 1<<20)
	back, _ := serveTLS(t, path, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			w.Header().Set("Content-Length", fmt.Sprint(len(large)))
			_, _ = io.WriteString(w, large)
		case "/cut":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		default:
			c, rw, _ := w.(http.Hijacker).Hijack()
			defer func() { _ = c.Close() }()
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(c, rw)
		}
	})
	b := with(httpBalancer("web", addr(t), back), func(b *lab.Balancer) {
		b.BackendTLS = lab.BackendTLS{On: true, CAFile: path, Name: "web.lab"}
	})
	newTestServer(t, Config{}, b)
	resp, err := httpClient(t).Get("http://" + b.Listen.String() + "/large")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != large {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if resp, err = httpClient(t).Get("http://" + b.Listen.String() + "/cut"); err == nil {
		if _, err = io.ReadAll(resp.Body); err == nil {
			t.Error("a part of a response looks whole")
		}
	}
	c := dial(t, b.Listen)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	for line := ""; line != "\r"; {
		line = readLine(t, c)
	}
	_, _ = io.WriteString(c, "hello\n")
	if got := readLine(t, c); got != "hello" {
		t.Errorf("after the upgrade: %q", got)
	}
}
